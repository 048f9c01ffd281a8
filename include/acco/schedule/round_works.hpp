// SPDX-License-Identifier: Apache-2.0
// What the works of a round share, in whole arrays (whole_round.hpp) or in pieces (pieced_round.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/collective/blocking.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/encoding/coding.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/schedule/decision.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/state/encoded_buffers.hpp"
#include "acco/state/gradient_accumulator.hpp"
#include "acco/state/non_finite.hpp"
#include "acco/state/sharded_state.hpp"
#include "acco/storage/storage.hpp"

namespace ACCO_NAMESPACE {

/// Where a run stands when a round starts.
struct round_position {
  std::uint64_t steps = 0;  ///< updates committed
  double samples = 0;       ///< weight committed
  double rate = 1;          ///< the learning rate's scale
};

/// One rank's queue and backend, and everything a round in flight owns: the sharded state, the carried gradients, the slices they
/// become, the numbers that decide. Between `begin` and the end of the queue's last task it belongs to the queue's thread.
/// The trainer's thread calls all members that are not tasks themselves.
template <class Rule, class Storage, class Backend>
class round_works {
 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using sum_type = typename Storage::sum_type;
  using queue_type = typename Storage::queue;
  using accumulator_type = gradient_accumulator<Storage>;
  using flight_type = typename accumulator_type::flight;

  /// Whether this backend's messages leave piece by piece.
  static constexpr bool in_pieces = requires(Backend& backend) { backend.pieces(); };

  /// `layout`, `chosen` and `accumulator` must outlive it. `keeps_reduced`: some round adds to the slice of the round before.
  round_works(Rule const& rule, Storage storage, Backend backend, parameter_layout const& layout, options const& chosen,
              accumulator_type const& accumulator, bool keeps_reduced)
      : storage_(std::move(storage)),
        backend_(std::move(backend)),
        layout_(layout),
        options_(chosen),
        accumulator_(accumulator),
        shares_(layout.trainable_size(), backend_.size()),
        keeps_reduced_(keeps_reduced),
        encoded_(shares_, !in_pieces),
        state_(rule, layout, shares_, backend_.rank()) {
    queue_.deadline = options_.deadline;
    queue_.place.rank = backend_.rank();
  }
  round_works(round_works const&) = delete;
  round_works& operator=(round_works const&) = delete;

  [[nodiscard]] queue_type& queue() noexcept { return queue_; }
  [[nodiscard]] Storage const& storage() const noexcept { return storage_; }
  [[nodiscard]] Backend& backend() noexcept { return backend_; }
  [[nodiscard]] Backend const& backend() const noexcept { return backend_; }
  [[nodiscard]] partition shares() const noexcept { return shares_; }
  [[nodiscard]] sharded_state<Storage, Rule>& state() noexcept { return state_; }

  /// Rounds may travel as `wire` says. Before `count` and `allocate`.
  template <class Gradients, class Parameters>
  void add_wire(coded<Gradients, Parameters> const& wire) noexcept {
    encoded_.add(wire);
  }
  void count(memory_table& table) const noexcept {
    state_.count(table);
    encoded_.count(table);
    table.reduced = Storage::allocation_size(reduced_bytes(), reduced_stagger) +
                    Storage::allocation_size(received_bytes(), reduced_stagger + 1);
    if constexpr (requires { backend_.buffer_bytes(); }) table.messages = backend_.buffer_bytes();
  }
  void allocate() {
    state_.allocate(storage_, queue_);
    encoded_.allocate(storage_, queue_);
    reduced_ = storage_.allocate(reduced_bytes(), reduced_stagger);
    received_ = storage_.allocate(received_bytes(), reduced_stagger + 1);
    numbers_ = {storage_, 1};
    Storage::clear(queue_, reduced().slice().data(), shares_.slice_size());
  }

  // A round: carry, encode_kept where the accumulator keeps, begin, the works of its kind (`enqueue` of the class that derives),
  // end; when the queue is idle, the results; then take_flight.

