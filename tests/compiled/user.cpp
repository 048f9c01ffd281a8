// SPDX-License-Identifier: Apache-2.0
// Built twice, over acco::acco and over acco::compiled: both print the same digests.
#include <cstdio>
#include <vector>

#include <acco/acco.hpp>

template <class Storage>
void train(char const* name, auto const& schedule, auto const& rule) {
  using parameter = typename Storage::parameter_type;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::optimizer training{schedule, rule, Storage{}, world, 1000};
    training.initialize(std::vector<parameter>(1000, parameter(1.0F)));
    for (int m = 0; m < 12; ++m) {
      auto const parameters = training.parameters();
      auto const gradients = training.gradients();
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const auto x = static_cast<float>(parameters[i]), g = static_cast<float>(gradients[i]);
        gradients[i] = typename Storage::gradient_type(g + x + 0.001F * static_cast<float>(i % 97));
      }
      training.accumulated(1);
    }
    training.finish();
    const auto digest = training.world_digest();
    if (world.rank() == 0) std::printf("%s %016llx\n", name, static_cast<unsigned long long>(digest));
  });
}

int main() {
  train<acco::host_storage<float>>("two_phase", acco::two_phase{}, acco::adamw{});
  train<acco::host_storage<float>>("coded", acco::synchronous{.commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}},
                                   acco::lion{});
  train<acco::host_storage<acco::bfloat16, float>>("own", acco::two_phase<acco::fixed_pace, acco::own_slice>{}, acco::sgd{});
  train<acco::host_storage<double>>("delayed", acco::delayed{}, acco::adamw{});
}
