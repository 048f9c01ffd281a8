// SPDX-License-Identifier: Apache-2.0
// A state that comes back from the files of a checkpoint.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "acco/bfloat16.hpp"
#include "acco/checkpoint/folder.hpp"
#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/plan.hpp"
#include "acco/checkpoint/share_edges.hpp"
#include "acco/checkpoint/sums.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/half.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// One tensor file, of which any range can be read, each byte once: into place, and summed while it is in the cache.
/// A chunk that is read whole is checked at once; of others the sums are kept, and `check` has the last word.
class chunked_tensors {
 public:
  /// Throws where the file is not the one that the manifest and the layout say.
  chunked_tensors(std::string const& checkpoint, manifest const& m, tensor_file expected)
      : expected_(std::move(expected)), record_(record_of(m, expected_.name)), file_(checkpoint, record_) {
    if (record_.bytes != expected_.bytes())
      throw std::runtime_error(checkpoint + "/" + expected_.name + ": its tensors take " + std::to_string(expected_.bytes()) +
                               " bytes, and the manifest says " + std::to_string(record_.bytes));
    const std::vector<std::byte> header = file_.header();
    if (header.size() != expected_.header.size() || std::memcmp(header.data(), expected_.header.data(), header.size()) != 0) {
      throw std::runtime_error(checkpoint + "/" + expected_.name +
                               ": its header names other tensors, or another run or step, than its manifest");
    }
  }
  void expect(std::uint64_t at, std::uint64_t bytes) const noexcept { file_.expect(at, bytes); }
  void read(std::uint64_t at, std::span<std::byte> to) {
    const auto tensor_at = [this](std::uint64_t byte) { return expected_.tensor_at(byte); };
    while (!to.empty()) {
      const std::uint64_t index = at / chunk_bytes, in_chunk = at % chunk_bytes;
      const std::size_t size = file_.size_of_chunk(index), count = std::min<std::size_t>(to.size(), size - in_chunk);
      if (count == size) {
        file_.chunk(index, to.first(count), tensor_at);
      } else {
        read_blocks(at, to.first(count), partial_.chunks[index]);
      }
      at += count;
      to = to.subspan(count);
    }
  }
  /// The same, of chunks that are read whole, and checked at once, whoever else reads them.
  void read_alone(std::uint64_t at, std::span<std::byte> to) {
    while (!to.empty()) {
      const std::uint64_t index = at / chunk_bytes, in_chunk = at % chunk_bytes;
      if (index != whole_at_) {
        whole_at_ = none;
        whole_.resize(file_.size_of_chunk(index));
        file_.chunk(index, whole_, [this](std::uint64_t byte) { return expected_.tensor_at(byte); });
        whole_at_ = index;
      }
      const std::size_t count = std::min<std::size_t>(to.size(), whole_.size() - in_chunk);
      std::memcpy(to.data(), whole_.data() + in_chunk, count);
      at += count;
      to = to.subspan(count);
    }
  }
  [[nodiscard]] partial_sums const& partial() const noexcept { return partial_; }
  /// When all has been read: throws where a chunk of which this rank has read a part is damaged. `summed` has what the
  /// ranks' parts of the chunks and blocks at `edges` come to; of other chunks this rank has read all parts.
  void check(share_edges const& edges, double const* summed) const {
    const auto tensor_at = [this](std::uint64_t byte) { return expected_.tensor_at(byte); };
    const auto word = [&](std::size_t k) { return sum_words::read(summed + k * sum_words::count); };
    for (std::size_t k = 0; k < edges.blocks.size(); ++k) {
      const auto mine = partial_.continued.find(edges.blocks[k]);
      if (mine != partial_.continued.end() && mine->second != word(edges.chunks.size() + k))
        file_.damaged(edges.blocks[k] / blocks_of_a_chunk, tensor_at);
    }
    for (auto const& [index, sum] : partial_.chunks) {
      const auto shared = std::lower_bound(edges.chunks.begin(), edges.chunks.end(), index);
      const bool is_shared = shared != edges.chunks.end() && *shared == index;
      file_.demand(index, is_shared ? word(static_cast<std::size_t>(shared - edges.chunks.begin())) : sum, tensor_at);
    }
  }

