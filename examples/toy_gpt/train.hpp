// SPDX-License-Identifier: Apache-2.0
// The training loop of one rank: the model and acco meet here, through the trainer's API only.
#pragma once

#include <algorithm>
#include <cstdint>

#include <acco/options.hpp>

#include "session.hpp"
#include "text.hpp"

namespace toy_gpt {

inline acco::options options_of(settings const& s) {
  return {.clip_norm = s.clip,
          .learning_rate = acco::warmup_cosine{.warmup = std::min(s.warmup, static_cast<double>(s.samples)),
                                               .total = static_cast<double>(s.samples)},
          .deadline = s.deadline};
}

/// `Model` computes gradients where the parameters are (bench/trainer/host_model.hpp: gpt on the host); `Training` is
/// an acco::any_optimizer, so the loop is compiled once for each type of parameters. Around it a session
/// (bench/trainer/session.hpp) validates, saves, prints, and hears Ctrl-C.
template <class Model, class Training>
void train_rank(job& one, int rank, Model& model, Training& training, summary& result) {
  settings const& s = one.chosen;
  session around(one, rank, model, training, result);
  around.begin();  // training.initialize(...), or training.restore(folder)
  batch data;
  while (around.goes_on()) {
    one.text.draw(data, s.batch, s.seed, static_cast<std::uint64_t>(rank), around.next_micro_batch());
    if (rank == s.slow_rank) model.work_in_vain(data, training.parameters());
    const double loss = model.add_gradients(data, training.parameters(), training.gradients());
    if (auto report = training.accumulated(static_cast<double>(s.batch), around.marked(loss))) around.landed(*report);
  }
  around.leave();
  training.finish();
  around.end();
}

}  // namespace toy_gpt
