// SPDX-License-Identifier: Apache-2.0
// Gradients whose code is planned, bucket by bucket (code/planned.hpp):
//
//   network   | RS 0 | RS 1 | ...                | sum |
//   update     encode 0, 1, ...  measure 0, 1, ...      squares 0, ... | ... settle, and plan
//
// `measure`, the sum and the plan are those of rounds in which it is time. A bucket is encoded, sent, decoded and kept
// by the reducer of its code (coded.hpp), so what a plan adds is which. Messages are as long as the codes say, so the
// trainer's thread knows the plan when it launches a round: it is written by a task of the round before. Of a state
// that has come back a rank has its shard of the plan; then the first round tells all, and its launch waits for that.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/bfloat16.hpp"
#include "acco/code/choice_planner.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/observe/planned_bucket.hpp"
#include "acco/storage/lane.hpp"
#include "acco/type_list.hpp"
#include "acco/wire/coded.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A code of a planned wire, as that sends it.
template <class Code, class Wire>
[[nodiscard]] constexpr auto code_in([[maybe_unused]] Wire const& wire) noexcept {
  if constexpr (feeds_back<Wire>) {
    return with_feedback<Code, std::remove_const_t<decltype(wire.policy)>, typename Wire::store>{{}, wire.policy};
  } else {
    return Code{};
  }
}
/// The reducers of all of them.
template <class Wire, class Storage, class Codes = typename Wire::codes>
struct reducers_of;
template <class Wire, class Storage, class... Codes>
struct reducers_of<Wire, Storage, type_list<Codes...>> {
  static constexpr std::size_t count = sizeof...(Codes);
  static constexpr std::array<char const*, count> names{Codes::name...};
  std::tuple<reducer<decltype(code_in<Codes>(std::declval<Wire const&>())), Storage>...> all;

  explicit reducers_of(Wire const& wire) : all(code_in<Codes>(wire)...) {}
  /// A plan has codes by their places: among others it means nothing.
  [[nodiscard]] static std::string name_of_plan() {
    std::uint64_t mixed = 0xcbf29ce484222325ULL;  // FNV-1a
    for (std::size_t k = 0; k < count; ++k) {
      for (char const* each = names[k]; *each != 0; ++each)
        mixed = (mixed ^ static_cast<unsigned char>(*each)) * 0x100000001b3ULL;
      mixed = (mixed ^ sizes(std::size_t{1} << 12U)[k]) * 0x100000001b3ULL;
    }
    return "plan." + std::to_string(mixed % 1000000007);
  }
  [[nodiscard]] static constexpr std::array<std::size_t, count> sizes(std::size_t elements) noexcept {
    return {encoded_size<Codes>(elements)...};
  }
  template <class F>
  void each(F&& f) {
    std::apply([&](auto&... one) { (f(one), ...); }, all);
  }
  /// f(the one of that number).
  template <class F>
  void with(std::size_t number, F&& f) {
    std::size_t k = 0;
    each([&](auto& one) {
      if (k++ == number) f(one);
    });
  }
};

template <planned_wire Wire, class Storage>
class reducer<Wire, Storage> final : public reducer_in_use<Storage> {
  using codes_type = reducers_of<Wire, Storage>;
  static constexpr std::size_t choices = codes_type::count, columns = choices + 1;

 public:
  using typename reducer_in_use<Storage>::stages_type;
  using typename reducer_in_use<Storage>::view_type;
  using typename reducer_in_use<Storage>::world_type;

  explicit reducer(Wire const& wire) : wire_(wire), codes_(wire) { wire.check(); }

