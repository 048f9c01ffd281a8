// SPDX-License-Identifier: Apache-2.0
// The interface between the trainer's side (any_optimizer.hpp) and the engine (engine.hpp): where the types of
// schedule, rule, storage and backend end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "acco/error.hpp"
#include "acco/function_view.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

struct options;
class checkpointer;
class state_source;
struct state_shape;

/// What `finish` does with a step of which no rank has all micro-batches: its second part is missing, or some of a
/// part.
enum class unfinished {
  drop,   ///< leaves it out: as many updates as steps were completed,
          ///< in every schedule; `totals().dropped` tells its weight
  commit  ///< makes an update of what there is, at the full learning rate
};

/// The part of a tensor in parameters and gradients.
template <class Parameter, class Gradient>
struct tensor_spans {
  std::span<Parameter const> parameters;
  std::span<Gradient> gradients;
};

/// How a training goes on from a state.
enum class resumption {
  exact,   ///< as if it had never stopped
  at_rest  ///< like a training that has called `finish`: also under another schedule
};

/// Whose memory a range that is to be adopted overlaps.
enum class memory_shared_with { nobody, itself, another };

/// Which type something is that is passed without its type. No dynamic_cast: a file may be compiled with -fno-rtti. The
/// same type has the same address; where shared objects keep addresses to themselves, it has the same name, if it is
/// not a file's own.
class ACCO_VISIBLE type_mark {
 public:
  template <class T>
  [[nodiscard]] static type_mark of() noexcept {
#if defined(__cpp_rtti)
    return {&here<T>, typeid(T).name()};
#else
    return {&here<T>, ""};
#endif
  }
  friend bool operator==(type_mark const& a, type_mark const& b) noexcept {
    const std::string_view name = a.name_;
    return a.address_ == b.address_ || (!name.empty() && name == b.name_ && name.find("_GLOBAL__N_") == name.npos);
  }

 private:
  type_mark(void const* address, char const* name) noexcept : address_(address), name_(name) {}
  template <class T>
  static inline char here = 0;  // no constant: a linker may make one of two that are equal

  void const* address_;
  char const* name_;
};

/// What an engine has beside, whose workers come and go. At rest; members have the meaning of those of `any_optimizer`.
class changing_workers {
 public:
  /// The type of the worlds that `regroup` takes.
  [[nodiscard]] virtual type_mark world_type() const noexcept = 0;
  virtual void regroup(void const* world) = 0;
  virtual void depart() = 0;
  virtual void join() = 0;
  /// Whether it can go on when others are lost: `survive`, instead of `regroup`, behind the error that told so.
  [[nodiscard]] virtual bool survives() const noexcept = 0;
  virtual void survive(void const* world) = 0;

 protected:
  changing_workers() = default;
  changing_workers(changing_workers const&) = default;
  changing_workers& operator=(changing_workers const&) = default;
  ~changing_workers() = default;
};

/// One rank's engine. Every member has the meaning that the member of `any_optimizer` of the same name has; the order
/// of calls and the sizes of spans have been checked.
template <class Parameter, class Gradient>
class training_engine {
 public:
  training_engine() = default;
  training_engine(training_engine const&) = delete;
  training_engine& operator=(training_engine const&) = delete;
  virtual ~training_engine() = default;

