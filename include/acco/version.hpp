// SPDX-License-Identifier: Apache-2.0
// The version of the library and the inline namespace that carries it: two versions can live in one program.
#pragma once

#if __cplusplus < 202002L || (defined(__clang__) ? __clang_major__ < 17 : __GNUC__ < 12)
#error "acco needs C++20 (-std=c++20) and g++ 12, clang 17, or a newer one of them"
// one sentence, not a page of what it does not understand
#include "acco stops here: the compiler is too old, or its flags are"
#endif

#if !defined(__cpp_exceptions)
#error "acco tells errors by exceptions: compile without -fno-exceptions"
#include "acco stops here: exceptions are switched off"
#endif

#define ACCO_VERSION_MAJOR 0
#define ACCO_VERSION_MINOR 1
#define ACCO_VERSION_PATCH 0
#define ACCO_NAMESPACE acco::inline v0_1

// Files of one program may be compiled with different -m flags. A linker takes one of several inline functions of a
// name, so what computes has the flags in its name: else a file for every processor could get another file's AVX-512.
// Everything that loops over numbers, and whatever is made of it, lives in ACCO_SIMD_NAMESPACE; what a trainer passes
// from file to file (errors, layouts, options, rules, schedules, reports, any_optimizer) in ACCO_NAMESPACE, the same
// type whatever the flags. docs/attach.md has the limits of this.
#if defined(__AVX512BW__)
#define ACCO_TARGET_VECTORS avx512bw
#define ACCO_TARGET_LEVEL 6
#elif defined(__AVX512F__)
#define ACCO_TARGET_VECTORS avx512
#define ACCO_TARGET_LEVEL 5
#elif defined(__AVX2__)
#define ACCO_TARGET_VECTORS avx2
#define ACCO_TARGET_LEVEL 4
#elif defined(__AVX__)
#define ACCO_TARGET_VECTORS avx
#define ACCO_TARGET_LEVEL 3
#elif defined(__SSE4_1__)
#define ACCO_TARGET_VECTORS sse4
#define ACCO_TARGET_LEVEL 2
#elif defined(__ARM_FEATURE_SVE)
#define ACCO_TARGET_VECTORS sve
#define ACCO_TARGET_LEVEL 1
#else
#define ACCO_TARGET_VECTORS least
#define ACCO_TARGET_LEVEL 0
#endif
#if defined(__FMA__)
#define ACCO_TARGET_FMA _fma
#define ACCO_TARGET_HAS_FMA 1
#else
#define ACCO_TARGET_FMA
#define ACCO_TARGET_HAS_FMA 0
#endif
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#define ACCO_TARGET_MATH _fast_math
#define ACCO_TARGET_IS_FAST 1
#else
#define ACCO_TARGET_MATH
#define ACCO_TARGET_IS_FAST 0
#endif
#define ACCO_TARGET_JOIN(vectors, fma, math) for_##vectors##fma##math
#define ACCO_TARGET_NAME(vectors, fma, math) ACCO_TARGET_JOIN(vectors, fma, math)
#define ACCO_SIMD_NAMESPACE ACCO_NAMESPACE::inline ACCO_TARGET_NAME(ACCO_TARGET_VECTORS, ACCO_TARGET_FMA, ACCO_TARGET_MATH)
// acco::compiled has engines for one set of such flags. Whoever links it has ACCO_COMPILED, which is the number of that
// set: files of other flags compile their engines themselves.
#if defined(_GLIBCXX_DEBUG)
#define ACCO_TARGET_IS_CHECKED 1
#else
#define ACCO_TARGET_IS_CHECKED 0
#endif
#define ACCO_TARGET_NUMBER (8 * ACCO_TARGET_LEVEL + 4 * ACCO_TARGET_HAS_FMA + 2 * ACCO_TARGET_IS_FAST + ACCO_TARGET_IS_CHECKED)
#if defined(ACCO_COMPILED) && ACCO_COMPILED == ACCO_TARGET_NUMBER
#define ACCO_ENGINES_ARE_COMPILED 1
#else
#define ACCO_ENGINES_ARE_COMPILED 0
#endif
// What such a file does not define either: a file of the library, which nobody else's would emit were it inline there.
#if defined(ACCO_COMPILES_ONCE)
#define ACCO_ONCE
#else
#define ACCO_ONCE inline
#endif
// Without NDEBUG an optimizer's engine is one that checks the trainer's habits (options::check_habits): what makes
// engines has that in its name, too. Everything that is passed between files has not.
#if defined(NDEBUG)
#define ACCO_ENGINE_NAMESPACE ACCO_SIMD_NAMESPACE::inline release
#else
#define ACCO_ENGINE_NAMESPACE ACCO_SIMD_NAMESPACE::inline debug_build
#endif

// What one shared object makes and another one asks for its type: errors, above all. Under -fvisibility=hidden each
// would have a type of its own of the same name, and libc++ does not take one for the other.
#define ACCO_VISIBLE __attribute__((visibility("default")))

namespace ACCO_NAMESPACE {

/// The version of these headers, as numbers.
struct version_number {
  int major, minor, patch;
  friend constexpr bool operator==(version_number, version_number) = default;
};
inline constexpr version_number version{ACCO_VERSION_MAJOR, ACCO_VERSION_MINOR, ACCO_VERSION_PATCH};

}  // namespace ACCO_NAMESPACE
