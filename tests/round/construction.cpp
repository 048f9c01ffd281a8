// SPDX-License-Identifier: Apache-2.0
// What two ranks tell each other of how gradients travel: whatever would be decoded differently must be told differently.
#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include <acco/encoding/auto_encoding.hpp>
#include <acco/encoding/block_random.hpp>
#include <acco/encoding/block_top.hpp>
#include <acco/encoding/one_of.hpp>
#include <acco/encoding/power_sgd.hpp>
#include <acco/round/construction.hpp>

namespace {

template <class Gradients, class Parameters = acco::full>
std::string told(Gradients const& gradients, Parameters const& parameters = {}) {
  acco::description d;
  acco::describe_wire(d, "commit", acco::coded<Gradients, Parameters>{gradients, parameters});
  return d.lines();
}
std::string difference(std::string const& a, std::string const& b) {
  return std::string(acco::first_difference(a, b).told(acco::text("rank 0 has"), acco::text("rank 1 has")).view());
}

/// One's own, with a parameter that only it can tell.
template <std::size_t Parts>
struct own {
  static constexpr char const* name = "own";
  static constexpr std::size_t block_size = 256, block_bytes = 512;
  float gain = 1;
  void encode(float const*, std::byte*) const {}
  void decode(std::byte const*, float*) const {}
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("parts", Parts);
    visit("gain", static_cast<double>(gain));
  }
};

}  // namespace

TEST_CASE("a choice is told by its number too: two of several may have one name") {
  using codes = acco::one_of<acco::block_top<16>, acco::block_top<32>>;
  CHECK(difference(told(acco::with_error_feedback<codes>(codes{0})), told(acco::with_error_feedback<codes>(codes{1}))) ==
        "rank 0 has 'commit gradients = one_of: block_top, number 0 of 2', rank 1 has 'commit gradients = one_of: block_top, "
        "number 1 of 2'");
  CHECK(told(acco::full{}, codes{0}) != told(acco::full{}, codes{1}));
  CHECK(told(codes{1}) == told(codes{1}));
  using planned = acco::planned_encoding<acco::block_top<16>, acco::block_top<32>>;
  CHECK(told(planned{.first = 0}) != told(planned{.first = 1}));
}

TEST_CASE("lists are told with all their encodings") {
  using one = acco::planned_encoding<acco::block_int8<>, acco::block_gauss3>;
  using other = acco::planned_encoding<acco::block_int8<>, acco::rotated_gauss3>;
  CHECK(difference(told(one{}), told(other{})) ==
        "rank 0 has 'commit gradients 1 = block_gauss3, blocks of 256 in 98 bytes', rank 1 has 'commit gradients 1 = "
        "rotated_gauss3, blocks of 256 in 98 bytes'");
  CHECK(told(one{}) != told(acco::planned_encoding<acco::block_gauss3, acco::block_int8<>>{.first = 1}));
  CHECK(told(acco::one_of<acco::block_top<16>, acco::block_int8<>>{}) !=
        told(acco::one_of<acco::block_top<24>, acco::block_int8<>>{}));
  CHECK(told(acco::one_of<acco::block_int8<>, acco::block_gauss3>{}) !=
        told(acco::one_of<acco::block_int8<>, acco::rotated_gauss3>{}));
}

TEST_CASE("an encoding tells what neither its name nor its sizes do; feedback ahead is told") {
  static_assert(acco::block_random<15>::block_bytes == acco::block_random<16>::block_bytes);
  CHECK(difference(told(acco::block_random<15>{}), told(acco::block_random<16>{})) ==
        "rank 0 has 'commit gradients: kept = 15', rank 1 has 'commit gradients: kept = 16'");
  CHECK(told(acco::one_of<acco::block_random<15>>{}) != told(acco::one_of<acco::block_random<16>>{}));
  CHECK(told(own<1>{}) != told(own<2>{}));
  CHECK(told(own<1>{1}) != told(own<1>{2}));
  CHECK(told(acco::block_gauss3{}) != told(acco::with_feedback_ahead<acco::block_gauss3>{}));
}

TEST_CASE("what ranks keep of what codes lose is told, and in what; of low-rank gradients every setting") {
  using code = acco::block_gauss3;
  const std::string kept = told(acco::with_error_feedback<code>{});
  CHECK(kept != told(acco::with_error_feedback<code>(code{}, 0.5F)));
  CHECK(difference(kept, told(acco::with_error_feedback<code, acco::int8_blocks>{})) ==
        "rank 0 has 'commit feedback store = full', rank 1 has 'commit feedback store = int8 blocks'");
  CHECK(told(acco::with_error_feedback<code, float>{}) != told(acco::with_error_feedback<code, acco::bfloat16>{}));
  CHECK(kept != told(acco::with_ef21<code>{}));
  CHECK(told(acco::block_int8<>{}) != told(acco::with_ef21<acco::block_int8<>>{}));

  const std::string low_rank = told(acco::power_sgd{});
  CHECK(low_rank != told(acco::power_sgd{.rank = acco::power_sgd{}.rank + 1}));
  CHECK(low_rank != told(acco::power_sgd{.min_compression = 3.5}));
  CHECK(low_rank != told(acco::power_sgd{.exact_steps = 7}));
  CHECK(low_rank != told(acco::power_sgd{.seed = 77}));
}
