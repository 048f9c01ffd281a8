// SPDX-License-Identifier: Apache-2.0
// The tasks of a round, bucket by bucket, in the two lanes of a queue:
//
//   network   counts | RS 0 | RS 1 | ...               | norm |        AG 0 | AG 1 | ...
//   update             encode 0, 1, ...  squares 0, 1, ...     | update 0, update 1, ...  | decode 0, 1, ...
//
// What stands in one lane keeps its order; `squares b` waits for `RS b`, `AG b` for `update b`. Nothing is updated
// before the norm of all gradients is known to be finite. RS is a reduce-scatter, or an all-to-all of encoded
// gradients, AG an all-gather. `encode`, RS are a reducer's `reduce`, `squares` its `take`; AG, `decode` a gatherer's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/backend_in_use.hpp"
#include "acco/layout/tiles.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/round/digests.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/norms.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/sharded_state.hpp"
#include "acco/round/state_staging.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/stage/decision.hpp"
#include "acco/stage/pipeline.hpp"
#include "acco/stage/stagger.hpp"
#include "acco/stage/state_arrays.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/stage/world_digest.hpp"
#include "acco/storage/storage.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's queue and backend, and everything a round in flight owns: the sharded state, the carried gradients, the
/// slices they become, the numbers that decide. Between `begin` and the end of the queue's last task it belongs to the
/// queue. The trainer's thread calls all members that are not tasks themselves.
template <class Storage>
class round_tasks {
 public:
  using storage_type = Storage;
  using backend_type = backend_in_use<Storage>;
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;
  using sum_type = typename Storage::sum_type;
  using queue_type = typename Storage::queue;
  using accumulator_type = gradient_accumulator<Storage>;
  using flight_type = typename accumulator_type::flight;
  using state_type = sharded_state<Storage>;

  /// `layout`, `chosen` and `accumulator` must outlive it. `keeps_reduced`: some round adds to the last one's slice.
  round_tasks(rule_in_use<Storage>& rule, Storage storage, std::unique_ptr<backend_type> backend, parameter_layout const& layout,
              options const& chosen, accumulator_type const& accumulator, partition shares, bool keeps_reduced)
      : storage_(std::move(storage)),
        backend_(std::move(backend)),
        layout_(layout),
        options_(chosen),
        accumulator_(accumulator),
        shares_(shares),
        keeps_reduced_(keeps_reduced),
        rule_(rule),
        norms_(layout, chosen.norms),
        state_(arrays_, rule, layout, norms_.regions(), shares_, backend_->rank(), chosen.average_decay > 0),
        reduced_(arrays_.declare_room("reduced gradients", shares_.slice_size() * sizeof(sum_type),
                                      {stagger::reduced, &memory_table::reduced})) {
    queue_.deadline = options_.deadline;
    queue_.place.rank = backend_->rank();
  }
  round_tasks(round_tasks const&) = delete;
  round_tasks& operator=(round_tasks const&) = delete;

  [[nodiscard]] queue_type& queue() noexcept { return queue_; }
  [[nodiscard]] Storage const& storage() const noexcept { return storage_; }
  [[nodiscard]] backend_type& backend() noexcept { return *backend_; }
  [[nodiscard]] backend_type const& backend() const noexcept { return *backend_; }
  /// The backend has become an optimizer's own; `same_everywhere`: rounds start after as many micro-batches on every
  /// rank.
  void joined(bool same_everywhere) {
    backend_->watch(queue_);
    backend_->share(same_everywhere);
  }
  [[nodiscard]] state_type& state() noexcept { return state_; }
  [[nodiscard]] state_arrays<Storage>& arrays() noexcept { return arrays_; }
  [[nodiscard]] state_arrays<Storage> const& arrays() const noexcept { return arrays_; }
  [[nodiscard]] partition const& shares() const noexcept { return shares_; }

