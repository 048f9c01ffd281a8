// SPDX-License-Identifier: Apache-2.0
// The engine: executes one round_plan over queue, state and backend. It branches on the plan, never on the schedule's type.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/agreement.hpp"
#include "acco/collective/backend.hpp"
#include "acco/collective/blocking.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/encoding/coding.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/observe/clock.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/schedule/construction.hpp"
#include "acco/schedule/decision.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/state/encoded_buffers.hpp"
#include "acco/state/gradient_accumulator.hpp"
#include "acco/state/non_finite.hpp"
#include "acco/state/sharded_state.hpp"
#include "acco/storage/storage.hpp"

namespace ACCO_NAMESPACE {

/// One rank's rounds. At most one is in flight; while it is, the queue's thread owns everything marked "of the round in flight"
/// below. All members are called by the trainer's thread.
template <class Schedule, class Rule, class Storage, class Backend>
class round_engine {
 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using sum_type = typename Storage::sum_type;
  using queue_type = typename Storage::queue;

  round_engine(Schedule schedule, Rule rule, Storage storage, Backend backend, parameter_layout layout, options chosen)
      : schedule_(std::move(schedule)),
        rule_(std::move(rule)),
        storage_(std::move(storage)),
        backend_(std::move(backend)),
        layout_(std::move(layout)),
        options_(std::move(chosen)),
        waits_(schedule_.plan(0).meanwhile == computation::waits),
        shares_(layout_.trainable_size(), backend_.size()),
        accumulator_(layout_, shares_, waits_, options_.stable_addresses, encoding<typename commit_type::parameter_encoding>),
        encoded_(shares_, !in_pieces),
        state_(rule_, layout_, shares_, backend_.rank()) {
    encoded_.add(estimate_);
    encoded_.add(commit_);
    queue_.deadline = options_.deadline;
    queue_.place.rank = backend_.rank();
  }
  round_engine(round_engine const&) = delete;
  round_engine& operator=(round_engine const&) = delete;
  ~round_engine() {
    if (in_flight_ && (!queue_.idle() || queue_.failed())) leave();
    queue_.stop();
  }

  [[nodiscard]] memory_table memory() const noexcept {
    memory_table table;
    accumulator_.count(table);
    state_.count(table);
    encoded_.count(table);
    table.reduced = Storage::allocation_size(reduced_bytes(), reduced_stagger) +
                    Storage::allocation_size(received_bytes(), reduced_stagger + 1);
    if constexpr (requires { backend_.buffer_bytes(); }) table.messages = backend_.buffer_bytes();
    return table;
  }

  /// Compares the ranks' construction, allocates, and gives every rank the parameters of rank 0. Collective; blocks.
  void initialize(std::span<parameter_type const> values) {
    queue_.place.phase = "initialize";
    agree(queue_, backend_, describe_construction<Storage>(schedule_, rule_, options_, layout_), queue_.place);
    accumulator_.allocate(storage_, queue_);
    state_.allocate(storage_, queue_);
    encoded_.allocate(storage_, queue_);
    reduced_ = storage_.allocate(reduced_bytes(), reduced_stagger);
    received_ = storage_.allocate(received_bytes(), reduced_stagger + 1);
    numbers_ = {storage_, 1};
    Storage::clear(queue_, reduced().slice().data(), shares_.slice_size());
    accumulator_.set_parameters(queue_, values);
    queue_.after_computation();
    backend_.broadcast(queue_, replicated<parameter_type>(accumulator_.parameters()), 0);
    accumulator_.for_slice(backend_.rank(), accumulator_.parameters().data(),
                           [&](std::size_t offset, parameter_type const* from, std::size_t count) {
                             state_.set_masters(queue_, offset, from, count);
                           });
    queue_.wait();
    queue_.before_computation();
    boundary_ = steady_seconds();
  }

  [[nodiscard]] std::span<parameter_type const> parameters() const noexcept { return accumulator_.parameters(); }
  [[nodiscard]] std::span<gradient_type> gradients() const noexcept { return accumulator_.gradients(); }
  [[nodiscard]] double samples() const noexcept { return samples_; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] round_totals const& totals() const noexcept { return sums_; }
  [[nodiscard]] parameter_layout const& layout() const noexcept { return layout_; }
  [[nodiscard]] error_place place() const noexcept { return {backend_.rank(), static_cast<std::int64_t>(next_round_), ""}; }

