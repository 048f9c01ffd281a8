// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include <acco/collective/around/traced.hpp>

#include "conformance/backend.hpp"

namespace {
struct recorded {
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::trace trace(4096);
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) { function(acco::traced(world, trace)); });
    CHECK(trace.size() > 0);
  }
};
}  // namespace

TEST_CASE("traced() changes nothing") { conformance::backend_suite<recorded>({1, 3}); }

TEST_CASE("every collective of a round appears under its name, on its rank, in its round") {
  acco::trace trace;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{},
                             acco::traced(world, trace), 10};
    training.initialize(std::vector<float>(10, 1.0F));
    for (int m = 0; m < 6; ++m) training.accumulated(1);
    training.finish();
  });
  std::ostringstream out;
  trace.write(out);
  const auto json = nlohmann::json::parse(out.str());
  for (int rank = 0; rank < 2; ++rank) {
    for (int round = 0; round < 6; ++round) {
      std::multiset<std::string> names;
      for (auto const& event : json["traceEvents"]) {
        if (event["ph"] == "X" && event["pid"] == rank && event["args"]["round"] == round && event["name"] != "broadcast")
          names.insert(event["name"].get<std::string>());
      }
      CHECK(names.count("reduce_scatter") == 1);
      CHECK(names.count("all_gather") == 1);
      CHECK(names.count("all_reduce") >= 2);  // counts and norm
    }
  }
}
