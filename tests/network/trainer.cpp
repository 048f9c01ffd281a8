// SPDX-License-Identifier: Apache-2.0
// One rank of a small training run that can be told to misbehave; tests/network/failures.cpp starts several and watches
// them end. ACCO_TRANSPORT chooses the network. Prints what an exception says, and whether parameters() stayed
// readable.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <spawn.h>
#include <unistd.h>

#include <acco/acco.hpp>

#include "support/patience.hpp"

#ifdef ACCO_OVER_MPI
#include <acco/network/mpi.hpp>
using network = acco::mpi_transport;
#else
#include <acco/network/gloo.hpp>
using network = acco::gloo_transport;
#endif

namespace {

std::string word(char const* name, std::string const& otherwise = "") {
  char const* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}
double number(char const* name, double otherwise) { return word(name).empty() ? otherwise : std::stod(word(name)); }

/// One line in one piece: the ranks of an MPI job share an output.
void say(std::string const& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

/// A child that outlives this process, as a data loader that is forked, or a command that is started.
void start_child(std::string const& how) {
  char command[] = "sleep", seconds[] = "600";
  char* words[] = {command, seconds, nullptr};
  pid_t child = 0;
  if (how == "spawned") posix_spawnp(&child, command, nullptr, nullptr, words, environ);
  if (how == "spawned" || fork() != 0) return;
  if (how == "started") execvp(command, words);
  for (;;) pause();
}

/// Stops all of this process, for so long.
void stop(double seconds) {
  const pid_t self = getpid();
  if (fork() == 0) {
    const auto whole = static_cast<unsigned>(seconds);
    sleep(whole);
    usleep(static_cast<useconds_t>(1e6 * (seconds - whole)));
    kill(self, SIGCONT);
    _exit(0);
  }
  std::raise(SIGSTOP);
}

/// Kills its process when the named operation of the named round sends a message.
class mortal : public network {
 public:
  using network::network;
  using request = network::request;
  request send(int to, acco::message_label label, void const* from, std::size_t bytes) {
    static const std::string operation = word("DIE_IN");
    static const auto least = static_cast<std::uint32_t>(number("DIE_AFTER", 0));  // collectives
    if (!operation.empty() && operation == acco::name_of(label.operation) && label.sequence >= least &&
        rank() == static_cast<int>(number("CULPRIT", 1))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // on a busy machine others may still be connecting
      std::raise(SIGKILL);
    }
    return network::send(to, label, from, bytes);
  }
};

template <class Backend, class Storage>
void train(Backend world, Storage storage) {
  using parameter = typename Storage::parameter_type;
  const int rank = world.rank();
  const bool culprit = rank == static_cast<int>(number("CULPRIT", 1));
  const double deadline = number("DEADLINE", 3);
  const double clip = number("CLIP", 0);
  const std::size_t count = 20000;
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                           acco::adamw{.learning_rate = culprit ? number("LEARNING_RATE", 0.01) : 0.01},
                           storage,
                           world,
                           count,
                           acco::options{.clip_norm = clip, .deadline = deadline}};
  std::vector<parameter> shown(count, parameter(1.0F));
  try {
    training.initialize(shown);
    say("rank " + std::to_string(rank) + " began");
    if (culprit && !word("DIE_AT").empty()) {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::duration<double>(number("DIE_AT", 0)));
        if (!word("CHILD").empty()) start_child(word("CHILD"));
        std::raise(SIGKILL);
      }).detach();
    }
    for (int m = 0; m < static_cast<int>(number("MICRO_BATCHES", 40)); ++m) {
      for (auto& g : training.gradients()) g = static_cast<float>(g) + 1.0F;
      double seconds = number("COMPUTE", 0.002);
      if (culprit && m == 10) seconds *= number("SLOWER", 1);
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
      if (culprit && m == 10 && number("STOPPED", 0) > 0) stop(number("STOPPED", 0));
      if (culprit && m == 10 && !word("THROW").empty()) throw std::runtime_error("the data loader broke");
      if (training.accumulated(1)) shown.assign(training.parameters().begin(), training.parameters().end());
    }
    training.finish();
  } catch (acco::error const& e) {
    bool kept = true;
    if (e.round() >= 0) {  // the training had begun
      auto const now = training.parameters();
      kept = std::memcmp(now.data(), shown.data(), now.size_bytes()) == 0;
    }
    say("rank " + std::to_string(rank) + ", caused by " + std::to_string(e.peer()) + ", parameters " + (kept ? "kept" : "LOST"));
    throw;
  }
  say("rank " + std::to_string(rank) + " finished with " + acco::text(training.samples()).c_str() + " samples");
}

template <class Backend>
void choose(Backend const& world) {
  if (!word("BFLOAT16").empty() && world.rank() == static_cast<int>(number("CULPRIT", 1))) {
    train(world, acco::host_storage<acco::bfloat16, float>{});
  } else {
    train(world, acco::host_storage<float>{});
  }
}

}  // namespace

int main(int count, char** words) {
  static constexpr std::size_t piece = 8192;
#ifdef ACCO_OVER_MPI
  return acco::mpi_backend::run(count, words, [](acco::mpi_backend const&) {
    choose(acco::message_backend<mortal>(std::make_shared<acco::message_collectives<mortal>>(
        piece, piece, std::make_shared<acco::connections<mortal>>(MPI_COMM_WORLD, acco::mpi_options{}))));
  });
#else
  (void)count;
  (void)words;
  try {
    auto context = acco::gloo_backend::context_from_environment({.deadline = 60 * patience()});
    const auto all = std::make_shared<acco::connections<mortal>>(std::move(context));
    const acco::message_backend<mortal> world(std::make_shared<acco::message_collectives<mortal>>(piece, piece, all));
    const acco::gloo_options chosen{.connections = static_cast<int>(number("ACCO_TEST_CONNECTIONS", 1)),
                                    .checksums = acco::has_xxhash ? acco::checksums::always : acco::checksums::none};
    all->set_sum(acco::gloo_pool::widen(world, *all, chosen, 60 * patience()));
    choose(world);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
#endif
}
