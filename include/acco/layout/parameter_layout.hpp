// SPDX-License-Identifier: Apache-2.0
// What the flat parameter buffer consists of: tensors with a name, a shape and a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/update_group.hpp"
#include "acco/number/require.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Where the trainer keeps one tensor: as many elements as its shape has, at addresses that do not change. `gradients`
/// may be null for a frozen one.
template <class Parameter, class Gradient = Parameter>
struct tensor_memory {
  Parameter* parameters;
  Gradient* gradients;
};

/// The tensors of a model in the order in which they lie, without gaps, in the flat parameter and gradient buffers.
///
///   acco::parameter_layout layout;
///   auto no_decay = layout.add_group({.weight_decay = 0.0});
///   layout.add("weight", {256, 64}).add("bias", {256}, no_decay);
///
/// Group 0 exists from the start and takes everything from the rule. Elements of a frozen group have no state and no
/// traffic.
class parameter_layout {
 public:
  /// A view of one tensor: valid while the layout lives, also when more tensors are added to it.
  struct tensor {
    std::string_view name;
    std::span<std::size_t const> shape;
    std::size_t offset;
    std::size_t size;
    std::size_t group;
  };

  // Names and shapes are stored in place: vectors of vectors make the header slower to compile.
  static constexpr std::size_t longest_name = 128;
  static constexpr std::size_t most_dimensions = 8;
  static constexpr std::size_t most_elements = std::size_t{1}
                                               << (sizeof(std::size_t) * 8 - 8);  // so that no sum of bytes overflows

  parameter_layout();
  /// One nameless range of `parameter_count` elements.
  explicit parameter_layout(std::size_t parameter_count);

  /// Registers a group and returns its number, for `add`. Throws `usage_error` on a number that is
  /// negative, infinite or NaN, and on one that is `per_rank` and not frozen.
  std::size_t add_group(update_group group);

  /// Appends a tensor. Throws `usage_error` for an unknown group, a name that is empty, too long or used before, too
  /// many dimensions, or a size that overflows.
  parameter_layout& add(std::string_view name, std::span<std::size_t const> shape, std::size_t group = 0);
  parameter_layout& add(std::string_view name, std::initializer_list<std::size_t> shape, std::size_t group = 0) {
    return add(name, std::span<std::size_t const>(shape.begin(), shape.size()), group);
  }

  /// Tensors of fewer than two dimensions, biases and the weights of norms, added before or after, are not decayed:
  /// they are moved to a group like theirs without weight decay. A group that has a `weight_decay` of its own keeps it.
  /// Throws `usage_error` for a layout made from a count alone.
  parameter_layout& no_decay_for_vectors();

  /// A tensor belongs to another group from now on.
  void move_to(std::size_t index, std::size_t group) noexcept { entries_[index].group = group; }

  /// Elements of all tensors, frozen ones included: the size of the trainer's spans.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t tensor_count() const noexcept { return entries_.size(); }
  [[nodiscard]] tensor operator[](std::size_t index) const noexcept { return view(entries_[index]); }
  /// The tensor of that name; throws `usage_error` when there is none.
  [[nodiscard]] tensor operator[](std::string_view name) const { return (*this)[index_of(name)]; }
  /// Its number; throws like that.
  [[nodiscard]] std::size_t index_of(std::string_view name) const;
  /// The tensor in which element `offset` of the flat buffer lies.
  [[nodiscard]] tensor at_offset(std::size_t offset) const noexcept;
  /// The group that a group belongs to where norms and clipping are concerned: its own number, but for those that
  /// `no_decay_for_vectors` has made, which belong to the group that they were taken from.
  [[nodiscard]] std::size_t clips_with(std::size_t group) const noexcept;
  [[nodiscard]] std::span<update_group const> groups() const noexcept;

