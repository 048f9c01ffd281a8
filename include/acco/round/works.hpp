// SPDX-License-Identifier: Apache-2.0
// The works of a round, bucket by bucket, in the two lanes of a queue:
//
//   network   counts | RS 0 | RS 1 | ...               | norm |        AG 0 | AG 1 | ...
//   update             encode 0, 1, ...  squares 0, 1, ...     | update 0, update 1, ...  | decode 0, 1, ...
//
// What stands in one lane keeps its order; `squares b` waits for `RS b`, `AG b` for `update b`. Nothing is updated before the
// norm of all gradients is known to be finite. RS is a reduce-scatter, or an all-to-all of encoded gradients, AG an all-gather.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/collective/blocking.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/decision.hpp"
#include "acco/round/digests.hpp"
#include "acco/round/encoded_buffers.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/non_finite.hpp"
#include "acco/round/norms.hpp"
#include "acco/round/pipeline.hpp"
#include "acco/round/sharded_state.hpp"
#include "acco/round/stagger.hpp"
#include "acco/round/state_copy.hpp"
#include "acco/round/state_staging.hpp"
#include "acco/round/world_digest.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/storage/storage.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where a run stands when a round starts.
struct round_position {
  std::uint64_t steps = 0;  ///< updates committed
  double samples = 0;       ///< weight committed
  double rate = 1;          ///< the learning rate's scale
  double loss_scale = 1;    ///< of the gradients that the round carries
  double most_norm = 0;     ///< a norm beyond it is a spike; 0: none is
  bool late = false;        ///< the carried gradients were computed before the last commit was shown
  double moved = 0;         ///< how far the parameters have come since the gradients were measured (`norm_limits::moved`)
};

/// What is wanted of a round once it has been worked off.
template <class Storage>
struct round_end {
  state_staging<Storage>* copy = nullptr;  ///< to which the state is copied
  bool shown = false;                      ///< digests the parameters in use
  bool state = false;                      ///< digests the state
};