  void carry(flight_type flight, round_plan const& plan) noexcept {
    flight_ = std::move(flight);
    plan_ = plan;
    bytes_ = 0;
  }
  /// The carried gradients that the accumulator keeps: encoded before the trainer adds to them.
  template <encoding Encoding>
  void encode_kept(Encoding const& e) {
    round_numbers* const n = numbers_.there();
    Storage::encode_now(queue_, e, flight_.gradients().local().data(), static_cast<std::size_t>(backend_.size()),
                        shares_.slice_size(), encoded_.template leaving<Encoding>().data(), {&n->found, &n->first});
  }
  /// Stamps the beginning, sums the first `summed` numbers of the counts over all ranks, prepares the update.
  void begin(round_counts const& mine, std::size_t summed, round_position const& position) {
    position_ = position;
    round_numbers* const n = numbers_.there();
    queue_.after_computation();
    queue_.stamp(&times_.begin);
    Storage::run(queue_, begin_step{n, mine, plan_.keeps});
    all_reduce(&n->mine.weight, &n->all.weight, summed);
    Storage::run(queue_, weigh_step{n, backend_.size(), plan_.gradients == carried::fresh});
    state_.prepare({position.steps + 1, position.rate});
    state_.upload(queue_);
  }
  void end() {
    numbers_.download(queue_);
    queue_.stamp(&times_.end);
    queue_.poll();  // where the trainer makes progress itself: the first messages leave now
  }
  [[nodiscard]] flight_type take_flight() noexcept { return std::move(flight_); }

