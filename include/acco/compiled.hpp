// SPDX-License-Identifier: Apache-2.0
// What the library acco::compiled has compiled: whoever links it does not compile that again. compiled/engines.cpp.in
// is its other side.
#pragma once

#include "acco/bfloat16.hpp"
#include "acco/code/bfloat16_wire.hpp"
#include "acco/code/block_integer.hpp"
#include "acco/code/encoding.hpp"
#include "acco/collective/backend_in_use.hpp"
#include "acco/collective/solo.hpp"
#include "acco/collective/threads.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/rule/all.hpp"
#include "acco/schedule/all.hpp"
#include "acco/storage/host.hpp"
#include "acco/usage/make_engine.hpp"
#include "acco/version.hpp"
#include "acco/wire/coded.hpp"
#include "acco/wire/full.hpp"
#include "acco/wire/own.hpp"

/// Everything over a storage; `...`: nothing, or `extern`.
#define ACCO_COMPILED_WIRE(Wire, Storage, ...)       \
  __VA_ARGS__ template class reducer<Wire, Storage>; \
  __VA_ARGS__ template class gatherer<Wire, Storage>;
#define ACCO_COMPILED_OVER(Storage, ...)                                  \
  __VA_ARGS__ template struct engines_over<Storage>;                      \
  __VA_ARGS__ template class backend_of<solo_backend, Storage, false>;    \
  __VA_ARGS__ template class backend_of<solo_backend, Storage, true>;     \
  __VA_ARGS__ template class backend_of<threads_backend, Storage, false>; \
  __VA_ARGS__ template class backend_of<threads_backend, Storage, true>;  \
  __VA_ARGS__ template class rule_of<adamw, Storage>;                     \
  __VA_ARGS__ template class rule_of<sgd, Storage>;                       \
  __VA_ARGS__ template class rule_of<lion, Storage>;                      \
  __VA_ARGS__ template class schedule_of<synchronous<>, Storage>;         \
  __VA_ARGS__ template class schedule_of<delayed<>, Storage>;             \
  __VA_ARGS__ template class schedule_of<weight_prediction<>, Storage>;   \
  __VA_ARGS__ template class schedule_of<two_phase<>, Storage>;           \
  ACCO_COMPILED_WIRE(full, Storage, __VA_ARGS__)                          \
  ACCO_COMPILED_WIRE(bfloat16_wire, Storage, __VA_ARGS__)                 \
  ACCO_COMPILED_WIRE(block_int8<>, Storage, __VA_ARGS__)                  \
  ACCO_COMPILED_WIRE(block_int4<>, Storage, __VA_ARGS__)                  \
  __VA_ARGS__ template class reducer<own_slice, Storage>;                 \
  __VA_ARGS__ template class reducer<own_corrected, Storage>;

namespace ACCO_SIMD_NAMESPACE::of_compiled {

using float_storage = host_storage<float>;
using bfloat16_storage = host_storage<bfloat16>;
using mixed_storage = host_storage<bfloat16, float>;
using double_storage = host_storage<double>;

}  // namespace ACCO_SIMD_NAMESPACE::of_compiled

#if ACCO_ENGINES_ARE_COMPILED
namespace ACCO_SIMD_NAMESPACE {

template <>
inline constexpr bool is_compiled<of_compiled::float_storage> = true;
template <>
inline constexpr bool is_compiled<of_compiled::bfloat16_storage> = true;
template <>
inline constexpr bool is_compiled<of_compiled::mixed_storage> = true;
template <>
inline constexpr bool is_compiled<of_compiled::double_storage> = true;
ACCO_COMPILED_OVER(of_compiled::float_storage, extern)
ACCO_COMPILED_OVER(of_compiled::bfloat16_storage, extern)
ACCO_COMPILED_OVER(of_compiled::mixed_storage, extern)
ACCO_COMPILED_OVER(of_compiled::double_storage, extern)

}  // namespace ACCO_SIMD_NAMESPACE
#endif
