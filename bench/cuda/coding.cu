// SPDX-License-Identifier: Apache-2.0
// Encoding, decoding and conversion on a GPU beside a device-to-device copy that moves as many bytes; arrays begin at a
// boundary, or at an odd element. One JSON object a line. `--sizes "20 24"`: powers of two; `--seconds S`: ends about
// then.
#include <exception>

#include "arrays.hpp"

namespace {

using bench::arguments, bench::bench_of_kernels, bench::cutter, bench::figure;

constexpr std::size_t slices = 8;  // ranks among which an array is divided

char const* name_of(acco::block_int4<> const*) { return "int4"; }
char const* name_of(acco::block_int8<> const*) { return "int8"; }
char const* name_of(acco::bfloat16_wire const*) { return "bfloat16 wire"; }

/// What a measurement of one encoding and element type works on.
template <class Encoding, class T>
class coding {
 public:
  /// `runs`: stretches between frozen elements, one each, in the array onto which differences are decoded.
  coding(bench_of_kernels& all, std::size_t count, bool odd, std::size_t runs)
      : all_(&all),
        slice_((count + (odd ? slices : 0)) / slices),
        odd_(odd),
        run_count_(runs),
        numbers_(storage{}, 2),
        runs_(storage{}, runs) {
    numbers_[0] = 0;
    numbers_[1] = ~0ULL;
    numbers_.upload(all.queue());
    for (std::size_t k = 0; k < runs; ++k) {
      const std::size_t begin = total() * k / runs, end = total() * (k + 1) / runs;
      runs_[k] = {begin, begin + k, end - begin};
    }
    runs_.upload(all.queue());
  }

  void encode() {
    run("encode", values() + encoded(), sizeof(T) * total() + coded() * slices, [this](std::byte* set) {
      const arrays mine = of(set);
      storage::encode(all_->queue(), Encoding{}, const_cast<T const*>(mine.values), 0, slices, slice_, mine.encoded, bad(), 0);
    });
  }
  void encode_difference() {
    run("encode_difference", 2 * values() + encoded(), 2 * sizeof(T) * total() + acco::encoded_size<Encoding>(total()),
        [this](std::byte* set) {
          const arrays mine = of(set);
          storage::encode_difference(all_->queue(), Encoding{}, const_cast<T const*>(mine.values), view(mine), 0, total(),
                                     mine.encoded, bad());
        });
  }
  void decode_sum() {
    run("decode_sum", values() + encoded(), coded() * slices + sizeof(sum) * slice_, [this](std::byte* set) {
      const arrays mine = of(set);
      storage::decode_sum(all_->queue(), Encoding{}, mine.encoded, slices, reinterpret_cast<sum*>(mine.sums), slice_, false);
    });
  }
  void decode_onto() {
    run("decode_onto", 3 * values() + encoded(), coded() * slices + 2 * sizeof(T) * total(), [this](std::byte* set) {
      const arrays mine = of(set);
      storage::decode_onto(all_->queue(), Encoding{}, mine.encoded, view(mine), 0, slice_, total(), mine.out);
    });
  }

 private:
  using storage = acco::cuda_storage<T>;
  using sum = typename storage::sum_type;
  struct arrays {
    std::byte* encoded;
    T *values, *reference, *out;
    sum* sums;
  };