  [[nodiscard]] round_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] round_numbers const& numbers() const noexcept { return numbers_[0]; }
  [[nodiscard]] time_interval times() const noexcept { return times_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Brings the masters of all ranks into `whole`; `own` is this rank's slice of it. Collective; blocks.
  void gather_masters(replicated<parameter_type> whole, std::span<parameter_type> own) {
    state_.show(queue_, sharded<parameter_type>(own));
    all_gather(whole, own);
    queue_.wait();
  }
  /// Replaces the numbers by their sums over all ranks. Collective; blocks.
  void sum_over_ranks(std::span<double> numbers) {
    const std::vector<double> mine(numbers.begin(), numbers.end());
    all_reduce_and_wait(queue_, backend_, std::span<double const>(mine), numbers);
  }

  /// Throws an error that names the ranks which brought infinite or NaN gradients, if the round ended for that. Collective then:
  /// every rank has come here.
  void raise_non_finite() {
    round_numbers const& n = numbers_[0];
    if (!n.not_finite) return;
    non_finite_findings findings(backend_.size());
    if (found_non_finite_) {  // parameters may have arrived where the gradients were: the owners have looked
      findings = *found_non_finite_;
    } else {
      findings.add(backend_.rank(), n.found, n.found != 0 ? accumulator_.offset_of(n.first) : 0);
    }
    findings.raise(backend_.rank(), layout_, queue_.place, [this](std::span<double> sums) { sum_over_ranks(sums); });
  }
  /// Throws if the update gave what is infinite or NaN, and its encoding refused it. The other ranks learn it when this one
  /// leaves.
  void raise_diverged() const {
    round_numbers const& n = numbers_[0];
    if (n.diverged == 0) return;
    const std::size_t at = accumulator_.offset_of(static_cast<std::size_t>(n.diverged_first));
    throw non_finite_error(queue_.place,
                           text("the update of ", n.diverged, " parameters is infinite or not a number, first in '",
                                layout_.at_offset(at).name, "' at element ", at - layout_.at_offset(at).offset),
                           text("Lower the learning rate, and start again from a checkpoint"), backend_.rank());
  }

 protected:
  ~round_works() = default;

  [[nodiscard]] sharded<sum_type> reduced() const noexcept {
    return sharded<sum_type>({reduced_.template as<sum_type>(), shares_.slice_size()});
  }
  /// This rank's slice of the arriving parameters.
  [[nodiscard]] std::span<parameter_type> own() const noexcept { return flight_.slice(backend_.rank()); }
  [[nodiscard]] bool adds() const noexcept { return plan_.gradients != carried::fresh; }

  void all_reduce(double const* from, double* to, std::size_t count) {
    backend_.all_reduce(queue_, partial<double const>({from, count}), replicated<double>({to, count}));
    bytes_ += bytes_sent(collective::all_reduce, backend_.size(), count * sizeof(double));
  }
  void all_gather(replicated<parameter_type> whole, std::span<parameter_type> own) {
    backend_.all_gather(queue_, sharded<parameter_type const>(own), whole);
    bytes_ += bytes_sent(collective::all_gather, backend_.size(), whole.whole().size_bytes());
  }
  template <encoding Encoding>
  void decode_parameters(Encoding const& e) {
    Storage::decode_onto(queue_, e, encoded_.template arriving<Encoding>().data(), accumulator_.in_use(), shares_.slice_size(),
                         shares_.size(), flight_.parameters().whole().data());
  }

  /// After the squares of all gradients are known. What is not finite must be named while it is still here (whoever encodes has
  /// looked already), or, where it is skipped, must not reach the rounds that come.
  template <class Gradients>
  void decide_with_norm() {
    round_numbers* const n = numbers_.there();
    all_reduce(&n->squares_mine, &n->squares_all, 1);
    Storage::run(queue_, decide_step{n, options_.clip_norm, options_.on_non_finite == non_finite::raise});
    if (options_.on_non_finite == non_finite::raise) {
      if constexpr (!encoding<Gradients>) {
        Storage::find_non_finite(queue_, &n->not_finite, flight_.gradients().local().data(), shares_.size(), &n->found,
                                 &n->first);
      }
      Storage::run(queue_, stop_if_not_finite{n});
    } else {
      Storage::clear_if(queue_, &n->skip, reduced().slice().data(), shares_.slice_size());
    }
  }
  /// The update after the coming one is told the samples that this one commits: they are known when the counts are summed.
  void prepare_next() {
    numbers_.download(queue_);
    queue_.enqueue([this] {
      const double samples = position_.samples + numbers_[0].step_weight;
      state_.prepare_next({position_.steps + 2, options_.learning_rate(samples)});
    });
    state_.upload_next(queue_);
  }

 private:
  static constexpr std::size_t reduced_stagger = 16;

  static queue_type make_queue(Storage const& storage, Backend& backend) {
    if constexpr (requires { storage.make_queue(backend); }) {
      return storage.make_queue(backend);
    } else if constexpr (requires { backend.driver(); }) {
      return queue_type(backend.driver());
    } else {
      return queue_type();
    }
  }
  [[nodiscard]] std::size_t reduced_bytes() const noexcept { return shares_.slice_size() * sizeof(sum_type); }
  /// A backend that cannot add to its destination needs a second slice when gradients are kept.
  [[nodiscard]] std::size_t received_bytes() const noexcept {
    if (sums_elsewhere) return shares_.slice_size() * sizeof(gradient_type);
    return !accumulating && keeps_reduced_ ? reduced_bytes() : 0;
  }

  Storage storage_;

 protected:
  static constexpr bool accumulating = has_accumulating_reduce_scatter<Backend, queue_type, gradient_type, sum_type>;
  /// The backend leaves sums in the gradient's type; they are widened afterwards.
  static constexpr bool sums_elsewhere = !std::is_same_v<reduced_by<Backend, gradient_type, sum_type>, sum_type>;

  Backend backend_;
  parameter_layout const& layout_;
  options const& options_;
  accumulator_type const& accumulator_;
  partition shares_;

 private:
  bool keeps_reduced_;

 protected:
  encoded_buffers<Storage> encoded_;
  sharded_state<Storage, Rule> state_;
  typename Storage::buffer reduced_, received_;
  typename Storage::template numbers<round_numbers> numbers_;
  std::optional<non_finite_findings> found_non_finite_;  // by this owner, in all ranks' addends

  // Of the round in flight.
  round_plan plan_;
  round_position position_;
  flight_type flight_;
  time_interval times_;
  std::uint64_t bytes_ = 0;

  queue_type queue_ = make_queue(storage_, backend_);  // last: its thread uses everything above
};

}  // namespace ACCO_NAMESPACE
