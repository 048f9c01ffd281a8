// SPDX-License-Identifier: Apache-2.0
// galore over what cannot carry it; CMakeLists.txt says how the sections are read.
#include <acco/acco.hpp>
#include <acco/galore.hpp>
#include <acco/outer.hpp>

/// As that of a GPU.
struct elsewhere : acco::host_storage<float> {
  static constexpr bool host_memory = false;
};

void train(acco::threads_backend world, acco::parameter_layout layout) {
  acco::optimizer fine{acco::galore{}, acco::sgd{}, acco::host_storage<float>{}, world, layout};
#if defined(OTHER_TYPES)  // expect: acco: galore multiplies matrices in host memory, of one type, so far
  {
    acco::optimizer training{acco::galore{}, acco::sgd{}, acco::host_storage<acco::bfloat16>{}, world, layout};
  }
#endif
#if defined(STORAGE_ELSEWHERE)  // expect: acco: galore multiplies matrices in host memory, of one type, so far
  {
    acco::optimizer training{acco::galore{}, acco::sgd{}, elsewhere{}, world, layout};
  }
#endif
#if defined(RULE_FOR_MATRICES)  // expect: acco: galore trains coordinates one by one: give it an elementwise rule
  {
    acco::optimizer training{acco::galore{}, acco::muon{}, acco::host_storage<float>{}, world, layout};
  }
#endif
#if defined(WITH_PREDICTOR)  // expect: acco: galore renews what coordinates mean, and a predictor, a compensation or a reference
  {
    acco::optimizer training{acco::galore{.inner = acco::delayed{.predictor = acco::extrapolation{}}}, acco::sgd{},
                             acco::host_storage<float>{}, world, layout};
  }
#endif
#if defined(WITH_REFERENCE_POINT)  // expect: a compensation or a reference point remembers them: give it a schedule without
  {
    acco::optimizer training{acco::galore{.inner = acco::masha{}}, acco::sgd{}, acco::host_storage<float>{}, world, layout};
  }
#endif
#if defined(AROUND_LOCAL_UPDATES)  // expect: acco: galore goes around a schedule, and not around local updates or galore
  {
    acco::optimizer training{acco::galore{.inner = acco::local_updates{}}, acco::sgd{}, acco::host_storage<float>{}, world,
                             layout};
  }
#endif
#if defined(WITHIN_LOCAL_UPDATES)  // expect: acco: the schedule lacks `round_plan plan(std::size_t round) const`
  {
    acco::optimizer training{acco::local_updates{.inner = acco::galore{}}, acco::sgd{}, acco::host_storage<float>{}, world,
                             layout};
  }
#endif
}
