// SPDX-License-Identifier: Apache-2.0
// Games and other variational inequalities over ranks: an extragradient method whose messages are encoded differences to a
// reference point.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/collective/blocking.hpp"
#include "acco/encoding/describe_code.hpp"
#include "acco/error.hpp"
#include "acco/game/extragradient_messages.hpp"
#include "acco/game/extragradient_state.hpp"
#include "acco/game/game_layout.hpp"
#include "acco/game/masha.hpp"
#include "acco/number/finite_arrays.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/membership.hpp"
#include "acco/round/non_finite.hpp"
#include "acco/storage/host.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where `compressed_extragradient::parameters()` are.
enum class evaluation_point {
  reference,      ///< w, where the reference has just moved to, at first the initial parameters: the masters, exactly
  extragradient,  ///< z_half
  finished        ///< after `finish`: the masters z. There is nothing to evaluate any more
};

/// What came of an evaluation; the same on every rank, but for the bytes.
struct extragradient_report {
  evaluation_point evaluated;       ///< where the operator was evaluated
  std::uint64_t step;               ///< updates of z so far
  double operator_norm;             ///< |(u - P(u - step F(u))) / step| there, over all tensors: |F| without bounds; at z_half
                                    ///< with what codes have lost. 0 at a solution
  std::uint64_t bytes_sent;         ///< by this rank, for this evaluation
  evaluation_point evaluates_next;  ///< where `parameters()` are now
};

/// Finds z with <F(z), u - z> >= 0 for all u: a saddle point, an equilibrium, or, of a gradient, a minimum. F is the mean of the
/// ranks' F_m, each of which is known to its rank: the gradients of a game's players on its data. Every rank constructs one with
/// the same arguments and makes the same calls.
///
///   acco::game_layout game;
///   game.minimize("x", {n}).maximize("y", {n});
///   acco::compressed_extragradient training{acco::masha1{.step = 0.1, .up = acco::stochastic_int4{}}, world, game};
///   training.initialize(initial);
///   while (training.steps() < budget) {
///     add_gradients(training.parameters(), training.gradients());  // of f, by x and by y, of this rank's data
///     training.evaluated();                                        // the parameters are at another point now
///   }
///   training.finish();
///
/// A step, with the reference point w, where F(w) is known exactly, and z = w = initial at first (MASHA1 and 2, arXiv
/// 2110.03313):
///
///   v      = tau z + (1 - tau) w
///   z_half = P(v - step F(w))                                   nothing travels for it but the point itself
///   g      = mean over ranks of Q(F_m(z_half) - F_m(w))         `up`, to the owners
///   z     <- P(v - step (F(w) + g))
///   with probability 1 - tau:  w <- z, and F_m(w) is evaluated and reduced in full
///
/// P cuts off at the tensors' bounds. masha2: q_m = C(F_m(z_half) - F_m(w) + e_m) travels, e_m <- F_m(z_half) - F_m(w) + e_m -
/// q_m (in the paper both are multiplied by the step, a constant). The smaller the difference of two evaluations the less its
/// code loses, so all errors vanish at a solution, where those of encoded gradients would stay.
///
/// z, w and F(w) are cut over the ranks, in fp32: 12 bytes a parameter over N. Every rank has the parameters in use, the same
/// bits everywhere, its gradients, F_m(w), and under masha2 e_m. By `down` the owners send the next z_half, as a difference to
/// what all ranks hold, so nothing drifts: what is lost of one difference is in the next. What arrives is cut off at the bounds
/// once more. When the reference moves, z travels in full, and the parameters in use are the masters in every bit.
///
/// A loop need not know where it is: whatever `point()` is, it evaluates at `parameters()`, adds to `gradients()`, which are zero
/// then, and calls `evaluated`. F_m must be one function, of all data of the rank, or of a batch as large as the noise may be:
/// the noise of batches stays, as in any method.
///
/// One thread calls all members; in host memory. Every call but the questions is collective, and blocks until the messages have
/// come. What they throw ends the training: the other ranks are told at once, later calls throw it again.
template <class Method, class Backend>
class compressed_extragradient {
  using messages = extragradient_messages<Method, Backend>;
  static_assert(Method::codes_fit);
  static_assert(check_collective_backend<Backend, host_queue, float, float, float>());
  static_assert(!messages::codes_up || traits_of<Backend>.passes,
                "acco: `up` is encoded: the backend lacks `all_to_all(queue, span<std::byte const>, span<std::byte>)`");

 public:
  using storage_type = host_storage<float>;

