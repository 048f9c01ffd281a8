// SPDX-License-Identifier: Apache-2.0
// Training over any world on the host, and ranks that are processes.
#pragma once

#include <stdexcept>
#include <utility>

#include <acco/bfloat16.hpp>
#include <acco/storage/host.hpp>

#include "host.hpp"
#include "optimizer.hpp"
#include "runner.hpp"
#include "settings.hpp"

namespace toy_gpt {

/// The optimizers that toy_gpt_family has beside: on_threads.hpp.
template <class Storage, class World>
struct family_of {
  static training_of<Storage> make(settings const& s, Storage const&, World const&, acco::parameter_layout const&,
                                   acco::options const&) {
    throw std::invalid_argument(s.label() + " --rule " + s.rule + " is made on threads and in floats only");
  }
};

/// Trains one rank over `world` on the host.
template <class World>
void train_over(World const& world, job& one, summary& result) {
  const auto train = [&]<class Parameter>(acco::host_storage<Parameter> const& storage) {
    train_on_host<Parameter>(
        one, world.rank(),
        [&](auto const& layout, auto const& options) {
          if (one.chosen.needs_family())
            return family_of<acco::host_storage<Parameter>, World>::make(one.chosen, storage, world, layout, options);
          return make_training(one.chosen, storage, world, layout, options);
        },
        result);
  };
  if (one.chosen.dtype == "bfloat16") {
    train(acco::host_storage<acco::bfloat16>{});
  } else {
    train(acco::host_storage<float>{});
  }
}

/// Ranks are processes, this is one of them; `World` is a network backend.
template <class World>
class process_runner : public runner {
 public:
  explicit process_runner(World world) : world_(std::move(world)) {}
  [[nodiscard]] int first_rank() const override { return world_.rank(); }
  [[nodiscard]] int size() const override { return world_.size(); }
  void train(job& one) override { train_over(world_, one, one.result); }

 protected:
  World world_;
};

}  // namespace toy_gpt