  void declare(view_type& v, world_type const&, bool) override {
    const std::size_t buckets = v.shares.buckets();
    const auto largest = codes_type::sizes(v.shares[0].share);
    codes_.each([&](auto& code) { code.declare_rooms(v, *std::max_element(largest.begin(), largest.end())); });
    auto& first = std::get<0>(codes_.all);
    first.declare_state(v);
    codes_.each([&](auto& code) { code.keep_with(first); });
    plan_.resize(buckets);
    for (auto& each : told_) each.resize(buckets);
    for (std::size_t k = 0; k < buckets; ++k) {
      bucket const b = v.shares[k];
      for (const std::size_t bytes : codes_type::sizes(b.share)) sizes_.push_back(bytes * static_cast<std::size_t>(v.ranks()));
    }
    if (!chooses()) return;
    kept_ = v.arrays.template declare<bfloat16>({.name = codes_type::name_of_plan(), .use = array_use::feedback},
                                                {stagger::encoded, &memory_table::encoded});
    table_ = v.arrays.declare_room("", 2 * buckets * columns * sizeof(double), {stagger::encoded + 1, &memory_table::encoded});
    next_.resize(buckets);
    parts_.resize(buckets * choices);
    planner_ = {buckets, choices};
  }
  void reduce(stages_type& stages, view_type& v, world_type& world) override {
    const bool comes_back = chooses() && held_ != v.arrays.replaced();  // on all ranks
    if (comes_back) recall(stages, v, world);
    due_ = chooses() && v.steps % wire_.every == 0;
    measures_ = due_ || comes_back || (chooses() && !has_plan_);
    tell(v);
    stages.each(lane::update, [&](std::size_t k) { by_code(k, [&](auto& code) { code.encode(v, v.shares[k]); }); });
    stages.each(lane::network, [&](std::size_t k) { by_code(k, [&](auto& code) { code.exchange(v, v.shares[k], world); }); });
    if (!measures_) return;
    stages.each(lane::update, [&](std::size_t k) { measure(v, k); });
    stages.once(lane::network, [&] { sum(v, world); });
  }
  void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) override {
    by_code(k, [&](auto& code) { code.take(v, k, squares); });
  }
  void find_non_finite(view_type&) const override {}  // whoever encodes has looked
  void settle(view_type& v, std::size_t k) override {
    by_code(k, [&](auto& code) { code.settle(v, k); });
    if (measures_ && k + 1 == v.shares.buckets())
      Storage::run(v.queue, [this, a = arrays_of(v), n = v.numbers, due = due_] { renew(a, n->apply && (due || !has_plan_)); });
  }

 private:
  /// What tasks need of the view.
  struct round_arrays {
    partition const* shares;
    int rank;
    bfloat16* kept;      // 1 + the number of its bucket's code, for each element of the shard; 0: no plan
    double *mine, *all;  // a row of `columns` for each bucket
  };
  [[nodiscard]] round_arrays arrays_of(view_type const& v) const noexcept {
    auto* const table = v.arrays.template as<double>(table_);
    return {&v.shares, v.rank, v.arrays.template as<bfloat16>(kept_), table, table + columns * v.shares.buckets()};
  }
  [[nodiscard]] bool chooses() const noexcept { return choices > 1 && wire_.every != 0; }
  template <class F>
  void by_code(std::size_t k, F&& f) {
    codes_.with(plan_[k], f);
  }
  /// visit(index in the shard, count) for the elements of this rank's share of a bucket.
  template <class Visitor>
  static void for_own(round_arrays const& a, bucket const& b, Visitor&& visit) {
    const std::size_t real = a.shares->count(a.rank), begin = b.begin + a.shares->share_of_rank(a.rank) * b.share;
    a.shares->for_elements(
        begin, std::min(b.share, real - std::min(real, b.offset)),
        [&](std::size_t position, std::size_t, std::size_t count) { visit(b.offset + (position - begin), count); });
  }
  void sum(view_type& v, world_type& world) const {
    const round_arrays a = arrays_of(v);
    v.all_reduce(world, a.mine, a.all, columns * v.shares.buckets());
  }

  /// The plan of a state that was replaced. Other ranks' buckets are others: the code that most elements had.
  void recall(stages_type& stages, view_type& v, world_type& world) {
    const std::uint64_t now = v.arrays.replaced();
    stages.once(lane::network, [&] {
      Storage::run(v.queue, [this, a = arrays_of(v)] { count(a); });
      sum(v, world);
      Storage::run(v.queue, [this, a = arrays_of(v), now] {
        take_most(a);
        held_ = now;
      });
    });
    v.queue.wait();
    if (held_ != now) stages.once(lane::network, [&] { Storage::run(v.queue, [] { return false; }); });  // the round has ended
  }
  /// In a report, of this round.
  void tell(view_type& v) noexcept {
    auto& told = told_[++rounds_ % told_.size()];
    for (std::size_t k = 0; k < told.size(); ++k) {
      bucket const b = v.shares[k];
      const std::size_t left = v.shares.size() - std::min(v.shares.size(), b.begin);
      told[k] = {b.begin, std::min(v.whole_of(b), left), codes_type::names[plan_[k]], sizes_[k * choices + plan_[k]]};
    }
    v.codes = told;
  }
  /// Enqueues what each code would lose of a bucket.
  void measure(view_type& v, std::size_t k) {
    auto const bucket_now = std::get<0>(codes_.all).to_encode(v, v.shares[k]);
    Storage::run(v.queue, [this, bucket_now, row = arrays_of(v).mine + k * columns] {
      std::size_t choice = 0;
      codes_.each([&](auto const& code) { row[choice++] = code.lost_of(bucket_now); });
      row[choices] = 0;
    });
  }

  // Tasks.

  void count(round_arrays const& a) const {
    std::fill_n(a.mine, columns * a.shares->buckets(), 0.0);
    for (std::size_t k = 0; k < a.shares->buckets(); ++k) {
      for_own(a, (*a.shares)[k], [&](std::size_t index, std::size_t n) {
        for (std::size_t i = index; i < index + n; ++i) {
          const auto number = static_cast<float>(a.kept[i]);  // of a file
          a.mine[k * columns + (number >= 1 && number < columns ? static_cast<std::size_t>(number) : 0)] += 1;
        }
      });
    }
  }
  void take_most(round_arrays const& a) {
    has_plan_ = false;
    for (std::size_t k = 0; k < plan_.size(); ++k) {
      double const* const row = a.all + k * columns;
      const auto most = static_cast<std::size_t>(std::max_element(row + 1, row + columns) - (row + 1));
      plan_[k] = static_cast<std::uint8_t>(most);
      has_plan_ = has_plan_ || row[1 + most] > 0;
    }
  }
  /// Of the errors themselves: those far above the budget are equally many parts of it.
  void choose_least(round_arrays const& a) {
    for (std::size_t k = 0; k < next_.size(); ++k) {
      const auto cost = [&](std::size_t choice) { return std::pair(a.all[k * columns + choice], sizes_[k * choices + choice]); };
      std::size_t least = 0;
      for (std::size_t choice = 1; choice < choices; ++choice)
        if (cost(choice) < cost(least)) least = choice;
      next_[k] = static_cast<std::uint8_t>(least);
    }
  }
  /// Behind the decision: from what all ranks would have lost.
  void renew(round_arrays const& a, bool wanted) {
    const std::size_t buckets = plan_.size();
    double first = 0, any = 0;
    for (std::size_t k = 0; k < buckets; ++k) {
      first += a.all[k * columns];
      for (std::size_t choice = 0; choice < choices; ++choice) any += a.all[k * columns + choice];
    }
    if (!wanted || !(any > 0)) return;
    const double budget = wire_.budget * first;
    for (std::size_t k = 0; k < buckets; ++k) {
      for (std::size_t choice = 0; choice < choices; ++choice)
        parts_[k * choices + choice] = budget_parts::of(a.all[k * columns + choice], budget);
    }
    const bool fits = planner_.plan({buckets, choices, parts_, sizes_}, budget_parts::all, next_);
    if (!fits) choose_least(a);
    std::uint64_t planned = 0, of_first = 0;
    for (std::size_t k = 0; k < buckets; ++k) {
      planned += sizes_[k * choices + next_[k]];
      of_first += sizes_[k * choices];
    }
    // by definition that keeps the budget, but for the parts' rounding
    if (wire_.budget >= 1 && (!fits || planned >= of_first)) std::fill(next_.begin(), next_.end(), std::uint8_t{0});
    for (std::size_t k = 0; k < buckets; ++k) {
      double const* const row = a.all + k * columns;
      if (std::any_of(row, row + choices, [](double lost) { return lost != 0; })) plan_[k] = next_[k];
      const auto number = static_cast<bfloat16>(static_cast<float>(1 + plan_[k]));
      for_own(a, (*a.shares)[k], [&](std::size_t index, std::size_t n) { std::fill_n(a.kept + index, n, number); });
    }
    has_plan_ = true;
  }

  Wire wire_;
  codes_type codes_;
  std::size_t kept_ = 0, table_ = 0;  // numbers of arrays
  std::vector<std::uint64_t> sizes_;  // bytes of each bucket in each code
  std::array<std::vector<planned_bucket>, 2> told_;
  std::size_t rounds_ = 0;
  bool due_ = false, measures_ = false;  // of the round that is enqueued

  // Written by tasks, and read when no round is in flight.
  std::vector<std::uint8_t> plan_;
  bool has_plan_ = false;
  std::uint64_t held_ = ~std::uint64_t{0};  // of which replacement it is

  // Of a task.
  std::vector<std::uint8_t> next_;
  std::vector<std::uint64_t> parts_;
  choice_planner planner_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