/// One rank's queue and backend, and everything a round in flight owns: the sharded state, the carried gradients, the slices they
/// become, the numbers that decide. Between `begin` and the end of the queue's last task it belongs to the queue.
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
  using state_type = sharded_state<Storage, Rule>;

  /// `layout`, `chosen` and `accumulator` must outlive it. `keeps_reduced`: some round adds to the slice of the round before.
  round_works(Rule const& rule, Storage storage, Backend backend, parameter_layout const& layout, options const& chosen,
              accumulator_type const& accumulator, partition shares, bool keeps_reduced)
      : storage_(std::move(storage)),
        backend_(std::move(backend)),
        layout_(layout),
        options_(chosen),
        accumulator_(accumulator),
        shares_(shares),
        keeps_reduced_(keeps_reduced),
        encoded_(shares_),
        norms_(layout, chosen.norms),
        state_(rule, layout, norms_.regions(), shares_, backend_.rank(), chosen.average_decay > 0) {
    queue_.deadline = options_.deadline;
    queue_.place.rank = backend_.rank();
  }
  round_works(round_works const&) = delete;
  round_works& operator=(round_works const&) = delete;

  [[nodiscard]] queue_type& queue() noexcept { return queue_; }
  [[nodiscard]] Storage const& storage() const noexcept { return storage_; }
  [[nodiscard]] Backend& backend() noexcept { return backend_; }
  [[nodiscard]] Backend const& backend() const noexcept { return backend_; }
  /// The backend has become an optimizer's own; `same_everywhere`: rounds start after as many micro-batches on every rank.
  void joined([[maybe_unused]] bool same_everywhere) {
    if constexpr (traits_of<Backend>.watched) queue_.watch(backend_.watch());
    if constexpr (traits_of<Backend>.shares_device) backend_.share(same_everywhere);
  }
  [[nodiscard]] state_type& state() noexcept { return state_; }

  /// Rounds may travel as `wire` says. Before `count` and `allocate`.
  template <class Gradients, class Parameters>
  void add_wire(coded<Gradients, Parameters> const& wire) noexcept {
    encoded_.add(wire);
    if constexpr (own_gradients<Gradients>) takes_own_ = true;
    if constexpr (feeds_back<Gradients>) keeps_lost_ = true;
  }
  void count(memory_table& table) const noexcept {
    state_.count(table);
    encoded_.count(table);
    table.encoded += Storage::allocation_size(lost_bytes(), stagger::encoded + 1);
    table.reduced = Storage::allocation_size(reduced_bytes(), stagger::reduced) +
                    Storage::allocation_size(received_bytes(), stagger::reduced + 1);
    if constexpr (traits_of<Backend>.allocates_messages) table.messages = backend_.buffer_bytes();
  }
  void allocate() {
    queue_.reserve(works_of_a_round(shares_.buckets()), shares_.buckets() > 1);
    stages_.resize(shares_.buckets());
    state_.allocate(storage_, queue_);
    encoded_.allocate(storage_, queue_);
    reduced_ = storage_.allocate(reduced_bytes(), stagger::reduced);
    received_ = storage_.allocate(received_bytes(), stagger::reduced + 1);
    lost_ = storage_.allocate(lost_bytes(), stagger::encoded + 1);
    forget_lost();
    numbers_ = {storage_, 1};
    norms_.allocate(storage_, queue_, state_, shares_.buckets());
    digests_.allocate(storage_, layout_, state_, shares_, backend_.rank());
    Storage::clear(queue_, reduced_.template as<sum_type>(), shares_.slice_size());
  }

  /// What encodings have lost of this rank's gradients is not sent any more.
  void forget_lost() {
    if (keeps_lost_) Storage::clear(queue_, lost_.template as<gradient_type>(), shares_.padded_size());
  }

  // A round: carry, encode_kept where the accumulator keeps in place, begin, enqueue, end; when the queue is idle, the results;
  // then take_flight.

  void carry(flight_type flight, round_plan const& plan) noexcept {
    flight_ = std::move(flight);
    plan_ = plan;
    bytes_ = 0;
    sent_before_ = sent();
  }
  /// The carried gradients that the accumulator keeps in place: encoded before the trainer adds to them.
  template <encoding Encoding>
  void encode_kept(Encoding const& e) {
    round_numbers* const n = numbers_.there();
    Storage::forget(queue_, {&n->found, &n->first});
    for_buckets([&](std::size_t, bucket const& b) {
      Storage::encode_now(queue_, e, carried(b), b.begin, ranks(), b.share, encoded_.template leaving<Encoding>(b).data(),
                          {&n->found, &n->first});
    });
  }
  /// Of them this rank's own share, in the gradient's type: before the trainer adds to them.
  template <own_gradients Own>
  void encode_kept(Own) {
    round_numbers* const n = numbers_.there();
    Storage::forget(queue_, {&n->found, &n->first});
    for_buckets(
        [&](std::size_t, bucket const& b) { Storage::copy(queue_, carried_own(b), received<gradient_type>(b).data(), b.share); });
  }
  /// Whether that is done in this round.
  [[nodiscard]] bool encodes_early() const noexcept { return plan_.keeps && options_.in_place; }
  /// Stamps the beginning, sums the counts over all ranks, prepares the update.
  void begin(round_counts const& mine, round_position const& position) {
    position_ = position;
    brings_ = mine.weight > 0;
    round_numbers* const n = numbers_.there();
    stages_.begin(lane::network, [&] {
      queue_.after_computation();
      queue_.stamp([to = &times_.begin](double now) { *to = now; });
      Storage::run(queue_, begin_step{n, mine, encodes_early()});
      all_reduce(n->counts_mine, n->counts_all, 1 + count_numbers);
      Storage::run(queue_, weigh_step{n, backend_.size(), plan_.gradients == carried::fresh});
      state_.prepare({position.steps + 1, position.rate, position.late});
      state_.upload(queue_);
    });
  }
  /// The works of the round that was carried, which travels like this.
  template <class Gradients, class Parameters>
  void enqueue(coded<Gradients, Parameters> const& wire) {
    reduce(wire.gradients);
    stages_.each(lane::update, [&](std::size_t k) { take(wire.gradients, k); });
    stages_.once(lane::network, [&] {
      decide<Gradients>();
      if (plan_.parameters == update::commit_and_predict) prepare_next();
    });
    if constexpr (remembers_others<Rule>) {
      if (commits(plan_)) remember_others();
    }
    state_.begin(sharded<sum_type const>({reduced_.template as<sum_type>(), shares_.slice_size()}), norms_.decided());
    stages_.each(lane::update, [&](std::size_t k) { update_share(wire.parameters, k); });
    if (options_.average_decay > 0 && commits(plan_)) stages_.beside(lane::update, [&] { average(); });
    gather(wire.parameters);
  }
  void end(round_end<Storage> const& wanted) {
    stages_.end([&] { conclude(wanted); });
  }
  [[nodiscard]] flight_type take_flight() noexcept { return std::move(flight_); }

  [[nodiscard]] round_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] round_numbers const& numbers() const noexcept { return numbers_[0]; }
  [[nodiscard]] round_norms<Storage> const& norms() const noexcept { return norms_; }
  [[nodiscard]] time_interval times() const noexcept { return times_; }
  /// That this rank sent: what the backend has counted, or, of one that does not count, what a ring would send.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return traits_of<Backend>.counts_bytes ? sent() - sent_before_ : bytes_; }

  /// Adds the state to what is to be copied: what the round in flight will leave, if one is. `shows`, `arrives`: whether the
  /// parameters in use, and those that arrive, do not follow from the masters.
  template <class Copy>
  void add_to(Copy& copy, state_shape const& shape, bool shows, bool arrives) const {
    copy.shows = shows;
    copy.arrives = arrives;
    state_.for_arrays([&](std::size_t array, auto const* values) { copy.add(array, 0, values, shares_.slice_size()); });
    if (shows) {
      accumulator_.for_slice_in_use(backend_.rank(), [&](std::size_t offset, parameter_type const* from, std::size_t count) {
        copy.add(shape.shown(), offset, from, count);
      });
    }
    if (!arrives) return;
    for_buckets([&](std::size_t, bucket const& b) {
      copy.add(shape.arriving(), b.offset, own(b, flight_.parameters()).data(), b.share);
    });
  }
  /// A round that was worked off before: its plan, where its parameters are, and what it had come to.
  void go_on(flight_type flight, round_plan const& plan, run_numbers const& from) {
    carry(std::move(flight), plan);
    completed_round const& last = from.last;
    round_numbers& n = numbers_[0];
    n = {};
    n.all = last.counts;
    n.all.saving = {};  // it has been heard
    n.squares_all = last.squares;
    n.step_weight = last.step_weight;
    n.loss_scale = last.loss_scale;
    n.norm = last.norm;
    n.clip = last.clip;
    n.apply = last.apply;
    n.skip = last.skip;
    n.spike = last.spike;
    n.state_all = digest_words::of(last.digest);
    queue_.after_computation();
    numbers_.upload(queue_);
    norms_.restore(queue_, last.measured);
    queue_.wait();
    times_ = {0, last.seconds};
    has_sent(from.bytes_sent);
    position_ = {from.run.steps, from.run.samples, last.rate, last.loss_scale};
  }
  /// The round in flight has sent so much up to now.
  void has_sent(std::uint64_t bytes) noexcept {
    bytes_ = bytes;
    if constexpr (traits_of<Backend>.counts_bytes) sent_before_ = sent() - bytes;
  }
  /// What the round in flight has come to.
  void keep(completed_round& last) const {
    round_numbers const& n = numbers_[0];
    last.counts = n.all;
    last.squares = n.squares_all;
    last.step_weight = n.step_weight;
    last.loss_scale = n.loss_scale;
    last.norm = n.norm;
    last.clip = n.clip;
    last.apply = n.apply;
    last.skip = n.skip;
    last.spike = n.spike;
    last.digest = n.state_all.sum();
    last.seconds = times_.seconds();
    norms_.keep(last.measured);
  }
  /// The commit that has landed was applied: each region that it has changed has one update more.
  void count_updates() noexcept {
    for (std::size_t r = 0; r < norms_.regions().size(); ++r) {
      if (state_.leaves(r) && norms_.squares(r) != 0) ++state_.updates(r);
    }
  }
  /// How many updates each tensor has had, `steps` where it is never left out; with the commit that was worked off and has not
  /// landed, if it is `applied`. Nothing where no tensor may be left out.
  void keep_updates(std::vector<std::uint64_t>& to, std::uint64_t steps, bool applied) const {
    to.clear();
    bool any = false;
    for (std::size_t r = 0; r < norms_.regions().size(); ++r) any = any || state_.leaves(r);
    for (std::size_t k = 0; any && k < layout_.tensor_count(); ++k) {
      const std::size_t region = norms_.regions().of_tensor(k);
      const bool leaves = region != update_regions::none && state_.leaves(region);
      const bool one_more = applied && (!leaves || norms_.squares(region) != 0);
      to.push_back((leaves ? state_.updates(region) : steps) + (one_more ? 1 : 0));
    }
  }
  /// The reverse; where there are no such numbers each tensor has had `steps`.
  void restore_updates(std::span<std::uint64_t const> from, std::uint64_t steps) {
    for (std::size_t k = 0; k < layout_.tensor_count(); ++k) {
      const std::size_t region = norms_.regions().of_tensor(k);
      if (region == update_regions::none || !state_.leaves(region)) continue;
      state_.updates(region) = from.size() == layout_.tensor_count() ? from[k] : steps;
    }
  }
  /// Digests the parameters in use now; blocks.
  void digest_shown() {
    if constexpr (digests<Storage>) {
      queue_.after_computation();
      digests_.digest_shown(queue_, layout_, accumulator_, options_.compare_frozen);
      queue_.wait();
    }
  }
  /// What was found by a round that has been worked off, and was to digest them.
  [[nodiscard]] std::uint64_t shown() const noexcept {
    if constexpr (digests<Storage>) return digests_.shown(layout_);
    return 0;
  }
  /// Every rank's shares of `whole`, in which this rank's own lie already. Collective; blocks.
  void gather_shares(replicated<parameter_type> whole) {
    queue_.on(lane::network);
    for_buckets([&](std::size_t, bucket const& b) { all_gather(b, whole); });
    queue_.wait();
  }

  /// Brings the masters of all ranks, or their averages, into `whole`. Collective; blocks.
  void gather_masters(replicated<parameter_type> whole, bool averaged = false) {
    queue_.on(lane::network);
    for_buckets([&](std::size_t k, bucket const& b) {
      state_.show(queue_, k, whole, averaged);
      all_gather(b, whole);
    });
    queue_.wait();
  }
  /// All ranks' slices of an array of the state, this rank's of which is `slice`, by position. In host memory. Collective;
  /// blocks.
  template <class T>
  void gather_slices(T const* slice, std::span<T> whole) {
    queue_.on(lane::network);
    for_buckets([&](std::size_t, bucket const& b) {
      backend_.all_gather(queue_, sharded<T const>(std::span(slice + b.offset, b.share)),
                          replicated<T>(whole.subspan(b.begin, b.share * ranks())));
    });
    queue_.wait();
  }
  /// By position, what encodings have lost of this rank's gradients; empty where they keep nothing.
  [[nodiscard]] std::span<gradient_type> lost() noexcept {
    return {lost_.template as<gradient_type>(), keeps_lost_ ? shares_.size() : 0};
  }
  /// Replaces the numbers by their sums over all ranks. Collective; blocks. Throws where another rank sums something else.
  void sum_over_ranks(std::span<double> numbers, double kind = sum_kind::by_library) {
    std::vector<double> mine(1 + numbers.size(), kind), all(mine.size());
    std::copy(numbers.begin(), numbers.end(), mine.begin() + 1);
    all_reduce_and_wait(queue_, backend_, std::span<double const>(mine), std::span<double>(all));
    if (all[0] != backend_.size() * kind) raise_different_sums(all[0], backend_.size(), queue_.place);
    std::copy(all.begin() + 1, all.end(), numbers.begin());
  }

  /// Throws an error that names ranks of different learning rates; `mine` is this rank's. Collective: every rank throws alike.
  [[noreturn]] void raise_rates(double mine) {
    std::vector<double> all(ranks(), 0.0);
    all[static_cast<std::size_t>(backend_.rank())] = mine;
    sum_over_ranks(all);
    raise_different_rates(all, position_.samples, queue_.place);
  }
  /// Throws an error that names who has other parameters in use than the others. Collective: every rank throws alike.
  void raise_shown() {
    if constexpr (digests<Storage>) {
      std::vector<std::uint64_t> mine(layout_.tensor_count());
      for (std::size_t k = 0; k < mine.size(); ++k) mine[k] = digests_.shown(k);
      raise_different_parameters(mine, layout_, backend_.size(), queue_.place, [this](std::span<std::uint64_t> all, int root) {
        broadcast_and_wait(queue_, backend_, std::span<char>(reinterpret_cast<char*>(all.data()), all.size_bytes()), root);
      });
    }
  }
  /// Throws an error that names who brought infinite or NaN gradients, if the round ended for that, or whose update gave such
  /// parameters, if its encoding refused them. Collective then: every rank has come here, and throws alike.
  void raise_non_finite() {
    round_numbers const& n = numbers_[0];
    const auto find = [this](unsigned long long count, unsigned long long first) {
      return find_first(backend_.rank(), backend_.size(), count, count != 0 ? accumulator_.offset_of(first) : 0,
                        [this](std::span<double> sums) { sum_over_ranks(sums); });
    };
    if (n.not_finite) {
      const bool in_slice = own_ && n.found != 0;
      raise_non_finite_gradients(find(n.found, in_slice ? shares_.position(backend_.rank(), n.first) : n.first), layout_,
                                 queue_.place);
    }
    if (n.diverged_all != 0) raise_non_finite_update(find(n.diverged, n.diverged_first), layout_, queue_.place);
  }

 private:
  /// At most: tasks, marks included, of a round's four sums, and of a bucket's reduction and gathering.
  static constexpr std::size_t works_of_a_round(std::size_t buckets) noexcept {
    constexpr std::size_t of_a_call = traits_of<Backend>.works_of_a_call;
    constexpr std::size_t of_matrices = matrix_rule<Rule> ? 1 : 0;
    return 31 + 4 * of_a_call + (12 + of_matrices + 2 * of_a_call) * buckets;
  }
  static constexpr bool accumulating = traits_of<Backend>.accumulates;
  /// The backend leaves sums in the gradient's type; they are widened afterwards.
  static constexpr bool sums_elsewhere = !std::is_same_v<reduced_by<Backend, gradient_type, sum_type>, sum_type>;

  static queue_type queue_for(Storage const& storage, Backend& backend) {
    if constexpr (storage_traits_of<Storage>.makes_queue) {
      return storage.make_queue(backend);
    } else {
      return make_queue<queue_type>(backend);
    }
  }
  [[nodiscard]] std::size_t lost_bytes() const noexcept {
    return keeps_lost_ ? shares_.padded_size() * sizeof(gradient_type) : 0;
  }
  [[nodiscard]] std::size_t reduced_bytes() const noexcept { return shares_.slice_size() * sizeof(sum_type); }
  /// A backend that cannot add to its destination needs a second slice when gradients are kept.
  [[nodiscard]] std::size_t received_bytes() const noexcept {
    const std::size_t own = sums_elsewhere || takes_own_ ? shares_.slice_size() * sizeof(gradient_type) : 0;
    return std::max(own, !sums_elsewhere && !accumulating && keeps_reduced_ ? reduced_bytes() : 0);
  }

  [[nodiscard]] std::uint64_t sent() const noexcept {
    if constexpr (traits_of<Backend>.counts_bytes) {
      return backend_.bytes_sent();
    } else {
      return 0;
    }
  }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(backend_.size()); }
  [[nodiscard]] bool adds() const noexcept { return plan_.gradients != carried::fresh; }
  template <class Visitor>
  void for_buckets(Visitor&& visit) const {
    for (std::size_t k = 0; k < shares_.buckets(); ++k) visit(k, shares_[k]);
  }
  /// This rank's share of a bucket: of the reduced gradients; of what a backend leaves elsewhere; of the arriving parameters.
  [[nodiscard]] std::span<sum_type> reduced(bucket const& b) const noexcept {
    return {reduced_.template as<sum_type>() + b.offset, b.share};
  }
  template <class T>
  [[nodiscard]] std::span<T> received(bucket const& b) const noexcept {
    return {received_.template as<T>() + b.offset, b.share};
  }
  [[nodiscard]] gradient_type const* carried(bucket const& b) const noexcept {
    return flight_.gradients().local().data() + b.begin;
  }
  /// This rank's share of what it carries itself.
  [[nodiscard]] gradient_type const* carried_own(bucket const& b) const noexcept {
    return carried(b) + static_cast<std::size_t>(backend_.rank()) * b.share;
  }
  [[nodiscard]] std::span<parameter_type> whole(bucket const& b, replicated<parameter_type> of) const noexcept {
    return of.whole().subspan(b.begin, b.share * ranks());
  }
  [[nodiscard]] std::span<parameter_type> own(bucket const& b, replicated<parameter_type> of) const noexcept {
    return whole(b, of).subspan(static_cast<std::size_t>(backend_.rank()) * b.share, b.share);
  }

  void all_reduce(double const* from, double* to, std::size_t count) {
    backend_.all_reduce(queue_, partial<double const>({from, count}), replicated<double>({to, count}));
    bytes_ += bytes_sent(collective::all_reduce, backend_.size(), count * sizeof(double));
  }
  void all_gather(bucket const& b, replicated<parameter_type> of) {
    backend_.all_gather(queue_, sharded<parameter_type const>(own(b, of)), replicated<parameter_type>(whole(b, of)));
    bytes_ += bytes_sent(collective::all_gather, backend_.size(), whole(b, of).size_bytes());
  }

  /// What is wanted of the round, and its numbers on the host.
  void conclude(round_end<Storage> const& wanted) {
    if constexpr (digests<Storage>) {
      if (wanted.shown) digests_.digest_shown(queue_, layout_, accumulator_, options_.compare_frozen);
      if (wanted.state) {
        round_numbers* const n = numbers_.there();
        Storage::run(queue_, tell_state{n, digests_.digest_state(queue_)});
        all_reduce(n->state_mine.word, n->state_all.word, digest_words::count);
      }
    }
    if constexpr (stages<Storage>) {
      if (wanted.copy != nullptr) wanted.copy->enqueue(queue_);
    }
    numbers_.download(queue_);
    norms_.download(queue_);
    queue_.stamp([to = &times_.end](double now) { *to = now; });
    queue_.poll();  // where the trainer makes progress itself: the first messages leave now
  }

  // Reduce: every bucket becomes this rank's share of its sum.

  void reduce(full) {
    stages_.each(lane::network, [&](std::size_t k) {
      bucket const b = shares_[k];
      const partial<gradient_type const> from({carried(b), b.share * ranks()});
      if constexpr (sums_elsewhere) {
        backend_.reduce_scatter(queue_, from, sharded<gradient_type>(received<gradient_type>(b)));
      } else if (!adds()) {
        backend_.reduce_scatter(queue_, from, sharded<sum_type>(reduced(b)));
      } else if constexpr (accumulating) {
        backend_.reduce_scatter(queue_, from, sharded<sum_type>(reduced(b)), accumulate);
      } else {
        backend_.reduce_scatter(queue_, from, sharded<sum_type>(received<sum_type>(b)));
      }
      bytes_ += bytes_sent(collective::reduce_scatter, backend_.size(), from.local().size_bytes());
    });
  }
  /// A bucket's gradients become what leaves, with what was lost of them before where the encoding says so.
  template <encoding Encoding>
  void encode_carried(Encoding const& e, bucket const& b) {
    round_numbers* const n = numbers_.there();
    std::byte* const leaving = encoded_.template leaving<Encoding>(b).data();
    if constexpr (feeds_back<Encoding>) {
      if (brings_) {
        Storage::encode_with_lost(queue_, e, carried(b), lost_.template as<gradient_type>() + b.begin, b.begin, ranks(), b.share,
                                  leaving, {&n->found, &n->first});
        return;
      }
    }
    Storage::encode(queue_, e, carried(b), b.begin, ranks(), b.share, leaving, {&n->found, &n->first},
                    commits(plan_) ? rounding_seed(position_.steps + 1, backend_.rank(), backend_.size()) : 0);
  }
  template <encoding Encoding>
  void reduce(Encoding const& e) {
    if (!encodes_early()) {  // otherwise that is done
      stages_.each(lane::update, [&](std::size_t k) { encode_carried(e, shares_[k]); });
    }
    stages_.each(lane::network, [&](std::size_t k) {
      bucket const b = shares_[k];
      const std::span<std::byte const> leaving = encoded_.template leaving<Encoding>(b);
      backend_.all_to_all(queue_, leaving, encoded_.template arriving<Encoding>(b));
      bytes_ += bytes_sent(collective::all_to_all, backend_.size(), leaving.size());
    });
  }
  /// Nothing travels: a copy of this rank's own share stands for all ranks' sum once it is scaled from this rank's weight to
  /// theirs.
  void reduce(own_slice) {
    stages_.once(lane::network, [&] {
      copy_own();
      Storage::run(queue_, weigh_own{numbers_.there()});
    });
  }
  /// Likewise, with the others' mean gradient of the last step for their samples: before the first there is none.
  void reduce(own_corrected) {
    static_assert(remembers_others<Rule>);
    stages_.once(lane::network, [&] {
      copy_own();
      Storage::run(queue_, mix_own{numbers_.there(), position_.steps > 0, position_.loss_scale});
    });
  }
  void copy_own() {
    if (encodes_early()) return;  // it is done
    for_buckets([&](std::size_t, bucket const& b) {
      Storage::convert(queue_, carried_own(b), received<gradient_type>(b).data(), b.share);
    });
  }
  /// What has arrived becomes the sum, in the sum's type, and its squares.
  template <class Gradients>
  void take(Gradients const& e, std::size_t k) {
    constexpr bool from_received = std::is_same_v<Gradients, own_slice> || (!encoding<Gradients> && sums_elsewhere);
    bucket const b = shares_[k];
    auto* const slice = reduced_.template as<sum_type>();
    if constexpr (std::is_same_v<Gradients, own_corrected>) {
      Storage::combine(queue_, &numbers_.there()->mixed, static_cast<gradient_type const*>(received<gradient_type>(b).data()),
                       static_cast<typename Storage::master_type const*>(state_.others(k)), reduced(b).data(), state_.real(k));
      norms_.measure(queue_, state_, k, slice, b.offset);
    } else if constexpr (from_received) {
      norms_.take(queue_, state_, b, static_cast<gradient_type const*>(received_.template as<gradient_type>()), slice, adds());
    } else {
      sum_type* const to = reduced(b).data();
      if constexpr (encoding<Gradients>) {
        Storage::decode_sum(queue_, e, encoded_.template arriving<Gradients>(b).data(), backend_.size(), to, b.share, adds());
      } else if constexpr (!accumulating) {
        if (adds()) Storage::add(queue_, static_cast<sum_type const*>(received<sum_type>(b).data()), to, b.share);
      }
      norms_.measure(queue_, state_, k, slice, b.offset);
    }
  }

  /// When the squares of all gradients are known: whether to update, and by how much to clip. What is not finite must be named
  /// while it is still here (whoever encodes has looked already), or, where it is skipped, must not reach the rounds that come.
  template <class Gradients>
  void decide() {
    round_numbers* const n = numbers_.there();
    const norm_limits limits{options_.clip_norm,  options_.raises(),
                             position_.most_norm, options_.on_norm_spike == norm_spike::raise,
                             position_.moved,     sizeof(typename Storage::master_type) == 4 ? 0x1p64 : 0x1p512};
    constexpr bool own = own_gradients<Gradients>;
    own_ = own;
    norms_.decide(queue_, state_, n, shares_.buckets(), limits, position_.loss_scale, std::is_same_v<Gradients, own_slice>,
                  [this](double const* from, double* to, std::size_t count) { all_reduce(from, to, count); });
    if (options_.raises()) {
      if constexpr (own) {  // the accumulator is being added to
        Storage::find_non_finite(queue_, &n->not_finite, received_.template as<gradient_type>(), state_.count(), &n->found,
                                 &n->first);
      } else if constexpr (!encoding<Gradients>) {
        Storage::find_non_finite(queue_, &n->not_finite, flight_.gradients().local().data(), shares_.size(), &n->found,
                                 &n->first);
      }
    }
    const bool looks_for_spikes = limits.most > 0;
    if (limits.raises || (looks_for_spikes && limits.raises_spike)) Storage::run(queue_, stop_if_refused{n});
    if (!limits.raises || (looks_for_spikes && !limits.raises_spike))
      Storage::clear_if(queue_, &n->skip, reduced_.template as<sum_type>(), shares_.slice_size());
  }
  /// Of the gradients of a step that is committed, those of the other ranks: their mean, for the estimates to come. Before the
  /// first update: its parameters may come to lie where the carried gradients are.
  void remember_others() {
    round_numbers* const n = numbers_.there();
    stages_.once(lane::network, [&] { Storage::run(queue_, weigh_others{n}); });
    stages_.each(lane::update, [&](std::size_t k) {
      bucket const b = shares_[k];
      Storage::combine(queue_, &n->others, static_cast<sum_type const*>(reduced(b).data()), carried_own(b), state_.others(k),
                       state_.real(k));
    });
  }
  /// The update after the coming one is told the samples that this one commits: they are known when the counts are summed.
  void prepare_next() {
    numbers_.download(queue_);
    norms_.download(queue_);
    queue_.enqueue([this] {
      round_numbers const& n = numbers_[0];
      const training_position then{position_.samples + n.step_weight, position_.steps + (n.apply ? 1 : 0)};
      state_.prepare_next({position_.steps + 2, options_.rate_at(then, queue_.place)},
                          [&](std::size_t region) { return n.apply && norms_.squares(region) != 0; });
    });
    state_.upload_next(queue_);
  }

  /// This rank's share of a bucket becomes new parameters; what travels encoded is their difference to those in use.
  template <class Parameters>
  void update_share([[maybe_unused]] Parameters const& e, std::size_t k) {
    state_.apply(plan_.parameters, queue_, k, flight_.parameters());
    if constexpr (encoding<Parameters>) {
      bucket const b = shares_[k];
      round_numbers* const n = numbers_.there();
      Storage::encode_difference(
          queue_, e, own(b, flight_.parameters()).data(), accumulator_.in_use(), shares_.position(backend_.rank(), b.offset),
          state_.real(k), encoded_.template share<Parameters>(b, backend_.rank()).data(), {&n->diverged, &n->diverged_first});
    }
  }
  void average() {
    for (std::size_t k = 0; k < shares_.buckets(); ++k)
      state_.average(queue_, k, &numbers_.there()->apply, options_.average_decay);
  }
  void gather(full) {
    stages_.each(lane::network, [&](std::size_t k) { all_gather(shares_[k], flight_.parameters()); });
  }
  template <encoding Parameters>
  void gather(Parameters const& e) {
    stages_.each(lane::network, [&](std::size_t k) {
      bucket const b = shares_[k];
      const std::span<std::byte> all = encoded_.template arriving<Parameters>(b);
      backend_.all_gather(queue_, sharded<std::byte const>(encoded_.template share<Parameters>(b, backend_.rank())),
                          replicated<std::byte>(all));
      bytes_ += bytes_sent(collective::all_gather, backend_.size(), all.size());
    });
    stages_.beside(lane::network, [&] {
      round_numbers* const n = numbers_.there();
      Storage::run(queue_, tell_diverged{n});
      all_reduce(&n->diverged_mine, &n->diverged_all, 1);
    });
    stages_.each(lane::update, [&](std::size_t k) {
      bucket const b = shares_[k];
      const std::size_t real = std::min(b.share * ranks(), shares_.size() - b.begin);
      Storage::decode_onto(queue_, e, encoded_.template arriving<Parameters>(b).data(), accumulator_.in_use(), b.begin, b.share,
                           real, flight_.parameters().whole().data() + b.begin);
    });
  }

  Storage storage_;
  Backend backend_;
  parameter_layout const& layout_;
  options const& options_;
  accumulator_type const& accumulator_;
  partition shares_;
  bool keeps_reduced_;
  bool takes_own_ = false;   // some round takes this rank's own gradients for all ranks'
  bool keeps_lost_ = false;  // some round feeds back what it loses
  encoded_buffers<Storage> encoded_;
  round_norms<Storage> norms_;
  state_type state_;
  round_digests<Storage> digests_;
  typename Storage::buffer reduced_, received_, lost_;  // `lost_`: by position, what encodings have lost of this rank's gradients
  typename Storage::template numbers<round_numbers> numbers_;

  // Of the round in flight.
  round_plan plan_;
  round_position position_;
  flight_type flight_;
  time_interval times_;
  std::uint64_t bytes_ = 0, sent_before_ = 0;
  bool brings_ = false;  // this rank brings something: what does not count carries nothing of what was lost before
  bool own_ = false;     // it takes this rank's own gradients

  queue_type queue_ = queue_for(storage_, backend_);  // its threads use everything above
  pipeline<queue_type> stages_{queue_};
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
