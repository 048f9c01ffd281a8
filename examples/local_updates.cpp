// SPDX-License-Identifier: Apache-2.0
// Workers that train by themselves and exchange every eighth step: four ranks with different data, one loop, several
// methods.
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <vector>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

int main() {
  acco::threads_backend::run(4, [](acco::threads_backend const& world) {
    const std::size_t parameter_count = 1000;
    const auto train = [&](char const* name, auto const& method) {
      acco::optimizer training{method, acco::sgd{.learning_rate = 0.05}, acco::host_storage<float>{}, world, parameter_count};
      training.initialize(std::vector<float>(parameter_count, 0.0F));
      for (int step = 0; step < 800; ++step) {
        // ranks want 1, 3, 5, 7
        (void)training.step([&](std::span<float const> parameters, std::span<float> gradients) {
          for (std::size_t i = 0; i < parameters.size(); ++i)
            gradients[i] += parameters[i] - 1.0F - 2.0F * static_cast<float>(world.rank());
          return 1;
        });
      }
      training.finish();  // all ranks have the anchor now
      const double found = static_cast<double>(training.parameters()[0]);
      if (world.rank() == 0) {
        std::printf("%-18s finds %.3f, sends %7.0f KiB a rank, outer level %4.0f KiB\n", name, found,
                    static_cast<double>(training.totals().bytes_sent) / 1024,
                    static_cast<double>(training.memory().outer) / 1024);
      }
      if (std::abs(found - 4) > 0.01) throw std::runtime_error("the mean of what ranks want was not found");
    };
    train("synchronous", acco::synchronous{});
    train("local_sgd", acco::local_updates{.method = acco::local_sgd, .steps = 8});
    train("diloco", acco::local_updates{.method = acco::diloco, .steps = 8});
    train("diloco, pairs",
          acco::local_updates{.method = acco::diloco, .inner = acco::two_phase{}, .ranks_a_group = 2, .steps = 8});
    train("delayed_diloco", acco::local_updates{.method = acco::delayed_diloco, .steps = 8});
    train("eager_diloco", acco::local_updates{.method = acco::eager_diloco, .steps = 8});
    train("co2", acco::local_updates{.method = acco::co2, .steps = 8});
    train("fedavg, 8 + 4 bits",
          acco::local_updates{.method = acco::fedavg,
                              .steps = 8,
                              .exchange = acco::coded{.gradients = acco::block_int8{}, .parameters = acco::block_int4{}}});
    train("streaming_diloco", acco::local_updates{.method = acco::streaming_diloco, .steps = 8, .fragments = 2});
  });
}
