// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT on real text with a schedule of your choice, on several ranks: threads of this process, or
// processes over a network. Flags, backends, checkpoints and what is drawn are in bench/trainer.
#include <csignal>
#include <exception>
#include <iostream>
#include <memory>
#include <string>

#include "follow_advice.hpp"
#include "interrupt.hpp"
#include "outputs.hpp"
#include "programs.hpp"
#include "runner.hpp"
#include "settings.hpp"
#include "text.hpp"

namespace toy_gpt {
namespace {

/// Trains with the schedule, or with one after the other of those that are to be compared. Returns the exit status.
int run(settings s, runner& ranks) {
  s.ranks = ranks.size();
  s.quiet = s.quiet || ranks.first_rank() != 0;
  const std::string source = s.data.empty() ? "this repository" : s.data;
  const corpus text(s.data.empty() ? repository_text(TOY_GPT_REPOSITORY) : read_file(s.data), s.model.context);
  if (s.schedule == "auto") s = follow_advice(s, ranks, text, source);
  outputs out(s, ranks.first_rank());
  std::string sample;
  bool stopped = false;
  for (settings const& one : runs_of(s)) {
    job job{one, text, source, out.trace(), out.sink(), {}, {}, {}};
    ranks.train(job);  // on every rank of this process: train.hpp
    out.ended(job.result, one);
    sample = job.sample;
    stopped = job.result.stopped;
    if (stopped) break;  // on all ranks
  }
  out.close(text, sample);
  if (!stopped) return 0;
  const int signal = stop_signal;
  return 128 + (signal != 0 ? signal : SIGINT);  // 0: another rank was asked to stop
}

}  // namespace
}  // namespace toy_gpt

int main(int count, char** words) {
  toy_gpt::stop_on_signals();
  std::unique_ptr<toy_gpt::runner> ranks;
  try {
    const toy_gpt::settings s = toy_gpt::parse(count, words);
    ranks = toy_gpt::make_runner(s, count, words);
    return toy_gpt::run(s, *ranks);
  } catch (std::exception const& e) {
    std::cerr << "toy_gpt: " << e.what() << '\n' << std::flush;
    if (ranks) ranks->give_up();
    return 1;
  }
}