  /// Neither allocates the buffers nor communicates. Throws `usage_error` on settings out of range, a `one_of` that chooses none,
  /// a game without elements, and bounds under masha2.
  compressed_extragradient(Method method, Backend backend, game_layout game, storage_type storage = {})
      : method_(method),
        backend_(std::move(backend)),
        state_(std::move(game), backend_.size(), backend_.rank(), storage),
        queue_(make_queue<host_queue>(backend_)),
        messages_(method_, backend_, queue_, state_),
        membership_(backend_) {
    game_layout const& players = state_.game();
    method_.check();
    queue_.place.rank = backend_.rank();
    queue_.deadline = method_.deadline;
    check_choice(method_.up, queue_.place);
    check_choice(method_.down, queue_.place);
    if (players.size() == 0) throw usage_error(queue_.place, text("the game has no elements"), text("Add its tensors"));
    if (Method::feeds_back && players.first_bounded() < players.tensors().tensor_count()) {
      throw usage_error(queue_.place,
                        text("tensor '", players.tensors()[players.first_bounded()].name, "' has a bound, and masha2 knows none"),
                        text("Use masha1, or a penalty in the objective"));
    }
  }
  compressed_extragradient(compressed_extragradient const&) = delete;
  compressed_extragradient& operator=(compressed_extragradient const&) = delete;
  /// Leaves. Call `finish` first to leave in peace: otherwise whoever waits for this rank gets an error that names it.
  ~compressed_extragradient() {
    membership_.end(false);
    queue_.stop();
  }

  /// Compares all ranks' construction, allocates everything, and gives every rank the values of rank 0, cut off at the bounds.
  /// `initial` has `game().size()` elements on every rank. Throws `usage_error` (size, called twice), `mismatch_error`,
  /// `deadline_error`.
  void initialize(std::span<float const> initial) {
    if (failure_) std::rethrow_exception(failure_);
    if (at_ != unknown)
      throw usage_error(place(), text("initialize was called twice"), text("Construct a new one to start again"));
    if (initial.size() != game().size()) {
      throw usage_error(place(), text("initialize got ", initial.size(), " parameters, the game has ", game().size()),
                        text("Pass one value for every element"));
    }
    guarded([&] {
      queue_.place.phase = "initialize";
      membership_.join();
      agree(queue_, backend_, describe(), queue_.place);
      state_.allocate(queue_, method_.step, messages::keeps_lost);
      messages_.allocate();
      std::copy(initial.begin(), initial.end(), state_.shown());
      broadcast_and_wait(queue_, backend_, std::span<float>(state_.shown(), game().size()), 0);
      state_.begin();
      at_ = evaluation_point::reference;
    });
  }

  /// Where the operator is to be evaluated; `game().size()` elements, the same bits on every rank. The span is valid as long as
  /// this lives; what it shows changes with every `evaluated`.
  [[nodiscard]] std::span<float const> parameters() const {
    demand_initialized("parameters");
    return {state_.shown(), game().size()};
  }
  /// Where the gradients are to be added: of what each tensor's player minimizes or maximizes, as `game_layout` says. Zero after
  /// each `evaluated`.
  [[nodiscard]] std::span<float> gradients() const {
    demand_initialized("gradients");
    return {state_.operators(), game().size()};
  }
  /// The part of a tensor in both. Throws `usage_error` when the game has none of that name.
  [[nodiscard]] std::span<float const> parameters(std::string_view tensor) const {
    auto const one = game().tensors()[tensor];
    return parameters().subspan(one.offset, one.size);
  }
  [[nodiscard]] std::span<float> gradients(std::string_view tensor) const {
    auto const one = game().tensors()[tensor];
    return gradients().subspan(one.offset, one.size);
  }
  [[nodiscard]] evaluation_point point() const {
    demand_initialized("point");
    return at_;
  }

  /// The operator at `parameters()` is in `gradients()`: exchanges it, and moves on to the next point. After an evaluation at
  /// z_half that is a step. Throws `usage_error` before `initialize` and after `finish`, `non_finite_error` on every rank where
  /// one rank's operator, or a point, is not finite, and what the backend throws.
  extragradient_report evaluated() {
    demand_initialized("evaluated");
    if (at_ == evaluation_point::finished) {
      throw usage_error(place(), text("evaluated was called after finish"),
                        text("Construct a new one, and initialize it with these parameters, to go on"));
    }
    return guarded([&] {
      const extragradient_report report = at_ == evaluation_point::reference ? take_reference() : take_step();
      ++evaluations_;
      return report;
    });
  }

