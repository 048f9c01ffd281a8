// SPDX-License-Identifier: Apache-2.0
// Questions about hardware that only hardware answers, one `--only NAME` each. What is found is told as JSON, an object
// a line; `skipped: ...` says what an experiment lacks, `failed: ...` that something is wrong.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "rounds.hpp"

namespace {

using bench::arguments, bench::check_cuda, bench::figure, bench::load, bench::step_times;

constexpr acco::fixed_pace two_micro_batches{.first = 2};
const bench::threads_on_one_gpu two_ranks{2};

double median(std::vector<double> all) {
  if (all.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}
std::size_t parameters_of(arguments const& words, unsigned usual) {
  return std::size_t{1} << static_cast<unsigned>(words.number("--parameters", bench::stand_in ? 10 : usual));
}

/// cuda_storage::max_ctas, where there is one. Whether there is.
template <class Storage>
bool limit(Storage& storage, int blocks) {
  if constexpr (requires { storage.max_ctas = blocks; }) {
    storage.max_ctas = blocks;
    return true;
  }
  return blocks == 0;
}

/// B1: does it help a training of matrix products that the communication stream goes first, or that the update takes
/// few multiprocessors?
void priorities(arguments const& words) {
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  const std::size_t parameters = parameters_of(words, 27);
  const auto step = [&](int priority, int blocks, load what) -> std::optional<step_times> {
    acco::cuda_storage<bench::number> memory{.priority = priority};
    if (!limit(memory, blocks)) return std::nullopt;
    return two_ranks.run(
        [&](auto world) { return bench::train(acco::delayed{.pace = two_micro_batches}, memory, world, parameters, what); });
  };
  const double communication = step(0, 0, {})->communication;
  const double product = two_ranks.run([](auto const&) { return bench::load_alone({.products = 4}); }) / (4 * bench::step_parts);
  const double part = communication / 0.7 / bench::step_parts;
  const load what{.products = std::max<std::size_t>(1, static_cast<std::size_t>(part / product + 0.5))};
  const double alone = two_ranks.run([&](auto const&) { return bench::load_alone(what); });
  for (const int priority : {0, greatest}) {
    for (const int blocks : {0, 16, 32}) {
      const auto found = step(priority, blocks, what);
      figure row("b1_priority");
      row.with("priority", priority).with("max_ctas", blocks).with("load", bench::products::name).with("parameters", parameters);
      if (!found) {
        row.with("left_out", "cuda_storage has no max_ctas").print();
        continue;
      }
      row.with("step_ms", 1e3 * found->step).with("load_alone_ms", 1e3 * alone).with("load_meanwhile_ms", 1e3 * found->load);
      row.with("communication_alone_ms", 1e3 * communication).with("communication_meanwhile_ms", 1e3 * found->communication);
      row.with("over", found->step / std::max(alone, communication)).print();
    }
  }
}

/// B2: how long after the backward has ended does a round begin, and does that grow with the accumulator that has to be
/// cleared?
void gap_before_collectives(arguments const&) {
  const auto exponents = bench::stand_in ? std::vector<unsigned>{8, 10} : std::vector<unsigned>{20, 24, 28};
  for (const unsigned exponent : exponents) {
    const std::size_t parameters = std::size_t{1} << exponent;
    acco::cuda_stream stream;
    const acco::cuda_drained drained(stream.get());
    acco::optimizer training{acco::delayed{}, acco::adamw{}, acco::cuda_storage<bench::number>{.computation = stream.get()},
                             acco::solo_backend{}, parameters};
    training.initialize({bench::ones<bench::number>(stream.get(), parameters).as<bench::number const>(), parameters});
    std::vector<double> gaps;
    for (int k = 0; k < (bench::stand_in ? 6 : 30); ++k) {
      bench::launch_one(stream.get(), bench::spin{bench::stand_in ? 200'000U : 3'000'000U});
      const auto report = training.accumulated(1);
      if (report && k > 3) gaps.push_back(report->communicating.begin - report->computing.end);
    }
    training.finish();
    acco::cuda_queue queue(stream.get());
    const acco::cuda_buffer gradients(acco::default_cuda_memory(), stream.get(), parameters * sizeof(bench::number));
    bench::settle(stream.get());
    const bench::timing clear = bench::time_launches(queue, [&](std::size_t) {
      queue.issue([&](cudaStream_t on) {
        check_cuda(cudaMemsetAsync(gradients.as<char>(), 0, parameters * sizeof(bench::number), on), "cudaMemsetAsync");
      });
    });
    figure row("b2_gap");
    row.with("parameters", parameters).with("gap_us", 1e6 * median(gaps)).with("clear_us", 1e6 * clear.median);
    row.with("most_us", 1e6 * (gaps.empty() ? 0 : *std::max_element(gaps.begin(), gaps.end()))).print();
  }
}

/// B3: where communication is longer than computation, how much later does the next round begin because the host naps?
void communication_bound(arguments const& words) {
  const std::size_t parameters = parameters_of(words, 20);
  const auto lengths = bench::stand_in ? std::vector<double>{2e-3} : std::vector<double>{2e-3, 3e-3, 5e-3};
  for (const double length : lengths) {
    const auto with = [&](auto schedule, load what) {
      return two_ranks.run([&](auto world) {
        return bench::train(schedule, acco::cuda_storage<bench::number>{},
                            acco::rate_limited(world, {.bytes_per_second = 1e15, .latency = length / 3}), parameters, what);
      });
    };
    const double communication = with(acco::synchronous{.pace = two_micro_batches}, {}).communication;
    for (const double ratio : {1.25, 2.0, 4.0}) {
      const auto part = static_cast<std::uint64_t>(communication / ratio / bench::step_parts * 1e9);
      const step_times found = with(acco::delayed{.pace = two_micro_batches}, {.nanoseconds = part});
      figure row("b3_naps");
      row.with("ratio", ratio).with("step_ms", 1e3 * found.step).with("round_alone_ms", 1e3 * communication);
      row.with("round_ms", 1e3 * found.communication).with("between_rounds_us", 1e6 * (found.step - found.communication));
      row.with("over", found.step / communication).print();
    }
  }
}

/// B6: a gradient that is nothing but NaN makes every thread count.
void find_non_finite(arguments const& words) {
  using storage = acco::cuda_storage<float>;
  std::size_t most = parameters_of(words, 30);
  while (most * sizeof(float) > bench::free_bytes() / 10 * 8) most /= 2;
  acco::cuda_queue queue(nullptr);
  const auto array = storage{}.allocate(most * sizeof(float), 0);
  acco::cuda_numbers<unsigned long long> numbers(storage{}, 2);
  acco::cuda_numbers<bool> wanted(storage{}, 1);
  wanted[0] = true;
  wanted.upload(queue);
  const auto measure = [&](std::size_t count, bool finite) {
    bench::launch(nullptr, count,
                  bench::set_all<float>{array.as<float>(), finite ? 1.0F : std::numeric_limits<float>::quiet_NaN()});
    bench::settle(nullptr);
    const auto find = [&](std::size_t) {
      storage::find_non_finite(queue, wanted.there(), array.as<float const>(), count, numbers.there(0), numbers.there(1));
    };
    bench::once_only = !finite;  // which may take seconds
    const bench::timing time = bench::time_launches(queue, find);
    numbers[0] = 0;
    numbers[1] = ~0ULL;
    numbers.upload(queue);
    find(0);
    numbers.download(queue);
    queue.wait();
    figure row("b6_non_finite");
    row.with("elements", count).with("gradients", finite ? "finite" : "all NaN").with("us", 1e6 * time.median);
    row.with("gb_per_s", 4 * static_cast<double>(count) / time.median * 1e-9).with("found", numbers[0]).print();
    if (numbers[0] != (finite ? 0 : count)) throw std::runtime_error("find_non_finite has found " + std::to_string(numbers[0]));
  };
  for (const std::size_t count : {most / 64, most}) {
    measure(count, true);
    measure(count, false);
  }
}

/// B7: the host's time at a boundary, with one tensor and with 96 x 8 of two groups in turn; and the round that it
/// enqueues.
void boundary(arguments const& words) {
  const std::size_t parameters = parameters_of(words, 24);
  for (const std::size_t tensors : {std::size_t{1}, std::size_t{768}}) {
    acco::parameter_layout layout;
    const std::size_t other = layout.add_group({.weight_decay = 0.0});
    for (std::size_t k = 0; k < tensors; ++k)
      layout.add("tensor " + std::to_string(k), {std::max<std::size_t>(parameters / tensors | 1U, 3)}, k % 2 == 0 ? 0 : other);
    const auto time = [&](auto schedule, char const* name) {
      acco::cuda_stream stream;
      const acco::cuda_drained drained(stream.get());
      acco::optimizer training{schedule, acco::adamw{}, acco::cuda_storage<bench::number>{.computation = stream.get()},
                               acco::solo_backend{}, layout};
      training.initialize(std::vector<bench::number>(layout.size(), bench::number(1.0F)));
      std::vector<double> host, rounds;
      for (int k = 0; k < (bench::stand_in ? 10 : 300); ++k) {
        const double before = acco::steady_seconds();
        while (acco::steady_seconds() - before < 2e-3) {  // the round before is over, and the processor awake
        }
        const double begin = acco::steady_seconds();
        const auto report = training.accumulated(1);
        if (k < 5) continue;
        host.push_back(acco::steady_seconds() - begin);
        if (report) rounds.push_back(report->communication_seconds);
      }
      training.finish();
      figure row("boundary");
      row.with("schedule", name).with("tensors", tensors).with("parameters", layout.size()).with("host_us", 1e6 * median(host));
      row.with("host_us_least", 1e6 * *std::min_element(host.begin(), host.end())).with("round_us", 1e6 * median(rounds)).print();
    };
    time(acco::delayed{}, "delayed");
    time(acco::two_phase{.pace = acco::fixed_pace{1}}, "two_phase");
  }
}

#if defined(ACCO_BENCH_NCCL)
bool too_few(arguments const& words, int least, int& ranks) {
  int gpus = 0;
  check_cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  ranks = static_cast<int>(words.number("--ranks", bench::stand_in ? least : gpus));
  if (ranks >= least) return false;
  std::printf("skipped: needs %d GPUs, here is %d\n", least, gpus);
  return true;
}

/// A gradient that every rank can make.
template <class T>
struct add_gradient {
  T const* parameters;
  T* gradients;
  int rank;
  __host__ __device__ void operator()(std::size_t i) const {
    gradients[i] = T(static_cast<float>(gradients[i]) +
                     static_cast<float>(parameters[i]) * static_cast<float>(i % 5 + static_cast<std::size_t>(rank)));
  }
};
struct trained {
  std::uint64_t digest = 0;
  std::vector<float> parameters;
};
template <class Schedule, class World>
trained train_on_device(Schedule schedule, World world, std::size_t count) {
  acco::cuda_stream stream;
  const acco::cuda_drained drained(stream.get());
  acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.01}, acco::cuda_storage<float>{.computation = stream.get()},
                           world, count};
  training.initialize(std::vector<float>(count, 1.0F));
  for (int m = 0; m < 8; ++m) {
    bench::launch(stream.get(), count,
                  add_gradient<float>{training.parameters().data(), training.gradients().data(), world.rank()});
    training.accumulated(1);
  }
  training.finish();
  trained result{training.state_digest(), std::vector<float>(count)};
  check_cuda(cudaMemcpyAsync(result.parameters.data(), training.parameters().data(), count * sizeof(float),
                             cudaMemcpyDeviceToHost, stream.get()),
             "cudaMemcpyAsync");
  bench::settle(stream.get());
  return result;
}
template <class Schedule>
trained train_on_host(Schedule schedule, int ranks, std::size_t count) {
  trained result;
  acco::threads_backend::run(ranks, [&](auto world) {
    acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.01}, acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 1.0F));
    for (int m = 0; m < 8; ++m) {
      const add_gradient<float> add{training.parameters().data(), training.gradients().data(), world.rank()};
      for (std::size_t i = 0; i < count; ++i) add(i);
      training.accumulated(1);
    }
    training.finish();
    if (world.rank() == 0) result = {training.state_digest(), {training.parameters().begin(), training.parameters().end()}};
  });
  return result;
}
/// Several ranks over NCCL, a GPU each, end where as many on the host do. B4 calls it with CUDA_MODULE_LOADING=LAZY.
void nccl_ranks(arguments const& words) {
  int ranks = 0;
  if (too_few(words, 2, ranks)) return;
  const std::size_t count = bench::stand_in ? 3003 : 1'000'003;
  const auto compare = [&](auto schedule, char const* name, double tolerance) {
    const trained device = bench::nccl_on_threads{ranks}.run([&](auto world) { return train_on_device(schedule, world, count); });
    const trained host = train_on_host(schedule, ranks, count);
    double worst = 0;
    for (std::size_t i = 0; i < count; ++i)
      worst = std::max(worst, static_cast<double>(std::abs(device.parameters[i] - host.parameters[i])));
    figure("nccl_ranks")
        .with("schedule", name)
        .with("ranks", ranks)
        .with("from_host", worst)
        .with("tolerance", tolerance)
        .print();
    if (!(worst <= tolerance)) throw std::runtime_error(std::string(name) + ": the host ends elsewhere");
  };
  compare(acco::two_phase{.pace = acco::fixed_pace{1}}, "two_phase", 1e-5);
  compare(acco::delayed{.commit = acco::coded{.gradients = acco::block_int8{}, .parameters = acco::block_int4{}}},
          "delayed, int8 and int4", 1e-2);
}

