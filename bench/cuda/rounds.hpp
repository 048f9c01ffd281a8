// SPDX-License-Identifier: Apache-2.0
// Steps of a training whose computation is a load of a known length, timed by the GPU's own clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(ACCO_BENCH_NCCL)
#include <acco/nccl.hpp>
#endif

#include "gemm.hpp"
#include "measure.hpp"

namespace bench {

#if defined(ACCO_STAND_IN)
using number = float;  // what the stand-in for NCCL can add
#else
using number = acco::bfloat16;
#endif

/// One rank's load: for an exact time on one thread of the GPU, so that it takes nothing from the communication; or
/// products.
struct load {
  std::uint64_t nanoseconds = 0;
  std::size_t products = 0;
};
class loader {
 public:
  loader(cudaStream_t stream, load what) : stream_(stream), what_(what) {
    if (what.products != 0) products_.emplace(stream);
  }
  void enqueue() {
    if (what_.nanoseconds != 0) launch_one(stream_, spin{what_.nanoseconds});
    for (std::size_t k = 0; k < what_.products; ++k) products_->enqueue();
  }

 private:
  cudaStream_t stream_;
  load what_;
  std::optional<products> products_;
};

/// Times on the GPU's clock before and after each micro-batch's load.
class notes {
 public:
  explicit notes(std::size_t most) : numbers_(2 * most * sizeof(std::uint64_t)), most_(most) {}
  void begin(cudaStream_t stream) { note(stream, 2 * count_); }
  void end(cudaStream_t stream) {
    note(stream, 2 * count_ + 1);
    ++count_;
  }
  [[nodiscard]] bool full() const { return count_ == most_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  /// Seconds, of micro-batches before `count()`, when the stream is done.
  [[nodiscard]] double between_begins(std::size_t from, std::size_t to) const { return 1e-9 * signed_of(2 * to, 2 * from); }
  [[nodiscard]] double load(std::size_t from, std::size_t to) const {
    double sum = 0;
    for (std::size_t k = from; k < to; ++k) sum += 1e-9 * signed_of(2 * k + 1, 2 * k);
    return sum;
  }

 private:
  [[nodiscard]] double signed_of(std::size_t later, std::size_t sooner) const {
    auto const* const all = numbers_.as<std::uint64_t>();
    return static_cast<double>(static_cast<std::int64_t>(all[later] - all[sooner]));
  }
  void note(cudaStream_t stream, std::size_t which) const { launch_one(stream, note_time{numbers_.as<std::uint64_t>() + which}); }
  acco::pinned_buffer numbers_;
  std::size_t most_, count_ = 0;
};

/// Seconds of a step, on rank 0.
struct step_times {
  double step = 0;           ///< on the GPU's clock, from the beginning of a load to that of a later one
  double load = 0;           ///< that the loads took meanwhile
  double communication = 0;  ///< of the step's rounds, as their reports tell
  double hidden = 0;         ///< share of it
};

inline constexpr std::size_t step_parts = 2;  // micro-batches a step, in every schedule measured here
inline constexpr std::size_t warm_steps = stand_in ? 2 : 5, counted_steps = stand_in ? 4 : 30;

/// Trains a rank; storage.computation is set here.
template <class Schedule, class Storage, class World>
step_times train(Schedule schedule, Storage storage, World world, std::size_t parameters, load what) {
  acco::cuda_stream stream;
  storage.computation = stream.get();
  loader work(stream.get(), what);
  notes times(step_parts * (warm_steps + counted_steps) + 8);
  const acco::cuda_drained drained(stream.get());
  acco::optimizer training{schedule, acco::adamw{}, storage, world, parameters};
  using parameter = typename Storage::parameter_type;
  training.initialize({ones<parameter>(stream.get(), parameters).template as<parameter const>(), parameters});
  std::size_t from = 0, to = 0;
  acco::round_totals before;
  while (training.steps() < warm_steps + counted_steps && !times.full()) {
    if (training.steps() == warm_steps && from == 0) {
      from = times.count();
      before = training.totals();
    }
    times.begin(stream.get());
    work.enqueue();
    times.end(stream.get());
    to = times.count() - 1;
    training.accumulated(1);
  }
  const acco::round_totals after = training.totals();
  training.finish();
  settle(stream.get());
  const double steps = static_cast<double>(to - from) / step_parts;
  const double rounds = static_cast<double>(after.rounds - before.rounds);
  const double rounds_a_step = rounds / static_cast<double>(counted_steps);
  const double communication = (after.communication_seconds - before.communication_seconds) / std::max(rounds, 1.0);
  const double exposed = (after.exposed_seconds - before.exposed_seconds) / std::max(rounds, 1.0);
  return {times.between_begins(from, to) / steps, times.load(from, to) / steps, communication * rounds_a_step,
          communication > 0 ? std::max(0.0, 1 - exposed / communication) : 0};
}

/// Seconds of a step's loads without any training, while all ranks have theirs. It may be called by ranks that share a
/// GPU.
inline double load_alone(load what) {
  acco::cuda_stream stream;
  loader work(stream.get(), what);
  constexpr std::size_t count = step_parts * (stand_in ? 2 : 10);
  notes times(count);
  const acco::cuda_drained drained(stream.get());
  work.enqueue();
  while (!times.full()) {
    times.begin(stream.get());
    work.enqueue();
    times.end(stream.get());
  }
  settle(stream.get());
  return times.between_begins(step_parts, count - 1) / static_cast<double>(count - 1 - step_parts) * step_parts;
}

/// Calls function(world) on threads that are ranks; gives what rank 0's call gave.
struct threads_on_one_gpu {
  static constexpr char const* name = "threads";
  int ranks;
  template <class Function>
  auto run(Function&& function) const {
    std::optional<decltype(function(std::declval<acco::threads_backend>()))> result;
    acco::threads_backend::run(ranks, [&](acco::threads_backend world) {
      auto mine = function(world);
      if (world.rank() == 0) result = std::move(mine);
    });
    return *result;
  }
};

#if defined(ACCO_BENCH_NCCL)
/// Ranks are threads, a GPU each.
struct nccl_on_threads {
  static constexpr char const* name = "NCCL";
  int ranks;
  template <class Function>
  auto run(Function&& function) const {
    std::optional<decltype(function(std::declval<acco::nccl_backend>()))> result;
    std::promise<std::string> promised;
    const std::shared_future<std::string> identifier = promised.get_future().share();
    std::exception_ptr failed;
    std::mutex mutex;
    const auto rank = [&](int me) {
      try {
        check_cuda(cudaSetDevice(me), "cudaSetDevice");
        const auto exchange = [&](std::string const& brought) {
          if (me == 0) promised.set_value(brought);
          return std::vector<std::string>{identifier.get()};
        };
        auto mine = function(acco::nccl_backend::from_exchange({me, ranks}, exchange, {.deadline = 30}));
        if (me == 0) result = std::move(mine);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failed) failed = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int k = 1; k < ranks; ++k) threads.emplace_back(rank, k);
      rank(0);
    }
    if (failed) std::rethrow_exception(failed);
    return *result;
  }
};
#endif

}  // namespace bench
