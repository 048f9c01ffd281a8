// SPDX-License-Identifier: Apache-2.0
// An engine that finds what trainers do by habit and what breaks a training without an error (options::check_habits).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/digest.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/usage/cleared_gradients.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Each array exists twice: the engine's, and one of this class. Where spans move, the trainer gets the latter, which
/// is copied to and from the engine's at boundaries; of before a report it has another one, in which parameters show
/// NaN and gradients are 0 until the next report. Where spans stay (adopted, stable_addresses, frozen tensors), the trainer gets
/// the engine's, and this class keeps a copy. Either way the two parameters are equal unless the trainer wrote to them, and the
/// two gradients are what was accumulated before a micro-batch and after it. Gradients keep every bit; nothing is kept in
/// checkpoints. Everything is decided by this rank alone, from its own arrays or from numbers of the report, which are the same
/// on every rank.
template <class Engine, class Storage>
class checked_engine final : public Engine {
 public:
  using parameter_type = typename Engine::parameter_type;
  using gradient_type = typename Engine::gradient_type;

  static constexpr std::uint64_t silent_steps = 10;  ///< in a row, from the beginning, that
                                                     ///< may have no gradient on any rank

  template <class... Arguments>
  explicit checked_engine(Storage memory, Arguments&&... of_engine)
      : Engine(std::forward<Arguments>(of_engine)...), storage_(std::move(memory)) {}
  ~checked_engine() override {
    if (left_ || Engine::at_rest() || std::uncaught_exceptions() > uncaught_) return;
    std::fprintf(stderr,
                 "acco: rank %d: an optimizer was destroyed without finish(): its last micro-batches are not in the weights.\n",
                 Engine::place().rank);
  }

  [[nodiscard]] memory_table memory() const noexcept override {
    memory_table table = Engine::memory();
    for (std::size_t k = 0; k < copies(); ++k) {
      table.parameters += Storage::allocation_size(Engine::layout().size() * sizeof(parameter_type), stagger(k));
      table.gradients += Storage::allocation_size(Engine::layout().size() * sizeof(gradient_type), stagger(k) + 1);
    }
    return table;
  }
  void initialize(std::span<parameter_type const> values) override {
    Engine::initialize(values);
    lend();
  }
  void initialize_from(function_view<void(std::size_t, std::size_t, std::byte*)> read) override {
    Engine::initialize_from(read);
    lend();
  }
  void adopt(std::span<parameter_type> parameters, std::span<gradient_type> gradients, bool begins) override {
    adopted_ = true;
    Engine::adopt(parameters, gradients, begins);
    if (begins) lend();
  }
  void adopt(std::span<tensor_memory<parameter_type, gradient_type> const> tensors, bool begins) override {
    adopted_ = true;
    Engine::adopt(tensors, begins);
    if (begins) lend();
  }
  void set_parameters(std::span<parameter_type const> values) override {
    hand_over();
    Engine::set_parameters(values);
    lend();
  }
  std::uint64_t resume(resumption how) override {
    const std::uint64_t digest = Engine::resume(how);
    had_gradients_ = Engine::steps() != 0;
    lend();
    return digest;
  }
  [[nodiscard]] changing_workers* changing() noexcept override {
    workers_.engines = Engine::changing();
    return workers_.engines == nullptr ? nullptr : &workers_;
  }

  [[nodiscard]] std::span<parameter_type const> parameters() const noexcept override {
    return moves() ? std::span<parameter_type const>(now_.of_parameters(), Engine::layout().size()) : Engine::parameters();
  }
  [[nodiscard]] std::span<gradient_type> gradients() const noexcept override {
    asked_ = true;
    return moves() ? std::span(now_.of_gradients(), Engine::layout().size()) : Engine::gradients();
  }
  [[nodiscard]] tensor_spans<parameter_type, gradient_type> tensor(std::size_t index) const noexcept override {
    asked_ = true;
    if (!moves()) return Engine::tensor(index);
    auto const found = Engine::layout()[index];
    return {parameters().subspan(found.offset, found.size), gradients().subspan(found.offset, found.size)};
  }

  std::optional<round_report> accumulated(double weight, double loss_sum) override {
    check_parameters(Engine::place());
    check_spans();
    if (weight > 0) look_for_clearing();
    if (weight == 0) asked_ = true;  // it brings nothing, and needs to ask for nothing
    hand_over();
    auto report = showing_what_it_left([&] { return Engine::accumulated(weight, loss_sum); });
    if (report) change_places();
    lend();  // the first part of all is launched without a report, and leaves the gradients empty
    if (report) look_for_gradients(*report);
    return report;
  }
  void finish(unfinished rest) override {
    error_place where = Engine::place();
    where.phase = "finish";
    if (!Engine::at_rest()) check_parameters(where);
    hand_over();
    showing_what_it_left([&] { Engine::finish(rest); });
    change_places();
    lend();
  }
  void leave(std::string_view reason) noexcept override {
    left_ = true;
    Engine::leave(reason);
  }

