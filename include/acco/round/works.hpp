// SPDX-License-Identifier: Apache-2.0
// The works of a round, bucket by bucket, in the two lanes of a queue:
//
//   network   counts | RS 0 | RS 1 | ...               | norm |        AG 0 | AG 1 | ...
//   update             encode 0, 1, ...  squares 0, 1, ...     | update 0, update 1, ...  | decode 0, 1, ...
//
// What stands in one lane keeps its order; `squares b` waits for `RS b`, `AG b` for `update b`. Nothing is updated before the
// norm of all gradients is known to be finite. RS is a reduce-scatter, or an all-to-all of encoded gradients, AG an all-gather.
// Over two levels a reduce-scatter inside the group stands before `encode b`, and the all-to-all is between groups.
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
#include "acco/collective/replicas.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/bucket_codes.hpp"
#include "acco/round/check_wire.hpp"
#include "acco/round/decision.hpp"
#include "acco/round/digests.hpp"
#include "acco/round/encoded_buffers.hpp"
#include "acco/round/feedback.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/group_sums.hpp"
#include "acco/round/low_rank_sums.hpp"
#include "acco/round/non_finite.hpp"
#include "acco/round/norms.hpp"
#include "acco/round/sharded_state.hpp"
#include "acco/round/stagger.hpp"
#include "acco/round/state_copy.hpp"
#include "acco/round/state_staging.hpp"
#include "acco/round/world_digest.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/storage/storage.hpp"

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
  state_staging<Storage>* copies[2] = {};  ///< to which the state is copied
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
        addends_(shares_, backend_),
        encoded_(shares_, addends_.shares_of_a_bucket(), addends_.sources()),
        feedback_(shares_, addends_.shares_of_a_bucket()),
        low_rank_(shares_, backend_.rank()),
        norms_(layout, chosen.norms),
        state_(rule, layout, norms_.regions(), shares_, owner(), chosen.average_decay > 0) {
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

  /// Rounds may travel as `wire` says; `keeps`: also those whose gradients the accumulator keeps. Before `count` and `allocate`.
  template <class Gradients, class Parameters>
  void add_wire(coded<Gradients, Parameters> const& wire, bool keeps) {
    check_wire(wire, layout_, queue_.place);
    encoded_.add(wire);
    if constexpr (plans<Gradients>) {
      static_assert(
          Storage::host_memory,
          "acco: planned_encoding measures gradients in host memory: on a device give coded::gradients one encoding, or "
          "acco::one_of");
      codes_.add(wire.gradients, shares_, addends_.shares_of_a_bucket());
    }
    if constexpr (encoding<Gradients>) addends_.add(keeps);
    if constexpr (low_rank_wire<Gradients>) {
      static_assert(!two_levels<Backend>,
                    "acco: power_sgd sums over one level of ranks: over two, give coded::gradients an encoding");
      static_assert(!replicates<Backend>,
                    "acco: power_sgd writes its sums to their owners: over replicas, give coded::gradients an encoding");
      low_rank_.add(wire.gradients, layout_, queue_.place);
    }
    if constexpr (std::is_same_v<Gradients, full>) sums_exactly_ = true;
    if constexpr (own_gradients<Gradients>) takes_own_ = true;
    if constexpr (weighs_sources<Gradients>) weighs_ = true;
    if constexpr (feeds_ahead<Gradients>) {
      static_assert(!two_levels<Backend>,
                    "acco: with_feedback_ahead encodes before anything is summed, and over two levels a group's sum is encoded: "
                    "give `estimate` the encoding alone");
    }
    feedback_.add(wire.gradients, queue_.place);
  }
  void count(memory_table& table) const noexcept {
    state_.count(table);
    encoded_.count(table);
    addends_.count(table);
    feedback_.count(table);
    low_rank_.count(table);
    table.reduced = Storage::allocation_size(reduced_bytes(), stagger::reduced) +
                    Storage::allocation_size(received_bytes(), stagger::reduced + 1);
    if constexpr (two_levels<Backend>) {
      table.messages = backend_.buffer_bytes(between_levels());
    } else if constexpr (traits_of<Backend>.allocates_messages) {
      table.messages = backend_.buffer_bytes();
    }
  }
  void allocate() {
    queue_.reserve(works_of_a_round(shares_.buckets()), shares_.buckets() > 1);
    for (std::vector<queue_mark>* each : {&encoded_at_, &reduced_at_, &updated_at_, &gathered_at_})
      each->resize(shares_.buckets());
    state_.allocate(storage_, queue_);
    encoded_.allocate(storage_, queue_);
    addends_.allocate(storage_);
    low_rank_.allocate(storage_, queue_);
    if constexpr (two_levels<Backend>) backend_.reserve(between_levels());
    reduced_ = storage_.allocate(reduced_bytes(), stagger::reduced);
    received_ = storage_.allocate(received_bytes(), stagger::reduced + 1);
    feedback_.allocate(storage_);
    forget_lost();
    numbers_ = {storage_, 1};
    if (weighs_) weights_ = {storage_, addends_.sources()};
    norms_.allocate(storage_, queue_, state_, shares_.buckets());
    digests_.allocate(storage_, layout_, state_, shares_, owner(), tells_state());
    Storage::clear(queue_, reduced_.template as<sum_type>(), shares_.slice_size());
  }

  /// What encodings have lost of this rank's gradients is not sent any more, and what they were planned from does not count.
  void forget_lost() {
    codes_.forget();
    feedback_.forget(queue_);
    low_rank_.forget(queue_);
  }

  /// As it was when it was copied. Committed gradients travel in one way, so one of the two keeps nothing.
  void put_lost(std::byte const* from, double loss_scale) {
    feedback_.put(queue_, from, loss_scale);
    if (from != nullptr) low_rank_.put(queue_, from);
  }
  /// Which encodings are chosen once the round in flight has been worked off, and what it has measured for the next plan.
  void keep_codes(kept_codes& to) const { codes_.keep(to); }
  void put_codes(kept_codes const& from) { codes_.put(from); }
  /// By which encodings the buckets travel; empty where they are not planned.
  [[nodiscard]] std::vector<planned_bucket> encoding_plan() const { return codes_.describe(shares_); }
  [[nodiscard]] bool plans_codes() const noexcept { return codes_.any(); }
  /// Whether this rank's part counts where a digest of the state is summed over all ranks.
  [[nodiscard]] bool tells_state() const { return !replicates<Backend> || backend_.rank() == 0; }
  /// Of what is this rank's alone: what codes have lost, or what low-rank sums keep.
  [[nodiscard]] std::size_t lost_bytes() const noexcept { return feedback_.bytes() + low_rank_.kept_bytes(); }

  // A round: carry, encode_kept where the accumulator keeps, begin, enqueue, end; when the queue is idle, the results; then
  // take_flight.

  void carry(flight_type flight, round_plan const& plan) noexcept {
    flight_ = std::move(flight);
    plan_ = plan;
    bytes_ = 0;
    sent_before_ = sent();
    sent_between_before_ = sent_between();
  }
  /// Before `encode_kept`: whether this rank brings samples, and the loss scale of its gradients.
  void bring(bool some, double loss_scale) noexcept {
    brings_ = some;
    position_.loss_scale = loss_scale;
  }
  /// The carried gradients that the accumulator keeps: encoded before the trainer adds to them.
  template <encoding Encoding>
  void encode_kept([[maybe_unused]] Encoding const& e) {
    if constexpr (two_levels<Backend>) {
      addends_.keep(queue_, flight_.gradients().local());
    } else {
      round_numbers* const n = numbers_.there();
      Storage::forget(queue_, {&n->found, &n->first});
      for_buckets([&](std::size_t, bucket const& b) {
        with_chosen(e, [&]<class Chosen>(Chosen const& chosen) {
          std::byte* const leaving = encoded_.template leaving<Encoding, Chosen>(b).data();
          if constexpr (feeds_ahead<Encoding>) {
            if (brings_) {
              feedback_.encode_ahead(queue_, chosen, b, carried(b), position_.loss_scale, leaving, {&n->found, &n->first});
              return;
            }
          }
          Storage::encode_now(queue_, chosen, carried(b), b.begin, ranks(), b.share, leaving, {&n->found, &n->first});
        });
      });
    }
  }
  /// Of them this rank's own share, in the gradient's type: before the trainer adds to them.
  template <own_gradients Own>
  void encode_kept(Own) {
    round_numbers* const n = numbers_.there();
    Storage::forget(queue_, {&n->found, &n->first});
    for_buckets(
        [&](std::size_t, bucket const& b) { Storage::copy(queue_, carried_own(b), received<gradient_type>(b).data(), b.share); });
  }
  /// Stamps the beginning, sums the first `summed` numbers of the counts over all ranks, prepares the update.
  void begin(round_counts const& mine, std::size_t summed, round_position const& position) {
    position_ = position;
    brings_ = mine.weight > 0;
    round_numbers* const n = numbers_.there();
    queue_.on(lane::network);
    queue_.after_computation();
    queue_.stamp([to = &times_.begin](double now) { *to = now; });
    Storage::run(queue_, begin_step{n, mine, plan_.keeps && !two_levels<Backend>});
    all_reduce(n->counts_mine, n->counts_all, summed);
    Storage::run(queue_, weigh_step{n, backend_.size(), plan_.gradients == carried::fresh});
    left_out_ = mine.finishing != 0 && lost_bytes() != 0 && ends_on_host();
    weighed_at_ = queue_.mark();
    state_.prepare({position.steps + 1, position.rate, position.late});
    state_.upload(queue_);
  }
  /// The works of the round that was carried, which travels like this.
  template <class Gradients, class Parameters>
  void enqueue(coded<Gradients, Parameters> const& wire) {
    static_assert(!replicates<Backend> || (std::is_same_v<Parameters, full> && !own_gradients<Gradients>),
                  "acco: over replicas no parameters travel, and all ranks make the same update: let coded::parameters be "
                  "acco::full, and estimates not be of own gradients");
    if (left_out_) return;
    if constexpr (plans<Gradients>) codes_.plan();
    reduce(wire.gradients);
    take(wire.gradients);
    decide<Gradients>();
    if constexpr (tracks<Gradients>) follow(wire.gradients);
    if constexpr (remembers_others<Rule>) {
      if (commits(plan_)) remember_others();
    }
    if (plan_.parameters == update::commit_and_predict) prepare_next();
    update_shares(wire.parameters);
    gather(wire.parameters);
    if constexpr (low_rank_wire<Gradients>) {
      queue_.on(lane::update);
      low_rank_.end(queue_, position_.loss_scale, numbers_.there());
    }
  }
  void end(round_end<Storage> const& wanted) {
    queue_.on(lane::update);
    const queue_mark updated = queue_.mark();
    queue_.on(lane::network);
    queue_.after(updated);
    if constexpr (digests<Storage>) {
      if (wanted.shown) digests_.digest_shown(queue_, layout_, accumulator_);
      if (wanted.state) {
        round_numbers* const n = numbers_.there();
        Storage::run(queue_, tell_state{n, digests_.digest_state(queue_)});
        all_reduce(n->state_mine.word, n->state_all.word, digest_words::count);
      }
    }
    if constexpr (stages<Storage>) {
      for (state_staging<Storage>* each : wanted.copies) {
        if (each != nullptr) each->enqueue(queue_);
      }
    }
    numbers_.download(queue_);
    norms_.download(queue_);
    queue_.stamp([to = &times_.end](double now) { *to = now; });
    queue_.poll();  // where the trainer makes progress itself: the first messages leave now
  }
  [[nodiscard]] flight_type take_flight() noexcept { return std::move(flight_); }

  [[nodiscard]] round_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] round_numbers const& numbers() const noexcept { return numbers_[0]; }
  [[nodiscard]] round_norms<Storage> const& norms() const noexcept { return norms_; }
  [[nodiscard]] time_interval times() const noexcept { return times_; }
  /// That this rank sent: what the backend has counted, or, of one that does not count, what a ring would send.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return traits_of<Backend>.counts_bytes ? sent() - sent_before_ : bytes_; }

  /// What this rank has sent so far between the groups of two levels; 0 over others.
  [[nodiscard]] std::uint64_t sent_between() const noexcept {
    if constexpr (two_levels<Backend> && traits_of<Backend>.counts_bytes) {
      return backend_.bytes_sent_between();
    } else {
      return 0;
    }
  }
  /// Of these, between the groups of two levels; since this process began the round, or came back to it.
  [[nodiscard]] std::uint64_t bytes_between() const noexcept { return sent_between() - sent_between_before_; }

  /// Adds the state to what is to be copied: what the round in flight will leave, if one is. `shows`, `arrives`: whether the
  /// parameters in use, and those that arrive, do not follow from the masters.
  template <class Copy>
  void add_to(Copy& copy, state_shape const& shape, bool shows, bool arrives) const {
    copy.shows = shows;
    copy.arrives = arrives;
    state_.for_arrays([&](std::size_t array, auto const* values) { copy.add(array, 0, values, shares_.slice_size()); });
    feedback_.add_to(copy);
    if (low_rank_.any()) copy.add_lost(low_rank_.kept(), 1);
    if (shows) {
      accumulator_.for_slice_in_use(owner(), [&](std::size_t offset, parameter_type const* from, std::size_t count) {
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
    for (std::size_t k = 0; k < round_counts::all_numbers; ++k) n.counts_all[k] = last.counts[k];
    n.all = summed_counts::read(n.counts_all);
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
    sent_between_before_ = sent_between();
  }
  /// What the round in flight has come to.
  void keep(completed_round& last) const {
    round_numbers const& n = numbers_[0];
    for (std::size_t k = 0; k < round_counts::all_numbers; ++k) last.counts[k] = n.counts_all[k];
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
  /// Digests the parameters in use now; blocks.
  void digest_shown() {
    if constexpr (digests<Storage>) {
      queue_.after_computation();
      digests_.digest_shown(queue_, layout_, accumulator_);
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
  /// All ranks' slices of an array of the state, this rank's of which is `slice`, by position. Collective; blocks.
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
    static_assert(!two_levels<Backend>, "acco: over two levels what is lost is a part of a group's");
    return {feedback_.template numbers<gradient_type>(), feedback_.bytes() != 0 ? shares_.size() : 0};
  }
  /// to = the sums over all ranks, of so many numbers that every rank sums as many of them, and passes them on. Collective;
  /// blocks. Returns the bytes that this rank sends.
  template <class T>
  std::uint64_t sum_now(std::span<T const> from, std::span<T> to) {
    const std::size_t part = from.size() / ranks();
    const std::span<T> mine = to.subspan(static_cast<std::size_t>(owner()) * part, part);
    const auto sum = [&] {
      queue_.on(lane::network);
      backend_.reduce_scatter(queue_, partial<T const>(from), sharded<T>(mine));
      backend_.all_gather(queue_, sharded<T const>(mine), replicated<T>(to));
      queue_.wait();
    };
    return sent_by(sum, acco::bytes_sent(collective::reduce_scatter, backend_.size(), from.size_bytes()) +
                            acco::bytes_sent(collective::all_gather, backend_.size(), from.size_bytes()));
  }
  /// The bytes that this rank sends in `action`, between rounds: counted, or `otherwise`.
  template <class Action>
  std::uint64_t sent_by(Action&& action, std::uint64_t otherwise) {
    const std::uint64_t before = sent();
    action();
    return traits_of<Backend>.counts_bytes ? sent() - before : otherwise;
  }
  /// Replaces the numbers by their sums over all ranks. Collective; blocks.
  void sum_over_ranks(std::span<double> numbers) {
    const std::vector<double> mine(numbers.begin(), numbers.end());
    all_reduce_and_wait(queue_, backend_, std::span<double const>(mine), numbers);
  }

  /// Throws an error that names ranks of different learning rates; `mine` is this rank's. Collective: every rank throws alike.
  [[noreturn]] void raise_rates(double mine) {
    std::vector<double> all(static_cast<std::size_t>(backend_.size()), 0.0);
    all[static_cast<std::size_t>(backend_.rank())] = mine;
    sum_over_ranks(all);
    raise_different_rates(all, position_.samples, queue_.place);
  }
  /// Throws an error that names who has other parameters in use than the others; `trusted` becomes a rank that has the right
  /// ones, or -1 where that cannot be told. Collective: every rank throws alike.
  void raise_shown([[maybe_unused]] int& trusted) {
    if constexpr (digests<Storage>) {
      std::vector<std::uint64_t> mine(layout_.tensor_count());
      for (std::size_t k = 0; k < mine.size(); ++k) mine[k] = digests_.shown(k);
      raise_different_parameters(
          mine, layout_, backend_.size(), queue_.place, trusted, [this](std::span<std::uint64_t> all, int root) {
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
      raise_non_finite_gradients(find(n.found, in_slice ? shares_.position(owner(), n.first) : n.first), layout_, queue_.place);
    }
    if (n.diverged_all != 0) raise_non_finite_update(find(n.diverged, n.diverged_first), layout_, queue_.place);
  }

 private:
  /// At most: tasks, marks included, of a round's six sums and a gathering, of two sums of low rank, and of a bucket's reduction
  /// and gathering.
  static constexpr std::size_t works_of_a_round(std::size_t buckets) noexcept {
    constexpr std::size_t of_a_call = traits_of<Backend>.works_of_a_call;
    constexpr std::size_t of_matrices = matrix_rule<Rule> ? 1 : 0;
    return 41 + 11 * of_a_call + (16 + of_matrices + 2 * of_a_call) * buckets;
  }
  static constexpr bool accumulating = traits_of<Backend>.accumulates;
  /// The backend leaves sums in the gradient's type; they are widened afterwards.
  static constexpr bool sums_elsewhere = !std::is_same_v<reduced_by<Backend, gradient_type, sum_type>, sum_type>;

  static queue_type queue_for(Storage const& storage, Backend& backend) {
    if constexpr (requires { storage.make_queue(backend); }) {
      return storage.make_queue(backend);
    } else {
      return make_queue<queue_type>(backend);
    }
  }
  /// What a backend of two levels needs between them, of a bucket or of a round's numbers.
  [[nodiscard]] std::size_t between_levels() const noexcept {
    const std::size_t bucket = sums_exactly_ ? shares_[0].share * addends_.shares_of_a_bucket() * sizeof(sum_type) : 0;
    return std::max({bucket, norms_.regions().size() * sizeof(double), round_counts::all_numbers * sizeof(double),
                     codes_.mine().size() * sizeof(double)});
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
  /// Those that share the state among themselves, by number, and this one.
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(shares_.ranks()); }
  [[nodiscard]] int owner() const { return acco::owner(backend_); }
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
    return carried(b) + static_cast<std::size_t>(owner()) * b.share;
  }
  [[nodiscard]] std::span<parameter_type> whole(bucket const& b, replicated<parameter_type> of) const noexcept {
    return of.whole().subspan(b.begin, b.share * ranks());
  }
  [[nodiscard]] std::span<parameter_type> own(bucket const& b, replicated<parameter_type> of) const noexcept {
    return whole(b, of).subspan(static_cast<std::size_t>(owner()) * b.share, b.share);
  }

  void all_reduce(double const* from, double* to, std::size_t count) {
    backend_.all_reduce(queue_, partial<double const>({from, count}), replicated<double>({to, count}));
    bytes_ += bytes_sent(collective::all_reduce, backend_.size(), count * sizeof(double));
  }
  /// Over those that own shares of the state.
  void sum_over_owners(double const* from, double* to, std::size_t count) {
    if constexpr (replicates<Backend>) {
      Storage::convert(queue_, from, to, count);
    } else {
      all_reduce(from, to, count);
    }
  }
  void all_gather(bucket const& b, replicated<parameter_type> of) {
    if (replicates<Backend>) return;  // what is this rank's is everything
    backend_.all_gather(queue_, sharded<parameter_type const>(own(b, of)), replicated<parameter_type>(whole(b, of)));
    bytes_ += bytes_sent(collective::all_gather, backend_.size(), whole(b, of).size_bytes());
  }

  // Reduce: every bucket becomes this rank's share of its sum.

  void reduce(full) {
    queue_.on(lane::network);
    for_buckets([&](std::size_t k, bucket const& b) {
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
      reduced_at_[k] = queue_.mark();
    });
  }
  /// What this rank has carried of all gradients, as long as the round lasts.
  [[nodiscard]] std::span<gradient_type const> all_carried() const noexcept {
    if constexpr (two_levels<Backend>) {
      if (plan_.keeps) return addends_.kept();
    }
    return flight_.gradients().local();
  }
  /// What this rank encodes of a bucket: its gradients, or its part of its group's sum, once that is made.
  [[nodiscard]] auto const* to_encode(bucket const& b) const noexcept {
    if constexpr (two_levels<Backend>) {
      return addends_.sum_of(b).data();
    } else {
      return carried(b);
    }
  }
  /// A bucket's gradients become what leaves, with what was lost of them before where the encoding says so.
  template <encoding Encoding>
  void encode_carried(Encoding const& e, bucket const& b) {
    round_numbers* const n = numbers_.there();
    const coding::refused bad{&n->found, &n->first};
    codes_.with(e, b.index, [&]<class Chosen>(Chosen const& chosen) {
      std::byte* const leaving = encoded_.template leaving<Encoding, Chosen>(b).data();
      if constexpr (two_levels<Backend> && feeds_back<Encoding>) {
        feedback_.encode(queue_, e, chosen, b, addends_, position_.loss_scale, &n->group_weight, leaving, bad);
      } else if constexpr (two_levels<Backend>) {
        addends_.encode(queue_, chosen, b, leaving, bad);
      } else {
        if constexpr (tracks<Encoding>) {
          return feedback_.track(queue_, chosen, &n->tracked, b, carried(b), leaving, bad);
        } else if constexpr (feeds_back<Encoding>) {
          if (brings_) return feedback_.encode(queue_, e, chosen, b, carried(b), position_.loss_scale, leaving, bad);
        }
        Storage::encode(queue_, chosen, carried(b), b.begin, ranks(), b.share, leaving, bad);
      }
    });
  }
  /// Over two levels, exactly: this rank's part of its group's gradients, bucket by bucket.
  template <encoding Encoding>
  void sum_group() {
    if constexpr (two_levels<Backend>) {
      round_numbers* const n = numbers_.there();
      queue_.on(lane::network);
      if constexpr (feeds_back<Encoding> || weighs_sources<Encoding>)
        addends_.weigh(queue_, backend_, &n->counts_mine[0], &n->group_weight);
      for_buckets([&](std::size_t k, bucket const& b) {
        addends_.sum(queue_, backend_, b, all_carried());
        bytes_ += bytes_sent(collective::reduce_scatter, backend_.ranks_a_group(), b.share * ranks() * sizeof(gradient_type));
        reduced_at_[k] = queue_.mark();
      });
    }
  }
  template <encoding Encoding>
  void reduce(Encoding const& e) {
    const bool encodes = !plan_.keeps || two_levels<Backend>;  // otherwise that is done
    sum_group<Encoding>();
    if constexpr (tracks<Encoding>) {
      queue_.on(lane::network);
      Storage::run(queue_, weigh_tracked{numbers_.there(), position_.loss_scale});
      weighed_at_ = queue_.mark();
    }
    if (encodes) {
      queue_.on(lane::update);
      queue_.after(weighed_at_);
      for_buckets([&](std::size_t k, bucket const& b) {
        if (two_levels<Backend>) queue_.after(reduced_at_[k]);
        encode_carried(e, b);
        encoded_at_[k] = queue_.mark();
      });
      if (feeds_back<Encoding> && brings_ && !two_levels<Backend>) feedback_.encoded(position_.loss_scale);
    }
    queue_.on(lane::network);
    if constexpr (weighs_sources<Encoding>) {
      round_numbers* const n = numbers_.there();
      addends_.gather_weights(queue_, backend_, &n->counts_mine[0], &n->group_weight, weights_.there());
      bytes_ += bytes_sent(collective::all_gather, static_cast<int>(addends_.sources()), addends_.sources() * sizeof(double));
    }
    for_buckets([&](std::size_t k, bucket const& b) {
      if (encodes) queue_.after(encoded_at_[k]);
      codes_.with(e, b.index, [&]<class Chosen>(Chosen const&) {
        const std::span<std::byte const> leaving = encoded_.template leaving<Encoding, Chosen>(b);
        addends_.exchange(queue_, backend_, leaving, encoded_.template gradients<Encoding, Chosen>(b));
        bytes_ += bytes_sent(collective::all_to_all, static_cast<int>(addends_.sources()),
                             leaving.size() / addends_.shares_of_a_bucket() * addends_.sources());
      });
      reduced_at_[k] = queue_.mark();
    });
    if constexpr (plans<Encoding>) {
      if (codes_.begin_measuring(position_.steps)) measure<Encoding>();
    }
  }
  /// What each encoding would lose of what the ranks encode, over all of them: for the next plan.
  template <encoding Encoding>
  void measure() {
    queue_.on(lane::update);
    for_buckets([&](std::size_t, bucket const& b) {
      queue_.enqueue([this, b, from = to_encode(b)] { codes_.measure<Encoding>(b, addends_.shares_of_a_bucket(), from); });
    });
    const queue_mark measured = queue_.mark();
    queue_.on(lane::network);
    queue_.after(measured);
    all_reduce(codes_.mine().data(), codes_.all().data(), codes_.all().size());
  }
  /// Nothing travels: what `encode_kept` has copied stands for all ranks' sum once it is scaled from this rank's weight to
  /// theirs.
  void reduce(own_slice) {
    queue_.on(lane::network);
    Storage::run(queue_, weigh_own{numbers_.there()});
    for (queue_mark& each : reduced_at_) each = queue_.mark();
  }
  /// Likewise, with the others' mean gradient of the last step for their samples: before the first there is none.
  void reduce(own_corrected) {
    static_assert(remembers_others<Rule>);
    queue_.on(lane::network);
    Storage::run(queue_, mix_own{numbers_.there(), position_.steps > 0, position_.loss_scale});
    for (queue_mark& each : reduced_at_) each = queue_.mark();
  }
  /// Matrices as products of thin ones (low_rank_sums.hpp): two messages, of which the second depends on the first.
  template <low_rank_wire Wire>
  void reduce(Wire const&) {
    round_numbers* const n = numbers_.there();
    const auto sum = [&](bool first) {
      const queue_mark written = queue_.mark();
      queue_.on(lane::network);
      queue_.after(written);
      bytes_ += low_rank_.sum(queue_, backend_, first);
      for (queue_mark& each : reduced_at_) each = queue_.mark();
      queue_.on(lane::update);
      queue_.after(reduced_at_[0]);
    };
    queue_.on(lane::update);
    queue_.after(weighed_at_);
    low_rank_.begin(queue_, all_carried().data(), position_.loss_scale, n);
    sum(true);
    low_rank_.turn(queue_, n);
    sum(false);
  }
  /// Waits, where works cannot end a round (on a GPU), and says whether its ranks, who are all finishing then, have nothing to
  /// commit: of gradients that are left out nothing may be kept.
  [[nodiscard]] bool ends_on_host() {
    if constexpr (!Storage::host_memory) {
      numbers_.download(queue_);
      queue_.wait();
      return numbers_[0].nothing;
    }
    return false;
  }
  /// What has arrived becomes the sum, in the sum's type, and its squares.
  template <class Gradients>
  void take(Gradients const& e) {
    constexpr bool from_received =
        std::is_same_v<Gradients, own_slice> || (!encoding<Gradients> && !low_rank_wire<Gradients> && sums_elsewhere);
    queue_.on(lane::update);
    for_buckets([&](std::size_t k, bucket const& b) {
      queue_.after(reduced_at_[k]);
      auto* const slice = reduced_.template as<sum_type>();
      if constexpr (low_rank_wire<Gradients>) {
        low_rank_.write(queue_, b, reduced(b).data(), adds());
        norms_.measure(queue_, state_, k, slice, b.offset);
      } else if constexpr (std::is_same_v<Gradients, own_corrected>) {
        Storage::combine(queue_, &numbers_.there()->mixed, static_cast<gradient_type const*>(received<gradient_type>(b).data()),
                         static_cast<typename Storage::master_type const*>(state_.others(k)), reduced(b).data(), state_.real(k));
        norms_.measure(queue_, state_, k, slice, b.offset);
      } else if constexpr (from_received) {
        norms_.take(queue_, state_, b, static_cast<gradient_type const*>(received_.template as<gradient_type>()), slice, adds());
      } else {
        sum_type* const to = reduced(b).data();
        if constexpr (encoding<Gradients>) {
          codes_.with(e, b.index, [&]<class Chosen>(Chosen const& chosen) {
            const auto sum = [&](auto const& code) {
              Storage::decode_sum(queue_, code, encoded_.template gradients<Gradients, Chosen>(b).data(),
                                  static_cast<int>(addends_.sources()), to, b.share, adds());
            };
            if constexpr (weighs_sources<Chosen>) {
              sum(weighed<Chosen>(chosen, weights_.there()));
            } else {
              sum(chosen);
            }
          });
          if constexpr (tracks<Gradients>) feedback_.add_known(queue_, &numbers_.there()->tracked, b, to);
        } else if constexpr (!accumulating) {
          if (adds()) Storage::add(queue_, static_cast<sum_type const*>(received<sum_type>(b).data()), to, b.share);
        }
        norms_.measure(queue_, state_, k, slice, b.offset);
      }
    });
    const queue_mark all = queue_.mark();
    queue_.on(lane::network);
    queue_.after(all);
  }

  /// When the squares of all gradients are known: whether to update, and by how much to clip. What is not finite must be named
  /// while it is still here (whoever encodes has looked already), or, where it is skipped, must not reach the rounds that come.
  template <class Gradients>
  void decide() {
    round_numbers* const n = numbers_.there();
    const norm_limits limits{options_.clip_norm, options_.raises(), position_.most_norm,
                             options_.on_norm_spike == norm_spike::raise, position_.moved};
    constexpr bool own = own_gradients<Gradients>;
    own_ = own;
    norms_.decide(queue_, state_, n, shares_.buckets(), limits, position_.loss_scale, std::is_same_v<Gradients, own_slice>,
                  [this](double const* from, double* to, std::size_t count) { sum_over_owners(from, to, count); });
    if (options_.raises()) {
      if constexpr (own) {  // the accumulator is being added to
        Storage::find_non_finite(queue_, &n->not_finite, received_.template as<gradient_type>(), state_.count(), &n->found,
                                 &n->first);
      } else if constexpr (!encoding<Gradients> || two_levels<Backend>) {  // a group's sum does not tell whose they were
        Storage::find_non_finite(queue_, &n->not_finite, all_carried().data(), shares_.size(), &n->found, &n->first);
      }
    }
    const bool looks_for_spikes = limits.most > 0;
    if (limits.raises || (looks_for_spikes && limits.raises_spike)) Storage::run(queue_, stop_if_refused{n});
    if (!limits.raises || (looks_for_spikes && !limits.raises_spike))
      Storage::clear_if(queue_, &n->skip, reduced_.template as<sum_type>(), shares_.slice_size());
    if constexpr (feeds_back<Gradients> && !tracks<Gradients>) feedback_.forget_if(queue_, &n->skip);
  }
  /// What has left and arrived of a step that is taken is known from now on, before parameters arrive where it lies.
  template <encoding Encoding>
  void follow(Encoding const& e) {
    combination const* const how = &numbers_.there()->tracked;
    Storage::run(queue_, follow_tracked{numbers_.there(), position_.loss_scale});
    const queue_mark followed_from = queue_.mark();
    queue_.on(lane::update);
    queue_.after(followed_from);
    for_buckets([&](std::size_t, bucket const& b) {
      with_chosen(e, [&]<class Chosen>(Chosen const& chosen) {
        feedback_.follow(queue_, chosen, how, b, encoded_.template leaving<Encoding, Chosen>(b).data(),
                         encoded_.template gradients<Encoding, Chosen>(b).data());
      });
    });
    queue_.on(lane::network);
  }
  /// Of the gradients of a step that is committed, those of the other ranks: their mean, for the estimates to come. Before the
  /// first update: its parameters may come to lie where the carried gradients are.
  void remember_others() {
    round_numbers* const n = numbers_.there();
    Storage::run(queue_, weigh_others{n});
    const queue_mark weighed = queue_.mark();
    queue_.on(lane::update);
    queue_.after(weighed);
    for_buckets([&](std::size_t k, bucket const& b) {
      Storage::combine(queue_, &n->others, static_cast<sum_type const*>(reduced(b).data()), carried_own(b), state_.others(k),
                       state_.real(k));
    });
    queue_.on(lane::network);
  }
  /// The update after the coming one is told the samples that this one commits: they are known when the counts are summed.
  void prepare_next() {
    numbers_.download(queue_);
    queue_.enqueue([this] {
      round_numbers const& n = numbers_[0];
      const training_position then{position_.samples + n.step_weight, position_.steps + (n.apply ? 1 : 0)};
      state_.prepare_next({position_.steps + 2, options_.rate_at(then, queue_.place)});
    });
    state_.upload_next(queue_);
  }

  /// This rank's shares become new parameters; what travels encoded is their difference to those in use.
  template <class Parameters>
  void update_shares([[maybe_unused]] Parameters const& e) {
    round_numbers* const n = numbers_.there();
    const queue_mark decided = queue_.mark();
    state_.begin(sharded<sum_type const>({reduced_.template as<sum_type>(), shares_.slice_size()}), norms_.decided());
    queue_.on(lane::update);
    queue_.after(decided);
    for_buckets([&](std::size_t k, bucket const& b) {
      state_.apply(plan_.parameters, queue_, k, flight_.parameters());
      if constexpr (encoding<Parameters>) {
        with_chosen(e, [&]<class Chosen>(Chosen const& chosen) {
          Storage::encode_difference(
              queue_, chosen, own(b, flight_.parameters()).data(), accumulator_.in_use(), shares_.position(owner(), b.offset),
              state_.real(k), encoded_.template share<Parameters, Chosen>(b, owner()).data(), {&n->diverged, &n->diverged_first});
        });
      }
      updated_at_[k] = queue_.mark();
      if (options_.average_decay > 0 && commits(plan_)) state_.average(queue_, k, &n->apply, options_.average_decay);
    });
  }
  template <class Parameters>
  void gather([[maybe_unused]] Parameters const& e) {
    queue_.on(lane::network);
    for_buckets([&](std::size_t k, bucket const& b) {
      queue_.after(updated_at_[k]);
      if constexpr (encoding<Parameters>) {
        with_chosen(e, [&]<class Chosen>(Chosen const&) {
          const std::span<std::byte> all = encoded_.template parameters<Parameters, Chosen>(b);
          backend_.all_gather(queue_, sharded<std::byte const>(encoded_.template share<Parameters, Chosen>(b, owner())),
                              replicated<std::byte>(all));
          bytes_ += bytes_sent(collective::all_gather, backend_.size(), all.size());
        });
      } else {
        all_gather(b, flight_.parameters());
      }
      gathered_at_[k] = queue_.mark();
    });
    if constexpr (encoding<Parameters>) {
      round_numbers* const n = numbers_.there();
      Storage::run(queue_, tell_diverged{n});
      all_reduce(&n->diverged_mine, &n->diverged_all, 1);
      queue_.on(lane::update);
      for_buckets([&](std::size_t k, bucket const& b) {
        queue_.after(gathered_at_[k]);
        const std::size_t real = std::min(b.share * ranks(), shares_.size() - b.begin);
        with_chosen(e, [&]<class Chosen>(Chosen const& chosen) {
          Storage::decode_onto(queue_, chosen, encoded_.template parameters<Parameters, Chosen>(b).data(), accumulator_.in_use(),
                               b.begin, b.share, real, flight_.parameters().whole().data() + b.begin);
        });
      });
    }
  }

  Storage storage_;
  Backend backend_;
  parameter_layout const& layout_;
  options const& options_;
  accumulator_type const& accumulator_;
  partition shares_;
  bool keeps_reduced_;
  bool takes_own_ = false;     // some round takes this rank's own gradients for all ranks'
  bool sums_exactly_ = false;  // some round's gradients do not travel encoded
  bool weighs_ = false;        // some round's codes are added by the samples of their senders
  encoded_addends<Storage, Backend> addends_;
  encoded_buffers<Storage> encoded_;
  feedback_state<Storage, Backend> feedback_;
  low_rank_sums<Storage> low_rank_;
  bucket_codes codes_;
  round_norms<Storage> norms_;
  state_type state_;
  round_digests<Storage> digests_;
  typename Storage::buffer reduced_, received_;
  typename Storage::template numbers<round_numbers> numbers_;
  typename Storage::template numbers<double> weights_;  // of the ranks, or groups, whose codes are added

  // Of the round in flight.
  round_plan plan_;
  round_position position_;
  flight_type flight_;
  time_interval times_;
  std::uint64_t bytes_ = 0, sent_before_ = 0, sent_between_before_ = 0;
  bool brings_ = false;  // this rank brings something: what does not count carries nothing of what was lost before
  bool own_ = false;     // it takes this rank's own gradients
  queue_mark weighed_at_;
  bool left_out_ = false;  // this round, of which something is kept otherwise
  std::vector<queue_mark> encoded_at_, reduced_at_, updated_at_, gathered_at_;  // by bucket

  queue_type queue_ = queue_for(storage_, backend_);  // last: its threads use everything above
};

}  // namespace ACCO_SIMD_NAMESPACE
