// SPDX-License-Identifier: Apache-2.0
// Compiled with -ffinite-math-only: a gradient that is not finite raises or skips as documented, and so do numbers that
// a trainer gives. Nothing here may compare with a NaN: bits are written and read.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#if !__FINITE_MATH_ONLY__
#error "this test proves something only with -ffinite-math-only"
#endif

namespace {

/// The number with these bits, made where the compiler cannot see it.
double double_of(std::uint64_t bits) {
  std::uint64_t volatile hidden = bits;
  bits = hidden;
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
constexpr std::uint64_t not_a_number = 0x7ff8'0000'0000'0000, infinite = 0x7ff0'0000'0000'0000;

/// Writes `bits`, as many as the number has, into a gradient.
template <class T>
void poison(T& gradient, std::uint64_t bits) {
  std::memcpy(static_cast<void*>(&gradient), &bits, sizeof gradient);
}
/// Bits of T that are not finite: NaN, NaN that rounding up would carry away, and minus infinity.
template <class T>
constexpr std::uint64_t strange[3] = {};
template <>
[[maybe_unused]] constexpr std::uint64_t strange<double>[3] = {not_a_number, 0xffff'ffff'ffff'ffff, 0xfff0'0000'0000'0000};
template <>
constexpr std::uint64_t strange<float>[3] = {0x7fc0'0000, 0xffff'ffff, 0xff80'0000};
template <>
[[maybe_unused]] constexpr std::uint64_t strange<acco::bfloat16>[3] = {0x7fc0, 0xffff, 0xff80};
template <>
constexpr std::uint64_t strange<acco::half>[3] = {0x7e00, 0xffff, 0xfc00};

template <class T>
void expect_error_and_skip(auto schedule, double clip) {
  acco::parameter_layout layout;
  layout.add("body", {700}).add("head", {9, 40});
  // Checks of habits mark parameters of before with a NaN of all bits, which one of ours is.
  acco::options options{.clip_norm = clip, .check_habits = acco::habit_checks::off};
  for (const std::uint64_t bits : strange<T>) {
    for (const auto policy : {acco::non_finite::raise, acco::non_finite::skip}) {
      CAPTURE(std::string(decltype(schedule)::name));
      CAPTURE(bits);
      CAPTURE(clip);
      options.on_non_finite = policy;
      std::string what;
      bool skipped = false, finite = true;
      try {
        acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
          acco::optimizer training{schedule, acco::sgd{}, acco::host_storage<T>{}, world, layout, options};
          training.initialize(std::vector<T>(layout.size(), T(1.0F)));
          for (int m = 0; m < 8; ++m) {
            for (T& gradient : training.gradients()) gradient += T(1.0F);
            if (m == 3 && world.rank() == 1) poison(training.gradients()[703], bits);
            const auto report = training.accumulated(1);
            if (report && world.rank() == 0) skipped = skipped || report->skipped;
          }
          training.finish();
          if (world.rank() == 0) finite = acco::elementwise::all_finite(training.parameters().data(), layout.size());
        });
      } catch (acco::non_finite_error const& e) {
        what = e.what();
      }
      const bool raised = what.find(
                              "rank 1 brought 1 gradients that are infinite or not a number, the first in tensor 'head' at "
                              "element 3") != std::string::npos;
      CHECK_MESSAGE(raised == (policy == acco::non_finite::raise), what);
      CHECK(skipped == (policy == acco::non_finite::skip));
      CHECK(finite);
    }
  }
}

}  // namespace

TEST_CASE("a gradient that is not finite is noticed") {  // by the one engine that is compiled without ACCO_TEST_ALL
  for (const double clip : {0.0, 1.0}) {
    expect_error_and_skip<float>(acco::synchronous{}, clip);
    expect_error_and_skip<float>(acco::two_phase{.pace = acco::fixed_pace{1}}, clip);
  }
}

#if defined(ACCO_TEST_ALL)
TEST_CASE_TEMPLATE("a gradient that is not finite is noticed under every schedule", T, float, double, acco::bfloat16,
                   acco::half) {
  for (const double clip : {0.0, 1.0}) {
    expect_error_and_skip<T>(acco::synchronous{}, clip);
    expect_error_and_skip<T>(acco::delayed{}, clip);
    expect_error_and_skip<T>(acco::weight_prediction{}, clip);
    expect_error_and_skip<T>(acco::two_phase{.pace = acco::fixed_pace{1}}, clip);
  }
}

TEST_CASE("and in encoded rounds") {
  expect_error_and_skip<float>(acco::synchronous{.commit = acco::block_int8<>{}}, 0);
  expect_error_and_skip<float>(acco::two_phase{.estimate = acco::block_int4<>{}, .pace = acco::fixed_pace{1}}, 0);
  expect_error_and_skip<float>(acco::delayed{.commit = acco::bfloat16_wire{}}, 1);
  expect_error_and_skip<acco::half>(acco::delayed{.commit = acco::block_int8<>{}}, 0);
  const acco::with_error_feedback<acco::block_gauss2, acco::int8_blocks> kept;
  expect_error_and_skip<float>(acco::delayed{.commit = acco::coded{kept, acco::block_gauss4{}}}, 0);
}