  [[nodiscard]] std::size_t total() const { return slices * slice_; }
  [[nodiscard]] std::size_t shift() const { return odd_ ? 1 : 0; }
  [[nodiscard]] std::size_t coded() const { return acco::encoded_size<Encoding>(slice_); }
  [[nodiscard]] std::size_t encoded() const {
    return cutter::bytes_of<std::byte>(std::max(slices * coded(), acco::encoded_size<Encoding>(total())));
  }
  [[nodiscard]] std::size_t values() const { return cutter::bytes_of<T>(total() + run_count_, shift()); }
  [[nodiscard]] acco::coding::refused bad() { return {numbers_.there(0), numbers_.there(1)}; }
  [[nodiscard]] acco::trainable_view<T> view(arrays const& mine) const { return {mine.reference, runs_.there(), run_count_}; }
  arrays of(std::byte* set) const {
    cutter from(set);
    arrays mine{};
    mine.encoded = from.take<std::byte>(encoded());
    mine.values = from.take<T>(total(), shift());
    mine.sums = reinterpret_cast<sum*>(mine.values - shift()) + shift();  // fewer: of one slice
    mine.reference = from.take<T>(total() + run_count_, shift());
    mine.out = from.take<T>(total(), shift());
    return mine;
  }
  template <class Enqueue>
  void run(char const* what, std::size_t set_bytes, std::size_t moved, Enqueue&& enqueue) {
    figure row("coding");
    row.with("work", what).with("encoding", name_of(static_cast<Encoding const*>(nullptr))).with("type", bench::type_name<T>());
    row.with("odd", odd_).with("runs", run_count_).with("elements", total());
    all_->measure(
        row, set_bytes, moved,
        [&](std::byte* set) {
          const arrays mine = of(set);
          bench::launch(nullptr, total(), bench::fill<T>{mine.values});
          if (set_bytes >= 2 * values() + encoded())
            bench::launch(nullptr, total() + run_count_, bench::set_all<T>{mine.reference, 1e-4F});
          bench::settle(nullptr);
          storage::encode(all_->queue(), Encoding{}, const_cast<T const*>(mine.values), 0, slices, slice_, mine.encoded, bad(),
                          0);
        },
        enqueue);
  }

  bench_of_kernels* all_;
  std::size_t slice_;
  bool odd_;
  std::size_t run_count_;
  acco::cuda_numbers<unsigned long long> numbers_;
  acco::cuda_numbers<acco::trainable_run> runs_;
};

template <class Encoding, class T>
void measure_coding(bench_of_kernels& all, std::size_t count) {
  for (const bool odd : {false, true}) {
    coding<Encoding, T> one(all, count, odd, 1);
    one.encode();
    one.decode_onto();
    one.encode_difference();
    one.decode_sum();
  }
  coding<Encoding, T> many_runs(all, count, true, 768);
  many_runs.decode_onto();
  many_runs.encode_difference();
}

template <class From, class To>
void measure_convert(bench_of_kernels& all, std::size_t count, bool odd) {
  const std::size_t n = count + (odd ? 1 : 0), shift = odd ? 1 : 0;
  using storage = acco::cuda_storage<float>;
  struct arrays {
    From* from;
    To* to;
  };
  const auto of = [&](std::byte* set) {
    cutter cut(set);
    From* const from = cut.take<From>(n, shift);
    return arrays{from, cut.take<To>(n, shift)};
  };
  const std::size_t set_bytes = cutter::bytes_of<From>(n, shift) + cutter::bytes_of<To>(n, shift);
  for (const bool add : {false, true}) {
    figure row("convert");
    row.with("work", add ? "add" : "convert").with("from", bench::type_name<From>()).with("to", bench::type_name<To>());
    row.with("odd", odd).with("elements", n);
    all.measure(
        row, set_bytes, (sizeof(From) + (add ? 2 : 1) * sizeof(To)) * n,
        [&](std::byte* set) {
          bench::launch(nullptr, n, bench::fill<From>{of(set).from});
          bench::launch(nullptr, n, bench::fill<To>{of(set).to});
        },
        [&](std::byte* set) {
          const arrays mine = of(set);
          if (add)
            storage::add(all.queue(), const_cast<From const*>(mine.from), mine.to, n);
          else
            storage::convert(all.queue(), const_cast<From const*>(mine.from), mine.to, n);
        });
  }
}

template <class Encoding>
void both_types(bench_of_kernels& all, std::size_t count) {
  measure_coding<Encoding, acco::bfloat16>(all, count);
  measure_coding<Encoding, float>(all, count);
}

}  // namespace

int main(int count, char** words) {
  const arguments chosen(count, words);
  if (bench::gpus() == 0) return 0;
  try {
    bench_of_kernels all(chosen, 17);
    for (const std::size_t size : all.sizes()) {
      both_types<acco::block_int4<>>(all, size);
      both_types<acco::block_int8<>>(all, size);
      for (const bool odd : {false, true}) {
        measure_convert<acco::bfloat16, float>(all, size, odd);
        measure_convert<float, acco::bfloat16>(all, size, odd);
      }
      both_types<acco::bfloat16_wire>(all, size);
    }
    all.tell_what_is_left();
  } catch (std::exception const& e) {
    std::printf("failed: %s\n", e.what());
    return 1;
  }
  return 0;
}
