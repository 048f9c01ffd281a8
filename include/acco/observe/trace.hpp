// SPDX-License-Identifier: Apache-2.0
// A Chrome / Perfetto trace (JSON trace-event format) of all ranks on one page: one process per rank, one row
// of computation, one of communication.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "acco/error.hpp"
#include "acco/observe/round_report.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Collects intervals; any thread may record. Room for `capacity` intervals is taken at construction; later ones are
/// counted, not kept.
class trace {
 public:
  enum class row { computation, communication, collectives };

  explicit trace(std::size_t capacity = 1U << 16U);

  /// An interval on the steady clock. `name` must outlive the trace (a literal).
  void record(int rank, row where, char const* name, std::size_t round, time_interval when);
  /// What a round's report tells: when the trainer computed, and when the round was in flight.
  void record(int rank, round_report const& report) {
    record(rank, row::computation, "micro-batches", report.round, report.computing);
    record(rank, row::communication, label_of(report.plan), report.round, report.communicating);
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return intervals_.size();
  }
  [[nodiscard]] std::size_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

  /// Writes the trace as JSON to a std::ostream; times in microseconds from the first interval on.
  template <class Stream>
  void write(Stream& out) const {
    const std::lock_guard lock(mutex_);
    double start = intervals_.empty() ? 0 : intervals_.front().when.begin;
    int ranks = 0;
    bool used[3] = {true, true, false};
    for (interval const& each : intervals_) {
      start = each.when.begin < start ? each.when.begin : start;
      ranks = each.rank >= ranks ? each.rank + 1 : ranks;
      used[static_cast<int>(each.where)] = true;
    }
    constexpr char const* rows[] = {"computation", "communication", "collectives"};
    char const* separator = "";
    out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (int rank = 0; rank < ranks; ++rank) {
      out << text(separator, R"({"ph":"M","name":"process_name","pid":)", rank, R"(,"args":{"name":"rank )", rank, R"("}})")
                 .c_str();
      separator = ",\n";
      for (int r = 0; r < 3; ++r) {
        if (!used[r]) continue;
        out << text(separator, R"({"ph":"M","name":"thread_name","pid":)", rank, R"(,"tid":)", r, R"(,"args":{"name":")", rows[r],
                    R"("}})")
                   .c_str();
      }
    }
    for (interval const& each : intervals_) {
      const text line = text(separator, R"({"ph":"X","name":")", each.name, R"(","cat":")", rows[static_cast<int>(each.where)],
                             R"(","pid":)", each.rank, R"(,"tid":)", static_cast<int>(each.where), R"(,"ts":)")
                            .append((each.when.begin - start) * 1e6, 3)
                            .append(R"(,"dur":)")
                            .append(each.when.seconds() * 1e6, 3)
                            .append(text(R"(,"args":{"round":)", each.round, "}}"));
      out << line.c_str();
    }
    out << "\n]}\n";
  }

 private:
  struct interval {
    int rank;
    row where;
    char const* name;
    std::size_t round;
    time_interval when;
  };
  mutable std::mutex mutex_;
  std::vector<interval> intervals_;
  std::size_t dropped_ = 0;
};

#if !ACCO_ENGINES_ARE_COMPILED
ACCO_ONCE trace::trace(std::size_t capacity) { intervals_.reserve(capacity); }
ACCO_ONCE void trace::record(int rank, row where, char const* name, std::size_t round, time_interval when) {
  const std::lock_guard lock(mutex_);
  if (intervals_.size() == intervals_.capacity()) {
    ++dropped_;
    return;
  }
  intervals_.push_back({rank, where, name, round, when});
}
#endif

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
