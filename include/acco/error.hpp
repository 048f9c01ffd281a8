// SPDX-License-Identifier: Apache-2.0
// One family of exceptions. Every message says what happened, where (rank, round, phase) and what to do.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// A short text of fixed capacity that is built without allocating: errors must be possible when memory is short.
class ACCO_VISIBLE text {
 public:
  template <class... Parts>
  explicit text(Parts const&... parts) noexcept {
    (append(parts), ...);
  }
  text& append(std::string_view part) noexcept {
    for (const char c : part) {
      if (size_ + 1 < capacity) characters_[size_++] = c;
    }
    characters_[size_] = '\0';
    return *this;
  }
  text& append(text const& part) noexcept { return append(part.view()); }
  template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
  text& append(Number number) noexcept {
    // with six digits where they mean the same number, as most that people chose
    if constexpr (std::floating_point<Number>) {
      char digits[40];
      const auto value = static_cast<double>(number);
      char const* const end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
      int fewest = 0;  // digits that mean this number
      for (char const* at = digits; at != end && *at != 'e'; ++at) fewest += *at >= '0' && *at <= '9' ? 1 : 0;
      return written(value, std::chars_format::general, fewest <= 6 ? 6 : 17);
    } else if constexpr (std::signed_integral<Number>) {
      return written(static_cast<long long>(number));
    } else {
      return written(static_cast<unsigned long long>(number));
    }
  }
  /// A number with this many digits behind the point.
  text& append(double number, int decimals) noexcept { return written(number, std::chars_format::fixed, decimals); }
  [[nodiscard]] std::string_view view() const noexcept { return {characters_, size_}; }
  [[nodiscard]] char const* c_str() const noexcept { return characters_; }

 private:
  /// By no locale: other ranks and later runs compare it.
  template <class... How>
  text& written(How... how) noexcept {
    char digits[400];
    return append(
        std::string_view(digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, how...).ptr - digits)));
  }
  static constexpr std::size_t capacity = 1024;
  char characters_[capacity] = {};
  std::size_t size_ = 0;
};

/// Where something happened. A negative number or an empty phase means "not known" and is left out of the message.
struct ACCO_VISIBLE error_place {
  int rank = -1;
  std::int64_t round = -1;
  char const* phase = "";
};

/// The base of everything that acco throws. `rank()` is the rank that reports, `peer()` the rank that caused it (-1:
/// none or unknown).
class ACCO_VISIBLE error : public std::exception {
 public:
  error(error_place where, text const& what, text const& advice, int peer = -1) noexcept : where_(where), peer_(peer) {
    begin();
    message_.append(what).append(!what.view().empty() && what.view().back() == '.' ? " " : ". ").append(advice);
    if (advice.view().empty() || advice.view().back() != '.') message_.append(".");
  }
  /// The same as one that does not say where.
  error(error_place where, error const& nowhere) noexcept : where_(where), peer_(nowhere.peer_) {
    begin();
    message_.append(nowhere.message_.view().substr(family.size()));
  }
  [[nodiscard]] char const* what() const noexcept override { return message_.c_str(); }
  [[nodiscard]] error_place where() const noexcept { return where_; }
  [[nodiscard]] int rank() const noexcept { return where_.rank; }
  [[nodiscard]] std::int64_t round() const noexcept { return where_.round; }
  [[nodiscard]] int peer() const noexcept { return peer_; }

 private:
  static constexpr std::string_view family = "acco: ";
  void begin() noexcept {
    message_.append(family);
    const auto next = [&] { return std::string_view(message_.view().size() == family.size() ? "" : ", "); };
    if (where_.rank >= 0) message_.append("rank ").append(where_.rank);
    if (where_.round >= 0) message_.append(next()).append("round ").append(where_.round);
    if (where_.phase != nullptr && *where_.phase != '\0') message_.append(next()).append(std::string_view(where_.phase));
    if (!next().empty()) message_.append(": ");
  }

  error_place where_;
  int peer_;
  text message_;
};

/// The caller broke a rule of the API: wrong sizes, wrong order, a value out of range. Nothing was changed, unless it
/// was found inside `initialize` or a round (a learning rate that returns NaN): then the training has ended.
struct ACCO_VISIBLE usage_error : error {
  using error::error;
};
/// The ranks were constructed differently, or call different collectives.
struct ACCO_VISIBLE mismatch_error : error {
  using error::error;
};
/// Another rank failed or left, or what it sent came damaged; `peer()` names it. A consequence, not a cause.
struct ACCO_VISIBLE peer_error : error {
  using error::error;
};
/// A rank did not come within `options::deadline`; `peer()` names the first one missing.
struct ACCO_VISIBLE deadline_error : error {
  using error::error;
};
/// A call to a GPU's runtime, or to its communication library, failed.
struct ACCO_VISIBLE device_error : error {
  using error::error;
};
/// call(); a `device_error` from deep inside, which does not say where, is thrown with the place that `where()` tells.
template <class Where, class Call>
decltype(auto) with_place(Where&& where, Call&& call) {
  try {
    return call();
  } catch (device_error const& e) {
    if (e.rank() >= 0) throw;
    throw device_error(where(), e);
  }
}
/// This rank's buffers do not fit into its memory: `memory()` tells their sizes before.
struct ACCO_VISIBLE memory_error : error {
  using error::error;
};
/// A checkpoint cannot be read, or is another training's. `peer()` names the rank that found it, where the others were
/// told.
struct ACCO_VISIBLE checkpoint_error : error {
  using error::error;
};
/// The parameters that the ranks compute with are not the same, though they must be in every bit; `peer()` names the
/// rank that is alone with its own, if that can be told.
struct ACCO_VISIBLE corruption_error : error {
  using error::error;
};
/// The norm of the gradients was beyond `options::norm_limit`.
struct ACCO_VISIBLE spike_error : error {
  using error::error;
};
/// A gradient was infinite or not a number; `peer()` names the first rank it came from.
struct ACCO_VISIBLE non_finite_error : error {
  using error::error;
};

}  // namespace ACCO_NAMESPACE
