// SPDX-License-Identifier: Apache-2.0
// Many ranks over Gloo on this machine, a process each: they start from the environment, train a few steps, and must
// all arrive where one rank alone does with the sum of their gradients. Prints seconds and memory.
//   many_ranks RANKS [PARAMETERS [STEPS]]
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acco/acco.hpp>
#include <acco/gloo.hpp>

#include "network/free_port.hpp"

namespace {

constexpr double deadline = 1200;
constexpr int micro_batches = 2;

struct request {
  int ranks = 24;
  std::size_t parameters = 100'000;
  int steps = 4;
};
/// What a rank tells; short enough to be written to the pipe in one piece.
struct outcome {
  int rank = -1;
  bool ended = false;
  double start_seconds = 0, step_seconds = 0;
  std::uint64_t parameters = 0;  // their bits, mixed
  long peak_kib = 0;
  std::size_t message_bytes = 0;
  char error[256] = {};
};

double now() { return acco::steady_seconds(); }

/// Small integers: their sum over any number of ranks here is exact, so that no order of adding shows.
void add_gradients(std::span<float> gradients, int rank, int round) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] += static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13 + static_cast<std::size_t>(round)) % 17) - 8;
  }
}
std::uint64_t mixed(std::span<float const> parameters) {
  std::uint64_t result = 14695981039346656037U;
  for (const float x : parameters) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    result = (result ^ bits) * 1099511628211U;
  }
  return result;
}

/// Rank `rank` of the world, or, alone, all of them at once.
template <class World>
std::uint64_t train(request const& asked, World const& world, int first, int behind, outcome* told) {
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                           acco::adamw{.learning_rate = 0.01},
                           acco::host_storage<float>{},
                           world,
                           asked.parameters,
                           acco::options{.deadline = deadline}};
  training.initialize(std::vector<float>(asked.parameters, 1.0F));
  const double from = now();
  for (int round = 0; round < micro_batches * asked.steps; ++round) {
    for (int rank = first; rank < behind; ++rank) add_gradients(training.gradients(), rank, round);
    training.accumulated(static_cast<unsigned>(behind - first));
  }
  training.finish();
  if (told != nullptr) {
    told->step_seconds = (now() - from) / std::max(asked.steps, 1);
    told->message_bytes = training.memory().messages;
  }
  return mixed(training.parameters());
}

void tell(int to, outcome const& what) {
  if (write(to, &what, sizeof what) != sizeof what) _exit(1);
}

void run_rank(request const& asked, int rank, std::uint16_t port, int to) {
  outcome result;
  result.rank = rank;
  try {
    for (auto const& [name, value] : {std::pair{"RANK", rank}, {"WORLD_SIZE", asked.ranks}, {"MASTER_PORT", int{port}}})
      setenv(name, std::to_string(value).c_str(), 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    const double from = now();
    // An address for each rank: Gloo opens a port for each of its connections, and one address has some 28,000.
    const std::string address = "127.1." + std::to_string(rank / 250) + "." + std::to_string(rank % 250 + 1);
    const auto world = acco::gloo_backend::from_environment({.deadline = deadline, .interface = address});
    result.start_seconds = now() - from;
    tell(to, result);
    result.parameters = train(asked, world, rank, rank + 1, &result);
  } catch (std::exception const& e) {
    std::strncpy(result.error, e.what(), sizeof result.error - 1);
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  result.peak_kib = used.ru_maxrss;
  result.ended = true;
  tell(to, result);
}

double available_mib() {
  std::ifstream in("/proc/meminfo");
  for (std::string name, unit; in >> name;) {
    double kib = 0;
    in >> kib;
    std::getline(in, unit);
    if (name == "MemAvailable:") return kib / 1024;
  }
  return 0;
}

/// Why so many ranks cannot run here; empty if they can.
std::string forbidden(request const& asked) {
  // rank 0's: a connection to each rank, twice for a moment
  const auto descriptors = static_cast<rlim_t>(2 * asked.ranks + 64);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < descriptors) {
    limit.rlim_cur = descriptors;
    limit.rlim_max = std::max(limit.rlim_max, descriptors);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
      return "a process may not have " + std::to_string(descriptors) + " file descriptors (ulimit -n)";
  }
  getrlimit(RLIMIT_NPROC, &limit);
  const auto threads = static_cast<rlim_t>(8 * asked.ranks);
  if (limit.rlim_cur < threads && geteuid() != 0)
    return "this user may not have " + std::to_string(threads) + " threads (ulimit -u)";
  // A rank's own memory, and what the kernel keeps of each connection's two ends.
  const double mib =
      asked.ranks * (8.0 + 24.0 * static_cast<double>(asked.parameters) / 1048576) + 0.004 * asked.ranks * asked.ranks;
  if (available_mib() < mib) return "they need about " + std::to_string(static_cast<int>(mib)) + " MiB of memory";
  return {};
}

}  // namespace

