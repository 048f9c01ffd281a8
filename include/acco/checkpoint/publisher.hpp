// SPDX-License-Identifier: Apache-2.0
// Rank 0's side of a save: the folder, what the ranks share, the manifest, the name; and which checkpoints are not kept
// any more.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sys/file.h>
#include <sys/stat.h>

#include "acco/checkpoint/disk.hpp"
#include "acco/checkpoint/folder.hpp"
#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/part.hpp"
#include "acco/checkpoint/part_writer.hpp"
#include "acco/checkpoint/save_job.hpp"
#include "acco/checkpoint/sums.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/clock.hpp"
#include "acco/stage/world_digest.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// For one save after the other. Refers to what a writer owns; the writing thread calls all members.
class publisher {
 public:
  publisher(writer_setting const& mine, save_job const& job, purpose const& why, disk& on, part_writer& own) noexcept
      : mine_(mine), job_(job), purpose_(why), disk_(on), own_(own) {}

  /// The run's folder, and in it the one of this save, with its files. That is locked before it has its name: what
  /// somebody else finds is locked, or nobody's any more.
  void make_folder() {
    const std::filesystem::path run(job_.run);
    std::vector<std::filesystem::path> missing;
    std::error_code unknown;
    for (std::filesystem::path at = run; !std::filesystem::exists(at, unknown) && at != at.parent_path(); at = at.parent_path())
      missing.push_back(at);
    for (; !missing.empty(); missing.pop_back()) {
      if (disk_.make_folder(missing.back().string()))
        unsynced_.insert(std::filesystem::canonical(missing.back().parent_path()).string());
    }
    clean_up();
    const std::string to = job_.folder(), fresh = to + std::string(begun);
    for (lock_.reset();;) {
      disk_.make_folder(fresh);
      try {
        lock_.emplace(disk_, fresh, LOCK_SH);
        if (lock_->is(fresh)) break;
      } catch (disk_error const& e) {  // somebody who cleans up was faster; or there are no locks
        if (e.number() != ENOENT && e.number() != EWOULDBLOCK) break;
      }
      lock_.reset();
      purpose_.go_on();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    own_.open_in(fresh);
    disk_.rename(fresh, to);
  }
  /// The number of the name that the checkpoint got.
  std::uint64_t join(std::uint64_t& digest) {
    const std::string to = job_.folder();
    std::vector<tensor_file> const all = job_.files(mine_);
    manifest m = begin_manifest(all);
    shared_blocks shared;
    const double until = steady_seconds() + mine_.deadline;
    for (int rank = 0; rank < mine_.ranks; ++rank) {
      purpose_.wait_for(to + "/" + part_name(rank), rank, "written its part", until, job_);
      add(rank, read_part(job_, rank), all, m, shared);
    }
    digest = m.digest;
    for (auto const& [at, bytes] : shared) {
      auto const& [file, block] = at;
      own_.files()[file].write(all[file].header.size() + block * block_bytes, bytes);
      m.files[file].chunks.at(block / blocks_of_a_chunk) += sum_of_blocks(bytes, block);
    }
    for (file_to_write& each : own_.files()) each.sync_and_close();
    const std::vector<known_checkpoint> known = known_checkpoints(job_.run);
    m.sequence = known.empty() ? 1 : known.front().is.sequence + 1;
    purpose_.go_on();
    for (int rank = 0; rank < mine_.ranks; ++rank) disk_.remove_file(to + "/" + part_name(rank));
    const std::string text = write_manifest(m);
    file_to_write last(disk_, to + "/" + std::string(manifest_name));
    last.write(0, std::as_bytes(std::span(text)));
    last.sync_and_close();
    disk_.sync_folder(to);
    sync_parents();
    const std::uint64_t attempt = give_name(m.numbers.steps());
    disk_.sync_folder(job_.run);
    delete_old(known);
    return attempt;
  }
  /// A save that failed leaves no folder.
  void give_up() noexcept {
    clean(job_.folder());
    clean(job_.folder() + std::string(begun));
  }
  void unlock() noexcept { lock_.reset(); }

 private:
  static constexpr std::string_view begun = ".begun";
  using shared_blocks = std::map<std::pair<std::size_t, std::uint64_t>, std::vector<std::byte>>;  // by file and block

  /// All that is known before the ranks' parts.
  [[nodiscard]] manifest begin_manifest(std::vector<tensor_file> const& all) const {
    manifest m;
    m.library =
        std::to_string(ACCO_VERSION_MAJOR) + "." + std::to_string(ACCO_VERSION_MINOR) + "." + std::to_string(ACCO_VERSION_PATCH);
    m.run = job_.run_id(mine_);
    m.from = mine_.from;
    m.session = job_.session;
    m.restarts = mine_.restarts;
    m.shape = mine_.shape;
    m.construction = mine_.construction;
    m.numbers = *job_.copy.numbers;
    m.digest = digest_of(m.numbers.steps(), m.numbers.samples());
    const auto expect = [&](tensor_file const& each) {
      m.files.push_back({each.name, each.bytes(), each.header.size(), sum_of(std::as_bytes(std::span(each.header))), {}});
      m.files.back().chunks.resize((each.data() + chunk_bytes - 1) / chunk_bytes, 0);
    };
    for (tensor_file const& each : all) expect(each);
    for (int rank = 0; rank < mine_.ranks; ++rank) {
      for (tensor_file const& each : job_.own_files(mine_, rank)) expect(each);
    }
    return m;
  }
  /// A rank's part; the blocks of which it has a part go to `shared`.
  void add(int rank, part const& p, std::vector<tensor_file> const& all, manifest& m, shared_blocks& shared) const {
    if (!p.problem.empty()) throw anothers_problem("rank " + std::to_string(rank) + ": " + p.problem);
    const auto number_of = [&](std::string const& name) {
      for (std::size_t k = 0; k < m.files.size(); ++k) {
        if (m.files[k].name == name) return k;
      }
      throw std::runtime_error("a part names the file " + name);
    };
    m.digest += p.digest;
    m.ranks.push_back(p.own);
    if (p.own.has_trainer) {
      const std::string name = trainer_file(static_cast<std::size_t>(rank), static_cast<std::size_t>(mine_.ranks));
      m.files.push_back({name, p.trainer_bytes, 0, sum_of({}), {}});
      m.files.back().chunks.resize((p.trainer_bytes + chunk_bytes - 1) / chunk_bytes, 0);
    }
    for (auto const& [name, chunks] : p.sums) {
      for (auto const& [chunk, sum] : chunks) m.files[number_of(name)].chunks.at(chunk) += sum;
    }
    for (part::edge const& each : p.edges) {
      const std::size_t file = number_of(each.file);
      const std::uint64_t block = each.at / block_bytes, begin = block * block_bytes;
      std::vector<std::byte>& bytes = shared[{file, block}];
      bytes.resize(std::min(block_bytes, all[file].data() - begin));
      std::copy(each.bytes.begin(), each.bytes.end(), bytes.begin() + static_cast<std::ptrdiff_t>(each.at - begin));
    }
  }

  void clean(std::string const& path) noexcept {
    try {
      disk_.remove_folder(path);
    } catch (std::exception const&) {  // the next save tries again
    }
  }
  /// What saves and deletions that were cut short have left, but not what another training is writing.
  void clean_up() {
    const std::string mine = std::string(saving_prefix) + job_.session + "-";
    for (std::string const& name : folders_of(job_.run, deleting_prefix)) clean(job_.run + "/" + name);
    for (std::string const& name : folders_of(job_.run, saving_prefix)) {
      const std::string path = job_.run + "/" + name;
      if (name.starts_with(mine)) {
        clean(path);  // all ranks have done with it
        continue;
      }
      try {
        const locked_folder nobodys(disk_, path, LOCK_EX);
        clean(path);
      } catch (disk_error const& e) {
        if (e.number() != EWOULDBLOCK && is_old(path)) clean(path);  // there are no locks
      }
    }
  }
  /// Whether nothing has come into a folder, or gone from it, for an hour.
  [[nodiscard]] static bool is_old(std::string const& path) noexcept {
    struct stat found{};
    return ::stat(path.c_str(), &found) == 0 && std::time(nullptr) - found.st_mtime > 3600;
  }
  /// The first name of this step that nobody has.
  std::uint64_t give_name(std::uint64_t step) {
    for (std::uint64_t attempt = 1;; ++attempt) {
      const std::string name = job_.run + "/" + name_of_step(step, attempt);
      if (std::filesystem::exists(name)) continue;
      try {
        disk_.rename(job_.folder(), name);
        return attempt;
      } catch (disk_error const& e) {  // another training was faster
        if (e.number() != EEXIST && e.number() != ENOTEMPTY) throw;
      }
    }
  }
  /// The folders that hold new ones; and the run's, which an earlier process may have made and not synced.
  void sync_parents() {
    const std::filesystem::path run = std::filesystem::canonical(job_.run);  // in whose parent its name is
    const std::string parent = run.parent_path().string();
    if (!unsynced_.contains(parent)) {
      try {
        disk_.sync_folder(parent);
      } catch (disk_error const& e) {
        if (e.number() != EACCES) throw;  // it was there, and may not be looked into
      }
    }
    for (auto at = unsynced_.begin(); at != unsynced_.end();) {
      const bool above =
          *at == "/" || run.string().starts_with(*at + "/");  // else another run's, of which this one knows nothing
      if (above) disk_.sync_folder(*at);
      at = above ? unsynced_.erase(at) : std::next(at);
    }
  }
  /// Of this training's own. What is deleted loses its name first, for good: a name is that of a whole checkpoint.
  void delete_old(std::vector<known_checkpoint> const& before) noexcept {
    std::size_t kept = 1;
    for (known_checkpoint const& each : before) {
      try {
        if (each.is.run != job_.run_id(mine_) || kept++ < mine_.keep) continue;
        const std::string away = job_.run + "/" + std::string(deleting_prefix) + job_.session + "-" +
                                 std::filesystem::path(each.path).filename().string();
        disk_.rename(each.path, away);
        disk_.sync_folder(job_.run);
        disk_.remove_folder(away);
      } catch (std::exception const&) {  // the next save tries again
      }
    }
  }

  writer_setting const& mine_;
  save_job const& job_;
  purpose const& purpose_;
  disk& disk_;
  part_writer& own_;
  std::optional<locked_folder> lock_;  // of the folder that is being written
  std::set<std::string> unsynced_;     // folders in which new ones lie, as the system resolves them
};

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
