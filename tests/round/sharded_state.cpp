// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/round/sharded_state.hpp>
#include <acco/rule/adamw.hpp>
#include <acco/rule/sgd.hpp>
#include <acco/storage/host.hpp>

TEST_CASE("predict shows what commit would, and writes neither masters nor slots; where nothing is wanted, masters are shown") {
  using storage = acco::host_storage<float>;
  acco::parameter_layout layout;
  const auto fast = layout.add_group({.learning_rate_scale = 10});
  layout.add("a", {30}).add("b", {40}, fast);
  const acco::update_regions regions(layout, acco::norm_detail::total);
  const acco::partition shares(70, 2);
  acco::state_arrays<storage> arrays(shares, 1);
  acco::rule_of<acco::adamw, storage> rule(acco::adamw{.learning_rate = 0.1});
  acco::sharded_state<storage> state(arrays, rule, layout, regions, shares, 1, false);  // elements 64 to 69, of "b"
  CHECK(state.count() == 6);
  acco::host_queue queue;
  arrays.allocate(storage{}, queue);
  state.allocate(storage{}, queue);
  const std::vector<float> start{1, 2, 3, 4, 5, 6};
  std::vector<float> gradients(64, 99.0F);
  std::copy_n(std::vector<float>{1, -1, 2, 1, 1, 1}.begin(), 6, gradients.begin());
  state.set_masters(queue, 0, start.data(), 6);
  const auto empty = arrays.digest(queue, 0);
  std::vector<float> predicted(128, -7.0F), committed(128, -7.0F), shown(128, -7.0F);
  acco::region_update decided[] = {{}, {1, true}};
  state.prepare({.count = 1});
  state.begin(acco::sharded<float const>(gradients), decided);
  state.apply(acco::update::predict, queue, 0, acco::replicated<float>(predicted));
  queue.wait();
  CHECK(arrays.digest(queue, 0) == empty);
  // ten times the learning rate, and its weight decay
  CHECK(predicted[64] == doctest::Approx(1 - 1.0 - 0.01).epsilon(1e-5));
  CHECK(predicted[63] == -7.0F);  // another rank's
  CHECK(predicted[70] == -7.0F);  // padding is left alone
  state.apply(acco::update::commit, queue, 0, acco::replicated<float>(committed));
  queue.wait();
  CHECK(committed == predicted);
  const auto after = arrays.digest(queue, 0);
  CHECK(after != empty);
  decided[1].wanted = false;
  state.apply(acco::update::commit, queue, 0, acco::replicated<float>(shown));
  queue.wait();
  CHECK(shown == committed);
  CHECK(arrays.digest(queue, 0) == after);
}

TEST_CASE("every element is updated once with the constants of its group, however groups and buckets cut the slice") {
  using storage = acco::host_storage<float>;
  acco::parameter_layout layout;
  std::vector<double> scales{1};
  for (const double scale : {2.0, 3.0}) {
    layout.add_group({.learning_rate_scale = scale});
    scales.push_back(scale);
  }
  const auto frozen = layout.add_group({.frozen = true});
  std::vector<double> expected;  // the scale of each trainable element
  for (std::size_t k = 0; k < 400; ++k) {
    const std::size_t group = k % 7 == 6 ? frozen : k % 3, size = k % 50 == 0 ? 9000 : 1 + k % 5;
    layout.add(("t" + std::to_string(k)).c_str(), {size}, group);
    if (group != frozen) expected.insert(expected.end(), size, scales[group]);
  }
  const acco::update_regions regions(layout, acco::norm_detail::total);
  for (const int ranks : {1, 3}) {
    for (const std::size_t bucket : {0U, 1000U, 20000U}) {
      CAPTURE(ranks);
      CAPTURE(bucket);
      const acco::partition shares(layout.trainable_size(), ranks, bucket);
      std::vector<float> whole(shares.padded_size(), -1.0F);
      for (int rank = 0; rank < ranks; ++rank) {
        acco::state_arrays<storage> arrays(shares, rank);
        acco::rule_of<acco::sgd, storage> rule(acco::sgd{.learning_rate = 1});
        acco::sharded_state<storage> state(arrays, rule, layout, regions, shares, rank, false);
        acco::host_queue queue;
        arrays.allocate(storage{}, queue);
        state.allocate(storage{}, queue);
        const std::vector<float> gradients(shares.slice_size(), -1.0F);
        const acco::region_update decided[] = {{1, true}, {1, true}, {1, true}};
        state.prepare({.count = 1});
        state.begin(acco::sharded<float const>(gradients), decided);
        for (std::size_t k = 0; k < shares.buckets(); ++k)
          state.apply(acco::update::commit, queue, k, acco::replicated<float>(whole));
        queue.wait();
      }
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const float right = i < expected.size() ? static_cast<float>(expected[i]) : -1.0F;
        wrong += whole[i] == right ? 0U : 1U;
      }
      CHECK(wrong == 0);
    }
  }
}
