// SPDX-License-Identifier: Apache-2.0
// One save, as the threads of one rank share it: what is to be written, and whether that still has a purpose.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "acco/checkpoint/disk.hpp"
#include "acco/checkpoint/folder.hpp"
#include "acco/checkpoint/plan.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/clock.hpp"
#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// What a writer knows of its training.
struct writer_setting {
  parameter_layout layout;
  std::vector<std::string> construction;
  state_shape shape;
  int rank = 0, ranks = 1;
  std::size_t keep = 2;           ///< checkpoints
  double deadline = 600;          ///< seconds that a rank waits for rank 0's folder, and rank 0 for the others' parts
  std::string run;                ///< of a run that was restored; else the session names it
  std::vector<std::string> from;  ///< `manifest::from`
  std::uint64_t restarts = 0;
  std::function<void(std::size_t tensor, std::vector<std::byte>& to)> frozen;  ///< appends a frozen tensor;
                                                                               ///< called at a cut
  std::function<std::uint64_t()> frozen_values;                                ///< which values they have
                                                                               ///< (`training_engine::frozen_values`); likewise
  system_calls* on = nullptr;
};

/// What the trainer's thread hands over at a cut. The writing thread's from `taken` until nothing is being written.
struct save_job {
  state_view copy{nullptr, nullptr, partition(0, 1), 0, {}, false, false};
  std::string run;      ///< its folder
  std::string session;  ///< of rank 0, in hexadecimal digits
  std::string problem;  ///< why this rank has nothing to write
  std::string twin;     ///< a checkpoint of the same cut that is complete, whose tensor files this one shares; or none
  std::uint64_t number = 0;
  std::vector<std::byte> trainer;
  std::vector<std::byte> frozen;    ///< on rank 0: the other frozen tensors; kept
                                    ///< from save to save while they do not change
  std::uint64_t frozen_values = 0;  ///< which values they had
  std::vector<std::byte> own;       ///< frozen tensors that are this rank's own
  bool has_trainer = false;
  double began = 0;

  /// Where all ranks write, until it gets its name.
  [[nodiscard]] std::string folder() const {
    return run + "/" + std::string(saving_prefix) + session + "-" + std::to_string(number);
  }
  [[nodiscard]] std::string run_id(writer_setting const& of) const { return of.run.empty() ? session : of.run; }
  [[nodiscard]] bool has(writer_setting const& of, std::size_t array) const {
    if (copy.level != nullptr) return false;
    if (array < of.shape.owned()) return true;
    return array == of.shape.shown() ? copy.shows : copy.arrives;
  }
  [[nodiscard]] bool is_own(writer_setting const& of, std::size_t array) const {
    return has(of, array) && of.shape.extent(array) == array_extent::whole;
  }
  /// Calls visit(number of its file, byte of the data, bytes) for all that this rank has of arrays of which ranks have
  /// shards. Returns how many files have such arrays.
  template <class Visit>
  std::size_t for_ranges(writer_setting const& of, Visit&& visit) const {
    std::size_t file = 0;
    for (std::size_t array = 0; array < of.shape.arrays(); ++array) {
      if (!has(of, array) || is_own(of, array)) continue;
      const std::size_t size = size_of(of.shape.type(array));
      copy.shares.for_shares(copy.rank, [&](std::size_t offset, std::size_t first, std::size_t count) {
        visit(file, first * size, std::span(copy.arrays[array] + offset * size, count * size));
      });
      ++file;
    }
    for (std::size_t k = 0; copy.level != nullptr && k < copy.level->arrays.size(); ++k, ++file) {
      level_array const& array = copy.level->arrays[k];
      const std::size_t size = size_of(array.type);
      for (state_range const& each : array.mine)
        visit(file, each.first * size, std::span(static_cast<std::byte const*>(each.from), each.count * size));
    }
    return file;
  }
  /// Whether this rank has nothing of that file, and need not open it.
  [[nodiscard]] bool is_others(std::size_t file) const {
    return copy.level != nullptr && file < copy.level->arrays.size() && copy.level->arrays[file].mine.empty();
  }
  /// All tensor files of the checkpoint that ranks write together, the frozen one last.
  [[nodiscard]] std::vector<tensor_file> files(writer_setting const& of) const {
    std::vector<tensor_file> all;
    const std::uint64_t step = copy.numbers->steps();
    if (copy.level != nullptr) {
      for (level_array const& each : copy.level->arrays)
        all.push_back(file_for(each.name, each.type, of.layout, run_id(of), step));
    }
    for (std::size_t array = 0; array < of.shape.arrays(); ++array) {
      if (has(of, array) && !is_own(of, array))
        all.push_back(file_for(of.shape.name(array), of.shape.type(array), of.layout, run_id(of), step));
    }
    tensor_file still = file_for_frozen(of.shape, of.layout, run_id(of), step);
    if (still.data() != 0) all.push_back(std::move(still));
    return all;
  }
  /// Those that a rank has for itself: of what is frozen, and of arrays.
  [[nodiscard]] std::vector<tensor_file> own_files(writer_setting const& of, int rank) const {
    std::vector<tensor_file> all;
    const std::uint64_t step = copy.numbers->steps();
    const auto whose = static_cast<std::size_t>(rank), ranks = static_cast<std::size_t>(of.ranks);
    if (!own.empty()) all.push_back(file_for_own(whose, ranks, of.shape, of.layout, run_id(of), step));
    for (std::size_t array = 0; array < of.shape.owned(); ++array) {
      if (is_own(of, array))
        all.push_back(
            file_for(name_of_rank(of.shape.name(array), whose, ranks), of.shape.type(array), of.layout, run_id(of), step));
    }
    return all;
  }
  /// The data of this rank's, in their order: visit(bytes).
  template <class Visit>
  void for_own(writer_setting const& of, Visit&& visit) const {
    if (!own.empty()) visit(std::span<std::byte const>(own));
    std::vector<std::byte> in_order;
    for (std::size_t array = 0; array < of.shape.owned(); ++array) {
      if (!is_own(of, array)) continue;
      const std::size_t size = size_of(of.shape.type(array));
      in_order.resize(of.layout.trainable_size() * size);
      for_elements_of(array_extent::whole, copy.shares, copy.rank, [&](std::size_t index, std::size_t first, std::size_t count) {
        std::copy_n(copy.arrays[array] + index * size, count * size, in_order.data() + first * size);
      });
      visit(std::span<std::byte const>(in_order));
    }
  }
};