 private:
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  static file_record const& record_of(manifest const& m, std::string const& name) {
    file_record const* const found = m.find(name);
    if (found == nullptr) throw std::runtime_error("the manifest names no " + name);
    return *found;
  }
  /// A part of a chunk: the blocks that lie in it, and those of which it has an end, by way of `block_`.
  void read_blocks(std::uint64_t at, std::span<std::byte> to, std::uint64_t& sum) {
    while (!to.empty()) {
      const std::uint64_t block = at / block_bytes, in_block = at % block_bytes;
      const std::size_t size = std::min(block_bytes, file_.data() - block * block_bytes);
      std::size_t count = std::min<std::size_t>(to.size(), size - in_block);
      if (count == size) {
        count = at + to.size() == file_.data() ? to.size() : to.size() / block_bytes * block_bytes;
        file_.read(at, to.first(count));
        sum += sum_of_blocks(to.first(count), block);
      } else {
        if (block != kept_) {
          kept_ = none;
          block_.resize(size);
          file_.read(block * block_bytes, block_);
          kept_sum_ = sum_of(block_, block);
          kept_ = block;
        }
        (in_block == 0 ? partial_.begun : partial_.continued)[block] = kept_sum_;
        if (in_block == 0) sum += kept_sum_;
        std::memcpy(to.data(), block_.data() + in_block, count);
      }
      at += count;
      to = to.subspan(count);
    }
  }

  tensor_file expected_;
  file_record const& record_;
  checked_file file_;
  partial_sums partial_;
  std::vector<std::byte> block_;
  std::uint64_t kept_ = none, kept_sum_ = 0;  // which block that is
  std::vector<std::byte> whole_;              // a chunk
  std::uint64_t whole_at_ = none;
};

/// visit(a number of the type).
template <class Visit>
void with_type(element_type type, Visit&& visit) {
  switch (type) {
    case element_type::float32: return visit(float{});
    case element_type::float64: return visit(double{});
    case element_type::bfloat16: return visit(bfloat16{});
    case element_type::float16: return visit(half{});
  }
}

/// `m` and `mine` must outlive it.
class reader final : public state_source {
 public:
  /// `mine`: the arrays of the training that reads; `shares`: of the ranks that read now, each its own.
  reader(std::string checkpoint, manifest const& m, parameter_layout const& layout, state_shape const& mine, partition shares,
         int rank)
      : path_(std::move(checkpoint)),
        manifest_(m),
        layout_(layout),
        mine_(mine),
        shares_(shares),
        rank_(static_cast<std::size_t>(rank)),
        numbers_(m.numbers) {
    own_ = own_level_ = rank_ % m.ranks.size();
    if (level() != nullptr) check_alone();
    if (rank_ < m.ranks.size()) {
      numbers_.micro_batches = m.ranks[rank_].micro_batches;
      numbers_.bytes_sent = m.ranks[rank_].bytes_sent;
    }
    arrays_.resize(mine_.arrays());
  }
  /// This rank's numbers of its own count only where the ranks are as many as then.
  void forget_rank() noexcept {
    numbers_.micro_batches = numbers_.bytes_sent = 0;
    own_level_ = 0;
  }

  /// What the ranks read are not their shares: each checks by itself what it reads.
  void check_alone() noexcept { alone_ = true; }