  /// What a round's wires see.
  [[nodiscard]] round_view<Storage>& view() noexcept { return view_; }
  /// Before `count` and `allocate`: its wires' arrays.
  void declare(schedule_in_use<Storage> const& schedule) {
    if (schedule.has_tiles() && shares_.placed().count != 0) tiling_ = tiling(layout_, shares_);
    view_.tiles.each = tiling_.each;
    schedule.declare(view_, *backend_, keeps_reduced_);
  }
  void count(memory_table& table) const noexcept {
    arrays_.count(table);
    state_.count(table);
    if (backend_->traits.allocates_messages) table.messages = backend_->buffer_bytes();
  }
  void allocate() {
    queue_.reserve(tasks_of_a_round(shares_.buckets()), shares_.buckets() > 1);
    stages_.resize(shares_.buckets());
    arrays_.allocate(storage_, queue_);
    state_.allocate(storage_, queue_);
    tiles_ = {storage_, tiling_.blocks.size()};
    for (std::size_t k = 0; k < tiling_.blocks.size(); ++k) tiles_[k] = tiling_.blocks[k];
    queue_.after_computation();
    tiles_.upload(queue_);
    view_.tiles.of = tiles_.there();
    numbers_ = {storage_, 1};
    view_.numbers = numbers_.there();
    view_.reduced = arrays_.template as<sum_type>(reduced_);
    view_.others = state_.others();
    view_.reference = state_.reference();
    norms_.allocate(storage_, queue_, state_, shares_.buckets());
    digests_.allocate(storage_, layout_, arrays_);
  }

  // A round: carry, encode_kept where the accumulator keeps in place, begin, enqueue, end; when the queue is idle, the
  // results; then take_flight.

  void carry(flight_type flight, round_plan const& plan) noexcept {
    flight_ = std::move(flight);
    plan_ = plan;
    view_.ring_bytes = 0;
    sent_before_ = backend_->bytes_sent();
  }
  /// The carried gradients that the accumulator keeps in place travel as they are now: before the trainer adds to them.
  void encode_kept(reducer_in_use<Storage> const& up) {
    look_at_carried();
    up.encode_kept(view_);
  }
  /// Whether that is done in this round.
  [[nodiscard]] bool encodes_early() const noexcept { return plan_.keeps && options_.in_place; }
  /// Stamps the beginning, sums the counts over all ranks, prepares the update.
  void begin(round_counts const& mine, round_position const& position) {
    position_ = position;
    look_at_carried();
    view_.contributes = mine.weight > 0;
    round_numbers* const n = numbers_.there();
    stages_.begin(lane::network, [&] {
      queue_.after_computation();
      queue_.stamp([to = &times_.begin](double now) { *to = now; });
      Storage::run(queue_, begin_step{n, mine, encodes_early()});
      view_.all_reduce(*backend_, n->counts_mine, n->counts_all, 1 + count_numbers);
      Storage::run(queue_, weigh_step{n, backend_->size(), plan_.gradients == carried::fresh});
      state_.prepare({position.steps + 1, position.rate, position.late});
      state_.upload(queue_);
    });
  }
  /// The stages of the round that was carried. Gradients travel by `up`, parameters by `down`; `learns` is the reducer
  /// that learns from commits.
  void enqueue(reducer_in_use<Storage>& up, gatherer_in_use<Storage>& down, reducer_in_use<Storage>& learns) {
    measuring squares(*this);
    up.reduce(stages_, view_, *backend_);
    stages_.each(lane::update, [&](std::size_t k) { up.take(view_, k, squares); });
    stages_.once(lane::network, [&] {
      decide(up);
      if (plan_.parameters == update::commit_and_predict) prepare_next();
    });
    if (commits(plan_)) learns.learn(stages_, view_);
    state_.begin(sharded<sum_type const>({view_.reduced, shares_.slice_size()}), norms_.decided());
    // Parameters arrive in the memory of gradients: larger ones in that of the next buckets' too.
    constexpr bool covers_others = sizeof(parameter_type) > sizeof(gradient_type);
    if (covers_others) stages_.each(lane::update, [&](std::size_t k) { up.settle(view_, k); });
    stages_.each(lane::update, [&](std::size_t k) {
      if (!covers_others) up.settle(view_, k);
      state_.apply(plan_.parameters, queue_, k, view_.arriving);
      down.encode(view_, k);
    });
    if (options_.average_decay > 0 && commits(plan_)) stages_.beside(lane::update, [&] { average(); });
    down.gather(stages_, view_, *backend_);
  }
  void end(round_end<Storage> const& wanted) {
    stages_.end([&] { conclude(wanted); });
  }
  [[nodiscard]] flight_type take_flight() noexcept { return std::move(flight_); }

