// SPDX-License-Identifier: Apache-2.0
// An object on its way from who made it to who knows its type: in between its type need not be complete.
#pragma once

#include <memory>
#include <utility>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

template <class T>
using handed = std::unique_ptr<T, void (*)(T const*)>;

/// A new `Made` as its base.
template <class Base, class Made, class... Arguments>
[[nodiscard]] handed<Base> hand(Arguments&&... arguments) {
  return {new Made(std::forward<Arguments>(arguments)...), [](Base const* made) { delete made; }};
}
/// It has arrived.
template <class Base>
[[nodiscard]] std::unique_ptr<Base> received(handed<Base>&& from) noexcept {
  return std::unique_ptr<Base>(from.release());
}

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
