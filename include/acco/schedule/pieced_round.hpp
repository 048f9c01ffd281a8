// SPDX-License-Identifier: Apache-2.0
// The works of a round over backends whose messages leave piece by piece: a piece is reduced, the one before it updated, the one
// before that gathered at the same time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "acco/schedule/round_works.hpp"
#include "acco/storage/elementwise.hpp"

namespace ACCO_NAMESPACE {

/// Bit-identical to whole_round. Where the update needs the norm (clipping, skipping), all pieces are reduced first.
template <class Rule, class Storage, class Backend>
class pieced_round : public round_works<Rule, Storage, Backend> {
  using base = round_works<Rule, Storage, Backend>;
  using base::accumulator_, base::adds, base::backend_, base::bytes_, base::encoded_, base::flight_, base::found_non_finite_,
      base::numbers_, base::options_, base::own, base::plan_, base::queue_, base::reduced, base::shares_, base::state_;
  using typename base::gradient_type, typename base::parameter_type, typename base::sum_type;

 public:
  using base::base;

  /// The works of the round that was carried, which travels like this.
  template <class Gradients, class Parameters>
  void enqueue(coded<Gradients, Parameters> const& wire) {
    found_non_finite_.reset();
    if constexpr (encoding<Gradients>) {
      bytes_ += bytes_sent(collective::all_to_all, backend_.size(), encoded_.template leaving<Gradients>().size());
    } else {
      bytes_ += bytes_sent(collective::reduce_scatter, backend_.size(), flight_.gradients().local().size_bytes());
    }
    if (plan_.parameters == update::commit_and_predict) this->prepare_next();
    if (update_needs_norm()) {
      reduce_then_update(wire);
    } else {
      update_while_reducing(wire);
    }
    queue_.enqueue([this] { return backend_.pieces().gather_rest(queue_); });
    if constexpr (encoding<Parameters>) {
      bytes_ += bytes_sent(collective::all_gather, backend_.size(), encoded_.template arriving<Parameters>().size());
      this->decode_parameters(wire.parameters);
    } else {
      bytes_ += bytes_sent(collective::all_gather, backend_.size(), flight_.parameters().whole().size_bytes());
    }
    if (!update_needs_norm()) {
      round_numbers* const n = numbers_.there();
      this->all_reduce(&n->squares_mine, &n->squares_all, 1);
      Storage::run(queue_, decide_step{n, 0, true});  // the norm for the report, or the error
      Storage::run(queue_, stop_if_not_finite{n});
    }
  }

 private:
  /// Otherwise nothing depends on the norm over all ranks but the report, and an error.
  [[nodiscard]] bool update_needs_norm() const noexcept {
    return options_.clip_norm > 0 || options_.on_non_finite == non_finite::skip;
  }
  template <class Gradients, class Parameters>
  void reduce_then_update(coded<Gradients, Parameters> const& wire) {
    queue_.enqueue([this, wire] {
      return reduce_pieces(wire, [this](std::size_t offset, std::size_t count, auto) { square_piece(offset, count); });
    });
    this->template decide_with_norm<Gradients>();
    queue_.enqueue([this, wire] {
      const std::size_t piece = piece_elements(wire);
      for (std::size_t offset = 0; offset < shares_.slice_size(); offset += piece)
        update_piece(wire, offset, std::min(piece, shares_.slice_size() - offset));
    });
  }
  template <class Gradients, class Parameters>
  void update_while_reducing(coded<Gradients, Parameters> const& wire) {
    queue_.enqueue([n = numbers_.there()] { decide_without_norm(*n); });
    queue_.enqueue([this, wire] {
      return reduce_pieces(wire, [this, &wire](std::size_t offset, std::size_t count, auto source) {
        const bool finite = square_piece(offset, count);
        if constexpr (!encoding<Gradients>) {
          if (!finite) note_non_finite(offset, count, source);
        }
        update_piece(wire, offset, count);
      });
    });
  }

