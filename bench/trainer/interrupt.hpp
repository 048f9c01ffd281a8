// SPDX-License-Identifier: Apache-2.0
// SIGINT (Ctrl-C) and SIGTERM: the first one asks for an early, orderly end, a later one ends the process at once.
#pragma once

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>

#include <unistd.h>

namespace toy_gpt {

/// The signal that asks this process to stop; 0: none so far.
inline std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);  // a handler may use it
/// Whether the end that a signal asks for comes after a checkpoint.
inline std::atomic<bool> saves_when_stopped{false};
static_assert(std::atomic<bool>::is_always_lock_free);

namespace interruption {
inline std::atomic<long long> first_milliseconds{0};
static_assert(std::atomic<long long>::is_always_lock_free);

extern "C" inline void on_signal(int signal) {
  const int kept = errno;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const long long milliseconds = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
  long long first = 0;
  if (first_milliseconds.compare_exchange_strong(first, milliseconds)) {
    stop_signal = signal;
    constexpr char ending[] = "\ntoy_gpt: ending after the step under way, with a summary; once more ends at once\n";
    constexpr char saving[] = "\ntoy_gpt: saving, and ending with a summary; once more ends at once\n";
    [[maybe_unused]] const ssize_t written =
        saves_when_stopped ? write(STDERR_FILENO, saving, sizeof saving - 1) : write(STDERR_FILENO, ending, sizeof ending - 1);
  } else if (milliseconds - first > 200) {  // sooner, it is the same one: launchers send what the terminal sends too
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // delivered when this handler returns
  }
  errno = kept;
}
}  // namespace interruption

inline void stop_on_signals() {
  struct sigaction action{};
  action.sa_handler = interruption::on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&action.sa_mask, signal);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace toy_gpt
