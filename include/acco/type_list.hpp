// SPDX-License-Identifier: Apache-2.0
// Lists of types, of which a program picks one while it runs: by its place, or by its name.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "acco/error.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// A list of types.
template <class... Types>
struct type_list {
  static constexpr std::size_t count = sizeof...(Types);
};

/// A name that is a template argument: "two_phase+int4". Made of a literal, and of the list of characters that nvcc
/// writes for it.
struct label {
  char text[32] = {};
  template <std::size_t Size>
  consteval label(char const (&from)[Size]) {  // not explicit: a literal is one
    static_assert(Size <= sizeof text, "acco: a name in a type_list has at most 31 characters");
    for (std::size_t k = 0; k < Size; ++k) text[k] = from[k];
  }
};
/// A type under a name, in a list. A type that has a `name` of its own stands in a list as it is.
template <label Name, class Type>
struct named {
  using type = Type;
  static constexpr char const* name = Name.text;
};

/// What an entry of a list stands for.
template <class Entry>
struct type_of_entry {
  using type = Entry;
};
template <label Name, class Type>
struct type_of_entry<named<Name, Type>> {
  using type = Type;
};
template <class Entry>
using type_of = typename type_of_entry<Entry>::type;

/// The value that it stands for: of a type, the one that is made by default. An entry may have a `value()` of its own.
template <class Entry>
[[nodiscard]] constexpr auto value_of() {
  if constexpr (requires { Entry::value(); }) {
    return Entry::value();
  } else {
    return type_of<Entry>{};
  }
}

/// The names of a list's entries, in order: `list_names<all_rules>::all`.
template <class List>
struct list_names;
template <class... Entries>
struct list_names<type_list<Entries...>> {
  static constexpr std::string_view all[] = {Entries::name...};
};

/// The entries of several lists as one list.
template <class... Lists>
struct all_of;
template <class... Types>
struct all_of<type_list<Types...>> {
  using list = type_list<Types...>;
};
template <class... First, class... Second, class... Rest>
struct all_of<type_list<First...>, type_list<Second...>, Rest...> : all_of<type_list<First..., Second...>, Rest...> {};
template <class... Lists>
using together = typename all_of<Lists...>::list;

/// Whether an entry has one of the names.
template <class Entry, label... Names>
inline constexpr bool is_called = ((std::string_view(Entry::name) == std::string_view(Names.text)) || ...);
template <class List, label... Names>
struct picked;
template <class... Entries, label... Names>
struct picked<type_list<Entries...>, Names...> {
  static_assert((0 + ... + (is_called<Entries, Names...> ? 1 : 0)) == sizeof...(Names),
                "acco: only<List, names...> and without<List, names...> take names that the list has");
  using these = together<type_list<>, std::conditional_t<is_called<Entries, Names...>, type_list<Entries>, type_list<>>...>;
  using others = together<type_list<>, std::conditional_t<is_called<Entries, Names...>, type_list<>, type_list<Entries>>...>;
};
/// The entries of a list that have these names, and those that have others.
template <class List, label... Names>
using only = typename picked<List, Names...>::these;
template <class List, label... Names>
using without = typename picked<List, Names...>::others;

/// Calls visit(value) for every entry, in order.
template <class... Entries, class Visit>
constexpr void for_each(type_list<Entries...>, Visit&& visit) {
  (visit(value_of<Entries>()), ...);
}

/// visit(value), behind one signature for all entries.
template <class Entry, class Result, class Visit>
constexpr Result visit_as(Visit& visit) {
  return visit(value_of<Entry>());
}
/// visit(value) for the entry at this place, which the list has. All results have the type of the first.
template <class First, class... Rest, class Visit>
constexpr decltype(auto) visit_at(type_list<First, Rest...>, std::size_t index, Visit&& visit) {
  using result = std::invoke_result_t<Visit&, decltype(value_of<First>())>;
  constexpr result (*calls[])(std::remove_reference_t<Visit>&) = {&visit_as<First, result, std::remove_reference_t<Visit>>,
                                                                  &visit_as<Rest, result, std::remove_reference_t<Visit>>...};
  return calls[index](visit);
}

/// The place of a name in a list; of none, the list's length.
template <class... Entries>
[[nodiscard]] constexpr std::size_t find_name(type_list<Entries...>, std::string_view name) noexcept {
  std::size_t place = 0;
  const bool found = ((name == std::string_view(Entries::name) || (++place, false)) || ...);
  return found ? place : sizeof...(Entries);
}
/// The place of a type in a list; of none, the list's length.
template <class Type, class... Entries>
[[nodiscard]] constexpr std::size_t place_of(type_list<Entries...>) noexcept {
  std::size_t place = 0;
  const bool found = ((std::is_same_v<Type, type_of<Entries>> || (++place, false)) || ...);
  return found ? place : sizeof...(Entries);
}
/// Throws `usage_error`: no `kind` has this name; the names are these.
[[noreturn]] inline void refuse_name(char const* kind, std::string_view name, std::string_view const* names, std::size_t count) {
  text all;
  for (std::size_t k = 0; k < count; ++k) all.append(std::string_view(k == 0 ? "" : ", ")).append(names[k]);
  throw usage_error({}, text("no ", kind, " is called '", name, "'"), text("The ", kind, "s are ", all.view()));
}
/// The place of the entry of this name. Throws `usage_error`, which has all names, where there is none; `kind` is what
/// the list holds: "schedule".
template <class... Entries>
[[nodiscard]] constexpr std::size_t require_name(char const* kind, type_list<Entries...> list, std::string_view name) {
  const std::size_t place = find_name(list, name);
  if (place == sizeof...(Entries)) refuse_name(kind, name, list_names<type_list<Entries...>>::all, sizeof...(Entries));
  return place;
}

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
