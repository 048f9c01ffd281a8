// SPDX-License-Identifier: Apache-2.0
// Which clock the figures of a round are of, where the trainer enqueues and the host runs ahead. Times are compared
// with sleeps of the stand-in's streams, so only the stand-in can run this. What is bounded from above is bounded by
// what the wrong clock would show, and a busy machine has a tenth of a second and more until there.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/collective/around/decorator.hpp>

#include "cuda/cuda_world.hpp"

namespace {

using acco::round_report;

void busy(cudaStream_t stream, std::intptr_t milliseconds) {
  const auto sleep = [](void* so_many) {
    std::this_thread::sleep_for(std::chrono::milliseconds(reinterpret_cast<std::intptr_t>(so_many)));
  };
  acco::check_cuda(cudaLaunchHostFunc(stream, sleep, reinterpret_cast<void*>(milliseconds)), "cudaLaunchHostFunc");
}

/// Every large collective takes so long on the stream of its queue.
struct long_way {
  int milliseconds;
  template <class Queue, class Backend>
  void before(Queue& queue, Backend const&, acco::collective_call call) const {
    if (call.operation != acco::collective::reduce_scatter) return;
    queue.issue([so_many = milliseconds](cudaStream_t stream) { busy(stream, so_many); });
  }
  template <class Queue, class Backend>
  void after(Queue&, Backend const&, acco::collective_call) const {}
};

struct run {
  std::vector<round_report> reports;
  double wall = 0;
  int ahead = 0;  // boundaries that the host left before the stream had come there
};

/// `micro_batches` of so many milliseconds, enqueued without waiting; messages take `communication`.
template <class Schedule>
run train(int computation, int communication, Schedule schedule, int micro_batches) {
  run result;
  acco::cuda_stream stream;
  worlds::managed_storage<float> storage;
  storage.computation = stream.get();
  acco::optimizer training{schedule, acco::adamw{}, storage,
                           acco::decorated_backend<acco::solo_backend, long_way>(acco::solo_backend{}, {communication}), 1000};
  training.initialize(std::vector<float>(1000, 1.0F));
  acco::check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  const acco::cuda_event here;
  const double from = acco::steady_seconds();
  for (int m = 0; m < micro_batches; ++m) {
    busy(stream.get(), computation);
    here.record(stream.get());
    const auto report = training.accumulated(1);
    if (!report) continue;
    result.ahead += here.passed() ? 0 : 1;
    result.reports.push_back(*report);
  }
  training.finish();
  acco::check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  result.wall = acco::steady_seconds() - from;
  acco::round_totals const& all = training.totals();
  // Every instant of the stream is computed or exposed, and counted once. (What finish() does at last belongs to no
  // round.)
  CHECK(all.compute_seconds + all.exposed_seconds <= 1.02 * result.wall);
  CHECK(all.compute_seconds + all.exposed_seconds >= 0.5 * result.wall);
  CHECK(all.compute_seconds >= 0.98e-3 * computation * micro_batches);
  return result;
}

template <class Member>
std::pair<double, double> range(std::vector<round_report> const& reports, Member member) {
  const auto less = [member](round_report const& a, round_report const& b) { return a.*member < b.*member; };
  const auto [least, most] = std::minmax_element(reports.begin() + 2, reports.end(), less);
  return {*least.*member, *most.*member};
}

}  // namespace

TEST_CASE("the host runs ahead of a stream: a hidden round exposes nothing, and the computation is the stream's") {
  const run all = train(100, 1, acco::delayed{.pace = acco::fixed_pace{.first = 2}}, 20);
  REQUIRE(all.reports.size() == 9);
  // what the host needs to enqueue it: nothing
  CHECK(range(all.reports, &round_report::compute_seconds).first >= 0.19);
  CHECK(range(all.reports, &round_report::exposed_seconds).first < 0.19);  // a busy machine may delay some of them
  CHECK(all.ahead > 0);                                                    // nobody waited for the stream
  double end = 0;
  for (round_report const& each : all.reports) {
    CHECK(each.computing.begin >= end - 0.15);  // one after the other, on the clock of the trace
    CHECK(each.computing.end <= each.communicating.begin + 1e-3);
    end = each.computing.end;
  }
}

