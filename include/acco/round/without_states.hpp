// SPDX-License-Identifier: Apache-2.0
// A level around the engine whose state is not kept yet: no checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "acco/round/state_keeper.hpp"
#include "acco/round/training_engine.hpp"

namespace ACCO_ENGINE_NAMESPACE {

/// Its part of an engine's interface: whoever would save or restore is refused, in the level's own words. Final, so that no
/// member of a level takes the place of a refusal by its name.
template <class Parameter, class Gradient>
class without_states : public training_engine<Parameter, Gradient> {
 public:
  void attach(state_keeper* keeper) final {
    const std::unique_ptr<state_keeper> dropped(keeper);
    refuse_states();
  }
  [[nodiscard]] bool can_be_saved() const noexcept final { return false; }
  [[nodiscard]] bool keeps_unsaved() const noexcept final { return false; }  // cannot be saved
  [[nodiscard]] std::size_t residual_bytes() const noexcept final { return 0; }
  void load_residual(std::span<std::byte const>, double) final {}
  [[nodiscard]] state_keeper* keeper() noexcept final { return nullptr; }
  [[nodiscard]] save_outcome const* saved() const noexcept final { return nullptr; }
  void begin() final { refuse_states(); }  // of a restore; `initialize` does its own
  void load(state_source&) final { refuse_states(); }
  std::uint64_t resume(resumption) final { return refuse_states(); }

 private:
  /// Throws `usage_error`.
  [[noreturn]] virtual std::uint64_t refuse_states() const = 0;
};

}  // namespace ACCO_ENGINE_NAMESPACE
