// SPDX-License-Identifier: Apache-2.0
#include <sstream>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <acco/acco.hpp>
#include <acco/observe/trace.hpp>

TEST_CASE("a trace is valid JSON with one process a rank, rows of computation and communication, and rounds by kind") {
  acco::trace trace;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{}, world, 10};
    training.initialize(std::vector<float>(10, 1.0F));
    for (int m = 0; m < 9; ++m) {
      if (auto const report = training.accumulated(1)) trace.record(world.rank(), *report);
    }
    training.finish();
  });
  std::ostringstream out;
  trace.write(out);
  const auto json = nlohmann::json::parse(out.str());
  std::vector<int> estimates(3), commits(3), computations(3);
  for (auto const& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const auto rank = event["pid"].get<std::size_t>();
    CHECK(event["ts"].get<double>() >= 0);
    CHECK(event["dur"].get<double>() >= 0);
    const std::string name = event["name"];
    estimates[rank] += name == "estimate" ? 1 : 0;
    commits[rank] += name == "commit" ? 1 : 0;
    computations[rank] += name == "micro-batches" ? 1 : 0;
    if (name == "estimate") CHECK(event["args"]["round"].get<int>() % 2 == 0);
    CHECK(event["tid"].get<int>() == (name == "micro-batches" ? 0 : 1));
  }
  CHECK(out.str().find("collectives") == std::string::npos);  // a row that nothing uses is not there
  CHECK(estimates == std::vector<int>{4, 4, 4});
  CHECK(commits == std::vector<int>{4, 4, 4});
  CHECK(computations == std::vector<int>{8, 8, 8});
}

TEST_CASE("a full trace keeps what it has and says how much it left out; an empty one is valid") {
  acco::trace trace(2);
  for (int i = 0; i < 5; ++i) trace.record(0, acco::trace::row::computation, "x", 0, {1.0, 2.0});
  CHECK(trace.size() == 2);
  CHECK(trace.dropped() == 3);
  std::ostringstream out;
  acco::trace(0).write(out);
  CHECK(nlohmann::json::parse(out.str())["traceEvents"].empty());
}
