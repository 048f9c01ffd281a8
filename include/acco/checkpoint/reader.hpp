// SPDX-License-Identifier: Apache-2.0
// A state that comes back from the files of a checkpoint.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "acco/checkpoint/folder.hpp"
#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/plan.hpp"
#include "acco/checkpoint/sums.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/round/state_copy.hpp"
#include "acco/round/state_keeper.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// One tensor file, of which any stretch can be read: whole chunks are, and are checked, one at a time is kept.
class chunked_tensors {
 public:
  /// Throws where the file is not the one that the manifest and the layout say.
  chunked_tensors(std::string const& checkpoint, manifest const& m, tensor_file expected)
      : expected_(std::move(expected)), record_(record_of(m, expected_.name)), file_(checkpoint, record_) {
    const std::vector<std::byte> header = file_.header();
    if (header.size() != expected_.header.size() || std::memcmp(header.data(), expected_.header.data(), header.size()) != 0) {
      throw std::runtime_error(checkpoint + "/" + expected_.name +
                               ": its header names other tensors, or another run or step, than its manifest");
    }
  }
  void expect(std::uint64_t at, std::uint64_t bytes) const noexcept { file_.expect(at, bytes); }
  void read(std::uint64_t at, std::span<std::byte> to) {
    while (!to.empty()) {
      const std::uint64_t index = at / chunk_bytes, in_chunk = at % chunk_bytes;
      const std::size_t size = file_.size_of_chunk(index), count = std::min<std::size_t>(to.size(), size - in_chunk);
      const auto tensor_at = [this](std::uint64_t byte) { return expected_.tensor_at(byte); };
      if (count == size) {  // all of it: it needs no place of its own
        file_.chunk(index, to.first(count), tensor_at);
      } else {
        if (index != kept_) {
          kept_ = none;
          chunk_.resize(size);
          file_.chunk(index, chunk_, tensor_at);
          kept_ = index;
        }
        std::memcpy(to.data(), chunk_.data() + in_chunk, count);
      }
      at += count;
      to = to.subspan(count);
    }
  }

 private:
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  static file_record const& record_of(manifest const& m, std::string const& name) {
    file_record const* const found = m.find(name);
    if (found == nullptr) throw std::runtime_error("the manifest names no " + name);
    return *found;
  }
  tensor_file expected_;
  file_record const& record_;
  checked_file file_;
  std::vector<std::byte> chunk_;
  std::uint64_t kept_ = none;
};

/// `m` must outlive it.
class reader final : public state_source {
 public:
  reader(std::string checkpoint, manifest const& m, parameter_layout const& layout, int rank)
      : path_(std::move(checkpoint)), manifest_(m), layout_(layout), numbers_(m.numbers) {
    const auto own = static_cast<std::size_t>(rank);
    if (own < m.ranks.size()) {
      numbers_.micro_batches = m.ranks[own].micro_batches;
      numbers_.bytes_sent = m.ranks[own].bytes_sent;
      numbers_.habits = m.ranks[own].habits;
    }
    rule_ = value_of(m.construction, "rule");
    if (value_of(m.construction, "options.loss_scale.initial").empty()) numbers_.computing_scale = numbers_.next_scale = 0;
    arrays_.resize(m.shape.arrays());
  }
  /// This rank's numbers of its own count only where the ranks are as many as then.
  void forget_rank() noexcept {
    numbers_.micro_batches = numbers_.bytes_sent = 0;
    numbers_.habits = {};
  }

  [[nodiscard]] run_numbers const& numbers() const noexcept override { return numbers_; }
  [[nodiscard]] bool has(std::size_t array) const noexcept override {
    return manifest_.find(file_of_array(array, manifest_.shape, rule_)) != nullptr;
  }
  void expect(std::size_t array, std::size_t first, std::size_t count) override {
    const std::size_t size = size_of(manifest_.shape.type(array));
    file_of(array).expect(first * size, count * size);
  }
  void read(std::size_t array, std::size_t first, std::size_t count, std::byte* to) override {
    const std::size_t size = size_of(manifest_.shape.type(array));
    file_of(array).read(first * size, {to, count * size});
  }
  void read_frozen(std::size_t tensor, std::byte* to) override {
    if (!frozen_)
      frozen_ = std::make_unique<chunked_tensors>(path_, manifest_,
                                                  file_for_frozen(manifest_.shape, layout_, manifest_.run, numbers_.steps()));
    const std::size_t size = size_of(manifest_.shape.parameter);
    std::uint64_t at = 0;
    for (std::size_t k = 0; k < tensor; ++k) at += layout_.groups()[layout_[k].group].frozen ? layout_[k].size * size : 0;
    frozen_->read(at, {to, layout_[tensor].size * size});
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
  [[nodiscard]] chunked_tensors& file_of(std::size_t array) {
    std::unique_ptr<chunked_tensors>& file = arrays_[array];
    if (!file)
      file = std::make_unique<chunked_tensors>(path_, manifest_,
                                               file_for(array, manifest_.shape, rule_, layout_, manifest_.run, numbers_.steps()));
    return *file;
  }

  std::string path_;
  manifest const& manifest_;
  parameter_layout const& layout_;
  run_numbers numbers_;
  std::string rule_;
  std::vector<std::unique_ptr<chunked_tensors>> arrays_;
  std::unique_ptr<chunked_tensors> frozen_;
};

}  // namespace ACCO_NAMESPACE::checkpoints