 private:
  /// One array of each, in the order of the layout.
  struct arrays {
    typename Storage::buffer parameters, gradients;
    [[nodiscard]] parameter_type* of_parameters() const noexcept { return parameters.template as<parameter_type>(); }
    [[nodiscard]] gradient_type* of_gradients() const noexcept { return gradients.template as<gradient_type>(); }
  };
  /// Passes on what workers do, and lends what they have then.
  struct lending_workers final : changing_workers {
    explicit lending_workers(checked_engine& of) noexcept : of_(of) {}
    [[nodiscard]] type_mark world_type() const noexcept override { return engines->world_type(); }
    void regroup(void const* world) override {
      engines->regroup(world);
      of_.lend();
    }
    [[nodiscard]] bool survives() const noexcept override { return engines->survives(); }
    void survive(void const* world) override {
      engines->survive(world);
      of_.left_ = false;
      of_.lend();
    }
    void depart() override { engines->depart(); }
    void join() override {
      engines->join();
      of_.lend();
    }
    changing_workers* engines = nullptr;
    checked_engine& of_;
  };

  /// Whether the trainer's spans are others after a report.
  [[nodiscard]] bool moves() const noexcept {
    return !adopted_ && !Engine::chosen().stable_addresses && Engine::layout().trainable_size() == Engine::layout().size();
  }
  [[nodiscard]] std::size_t copies() const noexcept { return moves() ? 2 : 1; }
  [[nodiscard]] static constexpr std::size_t stagger(std::size_t copy) noexcept { return 1 + 2 * copy; }
  /// Calls visit(tensor, the engine's spans) for what is trained: frozen tensors are the trainer's own.
  template <class Visitor>
  void for_trained(Visitor&& visit) const {
    auto const& layout = Engine::layout();
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      auto const tensor = layout[k];
      if (tensor.size != 0 && !layout.groups()[tensor.group].frozen) visit(tensor, Engine::tensor(k));
    }
  }

  void allocate() {
    const std::size_t elements = Engine::layout().size();
    const auto made = [&](std::size_t k) -> arrays {
      return {storage_.allocate(elements * sizeof(parameter_type), stagger(k)),
              storage_.allocate(elements * sizeof(gradient_type), stagger(k) + 1)};
    };
    try {
      now_ = made(0);
      if (moves()) old_ = made(1);
    } catch (std::bad_alloc const&) {
      throw memory_error(
          Engine::place(),
          text("the buffers of this rank, ", static_cast<double>(memory().total()) / (1 << 20), " MiB, could not be allocated"),
          text("Set options::check_habits to off, or use fewer parameters; memory() lists the buffers"));
    }
    change_places();
    change_places();  // of before the first report nobody has a span, but nothing is to be found there
  }
  /// Both arrays become equal to the engine's.
  void lend() {
    if (now_.of_parameters() == nullptr) allocate();
    for_trained([&](auto const& tensor, auto const& engines) {
      std::copy_n(engines.parameters.data(), tensor.size, now_.of_parameters() + tensor.offset);
      std::copy_n(engines.gradients.data(), tensor.size, now_.of_gradients() + tensor.offset);
    });
  }
  /// Runs a member of the engine. Where it throws, rounds may have landed before: their parameters are shown.
  template <class Action>
  decltype(auto) showing_what_it_left(Action&& action) {
    try {
      return action();
    } catch (...) {
      lend();
      throw;
    }
  }
  /// What the trainer has added is the engine's.
  void hand_over() {
    if (!moves()) return;
    for_trained([&](auto const& tensor, auto const& engines) {
      std::copy_n(now_.of_gradients() + tensor.offset, tensor.size, engines.gradients.data());
    });
  }
  /// The trainer's arrays are those of before the report.
  void change_places() {
    if (!moves()) return;
    const std::size_t elements = Engine::layout().size();
    std::swap(now_, old_);
    std::memset(static_cast<void*>(old_.of_parameters()), 0xff, elements * sizeof(parameter_type));  // NaN
    std::memset(static_cast<void*>(old_.of_gradients()), 0, elements * sizeof(gradient_type));
  }

  void check_parameters(error_place const& where) const {
    for_trained([&](auto const& tensor, auto const& engines) {
      parameter_type const *const mine = now_.of_parameters() + tensor.offset, *const its = engines.parameters.data();
      if (std::memcmp(mine, its, tensor.size * sizeof(parameter_type)) == 0) return;
      std::size_t at = 0;
      while (bits_of(mine[at]) == bits_of(its[at])) ++at;
      throw usage_error(where,
                        text("the parameters were written to since they came into use, tensor '", tensor.name, "' at element ",
                             at, " among them: the next commit would undo it"),
                        text("Hand weights of your own over by set_parameters, after finish"));
    });
  }
  /// A number that was computed from the parameters of before: the first two bytes of NaN with all bits set, whatever
  /// its sign, survive arithmetic and conversions. NaN that arithmetic makes has fewer.
  [[nodiscard]] static bool spoiled(gradient_type value) noexcept {
    unsigned char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    return (bytes[sizeof value - 1] | 0x80U) == 0xff && bytes[sizeof value - 2] == 0xff;
  }
  void check_spans() const {
    if (!moves()) return;
    const std::size_t elements = Engine::layout().size();
    gradient_type const *const now = now_.of_gradients(), *const old = old_.of_gradients();
    if (std::any_of(old, old + elements, [](gradient_type each) { return static_cast<double>(each) != 0; })) {
      throw usage_error(Engine::place(), text("gradients were added to a span of before the last report"),
                        text("For gradients(), ask again after each report, or set options::stable_addresses"));
    }
    if (std::any_of(now, now + elements, spoiled)) {
      throw usage_error(Engine::place(), text("gradients were computed from parameters of before the last report"),
                        text("For parameters(), ask again after each report, or set options::stable_addresses"));
    }
  }
  /// Of the gradients before this micro-batch and after it, about a thousand elements, others each time.
  void look_for_clearing() {
    const std::size_t stride = Engine::layout().trainable_size() / 1024 + 1;
    spot_ = (spot_ * 5 + 7919) % stride;
    for_trained([&](auto const& tensor, auto const& engines) {
      gradient_type const *before = engines.gradients.data(), *after = now_.of_gradients() + tensor.offset;
      if (!moves()) std::swap(before, after);
      for (std::size_t i = spot_ % std::min(stride, tensor.size); i < tensor.size; i += stride)
        cleared_.look(static_cast<double>(before[i]), static_cast<double>(after[i]));
    });
    if (!cleared_.suspect()) return;
    std::fprintf(
        stderr,
        "acco: rank %d: gradients() look as if they were cleared, or written over, between micro-batches that are to be "
        "added up: of what one micro-batch adds the next one leaves little (or cancels it). Remove zero_grad from between "
        "them and add with +=: acco clears the gradients itself.\n",
        Engine::place().rank);
  }
  /// The report has the same numbers on every rank, so every rank that trains throws at the same one; the others hear
  /// of it.
  void look_for_gradients(round_report const& report) {
    if (!commits(report.plan) || report.skipped || report.step_weight <= 0) return;
    silent_ = report.gradient_norm == 0 ? silent_ + 1 : 0;
    had_gradients_ = had_gradients_ || silent_ == 0;
    idle_ = report.learning_rate_scale == 0 ? idle_ + 1 : 0;
    const std::uint64_t most = Engine::chosen().empty_limit;
    if (idle_ > std::max(most, silent_steps)) {
      throw usage_error(Engine::place(), text("the learning rate has been 0 in ", idle_, " steps in a row"),
                        text("Shapes count samples: where warm-up and total are meant in steps, write acco::in_steps{...}. "
                             "Where this is meant, raise options::empty_limit, or set check_habits = habit_checks::off"));
    }
    const bool reached = had_gradients_ && (asked_ || adopted_);  // a resumed training, perhaps not on this start
    if (silent_ == 0 || silent_ < (reached ? most : silent_steps)) return;
    throw usage_error(
        Engine::place(),
        text("gradients() stayed zero on all ranks, in ", silent_, " steps in a row, though the micro-batches have a weight"),
        text("Add to the span that gradients() returns now: not to one of before the last report, nor to tensors that a "
             "zero_grad has detached from it. Arrays of the trainer's own take part where adopt was called, on every start, "
             "before restore. Where this is meant, options::check_habits = habit_checks::off"));
  }

  Storage storage_;
  arrays now_, old_;  // the trainer's, or copies of them; the trainer's of before the last report
  bool adopted_ = false, left_ = false;
  mutable std::atomic<bool> asked_ = false;  // where gradients are to be added; any thread
  lending_workers workers_{*this};
  cleared_gradients cleared_;
  std::size_t spot_ = 0;
  std::uint64_t silent_ = 0, idle_ = 0;  // steps in a row without a gradient, with a learning rate of 0
  bool had_gradients_ = false;           // in some step
  int uncaught_ = std::uncaught_exceptions();
};

/// A new engine, or a checked one where its arrays are in host memory.
template <class Engine, class Storage, class... Arguments>
[[nodiscard]] Engine* new_engine(bool checked, [[maybe_unused]] Storage memory, Arguments&&... arguments) {
  if constexpr (Storage::host_memory) {
    if (checked) return new checked_engine<Engine, Storage>(std::move(memory), std::forward<Arguments>(arguments)...);
  }
  return new Engine(std::forward<Arguments>(arguments)...);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
