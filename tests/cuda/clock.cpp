// SPDX-License-Identifier: Apache-2.0
// Which clock the figures of a round are of, where the trainer enqueues and the host runs ahead. Times are compared with sleeps
// of the stand-in's streams, so only the stand-in can run this.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/collective/around/decorator.hpp>

#include "cuda/cuda_world.hpp"

namespace {

using acco::round_report;

template <int Milliseconds>
void busy(cudaStream_t stream) {
  const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(Milliseconds)); };
  acco::check_cuda(cudaLaunchHostFunc(stream, sleep, nullptr), "cudaLaunchHostFunc");
}

/// Every large collective takes so long on the stream of its queue.
template <int Milliseconds>
struct long_way {
  template <class Queue, class Backend>
  void before(Queue& queue, Backend const&, acco::collective_call call) const {
    if (call.operation != acco::collective::reduce_scatter) return;
    queue.issue([](cudaStream_t stream) { busy<Milliseconds>(stream); });
  }
  template <class Queue, class Backend>
  void after(Queue&, Backend const&, acco::collective_call) const {}
};

struct run {
  std::vector<round_report> reports;
  double wall = 0;
  int ahead = 0;  // boundaries that the host left before the stream had come there
};

/// `micro_batches` of so many milliseconds, enqueued without waiting; messages take `Communication`.
template <int Computation, int Communication, class Schedule>
run train(Schedule schedule, int micro_batches) {
  run result;
  acco::cuda_stream stream;
  worlds::managed_storage<float> storage;
  storage.computation = stream.get();
  acco::optimizer training{schedule, acco::adamw{}, storage,
                           acco::decorated_backend<acco::solo_backend, long_way<Communication>>(acco::solo_backend{}, {}), 1000};
  training.initialize(std::vector<float>(1000, 1.0F));
  acco::check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  const acco::cuda_event here;
  const double from = acco::steady_seconds();
  for (int m = 0; m < micro_batches; ++m) {
    busy<Computation>(stream.get());
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
  // Every instant of the stream is computed or exposed, and counted once. (What finish() does at last belongs to no round.)
  CHECK(all.compute_seconds + all.exposed_seconds <= 1.02 * result.wall);
  CHECK(all.compute_seconds + all.exposed_seconds >= 0.5 * result.wall);
  CHECK(all.compute_seconds >= 0.98e-3 * Computation * micro_batches);
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
  const run all = train<20, 1>(acco::delayed{.pace = acco::fixed_pace{.first = 2}}, 20);
  REQUIRE(all.reports.size() == 9);
  CHECK(range(all.reports, &round_report::compute_seconds).first >= 0.038);  // what the host needs to enqueue it: nothing
  CHECK(range(all.reports, &round_report::exposed_seconds).first < 0.01);    // a busy machine may delay some of them
  CHECK(all.ahead > 0);                                                      // nobody waited for the stream
  double end = 0;
  for (round_report const& each : all.reports) {
    CHECK(each.computing.begin >= end - 0.03);  // one after the other, on the clock of the trace
    CHECK(each.computing.end <= each.communicating.begin + 1e-3);
    end = each.computing.end;
  }
}

TEST_CASE("a round longer than the computation exposes the difference") {
  const run all = train<10, 40>(acco::delayed{}, 10);
  double hidden = 0;  // at most; a busy machine makes rounds longer, and what they expose with them
  for (round_report const& each : all.reports) hidden = std::max(hidden, each.communication_seconds - each.exposed_seconds);
  CHECK(hidden >= 0.005);
  CHECK(range(all.reports, &round_report::exposed_seconds).second >= 0.02);
}

TEST_CASE("a schedule that waits exposes its rounds") {
  const run all = train<10, 20>(acco::synchronous{}, 8);
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
    busy<30>(queue.computation());
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
    busy<5>(stream.get());
    if (const auto report = training.accumulated(1); report)
      least = std::min(least, report->communicating.begin - report->computing.end);
  }
  training.finish();
  CHECK(least < 0.02);
}

TEST_CASE("a question in the middle of a part: the stream that waits for the answer does not compute") {
  acco::cuda_stream stream;
  worlds::managed_storage<float> storage;
  storage.computation = stream.get();
  acco::optimizer training{acco::delayed{.pace = acco::fixed_pace{2}}, acco::adamw{}, storage,
                           acco::decorated_backend<acco::solo_backend, long_way<120>>(acco::solo_backend{}, {}), 1000};
  training.initialize(std::vector<float>(1000, 1.0F));
  for (int m = 0; m < 8; ++m) {
    busy<5>(stream.get());
    if (m % 2 == 1) (void)training.state_digest();  // waits for the round in flight, behind which the stream has nothing to do
    training.accumulated(1);
  }
  training.finish();
  CHECK(training.totals().compute_seconds < 0.2);
  CHECK(training.totals().exposed_seconds > 0.25);
}

TEST_CASE("elastic_pace goes on as long as the stream, not the host, is before the end of the round") {
  const run all = train<20, 70>(acco::delayed{.pace = acco::elastic_pace{.at_least = 1, .at_most = 64}}, 40);
  REQUIRE(all.reports.size() >= 3);
  std::size_t most = 0;
  for (std::size_t k = 1; k < all.reports.size(); ++k) most = std::max(most, all.reports[k].micro_batches);
  CHECK(most < 12);
  CHECK(most >= 3);  // as many as fit in 70 ms, and the one that the stream was at
}

TEST_CASE("auto_pace is told how long the stream computes") {
  const run all = train<10, 40>(acco::two_phase{.pace = acco::auto_pace{.micro_batches = 8}}, 80);
  CHECK(all.reports.back().first >= 3);  // a commit and an estimate of 40 ms, behind 8 times 10
  CHECK(all.reports.back().first <= 5);
}

TEST_CASE("while the trainer's stream computes, nobody is late") {
  acco::cuda_stream stream;
  double longest = -1;
  acco::cuda_queue queue(stream.get(), {[](void* to, acco::error_place const&, double waited, double) {
                                          *static_cast<double*>(to) = std::max(*static_cast<double*>(to), waited);
                                        },
                                        &longest});
  busy<400>(stream.get());
  queue.after_computation();
  queue.wait();
  CHECK(longest >= 0);
  CHECK(longest < 0.2);
  longest = -1;
  queue.issue([](cudaStream_t own) { busy<300>(own); });  // now somebody else is
  queue.wait();
  CHECK(longest >= 0.2);
}