  /// Ends a micro-batch; ends this rank's part of a round too when the pace says so.
  std::optional<round_report> accumulated(double weight, double loss_sum) {
    queue_.poll();
    mine_.weight += weight;
    mine_.loss_sum += loss_sum;
    ++micro_batches_;
    const step_part part = schedule_.plan(next_round_ + (in_flight_ ? 1 : 0)).part;  // of the round that will carry it
    if (micro_batches_ < schedule_.pace.minimum(part)) return std::nullopt;
    if (micro_batches_ < schedule_.pace.maximum(part) && in_flight_ && !queue_.idle()) return std::nullopt;
    return end_part();
  }

  void poll() { queue_.poll(); }

  /// Takes part in rounds until every rank is finishing and nothing is left to commit; then shows committed parameters.
  /// Collective; blocks.
  void finish() {
    computed_ = {boundary_, steady_seconds()};
    if (in_flight_) land();
    mine_.finishing = 1;
    for (;;) {
      const round_plan plan = schedule_.plan(next_round_);
      start();
      if (!land()) break;                                                                             // nobody had anything left
      if (commits(plan) && numbers_[0].all.finishing == static_cast<double>(backend_.size())) break;  // this was everything
    }
    mine_ = {};
    while (!begins_step(schedule_, next_round_)) ++next_round_;
    if (!showing_masters_) {
      auto unused = accumulator_.launch(queue_, true);
      queue_.after_computation();
      gather_masters(unused.parameters(), unused.slice(backend_.rank()));
      queue_.before_computation();
      accumulator_.land(queue_, std::move(unused));
      showing_masters_ = true;
    }
    quiet_ = true;
    boundary_ = steady_seconds();
  }

  /// Writes the committed parameters, after the round in flight if it commits, into `out`, in the order of the layout.
  /// Collective; blocks.
  void gather_committed(std::span<parameter_type> out) {
    auto const whole = storage_.allocate(shares_.padded_size() * sizeof(parameter_type), 0);
    const std::span<parameter_type> gathered(whole.template as<parameter_type>(), shares_.padded_size());
    queue_.after_computation();
    gather_masters(replicated<parameter_type>(gathered), gathered.subspan(shares_.begin(backend_.rank()), shares_.slice_size()));
    auto const in_use = accumulator_.parameters();
    queue_.before_computation();
    if (out.data() != in_use.data()) Storage::copy(queue_, in_use.data(), out.data(), in_use.size());  // the frozen elements
    accumulator_.scatter(queue_, gathered.data(), out);
    queue_.after_computation();
    queue_.wait();
  }

  /// Replaces the numbers by their sums over all ranks. Collective; blocks until the round in flight is done.
  void sum_over_ranks(std::span<double> numbers) {
    const std::vector<double> mine(numbers.begin(), numbers.end());
    all_reduce_and_wait(queue_, backend_, std::span<double const>(mine), numbers);
  }

  [[nodiscard]] std::uint64_t state_digest() { return state_.digest(queue_); }

  /// Tells the other ranks that this one will not go on.
  void leave() noexcept {
    if constexpr (requires { backend_.abandon(std::string_view()); }) {
      const text reason("it destroyed its optimizer while round ", static_cast<std::uint64_t>(next_round_), " was in flight",
                        std::uncaught_exceptions() > 0 ? " because an exception left its training loop" : "");
      try {
        backend_.abandon(reason.view());
      } catch (...) {  // nothing more can be done for the others
      }
    }
  }

 private:
  static constexpr std::size_t reduced_stagger = 16;
  static constexpr bool accumulating = has_accumulating_reduce_scatter<Backend, queue_type, gradient_type, sum_type>;
  /// The backend leaves sums in the gradient's type; they are widened afterwards.
  static constexpr bool sums_elsewhere = !std::is_same_v<reduced_by<Backend, gradient_type, sum_type>, sum_type>;
  static constexpr bool measures = measuring_pace<decltype(Schedule::pace)>;
  static constexpr bool in_pieces = requires(Backend& backend) { backend.pieces(); };

