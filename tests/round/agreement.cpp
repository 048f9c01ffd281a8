// SPDX-License-Identifier: Apache-2.0
#include <acco/round/agreement.hpp>

#include "conformance/backend.hpp"

TEST_CASE("the first difference is told in the words of both sides") {
  CHECK(std::string(acco::first_difference("a = 1\nb = 2\n", "a = 1\nb = 3\n", 0, 4).c_str()) ==
        "rank 0 has 'b = 2', rank 4 has 'b = 3'");
  CHECK(std::string(acco::first_difference("a = 1\n", "a = 1\nb = 3\n", 0, 1).c_str()) == "rank 0 has '', rank 1 has 'b = 3'");
}

TEST_CASE_TEMPLATE("agree() passes when all say the same, and throws on every rank when one does not", World, worlds::threads,
                   worlds::mock_late) {
  for (const int odd : {-1, 0, 2}) {
    std::vector<int> thrown(3, 0);
    try {
      World::run(3, [&](auto backend) {
        auto queue = worlds::queue_of<World>(backend);
        acco::description d;
        d.add("width", backend.rank() == odd ? 12 : 7);
        d.add("flag", true);
        try {
          acco::agree(queue, backend, d.lines(), {.rank = backend.rank()});
        } catch (acco::mismatch_error const& e) {
          thrown[static_cast<std::size_t>(backend.rank())] = 1;
          CHECK(std::string(e.what()).find("width = 12") != std::string::npos);
          CHECK(std::string(e.what()).find("width = 7") != std::string::npos);
          CHECK(e.peer() != backend.rank());
          throw;
        }
      });
    } catch (acco::mismatch_error const&) {  // counted per rank
    }
    CHECK(thrown == std::vector<int>(3, odd < 0 ? 0 : 1));
  }
}
