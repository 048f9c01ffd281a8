// SPDX-License-Identifier: Apache-2.0
// A rank's part of a checkpoint: the blocks that are wholly its own, synced, and a small file with the rest.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "acco/checkpoint/disk.hpp"
#include "acco/checkpoint/folder.hpp"
#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/part.hpp"
#include "acco/checkpoint/save_job.hpp"
#include "acco/checkpoint/sums.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/clock.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/stage/world_digest.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// Throws what cannot be read, or is none.
[[nodiscard]] inline part read_part(save_job const& job, int rank) {
  const std::vector<std::byte> bytes = read_file(job.folder() + "/" + part_name(rank));
  return part::read({reinterpret_cast<char const*>(bytes.data()), bytes.size()});
}

/// One rank's, for one save after the other. Refers to what a writer owns; the writing thread calls all members.
class part_writer {
 public:
  part_writer(writer_setting const& mine, save_job const& job, purpose const& why, disk& on) noexcept
      : mine_(mine), job_(job), purpose_(why), disk_(on) {}

  /// Rank 0 takes room for all that any rank writes into tensor files, where they are no twin's, before there is a
  /// folder into which the others can write: whether a disk is too small is known before the first byte.
  void open_in(std::string const& in) {
    std::vector<tensor_file> const all = job_.files(mine_);
    std::vector<tensor_file> const own = job_.own_files(mine_, mine_.rank);
    std::uint64_t needed = job_.trainer.size();
    for (auto const* const files : {&all, &own}) {
      for (tensor_file const& each : *files) needed += each.bytes();
    }
    try {
      for (tensor_file const& each : all) {
        const std::string name = in + "/" + each.name;
        const bool untouched = (mine_.rank != 0 && job_.is_others(open_.size())) || is_shared(each.name, name);
        open_.push_back(untouched ? file_to_write::whole(disk_, name) : file_to_write(disk_, name));
        if (mine_.rank == 0) open_.back().reserve(0, each.bytes());
      }
      const auto open_own = [&](std::string const& name, std::uint64_t bytes) {
        open_.emplace_back(disk_, in + "/" + name);
        open_.back().reserve(0, bytes);
      };
      for (tensor_file const& each : own) open_own(each.name, each.bytes());
      if (job_.has_trainer) open_own(own_trainer(), job_.trainer.size());
    } catch (disk_error const& e) {
      if (e.number() != ENOSPC && e.number() != EDQUOT && e.number() != EFBIG) throw;
      throw std::runtime_error(std::string(e.what()) + ". The checkpoint needs " + std::to_string(needed) +
                               " bytes, besides its manifest and what other ranks have of their own");
    }
  }
  /// On other ranks than 0, whose files are open, waits for rank 0's folder.
  void write() {
    if (mine_.rank != 0) {
      purpose_.wait_for(job_.folder(), 0, "made its folder", steady_seconds() + mine_.deadline, job_);
      open_in(job_.folder());
    }
    part mine;
    level_view const* const level = job_.copy.level;
    mine.digest = level != nullptr ? level->digest : digest_of(job_.copy);
    mine.own = {job_.copy.numbers->micro_batches, job_.copy.numbers->bytes_sent, job_.has_trainer, {}};
    if (level != nullptr) mine.own.level = *level->numbers;

    std::vector<tensor_file> const all = job_.files(mine_);
    for (std::size_t file = 0; mine_.rank == 0 && file < all.size(); ++file)
      open_[file].write(0, std::as_bytes(std::span(all[file].header)));
    const std::size_t of_frozen =
        job_.for_ranges(mine_, [&](std::size_t file, std::uint64_t at, std::span<std::byte const> bytes) {
          write_stretch(open_[file], all[file], at, bytes, mine);
        });
    if (mine_.rank == 0 && of_frozen < all.size()) write_stretch(open_[of_frozen], all[of_frozen], 0, job_.frozen, mine);
    std::vector<tensor_file> const own = job_.own_files(mine_, mine_.rank);
    std::size_t written = 0;
    job_.for_own(mine_, [&](std::span<std::byte const> bytes) {
      write_own(open_[all.size() + written], own[written].name, own[written].header, bytes, mine);
      ++written;
    });
    if (job_.has_trainer) {
      mine.trainer_bytes = job_.trainer.size();
      write_own(open_.back(), own_trainer(), "", job_.trainer, mine);
    }
    if (mine_.rank != 0) {  // rank 0 has to write shared blocks yet
      for (file_to_write& each : open_) each.sync_and_close();
    }
    write_part_file(mine);
  }
  /// Tells rank 0 why there is no part, if the disk takes that.
  void leave_words(std::string const& problem) noexcept {
    try {
      part mine;
      mine.problem = problem;
      write_part_file(mine);
    } catch (std::exception const&) {  // this rank's report has them
    }
  }
  /// Tensor files, in the order of the job's, then this rank's own, and its trainer's.
  [[nodiscard]] std::vector<file_to_write>& files() noexcept { return open_; }
  void close() noexcept { open_.clear(); }

 private:
  /// Whether a tensor file is the twin's: rank 0 links it where the file system can, the others look.
  [[nodiscard]] bool is_shared(std::string const& file, std::string const& name) const {
    if (job_.twin.empty()) return false;
    const std::string twin = job_.twin + "/" + file;
    return mine_.rank == 0 ? disk_.link(twin, name) : is_one_file(twin, name);
  }
  /// This rank's bytes of one file: whole blocks are written, the rest goes into the part.
  void write_stretch(file_to_write& file, tensor_file const& of, std::uint64_t at, std::span<std::byte const> bytes, part& into) {
    while (!bytes.empty()) {
      purpose_.go_on();
      const std::uint64_t in_block = at % block_bytes;
      std::size_t count = std::min<std::size_t>(bytes.size(), block_bytes - in_block);
      if (count == block_bytes) {
        count = std::min<std::size_t>(bytes.size() / block_bytes * block_bytes, chunk_bytes - at % chunk_bytes);
        file.write(of.header.size() + at, bytes.first(count));
        into.sums[of.name][at / chunk_bytes] += sum_of_blocks(bytes.first(count), at / block_bytes);
      } else {
        into.edges.push_back({of.name, at, {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)}});
      }
      at += count;
      bytes = bytes.subspan(count);
    }
  }
  /// A file that is this rank's alone.
  static void write_own(file_to_write& file, std::string const& name, std::string const& header, std::span<std::byte const> bytes,
                        part& into) {
    file.write(0, std::as_bytes(std::span(header)));
    file.write(header.size(), bytes);
    for (std::uint64_t at = 0; at < bytes.size(); at += chunk_bytes) {
      into.sums[name][at / chunk_bytes] =
          sum_of_blocks(bytes.subspan(at, std::min<std::size_t>(chunk_bytes, bytes.size() - at)), at / block_bytes);
    }
  }
  [[nodiscard]] std::string own_trainer() const {
    return trainer_file(static_cast<std::size_t>(mine_.rank), static_cast<std::size_t>(mine_.ranks));
  }
  /// It need not survive the system, and so is not synced: rank 0 reads it, and removes it.
  void write_part_file(part const& mine) {
    const std::string text = mine.text(), name = job_.folder() + "/" + part_name(mine_.rank),
                      fresh = name + (mine.problem.empty() ? ".new" : ".why");
    file_to_write file(disk_, fresh);
    file.write(0, std::as_bytes(std::span(text)));
    file.close();
    disk_.rename(fresh, name);
  }

  writer_setting const& mine_;
  save_job const& job_;
  purpose const& purpose_;
  disk& disk_;
  std::vector<file_to_write> open_;
};

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
