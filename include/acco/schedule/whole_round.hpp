// SPDX-License-Identifier: Apache-2.0
// The works of a round over whole arrays: one collective after the other.
#pragma once

#include <cstddef>
#include <span>

#include "acco/schedule/round_works.hpp"

namespace ACCO_NAMESPACE {

/// Reduce, decide, update, gather: each for all parameters.
template <class Rule, class Storage, class Backend>
class whole_round : public round_works<Rule, Storage, Backend> {
  using base = round_works<Rule, Storage, Backend>;
  using base::accumulating, base::accumulator_, base::adds, base::backend_, base::bytes_, base::encoded_, base::flight_,
      base::numbers_, base::own, base::plan_, base::queue_, base::received_, base::reduced, base::shares_, base::state_,
      base::sums_elsewhere;
  using typename base::gradient_type, typename base::parameter_type, typename base::sum_type;

 public:
  using base::base;

  /// The works of the round that was carried, which travels like this.
  template <class Gradients, class Parameters>
  void enqueue(coded<Gradients, Parameters> const& wire) {
    round_numbers* const n = numbers_.there();
    if constexpr (encoding<Gradients>) {
      reduce_encoded(wire.gradients);
    } else {
      reduce_scatter();
    }
    Storage::sum_of_squares(queue_, sharded<sum_type const>(reduced().slice().first(state_.count())), &n->squares_mine);
    this->template decide_with_norm<Gradients>();
    if (plan_.parameters == update::commit_and_predict) this->prepare_next();
    state_.apply(plan_.parameters, queue_, &n->apply, sharded<sum_type const>(reduced().slice()), &n->scale,
                 sharded<parameter_type>(own()));
    if constexpr (encoding<Parameters>) {
      gather_encoded(wire.parameters);
    } else {
      this->all_gather(flight_.parameters(), own());
    }
  }

 private:
  void reduce_scatter() {
    const partial<gradient_type const> from = flight_.gradients();
    bytes_ += bytes_sent(collective::reduce_scatter, backend_.size(), from.local().size_bytes());
    if constexpr (sums_elsewhere) {
      const std::span<gradient_type> received(received_.template as<gradient_type>(), shares_.slice_size());
      backend_.reduce_scatter(queue_, from, sharded<gradient_type>(received));
      auto const* const sums = static_cast<gradient_type const*>(received.data());
      adds() ? Storage::add(queue_, sums, reduced().slice().data(), received.size())
             : Storage::convert(queue_, sums, reduced().slice().data(), received.size());
    } else if (!adds()) {
      backend_.reduce_scatter(queue_, from, reduced());
    } else if constexpr (accumulating) {
      backend_.reduce_scatter(queue_, from, reduced(), accumulate);
    } else {
      const std::span<sum_type> received(received_.template as<sum_type>(), shares_.slice_size());
      backend_.reduce_scatter(queue_, from, sharded<sum_type>(received));
      Storage::add(queue_, static_cast<sum_type const*>(received.data()), reduced().slice().data(), received.size());
    }
  }
  template <encoding Encoding>
  void reduce_encoded(Encoding const& e) {
    const std::span<std::byte> leaving = encoded_.template leaving<Encoding>();
    const std::span<std::byte> arriving = encoded_.template arriving<Encoding>();
    round_numbers* const n = numbers_.there();
    if (!plan_.keeps) {  // otherwise that is done
      Storage::encode(queue_, e, flight_.gradients().local().data(), static_cast<std::size_t>(backend_.size()),
                      shares_.slice_size(), leaving.data(), {&n->found, &n->first});
    }
    backend_.all_to_all(queue_, std::span<std::byte const>(leaving), arriving);
    bytes_ += bytes_sent(collective::all_to_all, backend_.size(), leaving.size());
    Storage::decode_sum(queue_, e, arriving.data(), backend_.size(), reduced().slice().data(), shares_.slice_size(), adds());
  }
  /// What travels is the difference of the new parameters to those in use.
  template <encoding Encoding>
  void gather_encoded(Encoding const& e) {
    round_numbers* const n = numbers_.there();
    const std::span<std::byte> mine = encoded_.template slice<Encoding>(backend_.rank());
    const std::span<std::byte> all = encoded_.template arriving<Encoding>();
    Storage::encode_difference(queue_, e, own().data(), accumulator_.in_use(), shares_.begin(backend_.rank()), state_.count(),
                               mine.data(), {&n->diverged, &n->diverged_first});
    backend_.all_gather(queue_, sharded<std::byte const>(mine), replicated<std::byte>(all));
    bytes_ += bytes_sent(collective::all_gather, backend_.size(), all.size());
    this->decode_parameters(e);
  }
};

}  // namespace ACCO_NAMESPACE