  /// One step: calls evaluate(parameters(), gradients()) and `evaluated`, first at the reference point where it has just moved,
  /// then at z_half. Returns the report of the step.
  template <class Evaluate>
  extragradient_report step(Evaluate&& evaluate) {
    for (;;) {
      evaluate(parameters(), gradients());
      const extragradient_report report = evaluated();
      if (report.evaluated == evaluation_point::extragradient) return report;
    }
  }

  /// Every rank gets z, in full: `parameters()` stay what they are. `out` has `game().size()` elements. Collective; allocates
  /// room for all parameters while it runs (`memory().gathering`). After `finish` it copies what is there.
  void gather(std::span<float> out) {
    demand_initialized("gather");
    if (out.size() != game().size()) {
      throw usage_error(place(), text("gather got room for ", out.size(), " parameters, the game has ", game().size()),
                        text("Pass one place for every element"));
    }
    if (at_ == evaluation_point::finished) {  // the others may have gone
      std::copy_n(state_.shown(), out.size(), out.begin());
      return;
    }
    guarded([&] {
      auto const room = state_.storage().allocate(state_.padded_size() * sizeof(float), 0);
      messages_.gather_in_full(state_.z(), room.template as<float>());
      queue_.wait();
      std::copy_n(room.template as<float>(), out.size(), out.begin());
    });
  }
  /// The end: `parameters()` are z on every rank. What was added to `gradients()` and not evaluated is lost. Collective.
  void finish() {
    demand_initialized("finish");
    if (at_ == evaluation_point::finished) return;
    guarded([&] {
      messages_.gather_in_full(state_.z(), state_.shown());
      queue_.wait();
      at_ = evaluation_point::finished;
      membership_.finish();
    });
  }

  /// Updates of z so far.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] game_layout const& game() const noexcept { return state_.game(); }
  /// Bytes of this rank's buffers. `masters` is z, `slots` are w and F(w), `in_flight` is F_m(w), `reduced` what owners compute;
  /// `encoded` is e_m, and what leaves and arrives.
  [[nodiscard]] memory_table memory() const noexcept {
    memory_table table = state_.memory(messages::keeps_lost);
    table.encoded += messages_.memory();
    if constexpr (traits_of<Backend>.allocates_messages) table.messages = backend_.buffer_bytes();
    return table;
  }

 private:
  static constexpr auto unknown = static_cast<evaluation_point>(-1);

  /// What ranks tell each other of an evaluation.
  struct findings {
    double squares = 0;   // of `operator_norm`, in the slice
    double refused = 0;   // numbers of this rank's operator that are not finite
    double diverged = 0;  // numbers of the slice that the step gave, and are not finite
    static constexpr std::size_t count = 3;
  };

  [[nodiscard]] error_place place() const noexcept {
    return {.rank = backend_.rank(), .round = static_cast<std::int64_t>(steps_), .phase = ""};
  }
  void demand_initialized(char const* call) const {
    if (failure_) std::rethrow_exception(failure_);
    if (at_ == unknown) throw usage_error(place(), text(call, "() was called before initialize"), text("Call initialize first"));
  }
  template <class Action>
  auto guarded(Action&& action) {
    try {
      return action();
    } catch (std::exception const& e) {
      failure_ = std::current_exception();
      membership_.leave(e.what());
      throw;
    } catch (...) {
      failure_ = std::current_exception();
      membership_.leave("an exception that is no std::exception");
      throw;
    }
  }

  [[nodiscard]] std::string describe() const {
    description mine;
    mine.add("method", std::string_view(Method::name));
    mine.add("step", method_.step);
    mine.add("tau", method_.tau);
    mine.add("seed", method_.seed);
    const auto add = [&](std::string_view what, auto value) { mine.add(what, value); };
    describe_code("up", method_.up, add);
    describe_code("down", method_.down, add);
    mine.add_all("game: ", game());
    return mine.lines();
  }

  // An evaluation: the works are enqueued, the trainer waits for them. `begin`, then what all ranks found, `decide`, and only
  // then do the parameters in use change.

