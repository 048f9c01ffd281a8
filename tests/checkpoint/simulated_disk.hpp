// SPDX-License-Identifier: Apache-2.0
// A disk that forgets. What ranks do to the real one is recorded, and played back here up to any point, at which the
// power fails: of what was not synced, any part may have arrived (as in Pillai et al., "All File Systems Are Not
// Created Equal", OSDI 2014).
//
// What it supposes: fsync of a file makes durable what the rank that calls it has written into the file, and nothing
// that others have written (ranks may live on different hosts). fsync of a folder makes its entries durable, and only
// those. Entries that are not synced (made, renamed, removed) may each have arrived or not, in any order; a rename is
// one of them. Data arrive in pages of 4096 bytes, of which a part may be torn; a file's size may arrive without them.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>

#include <acco/checkpoint/disk.hpp>
#include <acco/checkpoint/folder.hpp>
#include <acco/checkpoint/sums.hpp>

#include "support/patience.hpp"

namespace simulated {

struct operation {
  enum class kind { make_folder, open, write, grow, sync, rename, remove, reported };
  kind what;
  int rank;
  std::string path, to;    // of what was opened, too
  std::size_t handle = 0;  // of an open file
  std::uint64_t at = 0, bytes = 0;
  std::vector<std::byte> data;
  bool creates = false;
};

/// All that ranks have done, in the order in which they did it. The order is drawn from a seed: a call is made when
/// every rank that has calls to make has come to its next one, and the generator has chosen this one. Which ranks have
/// calls to make follows from what was done: rank 0 makes the folder of a save, then all ranks write until each has
/// named its part, then rank 0 ends.
class trace {
 public:
  trace(int ranks, std::uint64_t seed)
      : random_(seed), writes_(static_cast<std::size_t>(ranks)), waits_(static_cast<std::size_t>(ranks)) {
    writes_[0] = true;
  }
  std::vector<operation> operations;
  std::size_t handles = 0;

  /// A rank's turn to make a call. Nobody else makes one while this lives.
  class turn {
   public:
    turn(trace& in, int rank) : in_(in), rank_(static_cast<std::size_t>(rank)) {
      std::unique_lock lock(in_.mutex_);
      in_.waits_[rank_] = true;
      in_.choose();
      if (!in_.changed_.wait_for(lock, std::chrono::duration<double>(60 * patience()), [&] { return in_.chosen_ == rank_; }))
        throw std::runtime_error("the calls of a save do not come in the order that the trace expects");
      in_.waits_[rank_] = false;
    }
    turn(turn const&) = delete;
    turn& operator=(turn const&) = delete;
    ~turn() {
      const std::lock_guard lock(in_.mutex_);
      in_.chosen_ = nobody;
      in_.choose();
    }

   private:
    trace& in_;
    std::size_t rank_;
  };
  /// Who has calls to make after a rename.
  void renamed(int rank, std::string const& to) {
    const std::string name = std::filesystem::path(to).filename().string();
    const std::lock_guard lock(mutex_);
    if (name.starts_with(acco::checkpoints::saving_prefix)) writes_.assign(writes_.size(), true);
    if (!name.starts_with("part-")) return;
    writes_[static_cast<std::size_t>(rank)] = false;
    if (std::find(writes_.begin(), writes_.end(), true) == writes_.end()) writes_[0] = true;
  }
  /// A checkpoint was reported as durable.
  void reported(std::string const& path) {
    const std::lock_guard lock(mutex_);
    operations.push_back({.what = operation::kind::reported, .rank = 0, .path = path, .to = "", .data = {}});
  }