TEST_CASE_TEMPLATE("a block with a number that is not finite arrives as one, alone and in a sum", Code, acco::block_int8<>,
                   acco::block_int4<>, acco::bfloat16_wire, acco::block_gauss4, acco::block_gauss3, acco::block_gauss2,
                   acco::block_stat2, acco::block_ternary, acco::block_sign, acco::majority_vote,
                   acco::rotated<acco::block_gauss3>, acco::rotated<acco::block_int4<>>, acco::block_top<16>,
                   acco::block_top<64, 4096, 2>, acco::block_random<32>, acco::scaled_random<65, 4096>, acco::block_dct_top<16>,
                   acco::block_dct_top<16, 256, 4, acco::mean_over::senders>, acco::block_dct2_top<64, 2>) {
  constexpr std::size_t size = Code::block_size;
  std::vector<float> values(size), decoded(size), sums(size);
  std::vector<std::byte> bytes(Code::block_bytes), others(Code::block_bytes);
  std::byte const* const sources[] = {others.data(), bytes.data()};
  const auto non_finite = [](std::vector<float> const& numbers) {
    std::size_t first = 0;
    return acco::elementwise::count_non_finite(numbers.data(), numbers.size(), first);
  };
  for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i % 7) - 2.75F;
  const Code code;
  code.encode(values.data(), others.data());
  code.decode(others.data(), decoded.data());
  CHECK(non_finite(decoded) == 0);
  for (std::size_t at = 0; at < size; at += size / 4 - 1) {
    for (const std::uint64_t bits : strange<float>) {
      const float was = values[at];
      poison(values[at], bits);
      code.encode(values.data(), bytes.data());
      values[at] = was;
      code.decode(bytes.data(), decoded.data());
      CHECK(non_finite(decoded) != 0);
      acco::coding::decode_sum(code, 2, [&](int k) { return sources[k]; }, sums.data(), size, false);
      CHECK(non_finite(sums) != 0);
    }
  }
}

TEST_CASE("numbers that a trainer gives, and those that its learning rate returns") {
  const double nan = double_of(not_a_number), infinity = double_of(infinite);
  const auto make = [](acco::adamw rule, acco::options const& chosen) {
    acco::optimizer training{acco::synchronous{}, rule, acco::host_storage<float>{}, acco::solo_backend{}, 4, chosen};
    training.initialize(std::vector<float>(4, 1.0F));
    return training;
  };
  for (const double bad : {nan, infinity}) {
    CHECK_THROWS_WITH_AS(make({.learning_rate = bad}, {}), doctest::Contains("adamw::learning_rate is"), acco::usage_error);
    CHECK_THROWS_WITH_AS(make({}, {.clip_norm = bad}), doctest::Contains("options::clip_norm is"), acco::usage_error);
    acco::parameter_layout layout;
    CHECK_THROWS_WITH_AS(layout.add_group({.weight_decay = bad}), doctest::Contains("update_group::weight_decay is"),
                         acco::usage_error);
    auto training = make({}, {.learning_rate = [bad](double samples) { return samples == 0 ? 1 : bad; }});
    CHECK_THROWS_WITH_AS(training.accumulated(bad), doctest::Contains("accumulated got a weight of"), acco::usage_error);
    training.accumulated(2);
    CHECK_THROWS_WITH_AS(training.accumulated(1), doctest::Contains("rank 0, round 1"), acco::usage_error);
    CHECK_THROWS_WITH_AS(training.accumulated(1), doctest::Contains("options::learning_rate returned"), acco::usage_error);
  }
}
#endif

TEST_CASE("finite is a matter of bits, wherever in an array it lies") {
  CHECK_FALSE(acco::is_finite(double_of(not_a_number)));
  CHECK_FALSE(acco::is_finite(double_of(infinite)));
  CHECK(acco::is_finite(1e308));
  std::vector<float> numbers(1000, 3e38F);
  for (std::size_t at = 0; at < numbers.size(); at += 7) {
    CHECK(acco::elementwise::all_finite(numbers.data(), numbers.size()));
    poison(numbers[at], strange<float>[at % 3]);
    std::size_t first = 0;
    CHECK(acco::elementwise::count_non_finite(numbers.data(), numbers.size(), first) == 1);
    CHECK(first == at);
    numbers[at] = 1;
  }
}

TEST_CASE("conversions keep a NaN a NaN") {
  for (const std::uint64_t bits : strange<float>) {
    float value = 0;
    poison(value, bits);
    float const volatile& hidden = value;
    CHECK((acco::bfloat16(hidden).bits() & 0x7f80) == 0x7f80);
    CHECK((acco::half(hidden).bits() & 0x7c00) == 0x7c00);
    acco::bfloat16 narrow[1];
    acco::elementwise::convert(&value, narrow, 1);
    CHECK((narrow[0].bits() & 0x7f80) == 0x7f80);
  }
  for (const std::uint64_t bits : strange<acco::half>) {
    std::uint16_t const volatile hidden = static_cast<std::uint16_t>(bits);
    CHECK((std::bit_cast<std::uint32_t>(static_cast<float>(acco::half::from_bits(hidden))) & 0x7f80'0000) == 0x7f80'0000);
  }
}
