// SPDX-License-Identifier: Apache-2.0
// Where ranks live: each file on_*.cpp adds its backends to those of the programs that it is linked into.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <acco/observe/round_report.hpp>
#include <acco/observe/trace.hpp>

#include "settings.hpp"
#include "text.hpp"

namespace toy_gpt {

/// What a run does with its rounds beside training; called on rank 0 only.
using round_sink = std::function<void(acco::round_report const&, double seconds)>;

/// Where ranks that are threads stop, and no round tells all of a signal (local updates): at one step that none has
/// passed.
class common_stop {
 public:
  /// This rank has made so many steps. Whether it stops.
  bool reached(std::uint64_t steps, bool wanted) {
    const std::lock_guard hold(mutex_);
    furthest_ = std::max(furthest_, steps);
    if (wanted && last_ == 0) last_ = furthest_ + 1;
    return last_ != 0 && steps >= last_;
  }

 private:
  std::mutex mutex_;
  std::uint64_t furthest_ = 0, last_ = 0;
};

/// One training run: what it needs, and what rank 0 (or this process's rank) gives back.
struct job {
  settings const& chosen;
  corpus const& text;
  std::string const& source;
  acco::trace* trace;
  round_sink sink;
  summary result;
  std::string sample;
  common_stop stop = {};
};

class runner {
 public:
  runner() = default;
  runner(runner const&) = delete;
  runner& operator=(runner const&) = delete;
  virtual ~runner() = default;
  /// The lowest rank in this process, and how many ranks there are in all.
  [[nodiscard]] virtual int first_rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  virtual void train(job& one) = 0;
  /// After an error was printed: ends what the other processes would wait for.
  virtual void give_up() noexcept {}
};

/// A backend on a device.
struct place {
  std::string backend, device;
  std::function<std::unique_ptr<runner>(settings const&, int& count, char**& words)> make;
};
/// Those of this program.
inline std::vector<place>& places() {
  static std::vector<place> all;
  return all;
}
/// Whether this program has the family (toy_gpt_family, bench_wan_gpt), and over what.
inline bool has_family = false;
inline std::string_view family_backend = "threads";

struct registered_place {
  registered_place(std::string backend, std::string device, decltype(place::make) make) {
    places().push_back({std::move(backend), std::move(device), std::move(make)});
  }
};

/// The place of these names, or nullptr. An empty name takes what the program was made for: a network or device if it
/// has one.
inline place const* find_place(std::string const& backend, std::string const& device) {
  place const* found = nullptr;
  for (place const& each : places()) {
    const bool named = (backend.empty() || backend == each.backend) && (device.empty() || device == each.device);
    const bool everywhere = each.backend == "threads" && each.device == "cpu";
    if (named && (found == nullptr || (found->backend == "threads" && found->device == "cpu" && !everywhere))) found = &each;
  }
  return found;
}

}  // namespace toy_gpt
