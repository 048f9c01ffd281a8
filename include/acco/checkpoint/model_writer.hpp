// SPDX-License-Identifier: Apache-2.0
// Models written as safetensors files that every such reader takes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "acco/checkpoint/disk.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/checkpoint/tensor_header.hpp"
#include "acco/error.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// A tensor that is to be written.
struct tensor_to_write {
  std::string name;
  std::vector<std::uint64_t> shape;
  element_type type = element_type::float32;
};

/// Writes a model file: its tensors' elements come chunk by chunk, in the order of the tensors, without anything
/// between. The data begins at a multiple of 4096. Until `commit` the file is a neighbour whose name begins with a dot,
/// and `path` is what it was; then `path` is the new file, which a crash of the machine does not take away. Without
/// `commit` nothing remains. One thread at a time. Throws `checkpoint_error` where the disk fails; then the file is
/// given up.
class model_writer {
 public:
  /// `about` becomes `__metadata__`. Throws `usage_error` where the names are no safetensors names (they must be UTF-8,
  /// each once, and not `__metadata__`), or a tensor of wide elements would not be aligned: wider types come first.
  explicit model_writer(std::string const& path, std::vector<tensor_to_write> const& tensors,
                        std::vector<std::pair<std::string, std::string>> const& about = {},
                        checkpoints::system_calls* by = nullptr)
      : path_(std::filesystem::absolute(path).string()), disk_(by != nullptr ? *by : checkpoints::real_calls()) {
    std::vector<checkpoints::tensor_entry> entries;
    std::string problem;
    std::map<std::string_view, int> names;
    for (tensor_to_write const& each : tensors) {
      checkpoints::tensor_entry entry{each.name, each.type, each.shape, 1};
      constexpr std::uint64_t most = std::uint64_t{1} << 58U;
      for (const std::uint64_t extent : each.shape) {
        if (extent != 0 && entry.elements > most / extent) problem = "has too many elements";
        entry.elements *= extent;
      }
      if (each.name == "__metadata__" || ++names[each.name] != 1) problem = "has a name that is taken";
      if (data_ % size_of(each.type) != 0) problem = "would not be aligned: tensors of wider elements come first";
      data_ += entry.bytes();
      if (!problem.empty())
        throw usage_error({}, text("tensor '", each.name, "' cannot be written: it ", problem),
                          text("Nothing was written to ", path_));
      entries.push_back(std::move(entry));
    }
    try {
      header_ = checkpoints::header_of(entries, about);
    } catch (nlohmann::json::exception const&) {
      throw usage_error({}, text("a tensor's name, or what is told about a model, is not UTF-8"),
                        text("Nothing was written to ", path_));
    }
    guarded([&] {
      folder_ = std::filesystem::path(path_).parent_path().string();
      const std::string name = "." + std::filesystem::path(path_).filename().string() + ".writing-";
      remove_leftovers(name);
      static std::atomic<unsigned> count = 0;
      new_ = folder_ + "/" + name + std::to_string(::getpid()) + "-" + std::to_string(count++);
      file_ = std::make_unique<checkpoints::file_to_write>(disk_, new_);
      file_->reserve(0, header_.size() + data_);
      file_->write(0, std::as_bytes(std::span(header_)));
    });
  }
  model_writer(model_writer const&) = delete;
  model_writer& operator=(model_writer const&) = delete;
  ~model_writer() { give_up(); }

  /// Bytes of elements that are still to come.
  [[nodiscard]] std::uint64_t missing() const noexcept { return data_ - written_; }
  /// The next bytes of the elements, any number of them.
  void append(std::span<std::byte const> bytes) {
    if (bytes.size() > missing() || file_ == nullptr) {
      throw usage_error({}, text(bytes.size(), " bytes more were given for ", path_, ", and its tensors take ", missing()),
                        text("Give the elements of all tensors once, in their order"));
    }
    guarded([&] { file_->write(header_.size() + written_, bytes); });
    written_ += bytes.size();
  }
  /// The file is there, and durable. To be called once, after the last `append`.
  void commit() {
    if (missing() != 0 || file_ == nullptr) {
      throw usage_error({}, text("commit of ", path_, ", and ", missing(), " bytes of its tensors have not been given"),
                        text("Give the elements of all tensors once, in their order"));
    }
    guarded([&] {
      file_->sync_and_close();
      file_.reset();
      disk_.rename(new_, path_);
      new_.clear();
      disk_.sync_folder(folder_);
    });
  }

 private:
  template <class Call>
  void guarded(Call&& call) {
    try {
      call();
    } catch (std::bad_alloc const&) {
      give_up();
      throw;
    } catch (std::exception const& e) {
      give_up();
      throw checkpoint_error({}, text("the model could not be written to ", path_, ": ", std::string_view(e.what())),
                             text("What was there before is as it was, unless only the last sync failed"));
    }
  }
  void give_up() noexcept {
    file_.reset();
    if (new_.empty()) return;
    try {
      disk_.remove_file(new_);
    } catch (std::exception const&) {  // it was not even created, or the next writer removes it
    }
    new_.clear();
  }
  /// Of writers that were killed.
  void remove_leftovers(std::string const& name) {
    std::error_code failed;
    for (std::filesystem::directory_iterator at(folder_, failed), end; !failed && at != end; at.increment(failed)) {
      if (at->path().filename().string().starts_with(name)) disk_.remove_file(at->path().string());
    }
  }

  std::string path_, folder_, new_, header_;
  checkpoints::disk disk_;
  std::unique_ptr<checkpoints::file_to_write> file_;
  std::uint64_t data_ = 0, written_ = 0;
};

/// Writes a model file at once: `bytes_of(tensor, first byte)` gives the next bytes of tensor number `tensor`, as a
/// contiguous range of any size but 0, until it is whole. Throws what `model_writer` throws, and what `bytes_of`
/// throws; then `path` is as it was.
template <class Bytes>
void write_model(std::string const& path, std::vector<tensor_to_write> const& tensors, Bytes&& bytes_of,
                 std::vector<std::pair<std::string, std::string>> const& about = {}) {
  model_writer writer(path, tensors, about);
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    std::uint64_t bytes = size_of(tensors[k].type);
    for (const std::uint64_t extent : tensors[k].shape) bytes *= extent;
    for (std::uint64_t at = 0; at < bytes;) {
      auto const& given = bytes_of(k, at);
      const auto chunk = std::as_bytes(std::span(given));
      if (chunk.empty() || chunk.size() > bytes - at) {
        throw usage_error({},
                          text("bytes_of gave ", chunk.size(), " bytes of tensor '", tensors[k].name, "', of which ", bytes - at,
                               " are missing"),
                          text("Give at least one byte, and none beyond the tensor's end"));
      }
      writer.append(chunk);
      at += chunk.size();
    }
  }
  writer.commit();
}

}  // namespace ACCO_NAMESPACE
