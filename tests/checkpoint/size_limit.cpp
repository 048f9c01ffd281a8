// SPDX-License-Identifier: Apache-2.0
// A limit on the size of files (ulimit -f): what goes beyond it fails with words, and the system's signal ends nobody.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/calls.hpp"
#include "checkpoint/scratch.hpp"
#include "support/patience.hpp"

namespace {
constexpr std::size_t parameters = 40'001;
/// No file of this process grows beyond so many bytes while the object lives.
class size_limit {
 public:
  explicit size_limit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
  }
  size_limit(size_limit const&) = delete;
  size_limit& operator=(size_limit const&) = delete;
  ~size_limit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};
constexpr rlim_t small = 64 << 10;

struct no_fallocate : acco::checkpoints::system_calls {
  int fallocate(int, std::uint64_t, std::uint64_t) override {
    errno = EOPNOTSUPP;
    return -1;
  }
};
std::atomic<int> handled = 0;
bool is_in(sigset_t const& set) { return ::sigismember(&set, SIGXFSZ) == 1; }
bool is_pending() {
  sigset_t set;
  ::sigpending(&set);
  return is_in(set);
}
bool is_blocked() {
  sigset_t set;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &set);
  return is_in(set);
}
sigset_t only() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGXFSZ);
  return set;
}

/// A training saves under the limit, and again without it; returns how many ranks said why.
int train_and_save(std::string const& folder) {
  std::atomic<int> told = 0;
  std::optional<size_limit> limit;  // the process's, which rank 0 sets
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer t{acco::synchronous{},
                      acco::adamw{},
                      acco::host_storage<float>{},
                      world,
                      parameters,
                      acco::options{.deadline = 60 * patience()}};
    t.initialize(std::vector<float>(parameters, 1.0F));
    const auto together = [&] {
      std::vector<double> nothing(1, 0.0);
      t.sum_over_ranks(nothing);
    };
    const auto saved = [&](std::string const& run) {
      for (float& each : t.gradients()) each += 1;
      (void)t.accumulated(1);
      t.save(run);
      t.finish();
      return *t.saved();
    };
    t.save_model(folder + "/model.safetensors");
    const std::string before = content(folder + "/model.safetensors");
    together();
    if (world.rank() == 0) limit.emplace(small);
    together();
    auto const failed = saved(folder + "/run");
    CHECK_FALSE(failed.complete());
    const std::string words = failed.problem;
    told += words.find("File too large") != std::string::npos && words.find(folder) != std::string::npos ? 1 : 0;
    CHECK_THROWS_WITH_AS(t.save_model(folder + "/model.safetensors"), doctest::Contains("File too large"),
                         acco::checkpoint_error);
    CHECK_FALSE(is_pending());
    CHECK_FALSE(is_blocked());
    together();
    if (world.rank() == 0) limit.reset();
    together();
    CHECK(content(folder + "/model.safetensors") == before);
    auto const outcome = saved(folder + "/run");
    CHECK_MESSAGE(outcome.complete(), outcome.problem);
  });
  return told;
}
}  // namespace

TEST_CASE("a save beyond the limit of files' sizes fails with words, and the training goes on") {
  const scratch folder;
  CHECK(train_and_save(folder.path()) > 0);
  CHECK(acco::latest_checkpoint(folder.run()));
}

TEST_CASE("so does one where no room can be taken before; the process's handler is not called") {
  const scratch folder;
  no_fallocate calls;
  const in_their_place now([&](int) -> acco::checkpoints::system_calls& { return calls; });
  struct sigaction mine{}, before{}, after{};
  mine.sa_handler = [](int) { ++handled; };
  ::sigaction(SIGXFSZ, &mine, &before);
  CHECK(train_and_save(folder.path()) > 0);
  ::sigaction(SIGXFSZ, &before, &after);
  CHECK((after.sa_handler == mine.sa_handler));
  CHECK(handled.load() == 0);
}

TEST_CASE("a signal that was pending before a model met the limit is pending after it") {
  const scratch folder;
  const sigset_t set = only();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &set, &before);
  for (const bool pending : {false, true}) {
    CAPTURE(pending);
    if (pending) ::pthread_kill(::pthread_self(), SIGXFSZ);
    const size_limit limit(small);
    const std::string path = folder.path() + "/model.safetensors";
    CHECK_THROWS_WITH_AS(acco::model_writer(path, {{"a", {parameters}}}), doctest::Contains("File too large"),
                         acco::checkpoint_error);
    CHECK(is_pending() == pending);
    CHECK(is_blocked());
  }
  const timespec at_once{};
  CHECK(::sigtimedwait(&set, nullptr, &at_once) == SIGXFSZ);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
