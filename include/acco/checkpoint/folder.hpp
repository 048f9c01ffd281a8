// SPDX-License-Identifier: Apache-2.0
// The folder of a run, its checkpoints, and whether they are whole: without a world, and without an optimizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "acco/checkpoint/disk.hpp"
#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/sums.hpp"
#include "acco/checkpoint/tensor_header.hpp"
#include "acco/error.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

inline constexpr std::string_view manifest_name = "manifest.json";
inline constexpr std::string_view saving_prefix = ".saving-", deleting_prefix = ".deleting-";

/// step-00000012345, or step-00000012345.2 where that name was taken.
[[nodiscard]] inline std::string name_of_step(std::uint64_t step, std::uint64_t attempt) {
  char name[64];
  std::snprintf(name, sizeof name, "step-%011llu", static_cast<unsigned long long>(step));
  return attempt <= 1 ? std::string(name) : std::string(name) + "." + std::to_string(attempt);
}

/// A path from the root that leads where this one leads now, without a slash at its end. Its `..` stay: where these
/// lead behind a link, only the system knows. Throws std::filesystem::filesystem_error where there is none.
[[nodiscard]] inline std::string plain_path(std::string_view path) {
  std::filesystem::path plain;
  for (auto const& each : std::filesystem::absolute(path)) {
    if (!each.empty() && each != ".") plain /= each;
  }
  return plain.string();
}

/// The manifest of a checkpoint; throws with what is wrong, the file's name first.
[[nodiscard]] inline manifest manifest_of(std::string const& checkpoint) {
  const std::string path = checkpoint + "/" + std::string(manifest_name);
  const std::vector<std::byte> bytes = read_file(path);
  try {
    return read_manifest({reinterpret_cast<char const*>(bytes.data()), bytes.size()});
  } catch (std::exception const& e) {
    throw std::runtime_error(path + ": " + e.what());
  }
}

/// The names of the folders in a run's that begin so; none where there is no such folder. Throws `disk_error` where it
/// is there and cannot be listed.
[[nodiscard]] inline std::vector<std::string> folders_of(std::string const& run, std::string_view prefix) {
  std::vector<std::string> found;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(run, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    std::error_code unknown;
    if (name.starts_with(prefix) && at->is_directory(unknown)) found.push_back(name);
  }
  if (failed && failed != std::errc::no_such_file_or_directory) throw disk_error("opendir", run, failed.value());
  std::sort(found.begin(), found.end());
  return found;
}

/// Those of checkpoints, whole or not; none where they cannot be listed.
[[nodiscard]] inline std::vector<std::string> names_in(std::string const& run) {
  try {
    return folders_of(run, "step-");
  } catch (disk_error const&) {
    return {};
  }
}

/// A checkpoint that has a manifest.
struct known_checkpoint {
  std::string path;
  manifest is;
};
/// Those in the folder of a run, the newest first; what cannot be read is told to `skipped`.
[[nodiscard]] inline std::vector<known_checkpoint> known_checkpoints(std::string const& run,
                                                                     std::vector<std::string>* skipped = nullptr) {
  std::vector<known_checkpoint> found;
  for (std::string const& name : folders_of(run, "step-")) {
    try {
      std::string path = run;
      path.append("/").append(name);
      manifest m = manifest_of(path);
      found.push_back({std::move(path), std::move(m)});
    } catch (std::exception const& e) {
      if (skipped != nullptr) skipped->emplace_back(e.what());
    }
  }
  std::sort(found.begin(), found.end(), [](known_checkpoint const& a, known_checkpoint const& b) {
    return std::tie(a.is.sequence, a.path) > std::tie(b.is.sequence, b.path);
  });
  return found;
}

/// A data file. Whole chunks are checked against their sums as they are read: throws with the file's name, the chunk,
/// and what lies there. Who reads less sums himself, and has `demand` check.
class checked_file {
 public:
  /// `tensor_at(byte of the data)`: the name of the tensor there, for messages.
  checked_file(std::string const& checkpoint, file_record const& record)
      : file_(checkpoint + "/" + record.name), record_(record) {
    if (file_.size() != record.bytes) {
      throw std::runtime_error(file_.path() + " has " + std::to_string(file_.size()) + " bytes, and the manifest says " +
                               std::to_string(record.bytes));
    }
  }
  /// Throws where the bytes before the data are not those that were written; returns them.
  std::vector<std::byte> header() const {
    std::vector<std::byte> bytes(record_.data);
    file_.read(0, bytes);
    if (sum_of(bytes) != record_.header) throw std::runtime_error(file_.path() + ": its header is damaged");
    return bytes;
  }
  [[nodiscard]] std::uint64_t data() const noexcept { return record_.bytes - record_.data; }
  /// That these bytes of the data will be read soon.
  void expect(std::uint64_t at, std::uint64_t bytes) const noexcept { file_.expect(record_.data + at, bytes); }
  [[nodiscard]] std::size_t size_of_chunk(std::uint64_t index) const noexcept {
    return std::min(chunk_bytes, data() - index * chunk_bytes);
  }
  /// A chunk of the data, into `to`, which has its size.
  template <class TensorAt>
  void chunk(std::uint64_t index, std::span<std::byte> to, TensorAt&& tensor_at) const {
    read(index * chunk_bytes, to);
    demand(index, sum_of_blocks(to, index * blocks_of_a_chunk), tensor_at);
  }
  /// Some of the data, which is not checked here.
  void read(std::uint64_t at, std::span<std::byte> to) const { file_.read(record_.data + at, to); }
  /// Throws where this is not a chunk's sum.
  template <class TensorAt>
  void demand(std::uint64_t index, std::uint64_t sum, TensorAt&& tensor_at) const {
    if (sum == record_.chunks[index]) return;
    damaged(index, tensor_at);
  }
  template <class TensorAt>
  [[noreturn]] void damaged(std::uint64_t index, TensorAt&& tensor_at) const {
    const std::uint64_t begin = index * chunk_bytes;
    const std::string first(tensor_at(begin)), last(tensor_at(begin + size_of_chunk(index) - 1));
    throw std::runtime_error(file_.path() + ": chunk " + std::to_string(index) + " is damaged" +
                             (first.empty()   ? ""
                              : first == last ? ", in tensor '" + first + "'"
                                              : ", in the tensors '" + first + "' to '" + last + "'"));
  }

