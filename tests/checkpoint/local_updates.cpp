// SPDX-License-Identifier: Apache-2.0
// Under local updates states are not kept, and every way to keep one says so; the anchor's weights are saved as a model.
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>
#include <acco/outer.hpp>

namespace {

constexpr std::size_t count = 100;

template <class World>
auto made(World const& world) {
  acco::parameter_layout layout;
  layout.add("weights", {count});
  return acco::optimizer{acco::local_updates{.method = acco::local_sgd, .steps = 2}, acco::sgd{.learning_rate = 0.1},
                         acco::host_storage<float>{}, world, layout};
}
template <class Call>
void check_refused(Call&& call) {
  try {
    call();
    FAIL("was not refused");
  } catch (acco::usage_error const& e) {
    CHECK(std::string(e.what()).find("checkpoints of local updates are not there yet") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("save and restore are refused in words; the anchor is saved as a model, and can be begun from") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "acco_local_updates";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto training = made(world);
    training.initialize(std::vector<float>(count, 1.0F));
    const auto step = [&] {
      for (std::size_t i = 0; i < count; ++i)
        training.gradients()[i] += training.parameters()[i] - static_cast<float>(world.rank());
      return training.accumulated(1);
    };
    (void)step();
    check_refused([&] { training.save((folder / "run").string()); });
    CHECK(step()->committed);  // that has ended nothing
    CHECK(training.steps() == 2);
    training.save_model((folder / "model.safetensors").string());
    const std::vector<float> anchor(training.parameters().begin(), training.parameters().end());
    training.finish();

    auto again = made(world);
    const acco::model_file model((folder / "model.safetensors").string());
    (void)again.initialize(model);
    CHECK(std::vector<float>(again.parameters().begin(), again.parameters().end()) == anchor);
    again.finish();
  });
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto training = made(world);
    check_refused([&] { (void)training.restore((folder / "run").string()); });
  });
  std::filesystem::remove_all(folder);
}
