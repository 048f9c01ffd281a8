// SPDX-License-Identifier: Apache-2.0
// Which tasks of a round may begin while those before them are under way.
#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include <acco/stage/pipeline.hpp>
#include <acco/storage/host_queue.hpp>
#include <acco/storage/lane.hpp>

namespace {

/// Writes down what is enqueued: the lane, `+` where it is beside others, and what it is.
struct recorder {
  void on(acco::lane which) { where = which; }
  [[nodiscard]] acco::queue_mark mark() const { return {where, 0}; }
  void after(acco::queue_mark) {}
  void beside(bool next) { is_beside = next; }
  void enqueue(std::string const& what) {
    seen += (where == acco::lane::network ? "n" : "u") + std::string(is_beside ? "+" : "") + what + ' ';
    is_beside = false;
  }
  acco::lane where = acco::lane::network;
  bool is_beside = false;
  std::string seen;
};

// else `pipeline` would not ask it
static_assert(requires(acco::host_queue& queue) { queue.beside(true); });

}  // namespace

TEST_CASE("the first task of a bucket's messages begins beside the bucket before, and nothing else does") {
  recorder queue;
  acco::pipeline<recorder> stages(queue);
  stages.resize(3);
  const auto add = [&](char const* what) { return [&queue, what](std::size_t k) { queue.enqueue(what + std::to_string(k)); }; };
  stages.begin(acco::lane::network, [&] { queue.enqueue("counts"); });
  stages.each(acco::lane::update, add("encode"));
  stages.each(acco::lane::network, [&](std::size_t k) {
    queue.enqueue("inside" + std::to_string(k));
    queue.enqueue("between" + std::to_string(k));
  });
  stages.each(acco::lane::network, [](std::size_t) {});
  stages.once(acco::lane::network, [&] { queue.enqueue("norm"); });
  stages.each(acco::lane::network, add("gather"));
  stages.end([&] { queue.enqueue("end"); });
  CHECK(queue.seen ==
        "ncounts uencode0 uencode1 uencode2 ninside0 nbetween0 n+inside1 nbetween1 n+inside2 nbetween2 nnorm "
        "ngather0 n+gather1 n+gather2 nend ");
}