  /// Pieces of reduction and update: a multiple of 1024 elements, so whole blocks of every encoding.
  template <class Gradients, class Parameters>
  [[nodiscard]] std::size_t piece_elements(coded<Gradients, Parameters> const&) const {
    if constexpr (encoding<Gradients>) {
      return backend_.pieces().template piece_blocks<Gradients>() * Gradients::block_size;
    } else {
      return backend_.pieces().template piece_elements<gradient_type>();
    }
  }
  template <class Gradients, class Parameters, class OnPiece>
  auto reduce_pieces(coded<Gradients, Parameters> const& wire, OnPiece&& on_piece) {
    if constexpr (encoding<Gradients>) {
      const std::span<std::byte const> leaving = encoded_.template leaving<Gradients>();
      return backend_.pieces().template pass_encoded<Gradients>(
          queue_, leaving, [&](std::size_t first, std::size_t blocks) { encode_piece(wire.gradients, first, blocks); },
          [&](std::size_t first, std::size_t blocks, auto source) {
            const std::size_t offset = first * Gradients::block_size;
            const std::size_t count = std::min(blocks * Gradients::block_size, shares_.slice_size() - offset);
            coding::decode_sum(wire.gradients, backend_.size(), source, reduced().slice().data() + offset, count, adds());
            on_piece(offset, count, source);
          });
    } else {
      return backend_.pieces().reduce_scatter(queue_, flight_.gradients().local(), reduced().slice(), adds(),
                                              std::forward<OnPiece>(on_piece));
    }
  }
  /// A stretch of blocks of every rank's slice, just before it leaves.
  template <encoding Encoding>
  void encode_piece(Encoding const& e, std::size_t first_block, std::size_t blocks) {
    if (plan_.keeps) return;  // done
    round_numbers& n = numbers_[0];
    const std::size_t slice = shares_.slice_size(), offset = first_block * Encoding::block_size;
    const std::size_t count = std::min(blocks * Encoding::block_size, slice - offset);
    gradient_type const* const gradients = flight_.gradients().local().data();
    std::byte* const leaving = encoded_.template leaving<Encoding>().data();
    for (std::size_t begin = offset, rank = 0; begin < shares_.padded_size(); begin += slice, ++rank) {
      coding::encode_values(e, gradients + begin, begin, count,
                            leaving + rank * encoded_size<Encoding>(slice) + first_block * Encoding::block_bytes,
                            {&n.found, &n.first});
    }
  }
  /// Adds a piece's squares, padding excluded; whether they are finite.
  bool square_piece(std::size_t offset, std::size_t count) {
    const std::size_t end = std::min(offset + count, state_.count());
    double& squares = numbers_[0].squares_mine;
    if (offset < end) squares = elementwise::sum_of_squares(reduced().slice().data() + offset, end - offset, squares);
    return std::isfinite(squares);
  }
  template <class Gradients, class Parameters>
  void update_piece(coded<Gradients, Parameters> const& wire, std::size_t offset, std::size_t count) {
    state_.apply_now(plan_.parameters, offset, count, numbers_[0].apply, sharded<sum_type const>(reduced().slice()),
                     numbers_[0].scale, sharded<parameter_type>(own()));
    if constexpr (encoding<Parameters>) {
      const std::span<std::byte> mine = encoded_.template slice<Parameters>(backend_.rank());
      const std::size_t at = encoded_size<Parameters>(offset), bytes = encoded_size<Parameters>(count);
      if (offset < state_.count()) {
        coding::encode_difference(wire.parameters, own().data() + offset, accumulator_.in_use(),
                                  shares_.begin(backend_.rank()) + offset, std::min(count, state_.count() - offset),
                                  mine.data() + at, {&numbers_[0].diverged, &numbers_[0].diverged_first});
      }
      backend_.pieces().gather_piece(queue_, std::span<std::byte const>(mine), encoded_.template arriving<Parameters>(), at,
                                     bytes);
    } else {
      backend_.pieces().gather_piece(queue_, std::span<parameter_type const>(own()), flight_.parameters().whole(), offset, count);
    }
  }
  /// Who brought what is not finite, while the addends are still here.
  template <class Source>
  void note_non_finite(std::size_t offset, std::size_t count, Source source) {
    if (!found_non_finite_) found_non_finite_.emplace(backend_.size());
    for (int rank = 0; rank < backend_.size(); ++rank) {
      std::size_t first = 0;
      const std::size_t found = elementwise::count_non_finite(source(rank), count, first);
      found_non_finite_->add(rank, found, accumulator_.offset_of(shares_.begin(backend_.rank()) + offset + first));
    }
  }
};

}  // namespace ACCO_NAMESPACE