  [[nodiscard]] char const* progress_policy() const noexcept {
    if constexpr (requires { backend_.progress_policy(); }) {
      return backend_.progress_policy();
    } else {
      return "";
    }
  }
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
    for (std::size_t round = 0; !accumulating && round < 16; ++round) {
      if (schedule_.plan(round).gradients == carried::kept_and_fresh) return reduced_bytes();
    }
    return 0;
  }
  [[nodiscard]] sharded<sum_type> reduced() const noexcept {
    return sharded<sum_type>({reduced_.template as<sum_type>(), shares_.slice_size()});
  }

  /// A boundary: lands the round in flight and launches the next one.
  std::optional<round_report> end_part() {
    const double entered = steady_seconds();
    computed_ = {boundary_, entered};
    std::optional<round_report> report;
    if (in_flight_) report = land();
    start();
    if (waits_) report = land();
    boundary_ = steady_seconds();
    return report;
  }

  void start() {
    plan_ = schedule_.plan(next_round_);
    queue_.place = {backend_.rank(), static_cast<std::int64_t>(next_round_), label_of(plan_)};
    rate_ = options_.learning_rate(samples_);
    flight_ = accumulator_.launch(queue_, quiet_, plan_.keeps);
    quiet_ = false;
    carried_counts_ = mine_;
    encoding_seconds_ = 0;
    if (plan_.keeps) {
      const double from = steady_seconds();
      encode_kept();
      encoding_seconds_ = steady_seconds() - from;
    } else {
      mine_ = {.finishing = mine_.finishing};
    }
    if (measures && micro_batches_ != 0) {
      carried_counts_.micro_batch_seconds = computed_.seconds() / static_cast<double>(micro_batches_);
      carried_counts_.estimate_seconds = seconds_of_[0];
      carried_counts_.commit_seconds = seconds_of_[1];
    }
    carried_micro_batches_ = std::exchange(micro_batches_, 0);
    in_flight_ = true;
    bytes_ = 0;

    round_numbers* const n = numbers_.there();
    queue_.after_computation();
    queue_.stamp(&times_.begin);
    Storage::run(queue_, begin_step{n, carried_counts_, plan_.keeps});
    all_reduce(&n->mine.weight, &n->all.weight, measures ? measuring_round_count_numbers : round_count_numbers);
    Storage::run(queue_, weigh_step{n, backend_.size(), plan_.gradients == carried::fresh});
    state_.prepare({steps_ + 1, rate_});
    state_.upload(queue_);
    switch (plan_.parameters) {
      case update::predict: enqueue_works<update::predict>(estimate_); break;
      case update::commit:
        with_commit_wire([this](auto const& wire) { this->template enqueue_works<update::commit>(wire); });
        break;
      case update::commit_and_predict:
        with_commit_wire([this](auto const& wire) { this->template enqueue_works<update::commit_and_predict>(wire); });
        break;
    }
    numbers_.download(queue_);
    queue_.stamp(&times_.end);
    queue_.poll();  // where the trainer makes progress itself: the first messages leave now
  }

  // --- the works of a round
  // -------------------------------------------------------------------------------------------