  [[nodiscard]] std::size_t trainable_size() const noexcept;
  /// Calls visit(first element, count) for the longest ranges in which no tensor is each rank's own (`per_rank`).
  template <class Visitor>
  void for_common(Visitor&& visit) const {
    std::size_t begin = 0;
    const auto until = [&](std::size_t end) {
      if (end != begin) visit(begin, end - begin);
    };
    for (entry const& each : entries_) {
      if (!groups_[each.group].per_rank) continue;
      until(each.offset);
      begin = each.offset + each.size;
    }
    until(size_);
  }
  /// Calls visit(what, name or number) for everything on which ranks must agree.
  template <class Visitor>
  void describe(Visitor&& visit) const {
    for (entry const& each : entries_) {
      visit("tensor", view(each).name);
      for (const std::size_t extent : view(each).shape) visit("extent", extent);
      visit("group", each.group);
    }
    for (update_group const& group : groups_) {
      visit("group.learning_rate_scale", group.learning_rate_scale);
      if (group.weight_decay) visit("group.weight_decay", *group.weight_decay);
      visit("group.frozen", group.frozen);
      if (group.per_rank) visit("group.per_rank", group.per_rank);
      if (group.beta1) visit("group.beta1", *group.beta1);
      if (group.beta2) visit("group.beta2", *group.beta2);
      if (group.epsilon) visit("group.epsilon", *group.epsilon);
      if (group.momentum) visit("group.momentum", *group.momentum);
      visit("group.rule", group.rule);
      if (group.clip_norm) visit("group.clip_norm", *group.clip_norm);
      visit("group.leave_without_gradient", group.leave_without_gradient);
    }
  }

 private:
  struct entry {
    char name[longest_name];
    std::size_t shape[most_dimensions];
    std::size_t name_size, dimensions, offset, size, group;
  };
  [[nodiscard]] static tensor view(entry const& e) noexcept {
    return {{e.name, e.name_size}, {e.shape, e.dimensions}, e.offset, e.size, e.group};
  }
  /// The number of the tensor of that name; behind the last where there is none.
  [[nodiscard]] std::size_t find(std::string_view name) const noexcept;
  /// Where in `by_name_` a name is looked for first: FNV-1a.
  [[nodiscard]] std::size_t place_of(std::string_view name) const noexcept;
  /// Of the last tensor. The table is at most half full.
  void remember_name();

  /// The group that is like this one without weight decay.
  [[nodiscard]] std::size_t without_decay(std::size_t group);

  std::deque<entry> entries_;  // which does not move what it holds
  // numbers of entries, from 1, where their names' hashes say, or behind that; 0: free
  std::vector<std::size_t> by_name_;
  std::vector<update_group> groups_;
  std::vector<std::size_t> twins_;  // by group: the one without decay; 0: none yet
  std::size_t size_ = 0;
  bool nameless_ = false, vectors_decay_ = true;
};