/// B5: can NCCL's all-gather, and an update, be captured into a CUDA graph?
void capture(arguments const&) {
  using storage = acco::cuda_storage<float>;
  constexpr std::uint32_t count = 4096;
  acco::cuda_queue queue(nullptr);
  const auto arrays = storage{}.allocate(5 * count * sizeof(float), 0);
  float* const first = arrays.as<float>();
  bench::launch(nullptr, 5 * count, bench::set_all<float>{first, 1.0F});
  acco::cuda_numbers<acco::region_update> decided(storage{}, 1);
  acco::cuda_numbers<acco::adamw::constants> constants(storage{}, 1);
  acco::cuda_numbers<acco::update_block> blocks(storage{}, 1);
  decided[0] = {1.0, true};
  constants[0] = acco::adamw{}.prepare({}, {});
  blocks[0] = {0, count, 0};
  decided.upload(queue);
  constants.upload(queue);
  blocks.upload(queue);
  queue.wait();
  bench::settle(nullptr);
  const acco::update_table<acco::adamw, float, float> table{
      first, {first + count, first + 2 * count}, first + 3 * count, constants.there(), nullptr, decided.there(), blocks.there()};
  const auto attempt = [&](char const* what, auto&& enqueue) {
    std::string words;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    queue.issue([&](cudaStream_t stream) {
      try {
        check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        try {
          enqueue(stream);
        } catch (std::exception const& e) {
          words = e.what();
        }
        const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
        if (!words.empty()) return;
        check_cuda(ended, "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
        for (int k = 0; k < 2; ++k) check_cuda(cudaGraphLaunch(ready, stream), "cudaGraphLaunch");
        bench::settle(stream);
      } catch (std::exception const& e) {
        words = e.what();
      }
    });
    if (ready != nullptr) (void)cudaGraphExecDestroy(ready);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    figure("b5_capture").with("what", what).with("possible", words.empty()).with("words", words).print();
  };
  const bench::nccl_on_threads alone{1};
  alone.run([&](auto world) {
    float* const out = first + 4 * count;
    attempt("an update", [&](cudaStream_t) { storage::apply<acco::adamw, acco::update::commit>(queue, &table, 0, 1, out); });
    attempt("ncclAllGather, one rank, non-blocking communicator", [&](cudaStream_t stream) {
      ncclResult_t code = ncclAllGather(first, out, count, ncclFloat, world.communicator(), stream);
      for (const double from = acco::steady_seconds(); code == ncclInProgress && acco::steady_seconds() - from < 10;)
        acco::check_nccl(ncclCommGetAsyncError(world.communicator(), &code), "ncclCommGetAsyncError", {});
      acco::check_nccl(code, "ncclAllGather", {});
    });
    attempt("an update and nccl_backend::all_gather", [&](cudaStream_t) {
      storage::apply<acco::adamw, acco::update::commit>(queue, &table, 0, 1, out);
      world.all_gather(queue, acco::sharded<float const>({first, count}), acco::replicated<float>({out, count}));
    });
    return 0;
  });
}

/// B10: two optimizers over one world of NCCL whose ranks may differ in the order of their collectives.
void two_elastic_optimizers(arguments const&) {
  const std::string words = bench::nccl_on_threads{1}.run([](auto world) {
    acco::cuda_stream stream;
    const acco::cuda_drained drained(stream.get());
    const auto make = [&] {
      return acco::optimizer{acco::delayed{.pace = acco::elastic_pace{}}, acco::adamw{},
                             acco::cuda_storage<float>{.computation = stream.get()}, world, 1000};
    };
    auto first = make();
    auto second = make();
    first.initialize(std::vector<float>(1000, 1.0F));
    try {
      second.initialize(std::vector<float>(1000, 1.0F));
    } catch (acco::usage_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  });
  figure("b10_order").with("refused", !words.empty()).with("words", words).print();
  if (words.empty()) throw std::runtime_error("the second optimizer with elastic_pace over one NCCL world is not refused");
}
#endif

#if !defined(ACCO_STAND_IN)
/// A pool of the user's own, whose memory only its GPU can read unless somebody says otherwise.
class own_pool : public acco::cuda_memory_resource {
 public:
  explicit own_pool(int device) {
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location.type = cudaMemLocationTypeDevice;
    wanted.location.id = device;
    check_cuda(cudaMemPoolCreate(&pool_, &wanted), "cudaMemPoolCreate");
  }
  ~own_pool() override { (void)cudaMemPoolDestroy(pool_); }
  void* allocate(std::size_t bytes, cudaStream_t stream) override {
    void* memory = nullptr;
    check_cuda(cudaMallocFromPoolAsync(&memory, bytes, pool_, stream), "cudaMallocFromPoolAsync");
    return memory;
  }
  void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept override { (void)cudaFreeAsync(memory, stream); }

 private:
  cudaMemPool_t pool_ = nullptr;
};
#endif

/// B8: ranks that are threads on two GPUs, with memory of the user's own pools.
void own_pools(arguments const&) {
  int gpus = 0;
  check_cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  if (gpus < 2) {
    std::printf("skipped: needs 2 GPUs, here is %d\n", gpus);
    return;
  }
#if !defined(ACCO_STAND_IN)
  std::string words;
  try {
    two_ranks.run([&](auto world) {
      check_cuda(cudaSetDevice(world.rank()), "cudaSetDevice");
      own_pool pool(world.rank());
      acco::cuda_stream stream;
      const acco::cuda_drained drained(stream.get());
      acco::optimizer training{
          acco::delayed{}, acco::adamw{}, acco::cuda_storage<float>{.computation = stream.get(), .memory = &pool},
          world,           100'003,       acco::options{.deadline = 10}};
      training.initialize(std::vector<float>(100'003, 1.0F));
      for (int m = 0; m < 4; ++m) training.accumulated(1);
      training.finish();
      bench::settle(stream.get());
      return 0;
    });
  } catch (std::exception const& e) {
    words = e.what();
  }
  figure("b8_own_pools").with("works", words.empty()).with("words", words).print();
#endif
}

}  // namespace

int main(int count, char** words) {
  const arguments chosen(count, words);
  const std::map<std::string, void (*)(arguments const&)> all{
      {"priorities", priorities},
      {"gap", gap_before_collectives},
      {"naps", communication_bound},
      {"non_finite", find_non_finite},
      {"boundary", boundary},
      {"own_pools", own_pools},
#if defined(ACCO_BENCH_NCCL)
      {"nccl_ranks", nccl_ranks},
      {"capture", capture},
      {"elastic", two_elastic_optimizers},
#endif
  };
  const std::string name = chosen.text("--only", "");
  const auto found = all.find(name);
  if (found == all.end()) {
    std::printf(name == "nccl_ranks" || name == "capture" || name == "elastic" ? "skipped: compiled without NCCL\n"
                                                                               : "failed: no experiment is called '%s'\n",
                name.c_str());
    return 1;
  }
  if (bench::gpus() == 0) return 0;
  try {
    found->second(chosen);
  } catch (std::exception const& e) {
    std::printf("failed: %s\n", e.what());
    return 1;
  }
  return 0;
}
