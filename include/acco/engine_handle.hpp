// SPDX-License-Identifier: Apache-2.0
// What an optimizer on one rank holds: the engine, what may be called now, and the error that has ended it.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <utility>

#include "acco/error.hpp"
#include "acco/forks.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/round/training_engine.hpp"

namespace ACCO_NAMESPACE {

/// The base of any_optimizer: calls in the wrong order, two at once and in a forked process are refused, and an error
/// that has ended the training comes again.
template <class Parameter, class Gradient>
class engine_handle {
 protected:
  enum class state { constructed, running, failed };

  engine_handle() noexcept = default;
  explicit engine_handle(training_engine<Parameter, Gradient>* made) noexcept : engine_(made) {}
  engine_handle(engine_handle&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)),
        state_(std::exchange(other.state_, state::constructed)),
        failure_(std::exchange(other.failure_, nullptr)),
        forks_(other.forks_) {}
  engine_handle& operator=(engine_handle&& other) noexcept {
    engine_handle taken(std::move(other));
    std::swap(engine_, taken.engine_);
    std::swap(state_, taken.state_);
    std::swap(failure_, taken.failure_);
    std::swap(forks_, taken.forks_);
    return *this;
  }
  ~engine_handle() {
    if (forks_ == forks()) delete engine_;  // the threads of a copy are not there to be waited for
  }