  /// The commit's wire, or where this commit's parameters are to be exact, that without their encoding.
  template <class Works>
  void with_commit_wire(Works&& works) {
    if constexpr (encoding<typename commit_type::parameter_encoding>) {
      if (commit_.exact_every != 0 && (steps_ + 1) % commit_.exact_every == 0)
        return works(coded<typename commit_type::gradient_encoding>{commit_.gradients});
    }
    works(commit_);
  }
  template <update kind, class Gradients, class Parameters>
  void enqueue_works(coded<Gradients, Parameters> const& wire) {
    sends_differences_ = encoding<Parameters>;
    if constexpr (in_pieces) {
      enqueue_pieces<kind>(wire);
    } else {
      if constexpr (encoding<Gradients>) {
        encode_gradients(wire.gradients);
        reduce_encoded(wire.gradients);
      } else {
        reduce_scatter();
      }
      Storage::sum_of_squares(queue_, sharded<sum_type const>(reduced().slice().first(state_.count())),
                              &numbers_.there()->squares_mine);
      decide_with_norm<Gradients>();
      if (kind == update::commit_and_predict) prepare_next();
      const sharded<parameter_type> own(flight_.slice(backend_.rank()));
      enqueue_update<kind>(own);
      if constexpr (encoding<Parameters>) {
        gather_encoded(wire.parameters, own.slice());
      } else {
        all_gather(flight_.parameters(), own.slice());
      }
    }
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

  // --- encoded
  // ----------------------------------------------------------------------------------------------------------------------------

  /// The carried gradients that the accumulator keeps: encoded before the trainer adds to them.
  void encode_kept() {
    using gradients = typename estimate_type::gradient_encoding;
    if constexpr (encoding<gradients>) {
      round_numbers* const n = numbers_.there();
      Storage::encode_now(queue_, estimate_.gradients, flight_.gradients().local().data(),
                          static_cast<std::size_t>(backend_.size()), shares_.slice_size(),
                          encoded_.template leaving<gradients>().data(), {&n->found, &n->first});
    } else {
      throw usage_error(queue_.place, text("the schedule keeps gradients that do not travel encoded"),
                        text("Give its member `estimate` an encoding, or let its plan keep nothing"));
    }
  }
  template <encoding Encoding>
  void encode_gradients(Encoding const& e) {
    bytes_ += bytes_sent(collective::all_to_all, backend_.size(), encoded_.template leaving<Encoding>().size());
    if (plan_.keeps) return;  // done
    round_numbers* const n = numbers_.there();
    Storage::encode(queue_, e, flight_.gradients().local().data(), static_cast<std::size_t>(backend_.size()),
                    shares_.slice_size(), encoded_.template leaving<Encoding>().data(), {&n->found, &n->first});
  }
  template <encoding Encoding>
  void reduce_encoded(Encoding const& e) {
    const std::span<std::byte> arriving = encoded_.template arriving<Encoding>();
    backend_.all_to_all(queue_, std::span<std::byte const>(encoded_.template leaving<Encoding>()), arriving);
    Storage::decode_sum(queue_, e, arriving.data(), backend_.size(), reduced().slice().data(), shares_.slice_size(),
                        plan_.gradients != carried::fresh);
  }
  /// `own` holds this rank's new parameters; what travels is their difference to those in use.
  template <encoding Encoding>
  void gather_encoded(Encoding const& e, std::span<parameter_type> own) {
    round_numbers* const n = numbers_.there();
    const std::span<std::byte> mine = encoded_.template slice<Encoding>(backend_.rank());
    const std::span<std::byte> all = encoded_.template arriving<Encoding>();
    Storage::encode_difference(queue_, e, own.data(), accumulator_.in_use(), shares_.begin(backend_.rank()), state_.count(),
                               mine.data(), {&n->diverged, &n->diverged_first});
    backend_.all_gather(queue_, sharded<std::byte const>(mine), replicated<std::byte>(all));
    bytes_ += bytes_sent(collective::all_gather, backend_.size(), all.size());
    decode_parameters(e);
  }
  template <encoding Encoding>
  void decode_parameters(Encoding const& e) {
    Storage::decode_onto(queue_, e, encoded_.template arriving<Encoding>().data(), accumulator_.in_use(), shares_.slice_size(),
                         shares_.size(), flight_.parameters().whole().data());
  }

  /// The update after the coming one is told the samples that this one commits: they are known when the counts are summed.
  void prepare_next() {
    numbers_.download(queue_);
    queue_.enqueue([this] { state_.prepare_next({steps_ + 2, options_.learning_rate(samples_ + numbers_[0].step_weight)}); });
    state_.upload_next(queue_);
  }

  void all_reduce(double const* from, double* to, std::size_t count) {
    backend_.all_reduce(queue_, partial<double const>({from, count}), replicated<double>({to, count}));
    bytes_ += bytes_sent(collective::all_reduce, backend_.size(), count * sizeof(double));
  }

  void reduce_scatter() {
    const partial<gradient_type const> from = flight_.gradients();
    bytes_ += bytes_sent(collective::reduce_scatter, backend_.size(), from.local().size_bytes());
    const bool fresh = plan_.gradients == carried::fresh;
    if constexpr (sums_elsewhere) {
      const std::span<gradient_type> received(received_.template as<gradient_type>(), shares_.slice_size());
      backend_.reduce_scatter(queue_, from, sharded<gradient_type>(received));
      fresh ? Storage::convert(queue_, static_cast<gradient_type const*>(received.data()), reduced().slice().data(),
                               received.size())
            : Storage::add(queue_, static_cast<gradient_type const*>(received.data()), reduced().slice().data(), received.size());
    } else if (fresh) {
      backend_.reduce_scatter(queue_, from, reduced());
    } else if constexpr (accumulating) {
      backend_.reduce_scatter(queue_, from, reduced(), accumulate);
    } else {
      const std::span<sum_type> received(received_.template as<sum_type>(), shares_.slice_size());
      backend_.reduce_scatter(queue_, from, sharded<sum_type>(received));
      Storage::add(queue_, static_cast<sum_type const*>(received.data()), reduced().slice().data(), received.size());
    }
  }

  void all_gather(replicated<parameter_type> whole, std::span<parameter_type> own) {
    backend_.all_gather(queue_, sharded<parameter_type const>(own), whole);
    bytes_ += bytes_sent(collective::all_gather, backend_.size(), whole.whole().size_bytes());
  }

  void gather_masters(replicated<parameter_type> whole, std::span<parameter_type> own) {
    state_.show(queue_, sharded<parameter_type>(own));
    all_gather(whole, own);
    queue_.wait();
  }

  template <update kind>
  void enqueue_update(sharded<parameter_type> own) {
    round_numbers* const n = numbers_.there();
    state_.template apply<kind>(queue_, &n->apply, sharded<sum_type const>(reduced().slice()), &n->scale, own);
  }

  // --- the same in pieces, over backends that can
  // -------------------------------------------------------------------------------------------

  /// Whether the update may begin before the norm over all ranks is known: nothing depends on it but the report, and an error.
  [[nodiscard]] bool update_needs_norm() const noexcept {
    return options_.clip_norm > 0 || options_.on_non_finite == non_finite::skip;
  }

  /// Without clipping, a piece is reduced, the one before it updated, the one before that gathered at the same time; where the
  /// update needs the norm, all are reduced first. Bit-identical either way.
  template <update kind, class Gradients, class Parameters>
  void enqueue_pieces(coded<Gradients, Parameters> const& wire) {
    found_non_finite_.reset();
    if constexpr (encoding<Gradients>) {
      encode_gradients(wire.gradients);
    } else {
      bytes_ += bytes_sent(collective::reduce_scatter, backend_.size(), flight_.gradients().local().size_bytes());
    }
    if (kind == update::commit_and_predict) prepare_next();
    round_numbers* const n = numbers_.there();
    if (update_needs_norm()) {
      queue_.enqueue([this, wire] {
        return reduce_pieces(wire, [this](std::size_t offset, std::size_t count, auto) { square_piece(offset, count); });
      });
      decide_with_norm<Gradients>();
      queue_.enqueue([this, wire] {
        const std::size_t piece = piece_elements(wire);
        for (std::size_t offset = 0; offset < shares_.slice_size(); offset += piece)
          update_piece<kind>(wire, offset, std::min(piece, shares_.slice_size() - offset));
      });
    } else {
      queue_.enqueue([n] { decide_without_norm(*n); });
      queue_.enqueue([this, wire] {
        return reduce_pieces(wire, [this, &wire](std::size_t offset, std::size_t count, auto source) {
          const bool finite = square_piece(offset, count);
          if constexpr (!encoding<Gradients>) {
            if (!finite) note_non_finite(offset, count, source);
          }
          update_piece<kind>(wire, offset, count);
        });
      });
    }
    queue_.enqueue([this] { return backend_.pieces().gather_rest(queue_); });
    if constexpr (encoding<Parameters>) {
      bytes_ += bytes_sent(collective::all_gather, backend_.size(), encoded_.template arriving<Parameters>().size());
      decode_parameters(wire.parameters);
    } else {
      bytes_ += bytes_sent(collective::all_gather, backend_.size(), flight_.parameters().whole().size_bytes());
    }
    if (!update_needs_norm()) {
      all_reduce(&n->squares_mine, &n->squares_all, 1);
      Storage::run(queue_, decide_step{n, 0, true});  // the norm for the report, or the error
      Storage::run(queue_, stop_if_not_finite{n});
    }
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
    const bool add = plan_.gradients != carried::fresh;
    if constexpr (encoding<Gradients>) {
      const std::span<std::byte const> leaving = encoded_.template leaving<Gradients>();
      return backend_.pieces().template pass_encoded<Gradients>(
          queue_, leaving, [&](std::size_t first, std::size_t blocks, auto source) {
            const std::size_t offset = first * Gradients::block_size;
            const std::size_t count = std::min(blocks * Gradients::block_size, shares_.slice_size() - offset);
            coding::decode_sum(wire.gradients, backend_.size(), source, reduced().slice().data() + offset, count, add);
            on_piece(offset, count, source);
          });
    } else {
      return backend_.pieces().reduce_scatter(queue_, flight_.gradients().local(), reduced().slice(), add,
                                              std::forward<OnPiece>(on_piece));
    }
  }
  /// Adds a piece's squares, padding excluded; whether they are finite.
  bool square_piece(std::size_t offset, std::size_t count) {
    const std::size_t end = std::min(offset + count, state_.count());
    double& squares = numbers_[0].squares_mine;
    if (offset < end) squares = elementwise::sum_of_squares(reduced().slice().data() + offset, end - offset, squares);
    return std::isfinite(squares);
  }
  template <update kind, class Gradients, class Parameters>
  void update_piece(coded<Gradients, Parameters> const& wire, std::size_t offset, std::size_t count) {
    const std::span<parameter_type> own = flight_.slice(backend_.rank());
    state_.template apply_now<kind>(offset, count, numbers_[0].apply, sharded<sum_type const>(reduced().slice()),
                                    numbers_[0].scale, sharded<parameter_type>(own));
    if constexpr (encoding<Parameters>) {
      const std::span<std::byte> mine = encoded_.template slice<Parameters>(backend_.rank());
      const std::size_t at = encoded_size<Parameters>(offset), bytes = encoded_size<Parameters>(count);
      if (offset < state_.count()) {
        coding::encode_difference(wire.parameters, own.data() + offset, accumulator_.in_use(),
                                  shares_.begin(backend_.rank()) + offset, std::min(count, state_.count() - offset),
                                  mine.data() + at, {&numbers_[0].diverged, &numbers_[0].diverged_first});
      }
      backend_.pieces().gather_piece(queue_, std::span<std::byte const>(mine), encoded_.template arriving<Parameters>(), at,
                                     bytes);
    } else {
      backend_.pieces().gather_piece(queue_, std::span<parameter_type const>(own), flight_.parameters().whole(), offset, count);
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

  // --- the end of a round
  // -------------------------------------------------------------------------------------------------------------------

  /// Waits for the round in flight and brings what it gathered into use. Nothing if the round turned out to be empty on every
  /// rank.
  std::optional<round_report> land() {
    const bool hidden = queue_.idle();
    const double from = steady_seconds();
    try {
      queue_.wait();
    } catch (round_stopped) {
      queue_.recover();
    }
    queue_.before_computation();
    round_numbers const& n = numbers_[0];
    if (n.nothing) {
      in_flight_ = false;
      flight_ = {};
      return std::nullopt;
    }
    if (n.not_finite) name_non_finite();
    if (n.diverged != 0) name_diverged();
    const double waited = hidden ? 0 : steady_seconds() - from;
    in_flight_ = false;
    accumulator_.land(queue_, std::move(flight_));
    showing_committed_ = shows_committed(plan_);
    showing_masters_ = showing_committed_ && !sends_differences_;
    if (n.apply && commits(plan_)) {
      ++steps_;
      samples_ += n.step_weight;
    }
    skipped_in_a_row_ = n.skip ? skipped_in_a_row_ + 1 : n.apply ? 0 : skipped_in_a_row_;
    seconds_of_[commits(plan_) ? 1 : 0] = times_.seconds();
    if constexpr (measures) {
      if (!commits(plan_) && n.all.finishing == 0) {
        const auto ranks = static_cast<double>(backend_.size());
        schedule_.pace.measured(
            {n.all.micro_batch_seconds / ranks, n.all.estimate_seconds / ranks, n.all.commit_seconds / ranks});
      }
    }
    const round_report report = describe_round(waited);
    sums_.add(report);
    computed_.begin = computed_.end;  // counted once, also when several rounds end at one boundary
    ++next_round_;
    if (skipped_in_a_row_ > options_.skip_limit) {
      throw non_finite_error(
          queue_.place, text(skipped_in_a_row_, " updates in a row were skipped because of gradients that are not finite"),
          text("The model has diverged: start again from a checkpoint with a lower learning rate, or raise options::skip_limit"));
    }
    return report;
  }

  [[nodiscard]] round_report describe_round(double waited) const {
    round_numbers const& n = numbers_[0];
    return {.round = next_round_,
            .plan = plan_,
            .committed = showing_committed_,
            .skipped = n.skip,
            .step = steps_,
            .samples = samples_,
            .weight = n.all.weight,
            .mean_loss = n.all.weight > 0 ? n.all.loss_sum / n.all.weight : 0,
            .gradient_norm = n.norm,
            .clip_scale = n.clip,
            .learning_rate_scale = rate_,
            .micro_batches = carried_micro_batches_,
            .first = schedule_.pace.minimum(step_part::first),
            .second = schedule_.pace.minimum(step_part::second),
            .compute_seconds = computed_.seconds(),
            .communication_seconds = times_.seconds(),
            .exposed_seconds = waited + encoding_seconds_,
            .bytes_sent = bytes_,
            .progress = progress_policy(),
            .computing = computed_,
            .communicating = times_};
  }

  /// Throws an error that names the ranks which brought infinite or NaN gradients. Collective: every rank has come here.
  [[noreturn]] void name_non_finite() {
    non_finite_findings findings(backend_.size());
    if (found_non_finite_) {  // parameters may have arrived where the gradients were: the owners have looked
      findings = *found_non_finite_;
    } else {
      round_numbers const& n = numbers_[0];
      findings.add(backend_.rank(), n.found, n.found != 0 ? accumulator_.offset_of(n.first) : 0);
    }
    findings.raise(backend_.rank(), layout_, queue_.place, [this](std::span<double> numbers) { sum_over_ranks(numbers); });
  }

  /// The update gave what is infinite or NaN, and its encoding refused it. The other ranks learn it when this one leaves.
  [[noreturn]] void name_diverged() {
    round_numbers const& n = numbers_[0];
    const std::size_t at = accumulator_.offset_of(static_cast<std::size_t>(n.diverged_first));
    throw non_finite_error(queue_.place,
                           text("the update of ", n.diverged, " parameters is infinite or not a number, first in '",
                                layout_.at_offset(at).name, "' at element ", at - layout_.at_offset(at).offset),
                           text("Lower the learning rate, and start again from a checkpoint"), backend_.rank());
  }

  using estimate_type = decltype(estimate_wire(std::declval<Schedule const&>()));
  using commit_type = decltype(commit_wire(std::declval<Schedule const&>()));

  Schedule schedule_;
  Rule rule_;
  Storage storage_;
  Backend backend_;
  parameter_layout layout_;
  options options_;
  estimate_type estimate_ = estimate_wire(schedule_);
  commit_type commit_ = commit_wire(schedule_);
  bool waits_;  // whether the computation waits for rounds
  partition shares_;
  gradient_accumulator<Storage> accumulator_;
  encoded_buffers<Storage> encoded_;

  // The trainer's side.
  round_counts mine_;  // of the micro-batches since the last boundary
  std::size_t micro_batches_ = 0;
  std::size_t next_round_ = 0;  // the round that starts next, or is in flight
  bool in_flight_ = false;
  bool quiet_ = true;  // the next launch must not move the trainer's spans
  bool showing_committed_ = true;
  bool showing_masters_ = true;  // the committed parameters exactly, not a copy that arrived as encoded differences
  std::uint64_t steps_ = 0;      // updates committed
  double samples_ = 0;           // weight committed
  std::size_t skipped_in_a_row_ = 0;
  double seconds_of_[2] = {};  // of the last estimate and commit
  double boundary_ = 0;        // when the trainer went on computing
  time_interval computed_;
  round_totals sums_;

  // Of the round in flight.
  round_plan plan_;
  bool sends_differences_ = false;  // parameters travel encoded
  typename gradient_accumulator<Storage>::flight flight_;
  round_counts carried_counts_;
  std::size_t carried_micro_batches_ = 0;
  double encoding_seconds_ = 0;  // of the trainer's thread, when the round started
  std::uint64_t bytes_ = 0;
  double rate_ = 1;
  typename Storage::template numbers<round_numbers> numbers_;
  std::optional<non_finite_findings> found_non_finite_;  // by this owner, in all ranks' addends
  time_interval times_;
  typename Storage::buffer reduced_, received_;
  sharded_state<Storage, Rule> state_;

  queue_type queue_ = make_queue(storage_, backend_);  // last: its thread uses everything above
};

}  // namespace ACCO_NAMESPACE
