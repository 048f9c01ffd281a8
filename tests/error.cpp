// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <doctest/doctest.h>

#include <acco/error.hpp>

TEST_CASE("a message says where, what and what to do; what is not known is left out") {
  const acco::error full({.rank = 3, .round = 7, .phase = "commit"}, acco::text("it broke"), acco::text("Mend it"), 5);
  CHECK(std::string(full.what()) == "acco: rank 3, round 7, commit: it broke. Mend it.");
  CHECK(full.rank() == 3);
  CHECK(full.round() == 7);
  CHECK(full.peer() == 5);
  CHECK(std::string(acco::error({}, acco::text("it broke"), acco::text("Mend it.")).what()) == "acco: it broke. Mend it.");
  CHECK(std::string(acco::error({.rank = 0}, acco::text("x"), acco::text("y")).what()) == "acco: rank 0: x. y.");
  CHECK(std::string(acco::error({.phase = "begin"}, acco::text("x"), acco::text("y")).what()) == "acco: begin: x. y.");
  CHECK(std::string(acco::error({.round = 2, .phase = "begin"}, acco::text("x"), acco::text("y")).what()) ==
        "acco: round 2, begin: x. y.");
  CHECK(std::string(acco::error({}, acco::text("rank 1 failed: acco: it broke. Mend it."), acco::text("Look there")).what()) ==
        "acco: rank 1 failed: acco: it broke. Mend it. Look there.");
}

TEST_CASE("an error of a device that does not say where is given a place, once") {
  const auto broken = [](acco::error_place where) {
    return [where] { throw acco::device_error(where, acco::text("it broke"), acco::text("Mend it"), 5); };
  };
  const auto here = [] { return acco::error_place{.rank = 3, .round = 7, .phase = "commit"}; };
  try {
    acco::with_place(here, broken({}));
    FAIL("it throws");
  } catch (acco::device_error const& e) {
    CHECK(std::string(e.what()) == "acco: rank 3, round 7, commit: it broke. Mend it.");
    CHECK(e.round() == 7);
    CHECK(e.peer() == 5);
  }
  CHECK_THROWS_WITH(acco::with_place(here, broken({.rank = 1})), "acco: rank 1: it broke. Mend it.");
  CHECK(acco::with_place(here, [] { return 4; }) == 4);
}

TEST_CASE("the family can be caught coarse or fine") {
  CHECK_THROWS_AS(throw acco::deadline_error({}, acco::text("x"), acco::text("y")), acco::error);
  CHECK_THROWS_AS(throw acco::usage_error({}, acco::text("x"), acco::text("y")), std::exception);
}

TEST_CASE("text: numbers are written so that they mean the same, and a long text is cut, not overrun") {
  CHECK(std::string(acco::text("a", 1, -2, 3U, 0.1, 1e-8, 1.0 / 3).c_str()) == "a1-230.11e-080.33333333333333331");
  CHECK(std::string(
            acco::text(100000.0, " ", 1e6, " ", 1234567.0, " ", -0.0625F, " ", 5e-324, " ", 1.7976931348623157e308).c_str()) ==
        "100000 1e+06 1234567 -0.0625 4.94066e-324 1.7976931348623157e+308");
  CHECK(std::string(acco::text().append(1234.0625, 3).append(-1e300, 1).c_str()).substr(0, 12) == "1234.062-100");
  acco::text longer;
  for (int i = 0; i < 1000; ++i) longer.append("0123456789");
  CHECK(longer.view().size() == 1023);
  CHECK(longer.c_str()[1023] == '\0');
}