int main(int count, char** words) {
  request asked;
  if (count > 1) asked.ranks = std::atoi(words[1]);
  if (count > 2) asked.parameters = std::stoul(words[2]);
  if (count > 3) asked.steps = std::atoi(words[3]);
  if (const std::string why = forbidden(asked); !why.empty()) {
    std::printf("skipped: %d ranks: %s\n", asked.ranks, why.c_str());
    return 0;
  }
  const std::uint16_t port = free_port();
  const double before = available_mib(), from = now();
  double lowest = before;
  int ends[2];
  if (pipe(ends) != 0) return 1;
  std::fflush(nullptr);
  for (int rank = 0; rank < asked.ranks; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) {
      std::perror("fork");
      return 1;
    }
    if (pid != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody stays behind
    run_rank(asked, rank, port, ends[1]);
    _exit(0);
  }
  close(ends[1]);

  std::vector<outcome> all;
  int started = 0;
  fd_set waiting;
  for (outcome told;;) {
    FD_ZERO(&waiting);
    FD_SET(ends[0], &waiting);
    timeval half_a_second{0, 500'000};
    const int ready = select(ends[0] + 1, &waiting, nullptr, nullptr, &half_a_second);
    lowest = std::min(lowest, available_mib());
    if (ready == 0) continue;
    if (ready < 0 || read(ends[0], &told, sizeof told) != sizeof told) break;
    if (told.ended) all.push_back(told);
    if (!told.ended && ++started == asked.ranks) {
      std::printf("%d ranks are connected after %.1f s\n", started, now() - from);
      std::fflush(stdout);
    }
  }
  while (wait(nullptr) > 0) {
  }

  const std::uint64_t expected = train(asked, acco::solo_backend{}, 0, asked.ranks, nullptr);
  outcome most;
  int wrong = asked.ranks - static_cast<int>(all.size());
  for (outcome const& each : all) {
    most.start_seconds = std::max(most.start_seconds, each.start_seconds);
    most.step_seconds = std::max(most.step_seconds, each.step_seconds);
    most.peak_kib = std::max(most.peak_kib, each.peak_kib);
    most.message_bytes = std::max(most.message_bytes, each.message_bytes);
    if (each.error[0] == '\0' && each.parameters == expected) continue;
    if (++wrong < 5)
      std::printf("rank %d: %s\n", each.rank, each.error[0] != '\0' ? each.error : "other parameters than one rank alone");
  }
  std::printf("%d ranks, %zu parameters, %d steps: %d failed\n", asked.ranks, asked.parameters, asked.steps, wrong);
  std::printf("start %.1f s, a step %.3f s, all %.1f s\n", most.start_seconds, most.step_seconds, now() - from);
  std::printf("a process: %.1f MiB at most, %.2f MiB of it for messages; the machine: %.0f MiB\n",
              static_cast<double>(most.peak_kib) / 1024, static_cast<double>(most.message_bytes) / 1048576, before - lowest);
  return wrong == 0 ? 0 : 1;
}
