// SPDX-License-Identifier: Apache-2.0
// How parameters and state come in and get out, while no round is in flight: from rank 0 to all, from all slices to the
// whole, from a source of state to this rank's slice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "acco/bfloat16.hpp"
#include "acco/collective/blocking.hpp"
#include "acco/function_view.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/number/convert.hpp"
#include "acco/number/int8_place.hpp"
#include "acco/round/adopted_memory.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/outside_rounds.hpp"
#include "acco/round/tasks.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/storage/scoped_buffer.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What has been read of a state.
template <class Storage>
struct loaded_state {
  run_numbers numbers;
  std::vector<typename Storage::parameter_type> values;  ///< in the order of the layout: what is frozen, on
                                                         ///< rank 0, and this rank's own; empty: nothing is
  typename Storage::parameter_type* shown = nullptr;     ///< this rank's shares of the parameters
                                                         ///< in use, where they lie in the whole
  typename Storage::buffer apart, arriving;  ///< memory for them, where they could not be read into place; such shares
};

/// Refers to what an engine owns, and owns nothing. The trainer's thread calls all members; those that say so are
/// collective. All block.
template <class Storage>
class state_transfer {
 public:
  using parameter_type = typename Storage::parameter_type;
  using master_type = typename Storage::master_type;
  using tasks_type = round_tasks<Storage>;
  using accumulator_type = gradient_accumulator<Storage>;

  state_transfer(tasks_type& tasks, accumulator_type& accumulator, adopted_memory const& adopted, parameter_layout const& layout,
                 partition shares) noexcept
      : tasks_(tasks), accumulator_(accumulator), adopted_(adopted), layout_(layout), shares_(shares) {}

  // Parameters.

  /// The values of rank 0 become the parameters in use, and, where they are wanted, the masters of every rank; of
  /// tensors that are `per_rank` each rank's own values. What another optimizer trains stays as it is. Collective.
  void take_from(std::span<parameter_type const> values, bool masters) {
    auto whole = accumulator_.parameters();
    const bool apart = accumulator_.lies_apart();
    const scoped_buffer gathered(queue(), apart ? tasks_.storage().allocate(values.size_bytes(), 0) : typename Storage::buffer());
    if (apart) {
      whole = {gathered.template as<parameter_type>(), values.size()};
      Storage::copy(queue(), values.data(), whole.data(), values.size());
    } else {
      accumulator_.set_parameters(queue(), values);
    }
    queue().after_computation();
    layout_.for_common([&](std::size_t begin, std::size_t count) {
      tasks_.backend().broadcast(queue(), replicated<parameter_type>(whole.subspan(begin, count)), 0);
    });
    if (masters) {
      accumulator_.for_slice(rank(), whole.data(), [&](std::size_t offset, parameter_type const* from, std::size_t count) {
        tasks_.state().set_masters(queue(), offset, from, count);
      });
    }
    queue().wait();
    queue().before_computation();
    if (apart) {
      for (std::size_t k = 0; k < layout_.tensor_count(); ++k) {
        auto const tensor = layout_[k];
        if (tensor.size != 0 && !trains_elsewhere(k))
          accumulator_.put_parameters(queue(), tensor.offset, whole.subspan(tensor.offset, tensor.size));
      }
      settle();  // before what was gathered goes
    }
  }
  /// All ranks' masters, converted, or their averages, in the order of the layout. Collective.
  void gather(std::span<parameter_type> out, bool averaged) {
    const scoped_buffer whole(queue(), tasks_.storage().allocate(gathered_bytes(), 0));
    auto* const gathered = whole.template as<parameter_type>();
    queue().after_computation();
    with_values(averaged, [&](master_type const* values) {
      gather_values(tasks_, values, replicated<parameter_type>({gathered, shares_.padded_size()}));
    });
    queue().before_computation();
    accumulator_.copy_parameters(queue(), out);  // the frozen elements
    accumulator_.scatter(queue(), gathered, out);
    queue().after_computation();
    queue().wait();
  }
  /// The masters, converted, become the parameters in use. Collective.
  void show_masters() {
    const scoped_buffer whole(queue(), tasks_.storage().allocate(gathered_bytes(), 0));
    auto* const gathered = whole.template as<parameter_type>();
    queue().after_computation();
    gather_masters(tasks_, replicated<parameter_type>({gathered, shares_.padded_size()}));
    show(gathered);
  }
  /// Every rank's parameters in use, of which `shares` has this rank's. Collective.
  void show_shares(parameter_type* shares) {
    queue().after_computation();
    gather_shares(tasks_, replicated<parameter_type>({shares, shares_.padded_size()}));
    if (shares == accumulator_.gathered()) return queue().before_computation();  // they are there already
    show(shares);
  }