  [[nodiscard]] run_numbers const& numbers() const noexcept override { return numbers_; }
  [[nodiscard]] level_numbers const* level() const noexcept override {
    auto const& found = manifest_.ranks[own_level_].level;
    return found ? &*found : nullptr;
  }
  void read_of_level(std::string const& array, element_type type, std::size_t first, std::size_t count, std::byte* to) override {
    std::unique_ptr<chunked_tensors>& file = level_[array];
    if (!file)
      file = std::make_unique<chunked_tensors>(path_, manifest_, file_for(array, type, layout_, manifest_.run, numbers_.steps()));
    file->read_alone(first * size_of(type), {to, count * size_of(type)});
  }
  [[nodiscard]] bool has_of_level(std::string const& array) const noexcept override {
    return manifest_.find(array + tensors_end) != nullptr;
  }
  [[nodiscard]] bool has(std::size_t array) const noexcept override {
    const std::size_t then = number_of_then(array);
    if (then >= manifest_.shape.arrays()) return false;
    return mine_.extent(array) == array_extent::whole || manifest_.find(manifest_.shape.name(then) + tensors_end) != nullptr;
  }
  void expect(std::size_t array, std::size_t first, std::size_t count) override {
    const std::size_t size = size_of(manifest_.shape.type(number_of_then(array)));
    for (auto const& each : files_of(array)) each->expect(first * size, count * size);
  }
  void read(std::size_t array, std::size_t first, std::size_t count, std::byte* to) override {
    if (mine_.extent(array) == array_extent::whole) return read_whole(array, first, count, to);
    const std::size_t size = size_of(manifest_.shape.type(number_of_then(array)));
    const std::span<std::byte> into(to, count * size);
    chunked_tensors& file = *files_of(array).front();
    alone_ ? file.read_alone(first * size, into) : file.read(first * size, into);
  }
  void read_frozen(std::size_t tensor, std::byte* to) override { read_frozen_of(own_, tensor, to); }
  /// Of what was each rank's own, that of this rank of then.
  void read_frozen_of(std::size_t rank, std::size_t tensor, std::byte* to) {
    const kept_as how = how_kept(layout_, tensor);
    std::unique_ptr<chunked_tensors>& file = frozen_[how == kept_as::own ? rank + 1 : 0];
    if (!file) {
      const std::uint64_t step = numbers_.steps();
      file = std::make_unique<chunked_tensors>(
          path_, manifest_,
          how == kept_as::own ? file_for_own(rank, manifest_.ranks.size(), manifest_.shape, layout_, manifest_.run, step)
                              : file_for_frozen(manifest_.shape, layout_, manifest_.run, step));
    }
    const std::size_t size = size_of(manifest_.shape.parameter);
    std::uint64_t at = 0;
    for (std::size_t k = 0; k < tensor; ++k) at += how_kept(layout_, k) == how ? layout_[k].size * size : 0;
    const std::span<std::byte> into(to, layout_[tensor].size * size);
    alone_ ? file->read_alone(at, into) : file->read(at, into);
  }
  /// When all has been read: what this rank adds to a sum over the ranks, equally many numbers on each. None: nothing
  /// is shared.
  [[nodiscard]] std::vector<double> to_sum() const {
    std::vector<double> numbers;
    for (std::size_t array = 0; array < arrays_.size() && !alone_; ++array) {
      const share_edges edges = edges_of(array);
      const partial_sums mine = arrays_[array].empty() ? partial_sums() : arrays_[array].front()->partial();
      for (const std::uint64_t chunk : edges.chunks) sum_words::append(numbers, mine.chunks, chunk);
      for (const std::uint64_t block : edges.blocks) sum_words::append(numbers, mine.begun, block);
    }
    return numbers;
  }
  /// The sums: throws where a chunk of which this rank has read a part only is damaged.
  void check(std::vector<double> const& summed) const {
    if (alone_) return;
    double const* from = summed.data();
    for (std::size_t array = 0; array < arrays_.size(); ++array) {
      const share_edges edges = edges_of(array);
      if (!arrays_[array].empty()) arrays_[array].front()->check(edges, from);
      from += (edges.chunks.size() + edges.blocks.size()) * sum_words::count;
    }
    for (auto const& [whose, file] : frozen_) file->check({}, nullptr);
  }
  /// A rank's own bytes, as they were then.
  [[nodiscard]] std::vector<std::byte> trainer(std::size_t rank) const {
    file_record const* const record = manifest_.find(trainer_file(rank, manifest_.ranks.size()));
    if (record == nullptr) return {};
    const checked_file file(path_, *record);
    std::vector<std::byte> all, chunk;
    for (std::uint64_t k = 0; k < record->chunks.size(); ++k) {
      chunk.resize(file.size_of_chunk(k));
      file.chunk(k, chunk, [](std::uint64_t) { return ""; });
      all.insert(all.end(), chunk.begin(), chunk.end());
    }
    return all;
  }

