// SPDX-License-Identifier: Apache-2.0
// What the library acco::compiled has compiled: whoever links it does not compile that again. compiled/engines.cpp.in
// is its other side.
#pragma once

#include <memory>

#include "acco/bfloat16.hpp"
#include "acco/code/bfloat16_wire.hpp"
#include "acco/code/block_integer.hpp"
#include "acco/code/encoding.hpp"
#include "acco/collective/backend_in_use.hpp"
#include "acco/collective/solo.hpp"
#include "acco/collective/threads.hpp"
#include "acco/handed.hpp"
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

// Functions, not classes: of a function that is compiled elsewhere a file reads one line, of a class it makes the
// whole. `...`: nothing, or `extern`.
#define ACCO_COMPILED_WIRE(Encoding, Storage, ...)                                                               \
  __VA_ARGS__ template std::unique_ptr<reducer_in_use<Storage>> new_reducer<Encoding, Storage>(Encoding const&); \
  __VA_ARGS__ template std::unique_ptr<gatherer_in_use<Storage>> new_gatherer<Encoding, Storage>(Encoding const&);
#define ACCO_COMPILED_BACKEND(Backend, Storage, ...)                                                  \
  __VA_ARGS__ template handed<backend_in_use<Storage>> new_backend<Backend, Storage, false>(Backend); \
  __VA_ARGS__ template handed<backend_in_use<Storage>> new_backend<Backend, Storage, true>(Backend);
#define ACCO_COMPILED_RULE(Rule, Storage, ...) __VA_ARGS__ template handed<rule_in_use<Storage>> new_rule<Rule, Storage>(Rule);
#define ACCO_COMPILED_SCHEDULE(Schedule, Storage, ...) \
  __VA_ARGS__ template handed<schedule_in_use<Storage>> new_schedule<Schedule, Storage>(Schedule);
#define ACCO_COMPILED_OVER(Storage, ...)                                                                           \
  __VA_ARGS__ template struct engines_over<Storage>;                                                               \
  ACCO_COMPILED_BACKEND(solo_backend, Storage, __VA_ARGS__)                                                        \
  ACCO_COMPILED_BACKEND(threads_backend, Storage, __VA_ARGS__)                                                     \
  ACCO_COMPILED_RULE(adamw, Storage, __VA_ARGS__)                                                                  \
  ACCO_COMPILED_RULE(sgd, Storage, __VA_ARGS__)                                                                    \
  ACCO_COMPILED_RULE(lion, Storage, __VA_ARGS__)                                                                   \
  ACCO_COMPILED_SCHEDULE(synchronous<>, Storage, __VA_ARGS__)                                                      \
  ACCO_COMPILED_SCHEDULE(delayed<>, Storage, __VA_ARGS__)                                                          \
  ACCO_COMPILED_SCHEDULE(weight_prediction<>, Storage, __VA_ARGS__)                                                \
  ACCO_COMPILED_SCHEDULE(two_phase<>, Storage, __VA_ARGS__)                                                        \
  ACCO_COMPILED_WIRE(full, Storage, __VA_ARGS__)                                                                   \
  ACCO_COMPILED_WIRE(bfloat16_wire, Storage, __VA_ARGS__)                                                          \
  ACCO_COMPILED_WIRE(block_int8<>, Storage, __VA_ARGS__)                                                           \
  ACCO_COMPILED_WIRE(block_int4<>, Storage, __VA_ARGS__)                                                           \
  __VA_ARGS__ template std::unique_ptr<reducer_in_use<Storage>> new_reducer<own_slice, Storage>(own_slice const&); \
  __VA_ARGS__ template std::unique_ptr<reducer_in_use<Storage>> new_reducer<own_corrected, Storage>(own_corrected const&);

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