  // Masters, in their own type, in the order of the layout, chunk by chunk through host memory.

  /// read(offset, count, to) gives rank 0 the initial values: they become every rank's masters and parameters; of
  /// tensors that are `per_rank` it gives each rank its own. Collective.
  void take_masters(function_view<void(std::size_t, std::size_t, std::byte*)> read) {
    std::vector<master_type> chunk;
    std::vector<parameter_type> frozen;
    for_pieces([&](std::size_t offset, std::size_t first, std::size_t count, update_group const& of) {
      chunk.resize(count);
      if (rank() == 0 || of.per_rank) read(offset, count, reinterpret_cast<std::byte*>(chunk.data()));
      if (!of.per_rank) broadcast_and_wait(queue(), tasks_.backend(), chars_of(chunk), 0);
      if (!of.frozen) {
        shares_.for_shares(rank(), [&](std::size_t in_slice, std::size_t begin, std::size_t n) {
          const std::size_t from = std::max(first, begin), until = std::min(first + count, begin + n);
          if (from < until)
            tasks_.state().put_masters(queue(), in_slice + (from - begin), chunk.data() + (from - first), until - from);
        });
      } else {
        frozen.resize(count);
        elementwise::convert(static_cast<master_type const*>(chunk.data()), frozen.data(), count);
        if (!adopted_.trained_elsewhere(accumulator_.parameter_at(offset), count * sizeof(parameter_type)))
          accumulator_.put_parameters(queue(), offset, std::span<parameter_type const>(frozen));
      }
      settle();
    });
    show_masters();
  }
  /// take(offset, count, from) gets all ranks' masters, or their averages, on every rank. Collective.
  void give_masters(function_view<void(std::size_t, std::size_t, std::byte const*)> take, bool averaged) {
    with_values(averaged, [&](master_type const* values) { give(take, values); });
  }
  // State.

  /// What the source has of this rank's, and, on rank 0, of what is frozen. What it throws leaves masters, slots and
  /// parameters in use half-read: the next state that is loaded takes their place, or the training is at its end.
  /// `waits`: the parameters in use are the masters, converted, unless it is a worker's state, which tells.
  [[nodiscard]] std::unique_ptr<loaded_state<Storage>> load(state_source& source, bool waits, bool of_worker) {
    state_arrays<Storage>& arrays = tasks_.arrays();
    state_shape const& shape = arrays.shape();
    auto into = std::make_unique<loaded_state<Storage>>();
    into->numbers = source.numbers();
    arrays.replace();
    const bool shows = (!waits || of_worker) && source.has(shape.shown());
    expect(source, waits ? shape.shown() : shape.arrays());
    // What is frozen comes from one rank. Where nothing is, and parameters in use are kept, these are all.
    if (layout_.size() != layout_.trainable_size() || (waits && !shows)) into->values.resize(layout_.size());
    for (std::size_t k = 0; k < layout_.tensor_count(); ++k) {
      update_group const& group = layout_.groups()[layout_[k].group];
      if (group.frozen && layout_[k].size != 0 && (rank() == 0 || group.per_rank))
        source.read_frozen(k, reinterpret_cast<std::byte*>(into->values.data() + layout_[k].offset));
    }
    arrays.for_kept([&](std::size_t array, auto values) {
      if (shape.kept[array].use == array_use::feedback && !source.has(array)) {
        arrays.clear(queue(), array);
        return settle();
      }
      if constexpr (std::is_same_v<decltype(values), int8_place>) {
        arrays.clear(queue(), array);
        settle();
        read_packed(source, array, values);
      } else {
        read(source, array, shape.extent(array), [values](std::size_t index) { return values + index; });
      }
    });
    if (shows) {
      into->shown = accumulator_.gathered();
      if (into->shown == nullptr) {
        into->apart = tasks_.storage().allocate(gathered_bytes(), 0);
        into->shown = into->apart.template as<parameter_type>();
      }
      read_where_it_lies(source, shape.shown(), into->shown);
    }
    if (source.has(shape.arriving())) {
      into->arriving = tasks_.storage().allocate(gathered_bytes(), 0);
      read_where_it_lies(source, shape.arriving(), into->arriving.template as<parameter_type>());
    }
    return into;
  }
  /// The parameters that arrive with the round in which the state was copied. Collective.
  void arrive(loaded_state<Storage> const& from, replicated<parameter_type> arriving) {
    if (auto const* const kept = from.arriving.template as<parameter_type>()) {
      queue().wait();
      shares_.for_positions(rank(), [&](std::size_t, std::size_t position, std::size_t count) {
        Storage::copy(queue(), kept + position, arriving.whole().data() + position, count);
      });
      queue().after_computation();
      gather_shares(tasks_, arriving);
    } else {
      gather_masters(tasks_, arriving);
    }
  }

