// SPDX-License-Identifier: Apache-2.0
// The model on the GPU (or on the stand-in for one) against the model on the host: losses and gradients.
#include "gpt_cuda.cuh"

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

TEST_CASE("losses and gradients agree with the host's, and runs with themselves") {
  const toy_gpt::shape shape{.context = 12, .layers = 2, .width = 24, .heads = 3};
  const std::string text = "Sphinx of black quartz, judge my vow, and then some more.";
  toy_gpt::batch data{3, {}, {}};
  for (std::size_t i = 0; i < 36; ++i) {
    data.inputs.push_back(static_cast<unsigned char>(text[i]));
    data.targets.push_back(static_cast<unsigned char>(text[i + 1]));
  }
  toy_gpt::gpt<float> host(shape);
  auto parameters = host.initial(5);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    parameters[i] += 0.05F * static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
  std::vector<float> expected(parameters.size(), 0.5F);  // gradients are added
  const double loss = host.add_gradients(data, parameters, expected);

  acco::cuda_stream stream;
  toy_gpt::gpt_on_gpu model(shape, stream.get());
  const std::size_t bytes = 4 * parameters.size();
  acco::cuda_buffer p(acco::default_cuda_memory(), stream.get(), bytes), g(acco::default_cuda_memory(), stream.get(), bytes);
  const auto copy = [&](void* to, void const* from) {
    acco::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
    acco::check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  };
  copy(p.as<float>(), parameters.data());
  std::vector<float> got[2] = {std::vector<float>(parameters.size(), 0.5F), std::vector<float>(parameters.size(), 0.5F)};
  for (auto& each : got) {
    copy(g.as<float>(), each.data());
    CHECK(model.add_gradients(data, p.as<float>(), g.as<float>()) == doctest::Approx(loss).epsilon(1e-5));
    copy(each.data(), g.as<float>());
  }
  CHECK(got[0] == got[1]);
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(got[0][i] - expected[i])));
    largest = std::max(largest, static_cast<double>(std::abs(expected[i] - 0.5F)));
  }
  CHECK(largest > 0.1);
  CHECK(worst < 1e-4 * largest);
  CHECK(model.loss(data, p.as<float>()) == doctest::Approx(host.loss(data, parameters)).epsilon(1e-5));
}
