// SPDX-License-Identifier: Apache-2.0
// Device memory, the queue, the elementwise works and the collectives of ranks that share a GPU.
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "conformance/backend.hpp"
#include "conformance/rule.hpp"
#include "cuda/cuda_world.hpp"
#include "cuda/encoded.hpp"

namespace {

/// Counts what is in use.
class counting_memory : public acco::cuda_memory_resource {
 public:
  std::size_t bytes = 0;
  void* allocate(std::size_t size, cudaStream_t stream) override {
    bytes += size;
    return below_.allocate(size, stream);
  }
  void deallocate(void* memory, std::size_t size, cudaStream_t stream) noexcept override {
    bytes -= size;
    below_.deallocate(memory, size, stream);
  }

 private:
  acco::cuda_managed_memory below_;
};

/// Rules are applied by kernels.
struct device_memory {
  template <class T>
  using array = worlds::managed_array<T>;
  template <class Rule, acco::update kind, class Master, class Sum, class Parameter>
  static void apply(acco::rule_constants<Rule> const& now, acco::rule_constants<Rule> const& next, double scale,
                    acco::update_table<Rule, Master, Sum> arrays, Parameter* out, std::size_t count) {
    acco::cuda_queue queue(nullptr);
    const array<acco::region_update> decided{{scale, true}};
    const array<acco::rule_constants<Rule>> constants{now, next};
    array<acco::update_block> blocks(0);
    for (acco::update_block const& each : blocks_of(count)) blocks.push_back(each);
    arrays.now = &constants[0];
    arrays.next = &constants[1];
    arrays.decided = &decided[0];
    arrays.blocks = blocks.data();
    acco::cuda_storage<Parameter, Sum, Master>::template apply<Rule, kind>(queue, &arrays, 0, blocks.size(), out);
    queue.wait();
  }
};

}  // namespace