 private:
  /// read(this rank's slice of the masters, or of their averages), which is done with them when it returns.
  template <class Read>
  void with_values(bool averaged, Read&& read) {
    if (!averaged || !tasks_.state().rule_averages()) return read(tasks_.state().values(averaged));
    const scoped_buffer slice(queue(), tasks_.storage().allocate(shares_.slice_size() * sizeof(master_type), 0));
    auto* const averages = slice.template as<master_type>();
    queue().after_computation();
    tasks_.state().average_of_rule(queue(), averages);
    queue().wait();
    read(averages);
  }
  void give(function_view<void(std::size_t, std::size_t, std::byte const*)> take, master_type const* values) {
    std::vector<master_type> chunk;
    for_pieces([&](std::size_t offset, std::size_t first, std::size_t count, update_group const& of) {
      if (of.frozen) {
        chunk.resize(count);
        Storage::visit_on_host(queue(), accumulator_.parameter_at(offset), count,
                               [&](parameter_type const* from, std::size_t index, std::size_t n) {
                                 elementwise::convert(from, chunk.data() + index, n);
                               });
        return take(offset, count, reinterpret_cast<std::byte const*>(chunk.data()));
      }
      for (std::size_t done = 0; done < count;) {
        const partition::owner from = shares_.owner_of(first + done);
        const std::size_t n = std::min(from.left, count - done);
        chunk.resize(n);
        if (from.rank == rank()) {
          Storage::visit_on_host(
              queue(), values + from.offset, n,
              [&](master_type const* some, std::size_t index, std::size_t m) { std::copy_n(some, m, chunk.data() + index); });
        }
        broadcast_and_wait(queue(), tasks_.backend(), chars_of(chunk), from.rank);
        take(offset + done, n, reinterpret_cast<std::byte const*>(chunk.data()));
        done += n;
      }
    });
  }
  static constexpr std::size_t most = std::size_t{1} << 18U;  ///< elements of a chunk

  [[nodiscard]] typename Storage::queue& queue() const noexcept { return tasks_.queue(); }
  [[nodiscard]] int rank() const noexcept { return tasks_.backend().rank(); }
  [[nodiscard]] std::size_t gathered_bytes() const noexcept { return shares_.padded_size() * sizeof(parameter_type); }
  static std::span<char> chars_of(std::vector<master_type>& chunk) {
    return {reinterpret_cast<char*>(chunk.data()), chunk.size() * sizeof(master_type)};
  }
  /// Whether tensor k is frozen here, and another optimizer of this process trains it.
  [[nodiscard]] bool trains_elsewhere(std::size_t k) const {
    auto const tensor = layout_[k];
    return layout_.groups()[tensor.group].frozen &&
           adopted_.trained_elsewhere(accumulator_.parameter_at(tensor.offset), tensor.size * sizeof(parameter_type));
  }
  void settle() {
    queue().after_computation();
    queue().wait();
    queue().before_computation();
  }
  /// This rank's elements of all arrays of the source's will be read.
  void expect(state_source& source, std::size_t arrays) const {
    for (std::size_t array = 0; array < arrays; ++array) {
      if (!source.has(array)) continue;
      for_elements_of(tasks_.arrays().shape().extent(array), shares_, rank(),
                      [&](std::size_t, std::size_t first, std::size_t count) { source.expect(array, first, count); });
    }
  }

