// SPDX-License-Identifier: Apache-2.0
// galore for a trainer who only enqueues, in 16 bits, in memory that nobody but a stream's works may touch. Over the stand-in
// only.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <acco/acco.hpp>
#include <acco/galore.hpp>

#include "cuda/cuda_world.hpp"
#include "projected/beside_published.hpp"

namespace {

using acco::bfloat16;

/// Device memory that is open only while works of a stream run: the trainer's thread that reads or writes it when none does ends
/// the program. What is given back is not used again.
class closed_memory : public acco::cuda_memory_resource, private emulated::door_keeper {
 public:
  std::atomic<std::size_t> bytes = 0, allocations = 0;

  closed_memory()
      : begin_(static_cast<std::byte*>(mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(begin_ != MAP_FAILED);
    std::memset(begin_, 0xff, most);
    close();
    emulated::keeper() = this;
  }
  ~closed_memory() {
    emulated::keeper() = nullptr;
    munmap(begin_, most);
  }
  void* allocate(std::size_t size, cudaStream_t) override {
    const std::lock_guard lock(mutex_);
    if (next_ + size > most) throw std::bad_alloc();
    bytes += size;
    ++allocations;
    auto* const found = begin_ + next_;
    next_ += (size + 255) / 256 * 256;
    return found;
  }
  void deallocate(void*, std::size_t size, cudaStream_t) noexcept override { bytes -= size; }

 private:
  static constexpr std::size_t most = std::size_t{1} << 24U;

  void enter() override {
    const std::lock_guard lock(mutex_);
    if (inside_++ == 0) mprotect(begin_, most, PROT_READ | PROT_WRITE);
  }
  void leave() override {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) close();
  }
  void close() { mprotect(begin_, most, PROT_NONE); }

