// SPDX-License-Identifier: Apache-2.0
// galore over what cannot carry it; CMakeLists.txt says how the sections are read.
#include <cstddef>

#include <acco/acco.hpp>
#include <acco/galore.hpp>
#include <acco/outer.hpp>

struct elsewhere : acco::host_storage<float> {
  static void projection_show() = delete;
};

void train(acco::threads_backend world, acco::parameter_layout layout) {
  acco::optimizer fine{acco::galore{}, acco::sgd{}, acco::host_storage<float>{}, world, layout};
#if defined(STORAGE_ELSEWHERE)  // expect: acco: galore multiplies matrices: the storage lacks `projection_show`
  acco::optimizer training{acco::galore{}, acco::sgd{}, elsewhere{}, world, layout};
#endif
#if defined(OVER_REPLICAS)  // expect: acco: galore shares its coordinates' state among ranks: give it a world without replicas
  acco::optimizer training{acco::galore{}, acco::sgd{}, acco::host_storage<float>{}, acco::replicas(world), layout};
#endif
#if defined(RULE_FOR_MATRICES)  // expect: acco: galore trains coordinates one by one: give it an elementwise rule
  acco::optimizer training{acco::galore{}, acco::muon{}, acco::host_storage<float>{}, world, layout};
#endif
#if defined(WITH_PREDICTOR)  // expect: acco: galore renews what coordinates mean, and a predictor or a compensation remembers
  acco::optimizer training{acco::galore{.inner = acco::delayed{.predictor = acco::extrapolation{}}}, acco::sgd{},
                           acco::host_storage<float>{}, world, layout};
#endif
#if defined(AROUND_LOCAL_UPDATES)  // expect: acco: galore goes around a schedule, and not around local updates or galore
  acco::optimizer training{acco::galore{.inner = acco::diloco{}}, acco::sgd{}, acco::host_storage<float>{}, world, layout};
#endif
#if defined(WITHIN_LOCAL_UPDATES)  // expect: acco: the schedule lacks `round_plan plan(std::size_t round) const`
  acco::optimizer training{acco::diloco{.inner = acco::galore{}}, acco::sgd{}, acco::host_storage<float>{}, world, layout};
#endif
}