  /// This rank's shard of an array of the source's, to where it lies in the whole.
  void read_where_it_lies(state_source& source, std::size_t array, parameter_type* whole) {
    read(source, array, array_extent::shard, [&](std::size_t offset) { return whole + shares_.position(rank(), offset); });
  }
  /// This rank's elements of an array of the source's; where(index in the array) is where they belong.
  template <class At>
  void read(state_source& source, std::size_t array, array_extent extent, At&& where) {
    using T = std::remove_pointer_t<decltype(where(std::size_t{}))>;
    for_elements_of(extent, shares_, rank(), [&](std::size_t index, std::size_t first, std::size_t count) {
      T* const at = where(index);
      if constexpr (Storage::host_memory) {
        source.read(array, first, count, reinterpret_cast<std::byte*>(at));
      } else {
        constexpr std::size_t whole_chunks = most * sizeof(master_type) / sizeof(T);  // of a file
        std::vector<T> chunk;
        for (std::size_t i = 0, n = 0; i < count; i += n) {
          n = std::min(whole_chunks - (first + i) % whole_chunks, count - i);
          chunk.resize(n);
          source.read(array, first + i, chunk.size(), reinterpret_cast<std::byte*>(chunk.data()));
          Storage::copy(queue(), static_cast<T const*>(chunk.data()), at + i, chunk.size());
          queue().after_computation();
          queue().wait();
        }
      }
    });
  }
  /// The same of numbers that are packed, by stretches of whole blocks; those on which no element lies are 0 already.
  void read_packed(state_source& source, std::size_t array, int8_place to) {
    constexpr std::size_t size = int8_blocks::block_size;
    std::vector<bfloat16> stretch;  // from number `begin` on
    std::size_t begin = 0;
    const auto put = [&] {
      if (stretch.empty()) return;
      stretch.resize((stretch.size() + size - 1) / size * size, bfloat16(0.0F));
      std::vector<float> values(stretch.size());
      elementwise::convert(static_cast<bfloat16 const*>(stretch.data()), values.data(), values.size());
      std::vector<std::int8_t> codes(stretch.size());
      std::vector<std::uint8_t> exponents(stretch.size() / size);
      int8_place{codes.data(), exponents.data(), 0}.pack(values.data(), values.size());
      const int8_place there = to + begin;
      Storage::copy(queue(), static_cast<std::int8_t const*>(codes.data()), there.codes, codes.size());
      Storage::copy(queue(), static_cast<std::uint8_t const*>(exponents.data()), &there.exponent(), exponents.size());
      settle();
      stretch.clear();
    };
    const array_extent extent = tasks_.arrays().shape().extent(array);
    for_elements_of(extent, shares_, rank(), [&](std::size_t index, std::size_t first, std::size_t count) {
      for (std::size_t i = 0, n = 0; i < count; i += n) {
        const std::size_t at = index + i;
        if (at >= begin + most) {
          put();
          begin = at / most * most;
        }
        n = std::min(begin + most - at, count - i);
        stretch.resize(at - begin + n, bfloat16(0.0F));
        source.read(array, first + i, n, reinterpret_cast<std::byte*>(stretch.data() + (at - begin)));
      }
    });
    put();
  }
  void show(parameter_type const* trainable) {
    queue().before_computation();
    accumulator_.show(queue(), trainable);
    settle();
  }
  /// visit(offset in the layout, number of the first trainable element, count, the group of the first).
  template <class Visitor>
  void for_pieces(Visitor&& visit) const {
    std::size_t first = 0;
    for (std::size_t k = 0; k < layout_.tensor_count();) {
      const auto trains = [&](std::size_t tensor) { return !layout_.groups()[layout_[tensor].group].frozen; };
      const std::size_t begin = layout_[k].offset;
      const bool trainable = trains(k);
      update_group const& group = layout_.groups()[layout_[k].group];
      std::size_t count = layout_[k++].size;
      // small tensors travel together
      while (trainable && k < layout_.tensor_count() && trains(k)) count += layout_[k++].size;
      for (std::size_t i = 0; i < count; i += most) visit(begin + i, first + i, std::min(most, count - i), group);
      if (trainable) first += count;
    }
  }

  tasks_type& tasks_;
  accumulator_type& accumulator_;
  adopted_memory const& adopted_;
  parameter_layout const& layout_;
  partition shares_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
