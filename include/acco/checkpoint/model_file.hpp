// SPDX-License-Identifier: Apache-2.0
// Models that are read from safetensors files, whoever wrote them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/bfloat16.hpp"
#include "acco/checkpoint/disk.hpp"
#include "acco/checkpoint/json.hpp"
#include "acco/checkpoint/sums.hpp"
#include "acco/checkpoint/tensor_header.hpp"
#include "acco/error.hpp"
#include "acco/half.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

static_assert(std::endian::native == std::endian::little, "acco: safetensors files hold little-endian numbers");

/// What the elements of a model's tensors can be read as.
template <class T>
concept model_number = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, half> || std::same_as<T, bfloat16>;

/// A tensor of a model file, in a few words.
struct model_tensor {
  std::string name;
  std::string dtype;  ///< F32, BF16, I64, ...: as safetensors names it
  std::vector<std::uint64_t> shape;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  std::uint64_t begin = 0;  ///< its first byte in the file
  std::size_t file = 0;     ///< which of `model_file::files()`
};

/// A model that lies in a safetensors file, or in several with an index (model.safetensors.index.json). Headers are
/// read and checked when it is constructed; of the tensors, what `read` is asked for. The const members may be called
/// by any threads at once. Nothing is allocated but a small multiple of the headers' sizes, which are compared with the
/// files' first.
class model_file {
 public:
  /// Throws `checkpoint_error` where the file cannot be read, or is not what the format asks for: everything that the
  /// reference reader refuses (lengths, holes, overlap, missing or trailing bytes, shapes that do not match), and what
  /// readers take differently (keys that stand twice, numbers that are not plain integers, unknown keys).
  explicit model_file(std::string path) : path_(std::move(path)) {
    try {
      if (path_.ends_with(".json")) {
        read_index();
      } else {
        open(path_);
      }
      sort();
    } catch (std::bad_alloc const&) {
      throw;
    } catch (checkpoints::disk_error const& e) {
      throw checkpoint_error({}, text("no model can be read from ", path_, ": ", std::string_view(e.what())),
                             text("Give a safetensors file, or an index of some (.json), that this process may read"));
    } catch (std::exception const& e) {
      throw checkpoint_error({}, text("no model can be read from ", path_, ": ", std::string_view(e.what())),
                             text("Write it again with a current version of the program that it is from"));
    }
  }

  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  /// The safetensors files, by path.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> paths;
    paths.reserve(files_.size());
    for (auto const& each : files_) paths.push_back(each.path());
    return paths;
  }
  /// In the order of the data.
  [[nodiscard]] std::span<model_tensor const> tensors() const noexcept { return tensors_; }
  /// Null where there is none of that name.
  [[nodiscard]] model_tensor const* find(std::string_view name) const noexcept {
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                     [this](std::size_t k, std::string_view wanted) { return tensors_[k].name < wanted; });
    return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
  }
  /// What the files say of themselves, `__metadata__`; where several have a key, the first.
  [[nodiscard]] std::map<std::string, std::string, std::less<>> const& about() const noexcept { return about_; }

  /// Elements first, first + 1, ... of a tensor, as many as `to` takes, in its own order (the last extent runs
  /// fastest). F16, BF16, F32 and F64 become any of these; narrower ones are rounded to nearest even. Throws
  /// `checkpoint_error` where there is no such tensor, its elements are of another type, or reading fails;
  /// `usage_error` beyond its end.
  template <model_number T>
  void read(std::string_view name, std::uint64_t first, std::span<T> to) const {
    model_tensor const& from = demand(name, first, to.size());
    if (from.dtype == "F32") return convert<float>(from, first, to);
    if (from.dtype == "F64") return convert<double>(from, first, to);
    if (from.dtype == "BF16") return convert<bfloat16>(from, first, to);
    if (from.dtype == "F16") return convert<half>(from, first, to);
    throw checkpoint_error({},
                           text(files_[from.file].path(), ": tensor '", from.name, "' holds ", from.dtype,
                                ", and what is read as numbers are F16, BF16, F32 and F64"),
                           text("Convert it where it was written"));
  }

 private:
  static constexpr std::uint64_t longest_header = 100'000'000;  // the reference's

  void open(std::string const& path) {
    checkpoints::file_to_read file(path);
    if (file.size() < 8) throw std::runtime_error(path + " has " + std::to_string(file.size()) + " bytes, fewer than 8");
    std::array<std::byte, 8> length{};
    file.read(0, length);
    std::uint64_t size = 0;
    std::memcpy(&size, length.data(), sizeof size);
    if (size > longest_header || size > file.size() - 8) {
      throw std::runtime_error(path + ": its first 8 bytes tell a header of " + std::to_string(size) + " bytes, and " +
                               (size > longest_header ? "the format ends at 100000000"
                                                      : "the file has " + std::to_string(file.size() - 8) + " behind them"));
    }
    std::string header(size, '\0');
    file.read(8, std::as_writable_bytes(std::span(header)));
    checkpoints::tensor_header found;
    try {
      found = checkpoints::tensor_header::read(header, file.size() - 8 - size);
    } catch (std::runtime_error const& e) {
      throw std::runtime_error(path + ": its header is refused: " + e.what());
    }
    tensors_.reserve(tensors_.size() + found.tensors.size());
    for (auto& each : found.tensors) {
      tensors_.push_back({std::move(each.name), std::string(each.of->name), std::move(each.shape), each.elements,
                          each.end - each.begin, 8 + size + each.begin, files_.size()});
    }
    about_.merge(found.about);
    files_.push_back(std::move(file));
  }
  /// {"metadata": {...}, "weight_map": {"a tensor": "its file"}}: files beside the index.
  void read_index() {
    class index_reader final : public checkpoints::json_reader {
     public:
      index_reader() : json_reader(8, numbers::any) {}
      std::map<std::string, std::string> file_of;

     private:
      [[nodiscard]] bool in_map() const { return key_at(1) == "weight_map"; }
      void opened() override {
        if (depth() == 3 && in_map()) throw std::runtime_error("its weight_map has more than names of files");
      }
      void number(std::uint64_t) override { other("a number"); }
      void other(char const* what) override {
        if (in_map()) refuse(std::string(what) + ", not the name of a file");
      }
      void word(std::string& value) override {
        if (!in_map()) return;
        if (depth() != 2 || in_array() || !checkpoints::plain_name(value))
          refuse(checkpoints::in_quotes(value) + ", and no plain name of a file beside it");
        file_of.emplace(key_at(2), value);
      }
    } index;
    {
      checkpoints::file_to_read const file(path_);
      if (file.size() > longest_header)
        throw std::runtime_error("it has " + std::to_string(file.size()) + " bytes: no index has");
      std::string words(file.size(), '\0');
      file.read(0, std::as_writable_bytes(std::span(words)));
      index.read(words);
    }
    const std::string folder = path_.substr(0, path_.find_last_of('/') + 1);
    std::map<std::string, std::size_t> number_of;
    for (auto const& [tensor, file] : index.file_of) {
      if (number_of.emplace(file, files_.size()).second) open(folder + file);
    }
    std::erase_if(tensors_, [&](model_tensor const& each) {
      const auto at = index.file_of.find(each.name);
      return at == index.file_of.end() || number_of.at(at->second) != each.file;
    });
    if (tensors_.size() == index.file_of.size()) return;
    sort();
    for (auto const& [tensor, file] : index.file_of) {
      if (find(tensor) == nullptr)
        throw std::runtime_error("its weight_map says that tensor " + checkpoints::in_quotes(tensor) + " is in " + file +
                                 ", and it is not");
    }
  }
  void sort() {
    by_name_.resize(tensors_.size());
    for (std::size_t k = 0; k < by_name_.size(); ++k) by_name_[k] = k;
    std::sort(by_name_.begin(), by_name_.end(),
              [this](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
  }
  [[nodiscard]] model_tensor const& demand(std::string_view name, std::uint64_t first, std::uint64_t count) const {
    model_tensor const* const found = find(name);
    if (found == nullptr) {
      throw checkpoint_error({}, text(path_, " has no tensor '", name, "'"),
                             text("model_file::tensors() lists what it has; the layout's names must be the file's"));
    }
    if (first > found->elements || count > found->elements - first) {
      throw usage_error({},
                        text("elements ", first, " to ", first + count, " of tensor '", name, "' were asked for, which has ",
                             found->elements, " in ", path_),
                        text("Does the layout have the file's shapes?"));
    }
    return *found;
  }
  template <class From, class T>
  void convert(model_tensor const& tensor, std::uint64_t first, std::span<T> to) const {
    checkpoints::file_to_read const& file = files_[tensor.file];
    const auto get = [&](std::uint64_t element, std::span<std::byte> bytes) {
      try {
        file.read(tensor.begin + element * sizeof(From), bytes);
      } catch (std::exception const& e) {
        throw checkpoint_error({}, text("tensor '", tensor.name, "' could not be read: ", std::string_view(e.what())),
                               text("Was the file changed or replaced while it was open?"));
      }
    };
    if constexpr (std::same_as<From, T>) {
      get(first, std::as_writable_bytes(to));
    } else {
      std::array<From, 8192> chunk;
      while (!to.empty()) {
        const std::span<From> some = std::span(chunk).first(std::min(to.size(), chunk.size()));
        get(first, std::as_writable_bytes(some));
        std::transform(some.begin(), some.end(), to.begin(), [](From value) {
          if constexpr (std::same_as<From, double>)
            return static_cast<T>(value);
          else
            return static_cast<T>(static_cast<float>(value));
        });
        first += some.size();
        to = to.subspan(some.size());
      }
    }
  }

  std::string path_;
  std::vector<checkpoints::file_to_read> files_;
  std::vector<model_tensor> tensors_;
  std::vector<std::size_t> by_name_;
  std::map<std::string, std::string, std::less<>> about_;
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