  void begin(char const* phase) {
    queue_.place = place();
    queue_.place.phase = phase;
    queue_.deadline = method_.deadline;
    messages_.begin(evaluations_);
    sent_before_ = sent();
  }
  extragradient_report take_reference() {
    begin("reference point");
    queue_.enqueue([this] {
      state_.keep_own_reference();
      refuse(state_.own_reference());
    });
    messages_.sum_in_full(state_.own_reference(), state_.reference());
    queue_.enqueue([this] {
      state_.average_reference();
      measure(state_.w(), state_.reference());
      look_ahead();
    });
    decide();
    messages_.show();
    queue_.wait();
    raise_found();
    return report_of(std::exchange(at_, evaluation_point::extragradient));
  }
  extragradient_report take_step() {
    begin("extragradient point");
    const bool moves = reference_moves(method_.seed, steps_, method_.tau);
    queue_.enqueue([this] {
      state_.subtract_own_reference();
      refuse(state_.operators());
    });
    messages_.sum_differences();
    queue_.enqueue([this, moves] {
      state_.clear_operators();
      state_.add_reference();
      measure(state_.shown() + state_.first(), state_.reduced());
      state_.advance(static_cast<float>(method_.tau));
      mine_.diverged += state_.count_non_finite(state_.z());
      if (moves) {
        state_.move_reference();
      } else {
        look_ahead();
      }
    });
    decide();
    if (moves) {
      messages_.gather_in_full(state_.z(), state_.shown());
    } else {
      messages_.show();
    }
    queue_.wait();
    raise_found();
    ++steps_;
    at_ = moves ? evaluation_point::reference : evaluation_point::extragradient;
    return report_of(evaluation_point::extragradient);
  }

  /// Begins what this rank has found with what is not finite there.
  void refuse(float const* values) {
    mine_ = {};
    std::size_t where = 0;
    mine_.refused = static_cast<double>(elementwise::count_non_finite(values, game().size(), where));
    refused_first_ = where;
  }
  /// Where this rank's slice is `at` the mean operator there is `mean`.
  void measure(float const* at, float const* mean) {
    mine_.squares = state_.residual_squares(at, mean);
    mine_.diverged += state_.count_non_finite(mean);  // behind a bound no other number would tell
  }
  void look_ahead() {
    state_.look_ahead(static_cast<float>(method_.tau));
    mine_.diverged += state_.count_non_finite(state_.reduced());
  }

  /// All ranks learn what any of them has found. Where that is bad the works behind are dropped, on every rank.
  void decide() {
    queue_.enqueue([this] {
      told_[0] = mine_.squares;
      told_[1] = mine_.refused;
      told_[2] = mine_.diverged;
    });
    messages_.sum_numbers(told_, heard_);
    queue_.enqueue([this] { return bad() ? progress::ended : progress::done; });
  }
  [[nodiscard]] bool bad() const noexcept { return heard_[1] != 0 || heard_[2] != 0 || !is_finite(heard_[0]); }
  void raise_found() {
    if (!bad()) return;
    membership_.together([&] {
      const non_finite_finding found = find_first(backend_.rank(), backend_.size(), static_cast<std::uint64_t>(mine_.refused),
                                                  refused_first_, [this](std::span<double> numbers) {
                                                    const std::vector<double> mine(numbers.begin(), numbers.end());
                                                    all_reduce_and_wait(queue_, backend_, std::span<double const>(mine), numbers);
                                                  });
      if (found.rank < 0) {
        throw non_finite_error(queue_.place, text("the step, or the mean of finite operators, overflowed"),
                               text("The game has diverged: use a shorter step"));
      }
      auto const tensor = game().tensors().at_offset(found.first);
      throw non_finite_error(queue_.place,
                             text("rank ", found.rank, " evaluated ", found.count,
                                  " numbers of the operator that are infinite or not a number, the first in tensor '",
                                  tensor.name, "' at element ", found.first - tensor.offset),
                             text("Look at that rank's data, or use a shorter step"), found.rank);
    });
  }

  [[nodiscard]] std::uint64_t sent() const noexcept {
    if constexpr (traits_of<Backend>.counts_bytes) {
      return backend_.bytes_sent();
    } else {
      return 0;
    }
  }
  [[nodiscard]] extragradient_report report_of(evaluation_point evaluated) const {
    return {evaluated, steps_, std::sqrt(heard_[0]), traits_of<Backend>.counts_bytes ? sent() - sent_before_ : messages_.bytes(),
            at_};
  }

  Method method_;
  Backend backend_;
  extragradient_state state_;
  host_queue queue_;
  messages messages_;
  membership<Backend> membership_;
  std::exception_ptr failure_;
  evaluation_point at_ = unknown;
  std::uint64_t steps_ = 0, evaluations_ = 0, sent_before_ = 0;
  findings mine_;
  std::size_t refused_first_ = 0;
  double told_[findings::count] = {}, heard_[findings::count] = {};
};

}  // namespace ACCO_SIMD_NAMESPACE
