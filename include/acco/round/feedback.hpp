// SPDX-License-Identifier: Apache-2.0
// What codes lose of the gradients that a rank commits, and what it sends of that later (`with_error_feedback`); and
// what all know of a rank's gradients already (`with_ef21`).
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "acco/collective/backend.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/error.hpp"
#include "acco/layout/partition.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/round/group_sums.hpp"
#include "acco/round/stagger.hpp"
#include "acco/storage/residual.hpp"
#include "acco/storage/storage.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's, of what it encodes: its own gradients, or its part of its group's sum. Owns nothing where no round feeds back. The
/// trainer's thread calls all members.
template <class Storage, class Backend>
class feedback_state {
 public:
  using addends_type = encoded_addends<Storage, Backend>;
  using value_type = typename addends_type::value_type;
  using sum_type = typename Storage::sum_type;
  using queue_type = typename Storage::queue;

  /// `encoded`: shares of a bucket that this rank encodes.
  feedback_state(partition shares, std::size_t encoded) noexcept : shares_(shares), encoded_(encoded) {}

  /// Gradients may be committed by this. Before `allocate`.
  template <class Wire>
  void add([[maybe_unused]] Wire const& wire, [[maybe_unused]] error_place const& where) {
    if constexpr (tracks<Wire>) {
      static_assert(!two_levels<Backend>,
                    "acco: with_ef21 keeps an estimate of a rank's own gradients, and over two levels a group's sum travels: use "
                    "acco::with_error_feedback");
      bytes_ = (shares_.padded_size() + shares_.slice_size()) * sizeof(sum_type);
    } else if constexpr (feeds_back<Wire>) {
      keep_ = static_cast<double>(wire.keep);
      if (!(wire.keep >= 0 && wire.keep <= 1)) {
        throw usage_error(where, text("with_error_feedback::keep is ", static_cast<double>(wire.keep)),
                          text("Give what is kept of what was lost, from one commit to the next: 1 for error feedback, less for "
                               "a momentum that fades"));
      }
      bytes_ =
          begin<Wire>(shares_[shares_.buckets() - 1]) + encoded_ * residual_of<Wire>::bytes(shares_[shares_.buckets() - 1].share);
    }
  }
  /// Of what is kept; 0: nothing is.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  void count(memory_table& table) const noexcept { table.encoded += Storage::allocation_size(bytes_, stagger::encoded + 1); }
  void allocate(Storage const& storage) { kept_ = storage.allocate(bytes_, stagger::encoded + 1); }

  /// What was lost is not sent any more.
  void forget(queue_type& queue) const {
    if (bytes_ != 0) Storage::clear(queue, memory(), bytes_);
  }
  /// Enqueues the same where *wanted.
  void forget_if(queue_type& queue, bool const* wanted) const {
    Storage::clear_if(queue, wanted, reinterpret_cast<float*>(memory()), bytes_ / sizeof(float));
  }
  /// As it was when it was copied, in gradients of that loss scale. Null: nothing was.
  void put(queue_type& queue, std::byte const* from, double loss_scale) {
    if (bytes_ == 0 || from == nullptr) return;
    Storage::copy(queue, from, memory(), bytes_);
    scale_ = loss_scale;
  }
  /// Adds it to what is to be copied.
  template <class Copy>
  void add_to(Copy& copy) const {
    if (bytes_ != 0) copy.add_lost(memory(), scale_);
  }