/// Thrown when another rank's save failed. This rank writes no message of its own, so that the failing rank's message
/// is the one reported.
struct anothers_problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What the writing thread asks while it works: whether anybody still waits for it. Any thread may call any member.
class purpose {
 public:
  /// Another save begins.
  void begin() noexcept { aborted_ = false; }
  /// The ranks have been told that this save has failed.
  void abort() noexcept { aborted_ = true; }
  /// The optimizer ends, and nobody tells the ranks anything any more.
  void end() noexcept { ended_ = steady_seconds(); }

  void go_on() const {
    if (aborted_) throw anothers_problem("it was aborted, because another rank failed");
  }
  /// Waits for the job's folder, or for what another rank makes in it; throws at the time given, when the save is
  /// aborted, and when the folder, which was there, is there no more.
  void wait_for(std::string const& path, int rank, char const* what, double until, save_job const& job) const {
    const double begin = steady_seconds();
    for (auto nap = std::chrono::microseconds(200);; nap = std::min(nap * 2, std::chrono::microseconds(50'000))) {
      go_on();
      std::error_code unknown;
      if (std::filesystem::exists(path, unknown)) return;
      if (path != job.folder() && !std::filesystem::exists(job.folder(), unknown) && !unknown)
        throw std::runtime_error(job.folder() + " is gone: it was removed, or renamed, while the ranks wrote into it");
      const double now = steady_seconds(), ended = ended_;
      if (now > std::min(until, std::max(begin, ended) + grace)) {
        throw std::runtime_error(
            "rank " + std::to_string(rank) + " has not " + what + " within " + text().append(now - begin, 1).c_str() + " s" +
            (ended != never ? ", and the training has ended" : ": is " + job.run + " one folder for all ranks?"));
      }
      std::this_thread::sleep_for(nap);
    }
  }

 private:
  static constexpr double grace = 1;  ///< seconds for what comes next, when this optimizer ends without `finish`
  static constexpr double never = std::numeric_limits<double>::infinity();

  std::atomic<bool> aborted_{false};
  std::atomic<double> ended_{never};
};

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