#if !ACCO_ENGINES_ARE_COMPILED
ACCO_ONCE std::size_t parameter_layout::add_group(update_group group) {
  if (group.per_rank && !group.frozen) {
    throw usage_error({}, text("update_group::per_rank is set, and frozen is not"),
                      text("What is trained is the same on every rank: freeze the group, or leave it out"));
  }
  require_not_negative("update_group::learning_rate_scale", group.learning_rate_scale);
  if (group.weight_decay) require_not_negative("update_group::weight_decay", *group.weight_decay);
  if (group.clip_norm) require_not_negative("update_group::clip_norm", *group.clip_norm);
  groups_.push_back(group);
  return groups_.size() - 1;
}
ACCO_ONCE parameter_layout& parameter_layout::add(std::string_view name, std::span<std::size_t const> shape, std::size_t group) {
  if (group >= groups_.size()) {
    throw usage_error({}, text("tensor '", name, "' names group ", group, " but there are ", groups_.size()),
                      text("Call add_group first"));
  }
  if (name.empty() || find(name) != entries_.size()) {
    throw usage_error({}, text("tensor name '", name, "' is ", name.empty() ? "empty" : "used twice"),
                      text("Give every tensor its own name"));
  }
  if (name.size() > longest_name || shape.size() > most_dimensions) {
    throw usage_error({},
                      text("tensor '", name, "' has ", shape.size(), " dimensions and a name of ", name.size(), " characters"),
                      text("At most ", most_dimensions, " dimensions and ", longest_name, " characters are possible"));
  }
  std::size_t elements = 1;
  for (const std::size_t extent : shape) {
    if (__builtin_mul_overflow(elements, extent, &elements)) elements = ~std::size_t{0};
  }
  std::size_t end = 0;
  if (__builtin_add_overflow(size_, elements, &end) || end > most_elements) {
    throw usage_error({}, text("tensor '", name, "' makes the layout larger than the address space"),
                      text("Check its shape: a negative number becomes a huge one"));
  }
  entry& added = entries_.emplace_back();
  for (const char c : name) added.name[added.name_size++] = c;
  for (const std::size_t extent : shape) added.shape[added.dimensions++] = extent;
  added.offset = size_;
  added.size = elements;
  added.group = vectors_decay_ || added.dimensions >= 2 ? group : without_decay(group);
  size_ = end;
  remember_name();
  return *this;
}
ACCO_ONCE parameter_layout& parameter_layout::no_decay_for_vectors() {
  if (nameless_) {
    throw usage_error({}, text("no_decay_for_vectors: this layout was made from a count and knows no shapes"),
                      text("Add the tensors one by one, with their shapes"));
  }
  vectors_decay_ = false;
  for (entry& each : entries_) {
    if (each.dimensions < 2) each.group = without_decay(each.group);
  }
  return *this;
}
ACCO_ONCE std::size_t parameter_layout::index_of(std::string_view name) const {
  if (const std::size_t k = find(name); k != entries_.size()) return k;
  throw usage_error({}, text("no tensor is called '", name, "'"), text("Use a name that was given to add"));
}
ACCO_ONCE parameter_layout::tensor parameter_layout::at_offset(std::size_t offset) const noexcept {
  std::size_t index = 0;
  while (index + 1 < entries_.size() && entries_[index].offset + entries_[index].size <= offset) ++index;
  return (*this)[index];
}
ACCO_ONCE std::size_t parameter_layout::clips_with(std::size_t group) const noexcept {
  for (std::size_t g = 0; g < twins_.size(); ++g) {
    if (twins_[g] == group && group != 0) return g;
  }
  return group;
}
ACCO_ONCE std::size_t parameter_layout::trainable_size() const noexcept {
  std::size_t elements = 0;
  for (entry const& each : entries_) elements += groups_[each.group].frozen ? 0 : each.size;
  return elements;
}
ACCO_ONCE std::size_t parameter_layout::find(std::string_view name) const noexcept {
  if (by_name_.empty()) return entries_.size();
  std::size_t at = place_of(name);
  while (by_name_[at] != 0 && view(entries_[by_name_[at] - 1]).name != name) at = (at + 1) % by_name_.size();
  return by_name_[at] == 0 ? entries_.size() : by_name_[at] - 1;
}
ACCO_ONCE std::size_t parameter_layout::place_of(std::string_view name) const noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash % by_name_.size();
}
ACCO_ONCE void parameter_layout::remember_name() {
  const bool grows = 2 * entries_.size() > by_name_.size();
  if (grows) by_name_.assign(4 * entries_.size() + 13, 0);
  for (std::size_t k = grows ? 0 : entries_.size() - 1; k < entries_.size(); ++k) {
    std::size_t at = place_of(view(entries_[k]).name);
    while (by_name_[at] != 0) at = (at + 1) % by_name_.size();
    by_name_[at] = k + 1;
  }
}
ACCO_ONCE std::size_t parameter_layout::without_decay(std::size_t group) {
  if (groups_[group].frozen || groups_[group].weight_decay) return group;
  twins_.resize(groups_.size(), 0);
  if (twins_[group] == 0) {
    update_group twin = groups_[group];
    twin.weight_decay = 0.0;
    twins_[group] = add_group(twin);
  }
  return twins_[group];
}
ACCO_ONCE parameter_layout::parameter_layout() : groups_(1) {}
ACCO_ONCE parameter_layout::parameter_layout(std::size_t parameter_count) : parameter_layout() {
  add("parameters", {parameter_count});
  nameless_ = true;
}
ACCO_ONCE std::span<update_group const> parameter_layout::groups() const noexcept { return {groups_.data(), groups_.size()}; }
#endif

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