  [[nodiscard]] training_engine<Parameter, Gradient>& engine() const {
    if (engine_ == nullptr) {
      throw usage_error({}, text("this any_optimizer is empty: default constructed, or moved from"),
                        text("Give it an optimizer first: training = acco::optimizer{...}"));
    }
    return *engine_;
  }
  /// Throws; of an empty one, that it is empty, because it asks the engine where it is.
  [[noreturn]] void fail_use(text const& what, char const* advice) const {
    throw usage_error(engine().place(), what, text(advice));
  }
  /// No byte of a range to adopt may belong to another, be it of this optimizer or of one that trains beside it.
  void claim(void const* memory, std::size_t bytes, bool trained, text const& name, text const& two) {
    const entry inside(*this);
    switch (engine_->claim(memory, bytes, trained)) {
      case memory_shared_with::nobody: break;
      case memory_shared_with::itself:
        fail_use(text("adopt: ", two.view(), " share memory"),
                 "Give each tensor its own; tied weights are one tensor, adopted once");
      case memory_shared_with::another:
        fail_use(text("adopt: another optimizer of this process works in the memory of ", name.view()),
                 "Give every rank a model of its own, threads too; or finish the other optimizer first");
    }
  }
  /// What `adopt` demands of whole arrays, and of tensors, before anything communicates.
  void claim_arrays(std::span<Parameter> parameters, std::span<Gradient> gradients) {
    if (failure_) std::rethrow_exception(failure_);
    if (state_ == state::running) fail_use(text("adopt was called after initialize"), "Call it instead of initialize, once");
    if (parameters.size() != engine_->layout().size() || gradients.size() != engine_->layout().size()) {
      throw usage_error(engine_->place(),
                        text("adopt got ", parameters.size(), " parameters and ", gradients.size(), " gradients, the layout has ",
                             engine_->layout().size()),
                        text("Pass room for every parameter, frozen ones included"));
    }
    const text name("the arrays"), two("the two arrays");
    claim(parameters.data(), parameters.size_bytes(), true, name, two);
    claim(gradients.data(), gradients.size_bytes(), true, name, two);
  }
  void claim_tensors(std::span<tensor_memory<Parameter, Gradient> const> tensors) {
    if (failure_) std::rethrow_exception(failure_);
    if (state_ == state::running) fail_use(text("adopt was called after initialize"), "Call it instead of initialize, once");
    if (tensors.size() != engine_->layout().tensor_count()) {
      throw usage_error(engine_->place(),
                        text("adopt got ", tensors.size(), " tensors, the layout has ", engine_->layout().tensor_count()),
                        text("Pass one for each tensor of the layout, in its order"));
    }
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      auto const tensor = engine_->layout()[k];
      const bool lacks = tensors[k].parameters == nullptr ||
                         (tensors[k].gradients == nullptr && !engine_->layout().groups()[tensor.group].frozen);
      if (lacks && tensor.size != 0) {
        throw usage_error(engine_->place(), text("adopt got no memory for tensor '", tensor.name, "'"),
                          text("Give its parameters and, unless it is frozen, its gradients"));
      }
    }
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      auto const tensor = engine_->layout()[k];
      const bool trained = !engine_->layout().groups()[tensor.group].frozen;
      const text name("tensor '", tensor.name, "'"), two("tensor '", tensor.name, "' and another");
      claim(tensors[k].parameters, tensor.size * sizeof(Parameter), trained, name, two);
      claim(tensors[k].gradients, tensor.size * sizeof(Gradient), trained, name, two);
    }
  }
  void require_rest() const {
    require_running("set_parameters");
    if (!engine_->at_rest()) {
      fail_use(text("set_parameters was called while a step is under way"), "Call finish first; the training may go on after it");
    }
  }
  [[noreturn]] void fail_apart(char const* what) const {
    fail_use(text(what, "(): the tensors were adopted one by one, and are no whole array"), "Ask tensor(name)");
  }
  void require_initialized(char const* what) const {
    if (state_ == state::constructed) fail_use(text(what, "() was called before initialize"), "Call initialize first");
  }
  void require_running(char const* what) const {
    if (state_ == state::running) return;
    if (failure_) std::rethrow_exception(failure_);
    require_initialized(what);
  }
  void require_rest(char const* what) const {
    require_running(what);
    if (engine_->at_rest()) return;
    fail_use(text(what, " was called while a step is under way"), "Call finish first, on every rank");
  }
  [[nodiscard]] changing_workers& changing(char const* what) const {
    changing_workers* const found = engine().changing();
    if (found == nullptr) fail_use(text(what, " is for local updates"), "Give the optimizer one of them as its schedule");
    return *found;
  }
  void require_average(weights which, char const* what) const {
    if (which == weights::average && !engine_->has_averages())
      fail_use(text(what, ": no average of the weights is kept"),
               "Set options::average_decay, 0.999 say, where the optimizer is made");
  }
  template <class T>
  void initialize_masters(std::span<T const> initial) {
    if (failure_) std::rethrow_exception(failure_);
    if (state_ == state::running) fail_use(text("initialize was called twice"), "Construct a new optimizer to start again");
    require_room(initial, "initialize");
    const bool doubles = engine_->has_doubles();
    guarded([&] {
      engine_->initialize_from([&](std::size_t first, std::size_t count, std::byte* to) {
        void* const values = to;  // which are aligned
        for (std::size_t i = 0; i < count; ++i) {
          if (doubles) {
            static_cast<double*>(values)[i] = static_cast<double>(initial[first + i]);
          } else {
            static_cast<float*>(values)[i] = static_cast<float>(initial[first + i]);
          }
        }
      });
    });
    state_ = state::running;
  }
  template <class T>
  void gather_as(std::span<T> out, weights which) {
    if (state_ != state::failed || !engine().in_step()) require_running("gather_masters");
    require_average(which, "gather_masters");
    require_room(out, "gather_masters");
    const bool doubles = engine_->has_doubles();
    const auto take = [&](std::size_t first, std::size_t count, std::byte const* from) {
      void const* const values = from;
      for (std::size_t i = 0; i < count; ++i) {
        out[first + i] = doubles ? static_cast<T>(static_cast<double const*>(values)[i])
                                 : static_cast<T>(static_cast<float const*>(values)[i]);
      }
    };
    guarded([&] { engine_->gather_masters(take, which); });
  }
  template <class T>
  void require_room(std::span<T> out, char const* what) const {
    if (out.size() == engine_->layout().size()) return;
    throw usage_error(engine_->place(),
                      text(what, " got room for ", out.size(), " parameters, the layout has ", engine_->layout().size()),
                      text("Pass room for every parameter"));
  }
  /// A call that is under way. Found with plain loads and stores, which cost nothing: two threads that enter in the
  /// same nanosecond may both come in.
  class entry {
   public:
    explicit entry(engine_handle& of) : of_(of) {
      if (of.forks_ != forks()) {
        of.fail_use(text("this process was forked from the one that trains"),
                    "Fork before the optimizer is made, or let the child do other things (an exec)");
      }
      if (__atomic_load_n(&of.busy_, __ATOMIC_RELAXED)) {
        of.fail_use(text("two calls at once: another thread is inside this optimizer, or its learning rate calls it"),
                    "Let one thread at a time call it");
      }
      __atomic_store_n(&of.busy_, true, __ATOMIC_RELAXED);
    }
    entry(entry const&) = delete;
    entry& operator=(entry const&) = delete;
    ~entry() { __atomic_store_n(&of_.busy_, false, __ATOMIC_RELAXED); }

   private:
    engine_handle& of_;
  };
  /// Runs a member that communicates; what it throws ends the training.
  template <class Action>
  decltype(auto) guarded(Action&& action) {
    const entry inside(*this);
    try {
      return action();
    } catch (device_error const& e) {  // one from deep inside does not say where
      const device_error told = e.rank() < 0 ? device_error(here(), e) : e;
      fail(told.what());
      throw told;
    } catch (std::exception const& e) {
      fail(e.what());
      throw;
    } catch (...) {
      fail("an exception that is no std::exception");
      throw;
    }
  }
  [[nodiscard]] error_place here() const noexcept {
    const error_place found = engine_->place();
    return state_ == state::constructed ? error_place{found.rank, -1, "initialize"} : found;
  }
  void fail(char const* reason) noexcept {
    engine_->leave(reason);
    failure_ = std::current_exception();
    if (state_ == state::running) state_ = state::failed;
  }

  // Owned. A plain pointer, because <memory> would cost whoever includes this header more than all the rest of it.
  training_engine<Parameter, Gradient>* engine_ = nullptr;
  state state_ = state::constructed;
  std::exception_ptr failure_;
  unsigned forks_ = forks();  // when it was made
  bool busy_ = false;         // only by the compiler's atomic builtins
};

}  // namespace ACCO_NAMESPACE
