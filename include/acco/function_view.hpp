// SPDX-License-Identifier: Apache-2.0
// A function by reference, behind one type: what calls it is compiled once, not once for each function.
#pragma once

#include <type_traits>
#include <utility>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

template <class Signature>
class function_view;

/// Refers to a function object that must outlive it: made of an argument, used while the call lasts. Two words; never
/// allocates.
template <class Result, class... Arguments>
class function_view<Result(Arguments...)> {
 public:
  template <class Function>
    requires std::is_class_v<std::remove_cvref_t<Function>> && (!std::is_same_v<std::remove_cvref_t<Function>, function_view>) &&
                 std::is_invocable_r_v<Result, Function&, Arguments...>
  function_view(Function&& function) noexcept  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<void const*>(__builtin_addressof(function)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<std::add_pointer_t<Function>>(object))(std::forward<Arguments>(arguments)...);
        }) {}
  Result operator()(Arguments... arguments) const { return call_(object_, std::forward<Arguments>(arguments)...); }

 private:
  void* object_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace ACCO_NAMESPACE
