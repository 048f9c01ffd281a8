// SPDX-License-Identifier: Apache-2.0
// With clang (cmake/shared.cmake) the test programs parse this header once, and the optimizers below are instantiated
// and compiled once for all of them: those that several files make. A test needs no line of it; it compiles without,
// too.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "support/worlds.hpp"

namespace shared {
template <class Schedule, class Rule, class Storage, class Backend>
void make(Schedule const& schedule, Rule const& rule, Storage const& storage, Backend const& backend) {
  using optimizer = acco::optimizer<Schedule, Rule, Storage, Backend>;
  optimizer of_size(schedule, rule, storage, backend, std::size_t{1}, acco::options{});
  optimizer of_layout(schedule, rule, storage, backend, acco::parameter_layout(1));
}
template <class Rule, class Storage, class Backend>
struct engine {
  template <class... Schedules>
  static void with() {
    (static_cast<void>(&make<Schedules, Rule, Storage, Backend>), ...);
  }
};

using namespace acco;
using pace = fixed_pace;
using int4 = block_int4<>;
using coded_8_4 = coded<block_int8<>, block_int4<>>;
using coded_8_8 = coded<block_int8<>, block_int8<>>;
using slow = decorated_backend<threads_backend, rate_limit>;
using checked = decorated_backend<slow, call_check>;

inline void core() {
  engine<adamw, host_storage<float>, threads_backend>::with<
      two_phase<>, synchronous<>, delayed<>, weight_prediction<>, two_phase<elastic_pace>, two_phase<pace, int4>,
      two_phase<pace, own_slice>, two_phase<pace, own_corrected>, two_phase<pace, bfloat16_wire>,
      two_phase<pace, block_int8<128>, bfloat16_wire>, two_phase<pace, int4, coded_8_4>, two_phase<pace, full, coded_8_8>,
      delayed<pace, coded_8_4>, synchronous<coded_8_4>, synchronous<coded_8_8>>();
  engine<adamw, host_storage<double>, threads_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                             two_phase<pace, own_slice>, two_phase<pace, int4>,
                                                             two_phase<pace, bfloat16_wire>, two_phase<pace, int4, coded_8_4>>();
  engine<adamw, host_storage<bfloat16>, threads_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                               two_phase<pace, bfloat16_wire>, two_phase<pace, own_slice>>();
  engine<adamw, host_storage<bfloat16, float>, threads_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                                      two_phase<pace, int4, coded_8_4>>();
  engine<adamw, host_storage<float, half>, threads_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                                  two_phase<pace, bfloat16_wire>, two_phase<pace, own_slice>>();
  engine<adamw, host_storage<float, bfloat16>, threads_backend>::with<two_phase<>>();
  engine<adamw, host_storage<float, float, double>, threads_backend>::with<two_phase<>>();
  engine<lion, host_storage<double>, threads_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                            two_phase<pace, bfloat16_wire>, two_phase<pace, own_slice>>();
  engine<sgd, host_storage<float>, threads_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                          local_updates<>, local_updates<waiting<sgd>>,
                                                          local_updates<restarting<sgd>>, local_updates<eager<sgd>>>();
  engine<sgd, host_storage<double>, threads_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                           two_phase<pace, own_slice>, two_phase<pace, own_corrected>,
                                                           two_phase<pace, bfloat16_wire>>();
  engine<sgd, host_storage<bfloat16>, threads_backend>::with<two_phase<>, synchronous<>>();

  engine<adamw, host_storage<float>, solo_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                         delayed<elastic_pace>, two_phase<elastic_pace>,
                                                         two_phase<pace, own_slice>>();
  engine<adamw, host_storage<double>, solo_backend>::with<two_phase<>>();
  engine<sgd, host_storage<float>, solo_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                       two_phase<pace, int4>>();
  engine<sgd, host_storage<double>, solo_backend>::with<synchronous<>, weight_prediction<>>();

  engine<adamw, host_storage<float>, mock_backend>::with<two_phase<>, synchronous<>, delayed<>>();
  engine<adamw, host_storage<double>, mock_backend>::with<
      two_phase<>, synchronous<>, delayed<>, weight_prediction<>, two_phase<pace, own_slice>, two_phase<pace, own_corrected>,
      delayed<pace, full, extrapolation>, delayed<pace, full, no_prediction, delay_compensation>>();
  engine<sgd, host_storage<float>, mock_backend>::with<two_phase<>>();
  engine<sgd, host_storage<double>, mock_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                        delayed<pace, full, extrapolation>, local_updates<waiting<sgd>>>();

  engine<adamw, host_storage<float>, slow>::with<synchronous<>>();
  engine<adamw, host_storage<float>, checked>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>>();
  engine<adamw, host_storage<double>, worlds::plain_backend>::with<two_phase<>, synchronous<>, delayed<>, weight_prediction<>,
                                                                   two_phase<pace, own_slice>>();
  engine<sgd, host_storage<float>, slow>::with<synchronous<>>();
}
}  // namespace shared