 private:
  static constexpr std::size_t nobody = ~std::size_t{0};
  void choose() {
    std::vector<std::size_t> ready;
    for (std::size_t rank = 0; rank < writes_.size(); ++rank) {
      if (writes_[rank] && !waits_[rank]) return;
      if (writes_[rank]) ready.push_back(rank);
    }
    if (chosen_ != nobody || ready.empty()) return;
    chosen_ = ready[random_() % ready.size()];
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::vector<bool> writes_, waits_;  // by rank: has calls to make; has come to its next one
  std::size_t chosen_ = nobody;
};

/// The real calls of one rank, recorded.
class recording_calls final : public acco::checkpoints::system_calls {
 public:
  recording_calls(trace& to, int rank) : trace_(to), rank_(rank) {}
  int mkdir(std::string const& path) override {
    const trace::turn mine(trace_, rank_);
    const int result = system_calls::mkdir(path);
    if (result == 0) add({.what = operation::kind::make_folder, .rank = rank_, .path = path, .to = "", .data = {}});
    return result;
  }
  int open(std::string const& path, int flags) override {
    const trace::turn mine(trace_, rank_);
    const int file = system_calls::open(path, flags);
    if (file < 0) return file;
    open_[file] = {trace_.handles++, path};
    add({.what = operation::kind::open,
         .rank = rank_,
         .path = path,
         .to = "",
         .handle = open_[file].first,
         .data = {},
         .creates = (flags & O_CREAT) != 0});
    return file;
  }
  int fallocate(int file, std::uint64_t at, std::uint64_t bytes) override {
    const trace::turn mine(trace_, rank_);
    const int result = system_calls::fallocate(file, at, bytes);
    if (result == 0) add(operation::kind::grow, file, at, bytes);
    return result;
  }
  ssize_t pwrite(int file, std::span<std::byte const> bytes, std::uint64_t at) override {
    const trace::turn mine(trace_, rank_);
    const ssize_t written = system_calls::pwrite(file, bytes, at);
    if (written <= 0) return written;
    add(operation::kind::write, file, at, static_cast<std::uint64_t>(written));
    trace_.operations.back().data.assign(bytes.begin(), bytes.begin() + written);
    return written;
  }
  int fsync(int file) override {
    const trace::turn mine(trace_, rank_);
    add(operation::kind::sync, file, 0, 0);  // that the real disk syncs, too, would only take time
    return 0;
  }
  int close(int file) override {  // changes nothing on the disk
    open_.erase(file);
    return system_calls::close(file);
  }
  int rename(std::string const& from, std::string const& to) override {
    const trace::turn mine(trace_, rank_);
    const int result = system_calls::rename(from, to);
    if (result != 0) return result;
    add({.what = operation::kind::rename, .rank = rank_, .path = from, .to = to, .data = {}});
    trace_.renamed(rank_, to);
    return result;
  }
  int unlink(std::string const& path) override {
    const trace::turn mine(trace_, rank_);
    const int result = system_calls::unlink(path);
    if (result == 0) add({.what = operation::kind::remove, .rank = rank_, .path = path, .to = "", .data = {}});
    return result;
  }
  int rmdir(std::string const& path) override {
    const trace::turn mine(trace_, rank_);
    const int result = system_calls::rmdir(path);
    if (result == 0) add({.what = operation::kind::remove, .rank = rank_, .path = path, .to = "", .data = {}});
    return result;
  }

 private:
  void add(operation each) { trace_.operations.push_back(std::move(each)); }
  void add(operation::kind what, int file, std::uint64_t at, std::uint64_t bytes) {
    auto const& [handle, path] = open_.at(file);
    add({.what = what, .rank = rank_, .path = path, .to = "", .handle = handle, .at = at, .bytes = bytes, .data = {}});
  }
  trace& trace_;
  int rank_;
  std::map<int, std::pair<std::size_t, std::string>> open_;
};

/// What is found after a crash: folders, and files with their bytes, by their paths below the root.
struct image {
  std::map<std::string, std::vector<std::byte>> files;
  std::vector<std::string> folders;