  [[nodiscard]] round_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] round_numbers const& numbers() const noexcept { return numbers_[0]; }
  [[nodiscard]] round_norms<Storage> const& norms() const noexcept { return norms_; }
  [[nodiscard]] double samples_before() const noexcept { return position_.samples; }
  /// The wire index of this rank's first gradient that is not finite.
  [[nodiscard]] std::size_t first_not_finite() const noexcept {
    round_numbers const& n = numbers_[0];
    return found_in_shard_ && n.found != 0 ? shares_.position(backend_->rank(), n.first) : n.first;
  }
  [[nodiscard]] time_interval times() const noexcept { return times_; }
  /// That this rank sent: what the backend has counted, or, of one that does not count, what a ring would send.
  [[nodiscard]] sent_bytes bytes() const noexcept {
    return backend_->traits.counts_bytes ? backend_->bytes_sent() - sent_before_ : sent_bytes{view_.ring_bytes};
  }

  /// Adds the state to what is to be copied: what the round in flight will leave, if one is. `shows`, `arrives`:
  /// whether the parameters in use, and those that arrive, do not follow from the masters.
  template <class Copy>
  void add_to(Copy& copy, bool shows, bool arrives) const {
    state_shape const& shape = arrays_.shape();
    copy.shows = shows;
    copy.arrives = arrives;
    arrays_.for_kept([&](std::size_t array, auto values) { copy.add(array, 0, values, arrays_.elements(shape.extent(array))); });
    if (shows) {
      accumulator_.for_slice_in_use(backend_->rank(), [&](std::size_t offset, parameter_type const* from, std::size_t count) {
        copy.add(shape.shown(), offset, from, count);
      });
    }
    for (std::size_t k = 0; arrives && k < shares_.buckets(); ++k) {
      bucket const b = shares_[k];
      copy.add(shape.arriving(), b.offset, own(b, flight_.parameters()).data(), b.share);
    }
  }
  /// A round that was done before: its plan, where its parameters are, and what it had come to.
  void go_on(flight_type flight, round_plan const& plan, run_numbers const& from) {
    carry(std::move(flight), plan);
    completed_round const& last = from.last;
    numbers_[0] = numbers_of(last);
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
    view_.ring_bytes = bytes;
    sent_before_.all = backend_->bytes_sent().all - bytes;
  }
  /// And so much before it was carried.
  void has_sent_before(std::uint64_t bytes) noexcept {
    view_.ring_bytes += bytes;
    sent_before_.all -= bytes;
  }
  /// What the round in flight has come to.
  void keep(completed_round& last) const {
    keep_numbers(numbers_[0], last);
    last.seconds = times_.seconds();
    norms_.keep(last.measured);
  }
  /// Digests the parameters in use now; blocks.
  void digest_shown() {
    if constexpr (digests<Storage>) {
      queue_.after_computation();
      digests_.digest_shown(queue_, layout_, accumulator_, options_.compare_frozen);
      queue_.wait();
    }
  }
  /// What was found of them by a round whose tasks are done, and that was to digest them; of a tensor.
  [[nodiscard]] std::uint64_t shown(std::size_t tensor) const noexcept
    requires digests<Storage>
  {
    return digests_.shown(tensor);
  }
  [[nodiscard]] std::uint64_t shown() const noexcept {
    if constexpr (digests<Storage>) return digests_.shown(layout_);
    return 0;
  }

 private:
  /// At most: tasks, marks included, of a round's sums, and of a bucket's stages. Placements have gaps.
  [[nodiscard]] std::size_t tasks_of_a_round(std::size_t buckets) const noexcept {
    const std::size_t of_a_call = backend_->traits.tasks_of_a_call;
    const std::size_t of_matrices = shares_.placed().count != 0 ? 3 + static_cast<std::size_t>(shares_.ranks()) : 0;
    return 52 + 12 * of_a_call + (19 + of_matrices + 2 * of_a_call) * buckets;
  }
  /// The squares of this rank's share of a bucket: of the sums; of sums in the gradient's type, which become those on
  /// the way.
  class measuring final : public squares_in_use<Storage> {
   public:
    explicit measuring(round_tasks& tasks) noexcept : tasks_(tasks) {}
    void measure(std::size_t k) override {
      tasks_.norms_.measure(tasks_.queue_, tasks_.state_, k, tasks_.view_.reduced, tasks_.shares_[k].offset);
    }
    void take(std::size_t k, gradient_type const* from, bool adds) override {
      tasks_.norms_.take(tasks_.queue_, tasks_.state_, tasks_.shares_[k], from, tasks_.view_.reduced, adds);
    }

   private:
    round_tasks& tasks_;
  };
  void look_at_carried() noexcept {
    view_.carried = partial<gradient_type const>(flight_.gradients().local());
    view_.arriving = flight_.parameters();
    view_.in_use = accumulator_.in_use();
    view_.adds = plan_.gradients != carried::fresh;
    view_.encoded_early = encodes_early();
    view_.rounding = commits(plan_) ? rounding_seed(position_.steps + 1, backend_->rank(), backend_->size()) : 0;
    view_.steps = position_.steps;
    view_.rate = position_.rate;
    view_.loss_scale = position_.loss_scale;
    view_.codes = {};
  }
  [[nodiscard]] std::span<parameter_type> own(bucket const& b, replicated<parameter_type> of) const noexcept {
    return of.whole().subspan(b.begin + shares_.share_of_rank(backend_->rank()) * b.share, b.share);
  }

  /// What is wanted of the round, and its numbers on the host.
  void conclude(round_end<Storage> const& wanted) {
    if constexpr (digests<Storage>) {
      if (wanted.shown) digests_.digest_shown(queue_, layout_, accumulator_, options_.compare_frozen);
      if (wanted.state) {
        round_numbers* const n = numbers_.there();
        const std::span<unsigned long long const> found = digests_.digest_state(queue_);
        Storage::run(queue_, tell_state{n, found.data(), found.size()});
        view_.all_reduce(*backend_, n->state_mine.word, n->state_all.word, digest_words::count);
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

  /// When the squares of all gradients are known: whether to update, and by how much to clip. What is not finite must
  /// be named while it is still here (whoever encodes has looked already), or, where it is skipped, must not reach the
  /// rounds that come.
  void decide(reducer_in_use<Storage> const& up) {
    round_numbers* const n = numbers_.there();
    const norm_limits limits{options_.clip_norm,  options_.raises(),
                             position_.most_norm, options_.on_norm_spike == norm_spike::raise,
                             position_.moved,     sizeof(typename Storage::master_type) == 4 ? 0x1p64 : 0x1p512};
    found_in_shard_ = up.found_in_shard();
    const int holders = backend_->size() / shares_.ranks();
    norms_.decide(queue_, state_, n, shares_.buckets(), limits, position_.loss_scale, up.stands_for_all(), holders,
                  options_.clip_with,
                  [this](double const* from, double* to, std::size_t count) { view_.all_reduce(*backend_, from, to, count); });
    if (options_.raises()) up.find_non_finite(view_);
    const bool looks_for_spikes = limits.most > 0;
    if (limits.raises || (looks_for_spikes && limits.raises_spike)) Storage::run(queue_, stop_if_refused{n});
    if (!limits.raises || (looks_for_spikes && !limits.raises_spike))
      Storage::clear_if(queue_, &n->skip, view_.reduced, shares_.slice_size());
  }
  /// The update after the coming one is told the samples that this one commits: they are known when the counts are
  /// summed.
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

  void average() {
    for (std::size_t k = 0; k < shares_.buckets(); ++k)
      state_.average(queue_, k, &numbers_.there()->apply, options_.average_decay);
  }

  Storage storage_;
  std::unique_ptr<backend_type> backend_;
  parameter_layout const& layout_;
  options const& options_;
  accumulator_type const& accumulator_;
  partition shares_;
  bool keeps_reduced_;
  rule_in_use<Storage>& rule_;
  state_arrays<Storage> arrays_{shares_, backend_->rank(), backend_->size()};
  round_norms<Storage> norms_;
  state_type state_;
  round_digests<Storage> digests_;
  std::size_t reduced_;  // the number of an array
  typename Storage::template numbers<round_numbers> numbers_;
  tiling tiling_;
  typename Storage::template numbers<block_place> tiles_;  // the same, where tasks of the queue find them

  // Of the round in flight.
  round_plan plan_;
  round_position position_;
  flight_type flight_;
  time_interval times_;
  sent_bytes sent_before_{};
  bool found_in_shard_ = false;  // what is not finite has its index in the shard

  queue_type queue_ = backend_->make_queue(storage_);  // its threads use everything above
  pipeline<queue_type> stages_{queue_};
  round_view<Storage> view_{queue_, shares_, backend_->rank(), backend_->size(), arrays_, layout_};
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
