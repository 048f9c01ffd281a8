// SPDX-License-Identifier: Apache-2.0
// On device memory, results that are those of the host, and estimates that remember. Apart from schedules.cpp, which
// compiles as long.
#include <algorithm>
#include <tuple>
#include <type_traits>

#include <doctest/doctest.h>

#include "conformance/schedule.hpp"
#include "cuda/cuda_world.hpp"

using this_world = worlds::cuda;

TEST_CASE("estimates that remember the others' gradients") {
  const auto make = [](unsigned first, unsigned second) {
    return acco::two_phase{.estimate = acco::own_corrected{}, .pace = acco::fixed_pace{.first = first, .second = second}};
  };
  auto s = conformance::setting(std::min(3, this_world::most_ranks), 12, 2, 1);
  s.clip_norm = 0.7;
  const acco::adamw rule{.learning_rate = 0.02};
  constexpr auto kind = reference::algorithm::own_corrected;
  conformance::compare<conformance::exact<this_world>, this_world>(kind, make, rule, conformance::mixed_layout(), s, 1e-12,
                                                                   {.bucket_elements = 200});
  s.micro_batches[0] = 0;
  conformance::compare<conformance::exact<this_world>, this_world>(kind, make, rule, acco::parameter_layout(5003), s);
  if constexpr (everything)
    conformance::compare<worlds::managed_storage<acco::bfloat16>, this_world>(kind, make, rule, acco::parameter_layout(5003), s,
                                                                              3e-2);
}
// Each kind of parameters, gradients and masters once.
TEST_CASE_TEMPLATE("every combination of element types gives what the host gives, and the same bits in every run", Types,
                   std::tuple<float, float, float>, std::tuple<acco::bfloat16, acco::bfloat16, float>,
                   std::tuple<acco::half, float, double>,
                   std::tuple<float, acco::bfloat16, float> AND_IN_DEEP(std::tuple<acco::bfloat16, float, float>,
                                                                        std::tuple<acco::half, acco::half, float>)) {
  using P = std::tuple_element_t<0, Types>;
  using G = std::tuple_element_t<1, Types>;
  using M = std::tuple_element_t<2, Types>;
  for (const double clip : {0.0, 0.5}) {
    reference::setting s = conformance::setting(3, 9);
    s.clip_norm = clip;
    const acco::parameter_layout layout(5003);
    const acco::adamw rule{.learning_rate = 0.01};
    const auto device = library::train<worlds::managed_storage<P, G, M>>(
        this_world{}, acco::two_phase{.pace = acco::fixed_pace{1}}, rule, layout, s);
    const auto again = library::train<worlds::managed_storage<P, G, M>>(
        this_world{}, acco::two_phase{.pace = acco::fixed_pace{1}}, rule, layout, s);
    const auto host = library::train<acco::host_storage<P, G, M>>(worlds::threads{}, acco::two_phase{.pace = acco::fixed_pace{1}},
                                                                  rule, layout, s);
    CHECK(device.digests == again.digests);
    CHECK(device.parameters == again.parameters);
    CHECK(device.ranks_agree);
    CHECK(device.steps == host.steps);
    const double rounding = sizeof(P) == 2 ? (std::is_same_v<P, acco::half> ? 0x1p-9 : 0x1p-6) : 1e-5;
    CHECK(library::difference(device.parameters, host.parameters) <= rounding);
  }
}