  [[nodiscard]] std::uint64_t hash() const {
    std::uint64_t sum = files.size();
    const auto take = [&](std::span<std::byte const> bytes) { sum = acco::checkpoints::sum_of(bytes, sum); };
    for (std::string const& each : folders) take(std::as_bytes(std::span(each)));
    for (auto const& [path, bytes] : files) {
      take(std::as_bytes(std::span(path)));
      take(bytes);
    }
    return sum;
  }
  void put(std::string const& root) const {
    for (std::string const& each : folders) std::filesystem::create_directories(root + each);
    for (auto const& [path, bytes] : files) {
      std::ofstream(root + path, std::ios::binary)
          .write(reinterpret_cast<char const*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
};

/// What has come of a change that was not synced.
enum class fate { lost, arrived, torn, size_only };

class disk {
 public:
  static constexpr std::uint64_t page = 4096;
  explicit disk(std::string root) : root_(std::move(root)) { nodes_.emplace_back().folder = true; }

  /// Returns whether a sync had anything to do.
  bool play(operation const& each, bool leave_out = false) {
    using kind = operation::kind;
    switch (each.what) {
      case kind::make_folder: {
        const std::size_t made = add(true);
        enter(each.path, made);
        return true;
      }
      case kind::open: {
        auto [folder, name] = place(each.path);
        if (name.empty()) {
          handles_[each.handle] = 0;
          return true;
        }
        if (!nodes_[folder].live.contains(name)) {
          if (!each.creates) throw std::logic_error("the trace opens what is not there: " + each.path);
          const std::size_t made = add(false);
          enter(each.path, made);
        }
        handles_[each.handle] = nodes_[folder].live.at(name);
        return true;
      }
      case kind::grow: {
        node& file = nodes_[handles_.at(each.handle)];
        file.pending.push_back({each.rank, 0, {}, each.at + each.bytes});
        return true;
      }
      case kind::write: {
        node& file = nodes_[handles_.at(each.handle)];
        for (std::uint64_t at = 0; at < each.bytes;) {
          const std::uint64_t count = std::min(each.bytes - at, page - (each.at + at) % page);
          const auto begin = each.data.begin() + static_cast<std::ptrdiff_t>(at);
          file.pending.push_back(
              {each.rank, each.at + at, {begin, begin + static_cast<std::ptrdiff_t>(count)}, each.at + at + count});
          at += count;
        }
        return true;
      }
      case kind::sync: {
        node& one = nodes_[handles_.at(each.handle)];
        const bool needed = one.folder ? !one.changes.empty()
                                       : std::any_of(one.pending.begin(), one.pending.end(),
                                                     [&](piece const& p) { return p.rank == each.rank && !p.data.empty(); });
        if (leave_out) return needed;
        for (change const& c : one.changes) apply(one.durable, c);
        one.changes.clear();
        std::vector<piece> others;
        for (piece& p : one.pending) {
          if (p.rank == each.rank) {
            apply(one.bytes, p, fate::arrived, 0);
          } else {
            others.push_back(std::move(p));
          }
        }
        one.pending = std::move(others);
        return needed;
      }
      case kind::rename: {
        auto [folder, name] = place(each.path);
        auto [to_folder, to] = place(each.to);
        if (folder != to_folder) throw std::logic_error("a rename into another folder is not simulated");
        record(folder, {name, to, nodes_[folder].live.at(name)});
        return true;
      }
      case kind::remove: {
        auto [folder, name] = place(each.path);
        record(folder, {name, "", 0});
        return true;
      }
      case kind::reported: return true;
    }
    return true;
  }

  /// A place where something is not durable: entries of a folder, or a rank's bytes in a file; and how much.
  struct spot {
    std::size_t node;
    int rank;
    std::size_t changes;
  };
  /// What a sync that is played next makes durable.
  [[nodiscard]] spot covered(operation const& sync) const {
    const std::size_t of = handles_.at(sync.handle);
    node const& one = nodes_[of];
    if (one.folder) return {of, -1, one.changes.size()};
    const auto mine = [&](piece const& p) { return p.rank == sync.rank; };
    return {of, sync.rank, static_cast<std::size_t>(std::count_if(one.pending.begin(), one.pending.end(), mine))};
  }
  [[nodiscard]] std::vector<spot> pending() const {
    std::vector<spot> found;
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      if (!nodes_[k].changes.empty()) found.push_back({k, -1, nodes_[k].changes.size()});
      std::map<int, std::size_t> ranks;
      for (piece const& p : nodes_[k].pending) ++ranks[p.rank];
      for (auto const& [rank, count] : ranks) found.push_back({k, rank, count});
    }
    return found;
  }
  /// What is found; `choose(spot, index in it)` says what has become of each change.
  [[nodiscard]] image crash(std::function<fate(std::size_t node, int rank, std::size_t index)> const& choose,
                            std::mt19937_64& random) const {
    image found;
    show(0, "", found, choose, random);
    return found;
  }

 private:
  struct piece {
    int rank;
    std::uint64_t at;
    std::vector<std::byte> data;
    std::uint64_t size;  // that the file has at least
  };
  struct change {
    std::string removed, added;
    std::size_t node;
  };
  using entries = std::map<std::string, std::size_t>;
  struct node {
    bool folder = false;
    entries live, durable;
    std::vector<change> changes;
    std::vector<std::byte> bytes;  // durable ones
    std::vector<piece> pending;
  };

  static void apply(entries& to, change const& c) {
    if (!c.removed.empty()) to.erase(c.removed);
    if (!c.added.empty()) to[c.added] = c.node;
  }
  static void apply(std::vector<std::byte>& bytes, piece const& p, fate what, std::uint64_t torn_at) {
    if (bytes.size() < p.size) bytes.resize(p.size);
    if (what == fate::size_only || p.data.empty()) return;
    const std::uint64_t count =
        what == fate::torn ? std::min<std::uint64_t>(p.data.size(), torn_at % page / 512 * 512) : p.data.size();
    if (count != 0) std::memcpy(bytes.data() + p.at, p.data.data(), count);
  }
  std::size_t add(bool folder) {
    nodes_.emplace_back().folder = folder;
    return nodes_.size() - 1;
  }
  void record(std::size_t folder, change const& c) {
    apply(nodes_[folder].live, c);
    nodes_[folder].changes.push_back(c);
  }
  void enter(std::string const& path, std::size_t made) {
    auto [folder, name] = place(path);
    record(folder, {"", name, made});
  }
  /// The folder that a path lies in, and the name there; the root has none.
  [[nodiscard]] std::pair<std::size_t, std::string> place(std::string const& path) const {
    if (path == root_) return {0, ""};
    if (!path.starts_with(root_ + "/")) throw std::logic_error(path + " is not below " + root_);
    std::size_t folder = 0;
    for (std::size_t at = root_.size() + 1;;) {
      const std::size_t end = path.find('/', at);
      if (end == std::string::npos) return {folder, path.substr(at)};
      folder = nodes_[folder].live.at(path.substr(at, end - at));
      at = end + 1;
    }
  }
  void show(std::size_t folder, std::string const& path, image& found,
            std::function<fate(std::size_t, int, std::size_t)> const& choose, std::mt19937_64& random) const {
    entries here = nodes_[folder].durable;
    for (std::size_t k = 0; k < nodes_[folder].changes.size(); ++k) {
      if (choose(folder, -1, k) != fate::lost) apply(here, nodes_[folder].changes[k]);
    }
    for (auto const& [name, number] : here) {
      node const& each = nodes_[number];
      if (each.folder) {
        found.folders.push_back(path + "/" + name);
        show(number, path + "/" + name, found, choose, random);
        continue;
      }
      std::vector<std::byte> bytes = each.bytes;
      std::map<int, std::size_t> index;
      for (piece const& p : each.pending) {
        const fate what = choose(number, p.rank, index[p.rank]++);
        if (what != fate::lost) apply(bytes, p, what, random());
      }
      found.files[path + "/" + name] = std::move(bytes);
    }
  }

  std::string root_;
  std::vector<node> nodes_;
  std::map<std::size_t, std::size_t> handles_;
};

}  // namespace simulated