  /// Over one level: enqueues the encoding of this rank's gradients of a bucket, of which the round carries some, with what was
  /// lost of them before. `loss_scale` is the round's; what was lost is in units of the one of then.
  template <feeds_back Wire, encoding Encoding>
  void encode(queue_type& queue, Wire const& wire, Encoding const& e, bucket const& b, value_type const* from, double loss_scale,
              std::byte* to, coding::refused bad) const {
    Storage::encode_with_lost(queue, e, from, residual<Wire>(b), static_cast<double>(wire.keep) * (loss_scale / scale_), b.begin,
                              encoded_, b.share, to, bad);
  }
  /// Over one level: enqueues nothing, encodes at once as `encode` would, and what was lost stays.
  template <encoding Encoding>
  void encode_ahead(queue_type& queue, Encoding const& e, bucket const& b, value_type const* from, double loss_scale,
                    std::byte* to, coding::refused bad) const {
    Storage::encode_ahead_now(queue, e, from, static_cast<value_type const*>(numbers<value_type>() + b.begin),
                              keep_ * (loss_scale / scale_), b.begin, encoded_, b.share, to, bad);
  }
  /// Over two levels: of the group's sum, where the group brings any, *group_weight.
  template <feeds_back Wire, encoding Encoding>
  void encode(queue_type& queue, Wire const& wire, Encoding const& e, bucket const& b, addends_type const& addends,
              double loss_scale, double const* group_weight, std::byte* to, coding::refused bad) const {
    addends.encode_with_lost(queue, e, b, residual<Wire>(b), static_cast<double>(wire.keep), loss_scale, group_weight, to, bad);
  }
  /// All buckets have been encoded so.
  void encoded(double loss_scale) noexcept { scale_ = loss_scale; }

  // with_ef21: estimates of this rank's part of the mean gradient, by position; behind them the sum of all ranks', of its slice.

  /// Enqueues the encoding of what the estimates lack of this rank's gradients of a bucket. `how` is weigh_tracked's.
  template <encoding Encoding>
  void track(queue_type& queue, Encoding const& e, combination const* how, bucket const& b, value_type const* from, std::byte* to,
             coding::refused bad) const {
    Storage::encode_towards(queue, e, how, from, static_cast<sum_type const*>(estimates() + b.begin), b.begin, encoded_, b.share,
                            to, bad);
  }
  /// What has arrived of all ranks is in `sums`: enqueues the addition of what had been known.
  void add_known(queue_type& queue, combination const* how, bucket const& b, sum_type* sums) const {
    Storage::combine(queue, how, static_cast<sum_type const*>(sums), static_cast<sum_type const*>(known() + b.offset), sums,
                     b.share);
  }
  /// Enqueues, where the step is taken: what has left, and what has arrived, is known now. `how` is follow_tracked's.
  template <encoding Encoding>
  void follow(queue_type& queue, Encoding const& e, combination const* how, bucket const& b, std::byte const* left,
              std::byte const* arrived) const {
    Storage::decode_towards(queue, e, how, left, 1, estimates() + b.begin, encoded_, b.share);
    Storage::decode_towards(queue, e, how, arrived, static_cast<int>(encoded_), known() + b.offset, std::size_t{1}, b.share);
  }

  /// As numbers of T, the gradients' type, by position.
  template <class T>
  [[nodiscard]] T* numbers() const noexcept {
    return kept_.template as<T>();
  }

 private:
  template <class Wire>
  using residual_of = coding::residual<typename Wire::store_type, value_type, Wire::block_size>;

  [[nodiscard]] sum_type* estimates() const noexcept { return kept_.template as<sum_type>(); }
  [[nodiscard]] sum_type* known() const noexcept { return estimates() + shares_.padded_size(); }
  [[nodiscard]] std::byte* memory() const noexcept { return kept_.template as<std::byte>(); }
  /// Where a bucket's begins: the buckets before it are full.
  template <class Wire>
  [[nodiscard]] std::size_t begin(bucket const& b) const noexcept {
    return b.index * encoded_ * residual_of<Wire>::bytes(shares_[0].share);
  }
  template <class Wire>
  [[nodiscard]] auto residual(bucket const& b) const noexcept {
    return residual_of<Wire>::at(memory() + begin<Wire>(b));
  }

  partition shares_;
  std::size_t encoded_, bytes_ = 0;
  double keep_ = 0;   // of what was lost, by the commit
  double scale_ = 1;  // the loss scale of what was lost; over two levels it is kept as if that were 1
  typename Storage::buffer kept_;
};

}  // namespace ACCO_SIMD_NAMESPACE
