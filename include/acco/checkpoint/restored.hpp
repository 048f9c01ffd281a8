// SPDX-License-Identifier: Apache-2.0
// What a restore gives a trainer, and what it allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "acco/error.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// What a trainer goes on with.
struct restored {
  std::string path;                              ///< of the checkpoint
  std::string run;                               ///< number of the training that saved it, in hexadecimal
                                                 ///< digits: this one's now, too, unless it was changed
                                                 ///< (`changes::allowed`); then it has its own
  std::uint64_t step = 0;                        ///< updates committed in it, the one that
                                                 ///< has not been reported yet included
  double samples = 0;                            ///< weight committed in it, likewise
  std::uint64_t digest = 0;                      ///< `world_digest()` of it, and of this training now
  int ranks = 0;                                 ///< that there were
  bool exact = false;                            ///< whether the training goes on as if it had never
                                                 ///< stopped: as many ranks, and nothing changed (of
                                                 ///< a learning rate its first value is compared)
  std::vector<std::string> dropped;              ///< what wires kept in it, and none of this
                                                 ///< training's keeps: it is lost (`changes::allowed`)
  std::vector<std::string> thawed;               ///< tensors that were frozen in it, and are trained now: the
                                                 ///< rule's slots begin empty for them (`changes::allowed`)
  int per_rank_of = -1;                          ///< the rank of then whose tensors that are `per_rank`
                                                 ///< this one has now: itself, or, among other ranks, the
                                                 ///< one of its number modulo theirs. -1: there were none
  std::vector<std::byte> trainer;                ///< this rank's own, where the ranks are as many as then
  std::vector<std::vector<std::byte>> trainers;  ///< every rank's of then
  double last_weight = 0, last_loss = 0;         ///< what the report told that the call returned which
                                                 ///< was cut, after `position` had been asked: weight
                                                 ///< and mean loss of its round. Weight 0: none
  std::vector<std::string> skipped;              ///< newer checkpoints that could not be read, and why; known to rank 0

  /// The trainer's own as what it was, where it was a trivially copyable value. Throws `usage_error` where it was none
  /// of that size: there was no `position`, or it was another rank count's.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T position() const {
    return value_of<T>(trainer, "this rank's");
  }
  /// The same of a rank of then, 0 to `ranks` - 1: where the ranks were others.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T position(std::size_t rank) const {
    return value_of<T>(rank < trainers.size() ? std::span<std::byte const>(trainers[rank]) : std::span<std::byte const>(),
                       "that rank's");
  }

 private:
  template <class T>
  [[nodiscard]] T value_of(std::span<std::byte const> bytes, char const* whose) const {
    if (bytes.size() != sizeof(T)) {
      throw usage_error({}, text("the checkpoint holds ", bytes.size(), " bytes of ", whose, " trainer, not ", sizeof(T)),
                        text("Ask for the type that save's position returned. There were ", ranks,
                             " ranks: position<T>(rank) and restored::trainers have what each of them kept"));
    }
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

/// What may differ between the checkpoint and the training that goes on with it. The tensors, the types, the rule's
/// name and whether averages are kept may not.
enum class changes {
  none,     ///< nothing but what looks on or keeps copies (docs/checkpoints.md): the first line that differs is named
  allowed,  ///< hyperparameters, groups and what is frozen among them, options, the schedule, but for one whose
            ///< predictor or compensation has slots: these belong to the rule. What a wire keeps goes to the array of
            ///< its name. Under another schedule, or in other groups, the training begins at rest, as after `finish`
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
