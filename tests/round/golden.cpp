// SPDX-License-Identifier: Apache-2.0
// What 40 rounds come to, in every bit: digests of the state, the parameters in use, bytes sent, rows of memory.
// Whoever changes how a round is done, and not what it does, must find these numbers as they are. Where arithmetic
// itself changes, or what travels: ACCO_GOLDEN=write writes tests/round/golden.txt anew, and the commit says why.
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/data.hpp"
#include "support/problem.hpp"
#include "support/worlds.hpp"

namespace {

using acco::fixed_pace;
using int4 = acco::block_int4<>;
using coded_8_4 = acco::coded<acco::block_int8<>, acco::block_int4<>>;
constexpr int ranks = 3;

acco::parameter_layout layout() {
  acco::parameter_layout tensors;
  const std::size_t still = tensors.add_group({.frozen = true}), fast = tensors.add_group({.learning_rate_scale = 2});
  tensors.add("a", {37, 5}).add("frozen", {61}, still).add("b", {640}, fast).add("c", {3});
  return tensors;
}

void mix(std::uint64_t& sum, std::uint64_t with) { sum = (sum ^ with) * 0x100000001b3ULL + (with >> 29U); }

/// One line of a training: digest of all ranks, parameters in use, weight and steps; bytes sent; bytes of memory.
template <class World, class Storage, class Schedule>
std::string line(Schedule schedule, acco::options options) {
  std::vector<std::string> of(ranks);
  World::run(ranks, [&](auto world) {
    auto const tensors = layout();
    acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.01, .weight_decay = 0.1}, Storage{}, world, tensors,
                             options};
    using parameter = typename Storage::parameter_type;
    using gradient = typename Storage::gradient_type;
    training.initialize(problem::converted<parameter>(problem::initial(tensors.size())));
    std::uint64_t seen = 0, bytes = 0;
    for (std::size_t m = 0, rounds = 0; rounds < 40; ++m) {
      problem::add_sample<parameter, gradient>(problem::sample_id(world.rank(), m, 0), training.parameters(),
                                               training.gradients());
      auto const report = training.accumulated(1);
      if (!report) continue;
      ++rounds;
      bytes += report->bytes_sent;
      for (parameter const& each : training.parameters()) {
        const double value = static_cast<double>(each);
        mix(seen, std::bit_cast<std::uint64_t>(value));
      }
    }
    mix(seen, training.state_digest());
    training.finish();
    mix(seen, training.state_digest());
    mix(seen, training.steps());
    std::ostringstream out;
    out << std::hex << seen << std::dec << " " << bytes;
    for (auto const& row : training.memory().rows()) out << " " << row.bytes;
    of[static_cast<std::size_t>(world.rank())] = out.str();
  });
  return of[0] + " | " + of[1] + " | " + of[2];
}

std::filesystem::path path() { return test_data("round/golden.txt"); }

}  // namespace

TEST_CASE("golden: forty rounds of every schedule and wire, in every bit") {
#if defined(FP_FAST_FMA) || defined(__FMA__)
  MESSAGE("skipped: this build may fuse multiplications and additions, which changes bits");
#else
  std::map<std::string, std::string> found;
  const auto add = [&]<class World, class Storage>(std::string const& name, auto schedule) {
    for (const std::size_t bucket : {std::size_t{0}, std::size_t{200}}) {
      acco::options options{.check_habits = acco::habit_checks::off, .bucket_elements = bucket};
      const auto key = [&](char const* more) { return name + (bucket == 0 ? ", one bucket" : ", small buckets") + more + ": "; };
      found[key("")] = line<World, Storage>(schedule, options);
      options.clip_norm = 0.5, options.average_decay = 0.9, options.stable_addresses = true;
      found[key(", clipped, averaged, stable")] = line<World, Storage>(schedule, options);
    }
  };
  const auto with = [&]<class World, class Storage>(std::string const& name, auto... schedules) {
    std::size_t at = 0;
    (add.template operator()<World, Storage>(name + " " + std::to_string(at++), schedules), ...);
  };
  using acco::full;
  using acco::own_slice, acco::own_corrected, acco::bfloat16_wire, acco::bfloat16, acco::host_storage;
  const acco::synchronous<> synchronous{.pace = fixed_pace{2}};
  const acco::delayed<> delayed{.pace = fixed_pace{2}};
  const acco::weight_prediction<> predicted{.pace = fixed_pace{2}};
  const acco::two_phase<> exact{.pace = fixed_pace{2}};
  const acco::two_phase<fixed_pace, own_slice> own{.pace = fixed_pace{2}};
  const acco::two_phase<fixed_pace, bfloat16_wire> rounded{.pace = fixed_pace{2}};
  with.template operator()<worlds::threads, host_storage<float>>(
      "threads, float", exact, synchronous, delayed, predicted, own, rounded, acco::two_phase<fixed_pace, own_corrected>{},
      acco::two_phase<fixed_pace, int4>{}, acco::two_phase<fixed_pace, int4, coded_8_4>{}, acco::delayed<fixed_pace, coded_8_4>{},
      acco::synchronous<coded_8_4>{});
  with.template operator()<worlds::threads, host_storage<bfloat16>>("threads, bfloat16", exact, synchronous, delayed, predicted,
                                                                    own, rounded);
  with.template operator()<worlds::threads, host_storage<bfloat16, float>>(
      "threads, bfloat16 and float", exact, synchronous, delayed, predicted, acco::two_phase<fixed_pace, int4, coded_8_4>{});
  with.template operator()<worlds::mock_late, host_storage<double>>(
      "mock, late, double", exact, synchronous, delayed, predicted, own, acco::two_phase<fixed_pace, own_corrected>{},
      acco::delayed<fixed_pace, full, acco::extrapolation>{},
      acco::delayed<fixed_pace, full, acco::no_prediction, acco::delay_compensation>{});

  if (char const* const mode = std::getenv("ACCO_GOLDEN"); mode != nullptr && std::string_view(mode) == "write") {
    std::ofstream out(path());
    for (auto const& [key, value] : found) out << key << value << "\n";
  }
  std::ifstream in(path());
  REQUIRE(in.good());
  std::size_t lines = 0;
  for (std::string text; std::getline(in, text); ++lines) {
    const std::size_t end = text.find(": ") + 2;
    CHECK_MESSAGE(found[text.substr(0, end)] == text.substr(end), text.substr(0, end));
  }
  CHECK(lines == found.size());
#endif
}
