// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <locale>
#include <string>

#include <doctest/doctest.h>

namespace {
/// Of C++, beside the one of C that is asked for.
struct decimal_commas : std::numpunct<char> {
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};
}  // namespace

int main(int count, char** words) {
  if (char const* const name =
          std::getenv("ACCO_TEST_COMMAS")) {  // a locale with decimal commas, and the folder that has it: LOCPATH
    if (std::setlocale(LC_NUMERIC, name) == nullptr || std::strcmp(std::localeconv()->decimal_point, ",") != 0) {
      std::printf("skipped: this system has no locale '%s' with decimal commas\n", name);
      return 0;
    }
    std::locale::global(std::locale(std::locale(), new decimal_commas));
  }
  return doctest::Context(count, words).run();
}