 private:
  using opened = std::vector<std::unique_ptr<chunked_tensors>>;

  /// Of an array of mine, the number in the checkpoint; at least `arrays()`: it is not there.
  [[nodiscard]] std::size_t number_of_then(std::size_t array) const noexcept {
    state_shape const& then = manifest_.shape;
    if (array >= mine_.owned()) return then.owned() + (array - mine_.owned());
    const std::size_t found = counterpart(mine_, array, then);
    return found < then.owned() ? found : then.arrays();
  }
  /// A rank's own arrays are read by one rank.
  [[nodiscard]] share_edges edges_of(std::size_t array) const {
    if (mine_.extent(array) == array_extent::whole) return {};
    return share_edges::of(shares_, size_of(mine_.type(array)));
  }
  /// One; of what every rank of then had of its own, those of ranks `rank`, `rank` + ranks, ...
  [[nodiscard]] opened& files_of(std::size_t array) {
    opened& files = arrays_[array];
    if (!files.empty()) return files;
    const std::size_t then = number_of_then(array), ranks = manifest_.ranks.size();
    const auto open = [&](std::string const& name) {
      tensor_file expected = file_for(name, manifest_.shape.type(then), layout_, manifest_.run, numbers_.steps());
      files.push_back(std::make_unique<chunked_tensors>(path_, manifest_, std::move(expected)));
    };
    const std::string name = manifest_.shape.name(then);
    if (mine_.extent(array) == array_extent::shard) {
      open(name);
    } else {
      for (std::size_t rank = rank_; rank < ranks; rank += static_cast<std::size_t>(shares_.ranks()))
        open(name_of_rank(name, rank, ranks));
    }
    return files;
  }
  /// The sum of what these ranks had; 0 where there are none.
  void read_whole(std::size_t array, std::size_t first, std::size_t count, std::byte* to) {
    opened& files = files_of(array);
    const element_type then = manifest_.shape.type(number_of_then(array)), now = mine_.type(array);
    const std::size_t size_then = size_of(then), size_now = size_of(now);
    if (files.size() == 1 && then == now) return files.front()->read_alone(first * size_then, {to, count * size_now});
    std::vector<std::byte> bytes;
    std::vector<double> sums;
    constexpr std::size_t most = chunk_bytes / sizeof(double);
    for (std::size_t n = 0; count != 0; first += n, count -= n, to += n * size_now) {
      n = std::min(count, most);
      sums.assign(n, 0.0);
      bytes.resize(n * size_then);
      for (auto const& each : files) {
        each->read_alone(first * size_then, bytes);
        with_type(then, [&]<class T>(T value) {
          for (std::size_t i = 0; i < n; ++i) {
            std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
            sums[i] += static_cast<double>(value);
          }
        });
      }
      with_type(now, [&]<class T>(T value) {
        for (std::size_t i = 0; i < n; ++i) {
          value = static_cast<T>(sums[i]);
          std::memcpy(to + i * sizeof(T), &value, sizeof(T));
        }
      });
    }
  }

  std::string path_;
  manifest const& manifest_;
  parameter_layout const& layout_;
  state_shape const& mine_;
  partition shares_;
  std::size_t rank_;
  run_numbers numbers_;
  bool alone_ = false;
  std::vector<opened> arrays_;
  std::map<std::string, std::unique_ptr<chunked_tensors>> level_;
  std::size_t own_level_ = 0;
  std::size_t own_ = 0;                                             // the rank of then whose own this one's are now
  std::map<std::size_t, std::unique_ptr<chunked_tensors>> frozen_;  // 0: of all ranks; k + 1: rank k's own
};

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