  virtual void initialize(std::span<Parameter const> values) = 0;
  /// From masters, in their own type (`shape`): read(offset, count, to) is called on rank 0, in the order of the
  /// layout.
  virtual void initialize_from(function_view<void(std::size_t, std::size_t, std::byte*)> read) = 0;
  /// Before `adopt`, for each range of it: where the answer is not `nobody`, or this throws, nothing is claimed any
  /// more.
  [[nodiscard]] virtual memory_shared_with claim(void const* memory, std::size_t bytes, bool trained) = 0;
  /// `begins`: from what the arrays hold; otherwise `initialize` or `initialize_from` follows.
  virtual void adopt(std::span<Parameter> parameters, std::span<Gradient> gradients, bool begins) = 0;
  virtual void adopt(std::span<tensor_memory<Parameter, Gradient> const> tensors, bool begins) = 0;
  virtual void set_parameters(std::span<Parameter const> values) = 0;
  /// Whether nothing has been accumulated since `initialize` or `finish`.
  [[nodiscard]] virtual bool at_rest() const noexcept = 0;
  /// Whether it has been at rest since `finish`, with which all ranks ended together.
  [[nodiscard]] virtual bool finished() const noexcept = 0;
  [[nodiscard]] virtual std::span<Parameter const> parameters() const noexcept = 0;
  [[nodiscard]] virtual std::span<Gradient> gradients() const noexcept = 0;
  [[nodiscard]] virtual tensor_spans<Parameter, Gradient> tensor(std::size_t index) const noexcept = 0;
  virtual std::optional<round_report> accumulated(double weight, double loss_sum) = 0;
  virtual void finish(unfinished rest) = 0;
  virtual void gather(std::span<Parameter> out, weights which) = 0;
  /// In the master's type: take(offset, count, from) is called on every rank, in the order of the layout.
  virtual void gather_masters(function_view<void(std::size_t, std::size_t, std::byte const*)> take, weights which) = 0;
  virtual void sum_over_ranks(std::span<double> numbers) = 0;
  virtual void poll() = 0;
  [[nodiscard]] virtual std::span<double const> norms() const noexcept = 0;
  [[nodiscard]] virtual double samples() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t steps() const noexcept = 0;
  [[nodiscard]] virtual round_totals const& totals() const noexcept = 0;
  [[nodiscard]] virtual memory_table memory() const noexcept = 0;
  [[nodiscard]] virtual parameter_layout const& layout() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t state_digest() = 0;
  [[nodiscard]] virtual std::uint64_t world_digest() = 0;

  /// Null where no workers come and go.
  [[nodiscard]] virtual changing_workers* changing() noexcept { return nullptr; }

  // For whoever keeps states (acco::checkpoint).

  /// Of what is kept: where it is not that of the trainer, a level trains other tensors.
  [[nodiscard]] virtual parameter_layout const& kept_layout() const noexcept { return layout(); }
  [[nodiscard]] virtual state_shape const& shape() const noexcept = 0;
  /// Of that: whether masters are of type double; whether averages are kept.
  [[nodiscard]] virtual bool has_doubles() const noexcept = 0;
  [[nodiscard]] virtual bool has_averages() const noexcept = 0;
  /// Of this rank's trainable elements, among the ranks that own them together: of a level, those of a worker.
  [[nodiscard]] virtual partition shares() const noexcept = 0;
  /// Of the world.
  [[nodiscard]] virtual int ranks() const noexcept = 0;
  /// What this rank was constructed from, in lines "what = value".
  [[nodiscard]] virtual std::vector<char> construction() const = 0;
  [[nodiscard]] virtual options const& chosen() const noexcept = 0;
  /// A tensor's parameters in use, to host memory. While nothing is in flight.
  virtual void copy_parameters(std::size_t tensor, std::byte* to) = 0;
  /// Which values the frozen tensors have: another number where they are others; 0 where they may change at any time,
  /// because they are the trainer's own arrays.
  [[nodiscard]] virtual std::uint64_t frozen_values() const noexcept = 0;
  /// Every rank gets the root's. Collective; blocks.
  virtual void broadcast(std::span<char> bytes, int root) = 0;
  /// Who is told about cuts; the engine takes it over, also where it throws `usage_error` where the storage cannot be
  /// copied from, `memory_error`.
  virtual void attach(checkpointer* keeper) = 0;
  /// Whether the storage can be copied from.
  [[nodiscard]] virtual bool can_be_saved() const noexcept = 0;
  [[nodiscard]] virtual checkpointer* keeper() noexcept = 0;
  [[nodiscard]] virtual save_outcome const* saved() const noexcept = 0;
  /// What `action` throws is thrown on every rank alike: nobody has to be told.
  virtual void together(function_view<void()> action) = 0;
  /// The first half of `initialize`: compares the ranks' construction, and allocates. Collective; blocks.
  virtual void begin() = 0;
  /// At rest: reads this rank's part of a state. What the source throws leaves nothing that `load` or `resume` would
  /// mind.
  virtual void load(state_source& source) = 0;
  /// After every rank's `load`: the state that was read is this training's. Returns its digest (`world_digest`).
  /// Collective; blocks.
  virtual std::uint64_t resume(resumption how) = 0;

  /// Tells the other ranks, at once, that this one ends, and why. Once.
  virtual void leave(std::string_view reason) noexcept = 0;
  /// Whether the error that ended the training was thrown by every rank alike: then `gather_committed` still tasks.
  [[nodiscard]] virtual bool in_step() const noexcept = 0;
  /// Rank and round, for errors.
  [[nodiscard]] virtual error_place place() const noexcept = 0;
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
