// SPDX-License-Identifier: Apache-2.0
// A checkpoint whose tensors were in other groups: what was trained may be frozen now, and the other way round.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/reader.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/convert.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// Where a tensor was, and what of its group decides about its state.
struct place_of_tensor {
  std::string group, rule = "0";
  bool frozen = false, per_rank = false, leaves = false;  ///< `update_group::frozen`, `per_rank`,
                                                          ///< `leave_without_gradient`
  friend bool operator==(place_of_tensor const&, place_of_tensor const&) = default;
};
/// Of each tensor, by the lines of a construction.
[[nodiscard]] inline std::vector<place_of_tensor> places_of(std::vector<std::string> const& lines) {
  std::vector<place_of_tensor> tensors, groups;
  for (std::string_view line : lines) {
    const auto is = [&line](std::string_view what) {
      const bool found = line.starts_with(what);
      if (found) line.remove_prefix(what.size());
      return found;
    };
    if (is("layout: group = ")) tensors.push_back({.group = std::string(line)});
    if (is("layout: group.learning_rate_scale = ")) groups.emplace_back();  // which every group begins with
    if (groups.empty()) continue;
    if (is("layout: group.rule = ")) groups.back().rule = line;
    if (is("layout: group.frozen = ")) groups.back().frozen = line == "yes";
    if (is("layout: group.per_rank = ")) groups.back().per_rank = line == "yes";
    if (is("layout: group.leave_without_gradient = ")) groups.back().leaves = line == "yes";
  }
  for (place_of_tensor& each : tensors) {
    const std::size_t number = std::strtoul(each.group.c_str(), nullptr, 10);
    if (number >= groups.size()) continue;
    groups[number].group = each.group;
    each = groups[number];
  }
  return tensors;
}
[[nodiscard]] inline bool freezes_alike(std::vector<place_of_tensor> const& a, std::vector<place_of_tensor> const& b) {
  return std::ranges::equal(a, b, [](auto const& x, auto const& y) { return x.frozen == y.frozen && x.per_rank == y.per_rank; });
}
/// The layout of then.
[[nodiscard]] inline parameter_layout layout_of(std::vector<place_of_tensor> const& then, parameter_layout const& now) {
  parameter_layout made;
  const std::size_t frozen = made.add_group({.frozen = true}), own = made.add_group({.frozen = true, .per_rank = true});
  for (std::size_t k = 0; k < now.tensor_count(); ++k)
    made.add(now[k].name, now[k].shape, then[k].per_rank ? own : then[k].frozen ? frozen : 0);
  return made;
}
/// The numbers for the groups of now: what was frozen then has had no update of its own.
inline void regroup(run_numbers& numbers, std::vector<place_of_tensor> const& then) {
  numbers.last.measured.clear();  // of regions that are others now
  if (numbers.updates.size() != then.size()) numbers.updates.assign(then.size(), numbers.steps());
  for (std::size_t k = 0; k < then.size(); ++k) {
    if (then[k].frozen) numbers.updates[k] = 0;
  }
}

/// A reader of the layout of then, as the layout of now asks. What was frozen begins with empty slots, and with what it
/// is as its master and its average, as its arrays say; what is frozen now is its master, rounded. All of it is for a
/// training that begins at rest.
template <class Master, class Parameter>
class regrouped final : public state_source {
 public:
  /// All must outlive it.
  regrouped(reader& from, state_shape const& shape, parameter_layout const& then, parameter_layout const& now)
      : from_(from), shape_(shape), then_(then), now_(now) {}

  [[nodiscard]] run_numbers const& numbers() const noexcept override { return from_.numbers(); }
  [[nodiscard]] bool has(std::size_t array) const noexcept override { return array < shape_.owned() && from_.has(array); }
  void expect(std::size_t, std::size_t, std::size_t) override {}
  void read(std::size_t array, std::size_t first, std::size_t count, std::byte* to) override {
    std::size_t begin = 0, before = 0;  // of the tensor, among those that are trained now, and that were then
    for (std::size_t k = 0; k < now_.tensor_count() && count != 0; ++k) {
      const bool was_trained = !is_frozen(then_, k);
      const std::size_t size = now_[k].size;
      if (!is_frozen(now_, k)) {
        if (first < begin + size) {
          const std::size_t in = first - begin, n = std::min(count, size - in);
          if (was_trained) {
            from_.read(array, before + in, n, to);
          } else {
            begin_with(array, k, in, n, to);
          }
          first += n;
          count -= n;
          to += n * size_of(shape_.type(array));
        }
        begin += size;
      }
      if (was_trained) before += size;
    }
  }
  void read_frozen(std::size_t tensor, std::byte* to) override {
    if (is_frozen(then_, tensor)) return from_.read_frozen(tensor, to);
    std::size_t before = 0;
    for (std::size_t k = 0; k < tensor; ++k) before += is_frozen(then_, k) ? 0 : then_[k].size;
    std::vector<Master> masters(now_[tensor].size);
    from_.read(0, before, masters.size(), reinterpret_cast<std::byte*>(masters.data()));
    elementwise::convert(static_cast<Master const*>(masters.data()), reinterpret_cast<Parameter*>(to), masters.size());
  }

 private:
  static bool is_frozen(parameter_layout const& in, std::size_t tensor) noexcept { return in.groups()[in[tensor].group].frozen; }
  void begin_with(std::size_t array, std::size_t tensor, std::size_t first, std::size_t count, std::byte* to) {
    if (shape_.kept[array].start == array_start::zeros)
      return static_cast<void>(std::fill_n(to, count * size_of(shape_.type(array)), std::byte{0}));
    if (thawed_ != tensor) {
      values_.resize(now_[tensor].size);
      from_.read_frozen_of(0, tensor, reinterpret_cast<std::byte*>(values_.data()));
      thawed_ = tensor;
    }
    elementwise::convert(static_cast<Parameter const*>(values_.data()) + first, reinterpret_cast<Master*>(to), count);
  }

  reader& from_;
  state_shape const& shape_;
  parameter_layout const &then_, &now_;
  std::vector<Parameter> values_;
  std::size_t thawed_ = ~std::size_t{0};  // whose values these are
};

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