  std::mutex mutex_;
  std::byte* begin_;
  std::size_t next_ = 0;
  int inside_ = 0;
};

constexpr std::size_t rank_of_bases = 6;

acco::parameter_layout layout_of() {
  acco::parameter_layout layout;
  const std::size_t frozen = layout.add_group({.frozen = true}), other = layout.add_group({.weight_decay = 0.0});
  layout.add("wide", {20, 70}).add("bias", {50}).add("frozen", {9, 9}, frozen).add("tall", {66, 21}, other).add("last", {7, 3});
  return layout;
}
std::vector<float> start() {
  std::vector<float> values(layout_of().size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(problem::unit(i + 5) - 0.5);
  return values;
}
std::vector<bfloat16> short_start() {
  std::vector<bfloat16> values;
  for (const float value : start()) values.emplace_back(value);
  return values;
}
/// What this rank brings in micro-batch t, of all tensors; of few directions over all ranks.
std::vector<bfloat16> gradients(std::size_t t, int rank, int ranks) {
  auto const layout = layout_of();
  std::vector<bfloat16> all;
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    auto const& each = layout[k];
    const std::size_t rows = each.shape.size() < 2 ? 1 : each.shape[0];
    auto const mean = beside_published::spectrum(t / 2 * 16 + k, {rows, each.size / rows});
    for (std::size_t i = 0; i < each.size; ++i)
      all.emplace_back(static_cast<float>(mean.values[i] + 0.01 * beside_published::noise(t, k, i, rank, ranks)));
  }
  return all;
}

enum class beginning { values, masters, apart };
struct story {
  int ranks = 1;
  beginning begins = beginning::values;
  std::size_t micro_batches = 15, every = 3, bucket_elements = 0;
};
/// What a rank saw.
struct history {
  std::vector<std::vector<bfloat16>> shown;  // after each round, and after finish
  std::vector<bfloat16> gathered, set;
  std::vector<float> masters, first_masters;
  std::uint64_t world = 0;
  friend bool operator==(history const&, history const&) = default;
};

/// Memory of the host, computed on by who asks.
struct host {
  acco::host_storage<bfloat16> storage() { return {}; }
  template <class Work>
  void enqueue(Work work) {
    work();
  }
  void settle() {}
  bfloat16* array(std::size_t count) {
    arrays.emplace_back(count, bfloat16(7.0F));
    return arrays.back().data();
  }
  std::vector<std::vector<bfloat16>> arrays;
};
/// A stream, and closed memory.
struct device {
  explicit device(closed_memory& of) : memory(of) {}
  acco::cuda_storage<bfloat16> storage() { return {.computation = stream.get(), .memory = &memory}; }
  template <class Work>
  void enqueue(Work work) {
    emulated::of(stream.get()).enqueue([work] {
      const emulated::access here;
      work();
    });
  }
  void settle() { acco::check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }
  bfloat16* array(std::size_t count) { return static_cast<bfloat16*>(memory.allocate(count * sizeof(bfloat16), stream.get())); }
  closed_memory& memory;
  acco::cuda_stream stream;
};

const acco::sgd rule{.learning_rate = 0.25, .momentum = 0.5, .weight_decay = 0.05, .weight_decay_kind = acco::decay::decoupled};

template <class Where>
auto made(Where& where, acco::threads_backend const& world, story const& s) {
  const acco::galore method{.inner = acco::two_phase{.pace = acco::fixed_pace{1, 1}},
                            .rank = rank_of_bases,
                            .every = s.every,
                            .scale = 0.5,
                            .iterations = 6};
  return acco::any_optimizer<bfloat16>(
      acco::optimizer{method, rule, where.storage(), world, layout_of(), acco::options{.bucket_elements = s.bucket_elements}});
}
/// `between(training, round)` is called before each micro-batch.
template <class Where, class Between>
history trained(Where& where, acco::threads_backend const& world, story const& s, Between&& between) {
  auto const layout = layout_of();
  history seen;
  auto training = made(where, world, s);
  const bool first = world.rank() == 0;
  std::vector<bfloat16> const values = first ? short_start() : std::vector<bfloat16>(layout.size(), bfloat16(-3.0F));
  switch (s.begins) {
    case beginning::values: training.initialize(values); break;
    case beginning::masters: training.initialize(std::span<float const>(start())); break;
    case beginning::apart: {
      std::vector<acco::tensor_memory<bfloat16>> tensors;
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        tensors.push_back({where.array(layout[k].size), layout[k].name == "frozen" ? nullptr : where.array(layout[k].size)});
        where.enqueue([&values, to = tensors.back().parameters, each = layout[k]] {
          std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(each.offset), each.size, to);
        });
      }
      training.adopt(tensors);
    }
  }
  seen.first_masters.resize(layout.size());
  training.gather_masters(seen.first_masters);
  std::vector<std::vector<bfloat16>> brought;
  for (std::size_t m = 0; m < s.micro_batches; ++m) brought.push_back(gradients(m, world.rank(), world.size()));
  const auto see = [&](std::vector<bfloat16>& to) {
    to.resize(layout.size());
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      where.enqueue([from = training.tensor(layout[k].name).parameters, at = to.data() + layout[k].offset] {
        std::copy(from.begin(), from.end(), at);
      });
    }
  };
  for (std::size_t m = 0; m < s.micro_batches; ++m) {
    between(training, m);
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      where.enqueue([to = training.tensor(layout[k].name).gradients, from = brought[m].data() + layout[k].offset] {
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = bfloat16(static_cast<float>(to[i]) + static_cast<float>(from[i]));
      });
    }
    if (training.accumulated(1)) see(seen.shown.emplace_back());
  }
  seen.gathered.resize(layout.size());
  training.gather_committed(seen.gathered);
  const std::vector<bfloat16> at_once = seen.gathered;
  training.finish();
  see(seen.shown.emplace_back());
  CHECK(at_once == seen.gathered);  // all of it was there when the call came back
  seen.masters.resize(layout.size());
  training.gather_masters(seen.masters);
  where.settle();
  seen.world = training.world_digest();
  training.set_parameters(values);
  see(seen.set);
  where.settle();
  return seen;
}
void nothing(acco::any_optimizer<bfloat16>&, std::size_t) {}
std::vector<history> on_device(story const& s) {
  closed_memory memory;
  std::vector<history> all(static_cast<std::size_t>(s.ranks));
  acco::threads_backend::run(s.ranks, [&](acco::threads_backend const& world) {
    device where(memory);
    all[static_cast<std::size_t>(world.rank())] = trained(where, world, s, nothing);
  });
  return all;
}
template <class T>
double furthest(std::vector<T> const& a, std::vector<T> const& b) {
  REQUIRE(a.size() == b.size());
  double found = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double apart = std::abs(static_cast<double>(static_cast<float>(a[i])) - static_cast<double>(static_cast<float>(b[i])));
    found = apart <= found ? found : apart;  // NaN is far
  }
  return found;
}

}  // namespace