TEST_CASE("optimizer::memory() is what the optimizer takes from the resource, and all of it is given back") {
  acco::threads_backend::run(2, [](auto world) {
    counting_memory memory;
    {
      acco::cuda_storage<acco::bfloat16> storage{.memory = &memory};
      acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, storage, world, 100'003};
      const std::size_t promised = training.memory().total();
      CHECK(memory.bytes == 0);
      training.initialize(std::vector<acco::bfloat16>(100'003, acco::bfloat16(1.0F)));
      CHECK(memory.bytes >= promised);
      CHECK(memory.bytes - promised < 4096);  // a few numbers
    }
    CHECK(memory.bytes == 0);
  });
}

TEST_CASE("a queue runs works in their order beside the trainer's stream, and says when") {
  acco::cuda_stream computation;
  acco::cuda_queue queue(computation.get());
  CHECK(queue.idle());
  managed<float> x(1000), y(1000);
  std::fill_n(x.data, 1000, 3.0F);
  double begin = 0, end = 0;
  std::atomic<int> order = 0, host = 0;
  const double before = acco::steady_seconds();
  acco::cuda_storage<float>::clear(queue, y.data, 1000);  // on the trainer's stream
  queue.after_computation();
  queue.stamp([&begin](double now) { begin = now; });
  acco::cuda_storage<float>::add(queue, static_cast<float const*>(x.data), y.data, 1000);
  queue.enqueue([&order, &host] { host = ++order; });
  acco::cuda_storage<float>::add(queue, static_cast<float const*>(y.data), y.data, 1000);
  queue.stamp([&end](double now) { end = now; });
  queue.wait();
  CHECK(queue.idle());
  CHECK(y.data[999] == 6.0F);
  CHECK(host == 1);
  CHECK(begin >= before - 1e-3);
  CHECK(end >= begin);
  CHECK(end <= acco::steady_seconds() + 1e-3);
  queue.enqueue([] { throw std::runtime_error("from a task"); });
  queue.enqueue([&order] { ++order; });  // dropped
  CHECK_THROWS_WITH(queue.wait(), "from a task");
  CHECK(order == 1);
  queue.recover();
  queue.enqueue([&order] { ++order; });
  queue.wait();
  CHECK(order == 2);
}

TEST_CASE_TEMPLATE("conversion, sums and squares are those of the host, wherever arrays begin", T, float, acco::bfloat16,
                   acco::half) {
  acco::cuda_queue queue(nullptr);
  for (const std::size_t count : {1U, 7U, 8U, 255U, 4099U}) {
    for (const std::size_t shift : {0U, 1U, 3U}) {
      managed<T> from(count, shift);
      managed<float> to(count, shift), host(count);
      managed<double> squares(1);
      for (std::size_t i = 0; i < count; ++i) from.data[i] = T(std::sin(static_cast<float>(i)) * 3);
      acco::cuda_storage<float>::convert(queue, static_cast<T const*>(from.data), to.data, count);
      acco::cuda_storage<float>::add(queue, static_cast<T const*>(from.data), to.data, count);
      acco::cuda_storage<float>::sum_of_squares(queue, acco::sharded<float const>({to.data, count}), squares.data);
      queue.wait();
      acco::elementwise::convert(static_cast<T const*>(from.data), host.data, count);
      acco::elementwise::add(static_cast<T const*>(from.data), host.data, count);
      bool same = true;
      for (std::size_t i = 0; i < count; ++i) same = same && host.data[i] == to.data[i];
      CHECK(same);
      CHECK(*squares.data == doctest::Approx(acco::elementwise::sum_of_squares(host.data, count)).epsilon(1e-12));
      acco::cuda_storage<T>::convert(queue, static_cast<float const*>(to.data), from.data, count);
      queue.wait();
      for (std::size_t i = 0; i < count; ++i)
        same = same && static_cast<float>(from.data[i]) == static_cast<float>(T(to.data[i]));
      CHECK(same);
    }
  }
}

TEST_CASE_TEMPLATE("encoded numbers are those of the host, bit by bit, and so are decoded ones", Encoding, acco::block_int4<>,
                   acco::block_int4<1024>, acco::block_int8<>, acco::block_int8<128>, acco::bfloat16_wire,
                   acco::without_feedback<acco::majority_vote>) {
  encoded_as_on_the_host<Encoding>();
}

TEST_CASE("encoded parameters between any number of frozen tensors: as on the host") {
  acco::parameter_layout layout;
  layout.add_group({.frozen = true});
  for (std::size_t k = 0; k < 300; ++k) layout.add("tensor " + std::to_string(k), {1 + k % 13}, k % 2);
  const auto train = [&](auto storage, auto settled) {
    std::vector<float> all(layout.size());
    acco::threads_backend::run(2, [&](auto world) {
      const acco::delayed schedule{.commit = acco::coded{.gradients = acco::block_int8{}, .parameters = acco::block_int4{}}};
      acco::optimizer training{schedule, acco::sgd{.learning_rate = 0.1, .momentum = 0.5}, storage, world, layout};
      std::vector<float> start(layout.size());
      for (std::size_t i = 0; i < start.size(); ++i) start[i] = static_cast<float>(i % 17) * 0.1F;
      training.initialize(start);
      for (int m = 0; m < 6; ++m) {
        settled();
        for (std::size_t i = 0; i < layout.size(); ++i)
          training.gradients()[i] += training.parameters()[i] - static_cast<float>(world.rank());
        training.accumulated(1);
      }
      training.finish();
      settled();
      if (world.rank() == 0) std::copy(training.parameters().begin(), training.parameters().end(), all.begin());
    });
    return all;
  };
  const auto device = train(worlds::managed_storage<float>{}, settle), host = train(acco::host_storage<float>{}, [] {});
  double most = 0, moved = 0;
  for (std::size_t i = 0; i < host.size(); ++i) {
    most = std::max(most, static_cast<double>(std::abs(device[i] - host[i])));
    moved = std::max(moved, static_cast<double>(std::abs(host[i] - static_cast<float>(i % 17) * 0.1F)));
  }
  CHECK(most <= 1e-5);
  CHECK(moved > 0.1);
}

TEST_CASE("one launch updates every element once with the constants of its group, wherever blocks begin and however arrays lie") {
  using storage = acco::cuda_storage<acco::bfloat16>;
  for (const std::size_t shift : {0U, 1U}) {  // arrays that do not begin at 16 bytes are worked on one by one
    constexpr std::size_t count = 9001;
    managed<float> master(count, shift), slot(count, shift), gradient(count, shift);
    managed<acco::bfloat16> out(count, shift);
    managed<acco::update_block> blocks(200);
    managed<acco::sgd::constants> constants(3);
    managed<acco::region_update> decided(3);
    std::size_t used = 0, at = 0;
    std::vector<double> expected(count);
    for (std::uint32_t k = 0; at < count; ++k) {  // lengths that are no multiples of anything
      const std::size_t length = std::min<std::size_t>(count - at, k % 9 == 8 ? 1999 : 1 + k % 7);
      blocks.data[used++] = {at, static_cast<std::uint32_t>(length), k % 3};
      for (std::size_t i = 0; i < length; ++i) expected[at + i] = static_cast<double>(k % 3) + 1;
      at += length;
    }
    REQUIRE(used < 200);
    for (std::size_t g = 0; g < 3; ++g)
      constants.data[g] =
          acco::sgd{.learning_rate = 1, .momentum = 0}.prepare({}, {.learning_rate_scale = static_cast<double>(g + 1)});
    std::fill_n(master.data, count, 0.0F);
    std::fill_n(slot.data, count, 0.0F);
    std::fill_n(gradient.data, count, -2.0F);
    std::fill_n(decided.data, 3, acco::region_update{0.5, true});
    const acco::update_table<acco::sgd, float, float> table{master.data,    {slot.data},  gradient.data, constants.data,
                                                            constants.data, decided.data, blocks.data};
    acco::cuda_queue queue(nullptr);
    // in two launches, as for two buckets
    storage::apply<acco::sgd, acco::update::commit>(queue, &table, 0, 3, out.data);
    storage::apply<acco::sgd, acco::update::commit>(queue, &table, 3, used, out.data);
    queue.wait();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
      wrong += static_cast<double>(master.data[i]) == expected[i] && static_cast<double>(out.data[i]) == expected[i] ? 0U : 1U;
    CHECK(wrong == 0);
  }
}

TEST_CASE("what is not finite is counted where it is wanted, and cleared where it is wanted") {
  acco::cuda_queue queue(nullptr);
  managed<float> x(3001);
  managed<bool> wanted(2);
  managed<unsigned long long> found(1), first(1);
  std::fill_n(x.data, 3001, 1.0F);
  x.data[700] = std::numeric_limits<float>::quiet_NaN();
  x.data[2999] = -std::numeric_limits<float>::infinity();
  for (const bool want : {false, true}) {
    wanted.data[0] = want;
    *found.data = 0;
    *first.data = ~0ULL;
    acco::cuda_storage<float>::find_non_finite(queue, wanted.data, static_cast<float const*>(x.data), 3001, found.data,
                                               first.data);
    queue.wait();
    CHECK(*found.data == (want ? 2 : 0));
    if (want) CHECK(*first.data == 700);
    acco::cuda_storage<float>::clear_if(queue, wanted.data, x.data, 3001);
    queue.wait();
    CHECK(std::isnan(x.data[700]) == !want);
    CHECK(x.data[0] == (want ? 0.0F : 1.0F));
  }
}

TEST_CASE("threads_backend over device memory conforms") { conformance::backend_suite<worlds::cuda>({1, 2, 4}); }

TEST_CASE("every rule on device memory equals the textbook, as on the host") {
  conformance::rule_suite<device_memory>(acco::adamw{.learning_rate = 0.03});
  conformance::rule_suite<device_memory>(acco::lion{.learning_rate = 0.02});
  conformance::rule_suite<device_memory>(acco::sgd{.learning_rate = 0.03, .momentum = 0.9, .nesterov = true});
  conformance::rule_suite<device_memory>(acco::gpa{acco::adamw{.learning_rate = 0.03}});
}

TEST_CASE("ranks that share a GPU: other calls and missing ranks are named") {
  CHECK_THROWS_AS(acco::threads_backend::run(2,
                                             [](auto world) {
                                               acco::cuda_queue queue(nullptr, {}, 0, acco::cuda_issue::thread);
                                               managed<double> x(4), y(4);
                                               const std::size_t count = world.rank() == 0 ? 4 : 3;
                                               world.all_reduce(queue, acco::partial<double const>({x.data, count}),
                                                                acco::replicated<double>({y.data, count}));
                                               queue.wait();
                                             }),
                  acco::mismatch_error);
  CHECK_THROWS_WITH_AS(acco::threads_backend::run(2,
                                                  [](auto world) {
                                                    acco::cuda_queue queue(nullptr, {}, 0, acco::cuda_issue::thread);
                                                    queue.deadline = 0.1;
                                                    managed<double> x(4), y(4);
                                                    if (world.rank() == 1)
                                                      std::this_thread::sleep_for(std::chrono::milliseconds(400));
                                                    world.all_reduce(queue, acco::partial<double const>({x.data, 4}),
                                                                     acco::replicated<double>({y.data, 4}));
                                                    queue.wait();
                                                  }),
                       doctest::Contains("rank 1 did not come"), acco::deadline_error);
}

TEST_CASE("gradients that are not finite: named with rank and tensor, or skipped, as on the host") {
  acco::parameter_layout layout;
  layout.add("embedding", {5000}).add("head", {3000, 2});
  for (const auto what : {acco::non_finite::raise, acco::non_finite::skip}) {
    std::atomic<int> named = 0;
    acco::threads_backend::run(3, [&](auto world) {
      acco::optimizer training{
          acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, worlds::managed_storage<float>{}, world, layout,
          acco::options{.on_non_finite = what}};
      training.initialize(std::vector<float>(layout.size(), 1.0F));
      try {
        for (int m = 0; m < 20; ++m) {
          settle();
          for (float& g : training.gradients()) g += 1;
          if (world.rank() == 1 && m == 5) training.gradients()[5003] = std::numeric_limits<float>::quiet_NaN();
          training.accumulated(1);
        }
        training.finish();
      } catch (acco::non_finite_error const& e) {
        CHECK(e.peer() == 1);
        CHECK(std::string(e.what()).find("'head' at element 3") != std::string::npos);
        ++named;
      }
      settle();
      CHECK(std::isfinite(training.parameters()[5003]));
      if (what == acco::non_finite::skip) CHECK(training.totals().skipped == 1);
    });
    CHECK(named == (what == acco::non_finite::raise ? 3 : 0));
  }
}

TEST_CASE("settings that serialise streams are told once, in words that say what to do") {
  static std::vector<std::string> told;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  const auto note = [](char const* sentence) { told.emplace_back(sentence); };
  acco::warn_of_cuda_settings(note);
  acco::warn_of_cuda_settings(note);
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  unsetenv("CUDA_LAUNCH_BLOCKING");
  REQUIRE(told.size() == 2);
  CHECK(told[0].find("CUDA_DEVICE_MAX_CONNECTIONS") != std::string::npos);
  CHECK(told[1].find("CUDA_LAUNCH_BLOCKING") != std::string::npos);
}
