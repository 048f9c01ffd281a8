// SPDX-License-Identifier: Apache-2.0
// The text to learn: a file, or the repository's own headers, sources and documentation.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "shape.hpp"

namespace toy_gpt {

inline std::string read_file(std::filesystem::path const& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

/// All headers, sources and pages below `root`, in a fixed order.
inline std::string repository_text(std::filesystem::path const& root) {
  std::vector<std::filesystem::path> files;
  for (char const* folder : {"include", "examples", "tests", "bench", "docs", "cmake"}) {
    if (!std::filesystem::is_directory(root / folder)) continue;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string ending = entry.path().extension().string();
      if (entry.is_regular_file() &&
          (ending == ".hpp" || ending == ".cpp" || ending == ".md" || ending == ".cmake" || ending == ".txt"))
        files.push_back(entry.path());
    }
  }
  for (char const* page : {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}) {
    if (std::filesystem::is_regular_file(root / page)) files.push_back(root / page);
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (auto const& file : files) text += read_file(file);
  return text;
}

/// A text cut into training and validation parts: of every ten stretches of 4 KiB, the last one validates.
class corpus {
 public:
  corpus(std::string const& text, std::size_t context) : context_(context) {
    constexpr std::size_t stretch = 4096;
    for (std::size_t at = 0, k = 0; at < text.size(); at += stretch, ++k)
      (k % 10 == 9 ? validation_ : training_) += text.substr(at, stretch);
    if (validation_.size() <= context + 1) {  // a short text: its last tenth
      const std::size_t cut = text.size() - text.size() / 10;
      training_ = text.substr(0, cut);
      validation_ = text.substr(cut);
    }
    if (std::min(training_.size(), validation_.size()) <= context + 1) {
      throw std::runtime_error("the text has " + std::to_string(text.size()) + " bytes, too few for a context of " +
                               std::to_string(context) + ": a tenth of it must be longer than the context");
    }
  }

  /// A number by which texts, and ways to cut them, are told apart (FNV-1a).
  [[nodiscard]] std::uint64_t digest() const {
    std::uint64_t h = 0xcbf29ce484222325ULL ^ context_;
    for (std::string const* const part : {&training_, &validation_}) {
      for (const char c : *part) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
      h ^= part->size();
    }
    return h;
  }
  [[nodiscard]] std::string const& training() const { return training_; }
  [[nodiscard]] std::size_t training_bytes() const { return training_.size(); }
  [[nodiscard]] std::size_t validation_bytes() const { return validation_.size(); }

  /// Sequences at places that depend only on the three numbers.
  void draw(batch& into, std::size_t sequences, std::uint64_t seed, std::uint64_t rank, std::uint64_t number) const {
    fill(into, training_, sequences, (seed * 1000003 + rank) * 0x9e3779b97f4a7c15ULL + number * 0xd1342543de82ef95ULL);
  }
  /// The k-th batch of a fixed validation set.
  void draw_validation(batch& into, std::size_t sequences, std::uint64_t k) const {
    fill(into, validation_, sequences, 0x5bd1e995 + k * 0x2545f4914f6cdd1dULL);
  }

  /// Cross-entropy per byte, in nats, of guessing by the bytes' frequencies in the training part.
  [[nodiscard]] double unigram_loss() const {
    std::array<double, 256> counts;
    counts.fill(1);
    for (const char c : training_) ++counts[static_cast<unsigned char>(c)];
    double loss = 0;
    for (const char c : validation_)
      loss -= std::log(counts[static_cast<unsigned char>(c)] / (static_cast<double>(training_.size()) + 256));
    return loss / static_cast<double>(validation_.size());
  }
  [[nodiscard]] static double uniform_loss() { return std::log(256.0); }

 private:
  void fill(batch& into, std::string const& from, std::size_t sequences, std::uint64_t state) const {
    into.sequences = sequences;
    into.inputs.resize(sequences * context_);
    into.targets.resize(sequences * context_);
    for (std::size_t s = 0; s < sequences; ++s) {
      std::uint64_t x = state += 0x9e3779b97f4a7c15ULL;  // splitmix64
      x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
      x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
      const std::size_t at = static_cast<std::size_t>((x ^ (x >> 31U)) % (from.size() - context_ - 1));
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), context_,
                  into.inputs.begin() + static_cast<std::ptrdiff_t>(s * context_));
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at) + 1, context_,
                  into.targets.begin() + static_cast<std::ptrdiff_t>(s * context_));
    }
  }

  std::size_t context_;
  std::string training_, validation_;
};

}  // namespace toy_gpt