TEST_CASE("a round longer than the computation exposes the difference") {
  const run all = train(120, 250, acco::delayed{}, 10);
  const auto exposed = range(all.reports, &round_report::exposed_seconds);  // a busy machine may delay some of them
  CHECK(exposed.first < 0.249);
  CHECK(exposed.second >= 0.06);
}

TEST_CASE("a schedule that waits exposes its rounds") {
  const run all = train(10, 20, acco::synchronous{}, 8);
  for (round_report const& each : all.reports) {
    CHECK(each.exposed_seconds >= 0.019);
    CHECK(each.compute_seconds >= 0.0095);
  }
}

namespace {
/// To empty an array takes long.
struct slow_to_clear : worlds::managed_storage<float> {
  template <class T>
  static void clear(acco::cuda_queue& queue, T* to, std::size_t count) {
    busy(queue.computation(), 200);
    worlds::managed_storage<float>::clear(queue, to, count);
  }
};
}  // namespace

TEST_CASE("a round begins when its gradients are there, not when the next accumulator is empty") {
  acco::cuda_stream stream;
  slow_to_clear storage;
  storage.computation = stream.get();
  acco::optimizer training{acco::delayed{}, acco::adamw{}, storage, acco::solo_backend{}, 1000};
  training.initialize(std::vector<float>(1000, 1.0F));
  double least = 1;
  for (int m = 0; m < 8; ++m) {
    busy(stream.get(), 5);
    if (const auto report = training.accumulated(1); report)
      least = std::min(least, report->communicating.begin - report->computing.end);
  }
  training.finish();
  CHECK(least < 0.19);
}

TEST_CASE("a question in the middle of a part: the stream that waits for the answer does not compute") {
  acco::cuda_stream stream;
  worlds::managed_storage<float> storage;
  storage.computation = stream.get();
  acco::optimizer training{acco::delayed{.pace = acco::fixed_pace{2}}, acco::adamw{}, storage,
                           acco::decorated_backend<acco::solo_backend, long_way>(acco::solo_backend{}, {500}), 1000};
  training.initialize(std::vector<float>(1000, 1.0F));
  for (int m = 0; m < 8; ++m) {
    busy(stream.get(), 5);
    // waits for the round in flight, behind which the stream has nothing to do
    if (m % 2 == 1) (void)training.state_digest();
    training.accumulated(1);
  }
  training.finish();
  CHECK(training.totals().compute_seconds < 1);
  CHECK(training.totals().exposed_seconds > 1);
}

TEST_CASE("elastic_pace goes on as long as the stream, not the host, is before the end of the round") {
  const run all = train(20, 150, acco::delayed{.pace = acco::elastic_pace{.at_least = 1, .at_most = 64}}, 40);
  REQUIRE(all.reports.size() >= 3);
  std::size_t most = 0;
  for (std::size_t k = 1; k < all.reports.size(); ++k) most = std::max(most, all.reports[k].micro_batches);
  CHECK(most < 30);
  CHECK(most >= 3);  // as many as fit in 150 ms, and the one that the stream was at; not all
}

TEST_CASE("auto_pace is told how long the stream computes") {
  const run all = train(25, 100, acco::two_phase{.pace = acco::auto_pace{.micro_batches = 8}}, 80);
  CHECK(all.reports.back().first >= 2);  // a commit and an estimate of 100 ms, behind 8 times 25
  CHECK(all.reports.back().first <= 6);
}

TEST_CASE("while the trainer's stream computes, nobody is late") {
  acco::cuda_stream stream;
  double longest = -1;
  acco::cuda_queue queue(stream.get(), {[](void* to, acco::error_place const&, double waited, double) {
                                          *static_cast<double*>(to) = std::max(*static_cast<double*>(to), waited);
                                        },
                                        &longest});
  busy(stream.get(), 1000);
  queue.after_computation();
  queue.wait();
  CHECK(longest >= 0);
  CHECK(longest < 0.9);
  longest = -1;
  queue.issue([](cudaStream_t own) { busy(own, 300); });  // now somebody else is
  queue.wait();
  CHECK(longest >= 0.2);
}
