// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <doctest/doctest.h>

#include <acco/rule/adamw.hpp>
#include <acco/state/sharded_state.hpp>
#include <acco/storage/host.hpp>

TEST_CASE("predict shows what commit would, and writes neither masters nor slots; where nothing is wanted, masters are shown") {
  using storage = acco::host_storage<float>;
  acco::parameter_layout layout;
  const auto fast = layout.add_group({.learning_rate_scale = 10});
  layout.add("a", {3}).add("b", {4}, fast);
  acco::sharded_state<storage, acco::adamw> state(acco::adamw{.learning_rate = 0.1}, layout, acco::partition(7, 2),
                                                  1);  // elements 4, 5, 6: all of "b"
  CHECK(state.count() == 3);
  acco::host_queue queue;
  state.allocate(storage{}, queue);
  const std::vector<float> start{1, 2, 3}, gradients{1, -1, 2, 99};
  state.set_masters(queue, 0, start.data(), 3);
  const auto empty = state.digest(queue);
  std::vector<float> predicted(4, -7.0F), committed(4, -7.0F), shown(4, -7.0F);
  double scale = 1;
  bool wanted = true;
  const acco::sharded<float const> reduced(gradients);
  state.prepare({.count = 1});
  state.apply(acco::update::predict, queue, &wanted, reduced, &scale, acco::sharded<float>(predicted));
  queue.wait();
  CHECK(state.digest(queue) == empty);
  CHECK(predicted[0] == doctest::Approx(1 - 1.0 - 0.01).epsilon(1e-5));  // ten times the learning rate, and its weight decay
  CHECK(predicted[3] == -7.0F);                                          // padding is left alone
  state.apply(acco::update::commit, queue, &wanted, reduced, &scale, acco::sharded<float>(committed));
  queue.wait();
  CHECK(committed == predicted);
  const auto after = state.digest(queue);
  CHECK(after != empty);
  wanted = false;
  state.apply(acco::update::commit, queue, &wanted, reduced, &scale, acco::sharded<float>(shown));
  queue.wait();
  CHECK(shown == committed);
  CHECK(state.digest(queue) == after);
}
