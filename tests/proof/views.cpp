// SPDX-License-Identifier: Apache-2.0
// Views are trivially copyable and do not convert into one another; concepts accept their models and refuse near
// misses.
#include <type_traits>

#include <acco/acco.hpp>

#include "support/worlds.hpp"

namespace {
using acco::partial, acco::replicated, acco::sharded;

template <template <class> class View>
constexpr bool is_a_view = std::is_trivially_copyable_v<View<float>> && sizeof(View<float>) == sizeof(std::span<float>);
static_assert(is_a_view<partial> && is_a_view<sharded> && is_a_view<replicated>);

template <class From, class To>
constexpr bool converts = std::is_convertible_v<From, To> || std::is_constructible_v<To, From>;
static_assert(!converts<partial<float>, sharded<float>> && !converts<partial<float>, replicated<float>> &&
              !converts<sharded<float>, replicated<float>>);
static_assert(!converts<replicated<float>, sharded<float>> && !converts<sharded<float>, partial<float>> &&
              !converts<replicated<float>, partial<float>>);
// saying how a buffer is distributed is always explicit
static_assert(!std::is_convertible_v<std::span<float>, sharded<float>>);

static_assert(std::is_move_constructible_v<acco::round_buffers<float, float>> &&
              !std::is_copy_constructible_v<acco::round_buffers<float, float>>);

using plain = worlds::plain_backend;
static_assert(acco::collective_backend<plain, acco::host_queue>);
static_assert(!acco::has_accumulating_reduce_scatter<plain, acco::host_queue, float, float>);
static_assert(acco::has_accumulating_reduce_scatter<acco::mock_backend, acco::host_queue, float, float>);

struct wrong_result {  // right names, wrong types
  [[nodiscard]] void* rank() const { return nullptr; }
  [[nodiscard]] int size() const { return 1; }
};
static_assert(!acco::has_rank<wrong_result> && !acco::collective_backend<wrong_result, acco::host_queue>);
static_assert(!acco::schedule<acco::fixed_pace> && !acco::storage<acco::solo_backend>);
}  // namespace