TEST_CASE("a trainer who only enqueues gets what the host gets, after every round, however late streams run") {
  const unsigned weather = emulated::weather().load();
  for (story const& s : {story{.ranks = 3, .bucket_elements = 300}, story{.ranks = 2, .begins = beginning::masters},
                         story{.ranks = 1, .begins = beginning::apart}}) {
    CAPTURE(s.ranks);
    history expected;
    std::mutex mutex;
    acco::threads_backend::run(s.ranks, [&](acco::threads_backend const& world) {
      host where;
      history found = trained(where, world, s, nothing);
      const std::lock_guard lock(mutex);
      if (world.rank() == 0) expected = std::move(found);
    });
    for (const unsigned seed : {0U, 5U}) {
      emulated::weather() = seed;
      auto const all = on_device(s);
      for (auto const& each : all) CHECK(each == all[0]);  // in every bit
      history const& found = all[0];
      REQUIRE(found.shown.size() == expected.shown.size());
      CHECK(found.first_masters == expected.first_masters);
      for (std::size_t r = 0; r < found.shown.size(); ++r) {
        CAPTURE(r);
        CHECK(furthest(found.shown[r], expected.shown[r]) <= 0x1p-6);  // of numbers below two, some neighbours in 16 bits
      }
      CHECK(furthest(found.masters, expected.masters) <= 2e-3);
      CHECK(found.shown.back() == found.gathered);
      CHECK(found.set == short_start());
      auto const layout = layout_of();
      double moved = 0;
      for (std::size_t i = 0; i < layout.size(); ++i) {
        const bool frozen = i >= layout[2].offset && i < layout[3].offset;
        if (frozen) CHECK(static_cast<float>(found.gathered[i]) == static_cast<float>(short_start()[i]));
        moved = std::max(moved, static_cast<double>(std::abs(found.masters[i] - start()[i])));
      }
      CHECK(moved > 0.1);
    }
  }
  emulated::weather() = weather;
}

TEST_CASE("a round that renews nothing neither waits for a stream nor allocates") {
  closed_memory memory;
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    device where(memory);
    const story s{.micro_batches = 24, .every = 8};  // a step is two micro-batches; bases are due at 0 and 16
    long waits = 0, allocations = 0;
    const auto count = [&] {
      waits = emulated::synchronisations().load();
      allocations = static_cast<long>(memory.allocations.load());
    };
    (void)trained(where, world, s, [&](auto&, std::size_t m) {
      if (m == 6 || m == 20) count();
      if (m == 15 || m == 23) {
        CHECK(emulated::synchronisations().load() == waits);
        CHECK(static_cast<long>(memory.allocations.load()) == allocations);
      }
      if (m == 16) count();
      if (m == 18) CHECK(emulated::synchronisations().load() > waits);  // as it does to renew
    });
  });
}

TEST_CASE("memory() of galore is what it takes from the resource, and all of it is given back") {
  for (const bool adopts : {false, true}) {
    closed_memory memory;
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      device where(memory);
      {
        auto training = made(where, world, {});
        const std::size_t promised = training.memory().total();
        CHECK(memory.bytes == 0);
        std::size_t own = 0;
        if (adopts) {
          auto const size = layout_of().size();
          const std::span<bfloat16> parameters(where.array(size), size), arrays(where.array(size), size);
          own = 2 * size * sizeof(bfloat16);
          where.enqueue([parameters] { std::fill(parameters.begin(), parameters.end(), bfloat16(0.5F)); });
          training.adopt(parameters, arrays);
          CHECK(training.memory().total() < promised);
        } else {
          training.initialize(short_start());
          CHECK(training.memory().total() == promised);
        }
        CHECK(memory.bytes >= own + training.memory().total());
        CHECK(memory.bytes - own - training.memory().total() < 4096);  // a few numbers, and where the tensors are
        CHECK(training.memory().projected > (20 * 70 + 66 * 21) * sizeof(float));
        training.finish();
        memory.bytes -= own;
      }
      CHECK(memory.bytes == 0);
    });
  }
}