 private:
  file_to_read file_;
  file_record const& record_;
};

/// What a file's header says lies at a byte of the data; a file without one has no tensors.
class tensor_index {
 public:
  /// Throws std::runtime_error where it is no header of so many bytes of data.
  tensor_index(std::span<std::byte const> header, std::uint64_t data) {
    if (header.empty()) return;
    if (header.size() < 8) throw std::runtime_error("its header has fewer than 8 bytes");
    tensors_ = tensor_header::read({reinterpret_cast<char const*>(header.data()) + 8, header.size() - 8}, data).tensors;
  }
  [[nodiscard]] std::string operator()(std::uint64_t byte) const {
    const auto at = std::upper_bound(tensors_.begin(), tensors_.end(), byte,
                                     [](std::uint64_t wanted, tensor_header::tensor const& each) { return wanted < each.end; });
    return at == tensors_.end() ? "" : at->name;
  }

 private:
  std::vector<tensor_header::tensor> tensors_;
};

}  // namespace ACCO_NAMESPACE::checkpoints

namespace ACCO_NAMESPACE {

/// What was found wrong with a checkpoint; nothing: it is whole.
struct findings {
  std::vector<std::string> problems;  ///< each names its file, the tensors, and the chunk
  [[nodiscard]] explicit operator bool() const noexcept { return problems.empty(); }
};

/// Reads all of a checkpoint and compares it with its sums. Throws nothing but std::bad_alloc.
[[nodiscard]] inline findings verify_checkpoint(std::string const& path) {
  using namespace checkpoints;
  findings found;
  manifest m;
  try {
    m = manifest_of(path);
  } catch (std::exception const& e) {
    found.problems.emplace_back(e.what());
    return found;
  }
  for (file_record const& record : m.files) {
    try {
      const checked_file file(path, record);
      const std::vector<std::byte> header = file.header();
      const auto tensor_at = [&] {
        try {
          return tensor_index(header, file.data());
        } catch (std::runtime_error const& e) {
          throw std::runtime_error(path + "/" + record.name + ": its header is refused: " + e.what());
        }
      }();
      std::vector<std::byte> bytes;
      for (std::uint64_t k = 0; k < record.chunks.size(); ++k) {
        try {
          bytes.resize(file.size_of_chunk(k));
          file.chunk(k, bytes, tensor_at);
        } catch (std::exception const& e) {
          found.problems.emplace_back(e.what());
        }
      }
    } catch (std::exception const& e) {
      found.problems.emplace_back(e.what());
    }
  }
  return found;
}

/// The checkpoints in the folder of a run that have a manifest, the newest first; what has none that can be read is
/// told to `skipped`. None where there is no such folder: then a run begins. Throws `checkpoint_error` where it is
/// there and cannot be listed.
[[nodiscard]] inline std::vector<std::string> checkpoints_in(std::string const& run,
                                                             std::vector<std::string>* skipped = nullptr) {
  std::vector<std::string> paths;
  try {
    for (auto& each : checkpoints::known_checkpoints(run, skipped)) paths.push_back(std::move(each.path));
  } catch (checkpoints::disk_error const& e) {
    throw checkpoint_error({}, text("the checkpoints in ", run, " cannot be listed: ", e.what()),
                           text("Give the folder of a run, which this process may read"));
  }
  return paths;
}

/// Whether a run has ever saved into this folder, what is damaged since included: then it goes on with `restore`, else
/// it begins with `initialize`. Throws `checkpoint_error` where the folder is there and cannot be listed.
[[nodiscard]] inline bool has_checkpoints(std::string const& run) {
  std::vector<std::string> skipped;
  return !checkpoints_in(run, &skipped).empty() || !skipped.empty();
}

/// The newest checkpoint in the folder of a run that is whole, of whichever training: all of it is read. What it passes
/// over is told to `skipped`, one sentence each. A training may be saving into the folder meanwhile. Throws what
/// `checkpoints_in` throws.
[[nodiscard]] inline std::optional<std::string> latest_checkpoint(std::string const& run,
                                                                  std::vector<std::string>* skipped = nullptr) {
  for (;;) {
    std::vector<std::string> passed;
    const std::vector<std::string> names = checkpoints::names_in(run);
    for (std::string const& path : checkpoints_in(run, &passed)) {
      findings found = verify_checkpoint(path);
      if (found) {
        if (skipped != nullptr) skipped->insert(skipped->end(), passed.begin(), passed.end());
        return path;
      }
      passed.insert(passed.end(), found.problems.begin(), found.problems.end());
    }
    if (checkpoints::names_in(run) != names) continue;  // some were deleted while they were read: there are newer ones
    if (skipped != nullptr) skipped->insert(skipped->end(), passed.begin(), passed.end());
    return std::nullopt;
  }
}

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
