// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <doctest/doctest.h>

#include <acco/round/gradient_accumulator.hpp>
#include <acco/storage/host.hpp>

namespace {

/// Launches and lands rounds by hand; each lands parameters that say which round they came from.
template <class Storage>
void rotate(bool waits, bool stable, bool frozen) {
  using P = typename Storage::parameter_type;
  CAPTURE(waits);
  CAPTURE(stable);
  CAPTURE(frozen);
  acco::parameter_layout layout;
  const auto still = layout.add_group({.frozen = frozen});
  layout.add("a", {105}).add("ice", {3}, still).add("b", {206});
  const acco::partition shares(layout.trainable_size(), 4, stable ? 70 : 0);
  acco::gradient_accumulator<Storage> buffers(layout, shares, waits, stable);
  acco::host_queue queue;
  buffers.allocate(Storage{}, queue);
  buffers.set_parameters(queue, std::vector<P>(314, P(-1.0F)));
  bool first = true;
  for (int round = 0; round < 7; ++round) {
    for (auto& g : buffers.gradients()) {
      CHECK(static_cast<float>(g) == 0.0F);  // an empty accumulator, every time
      g = typename Storage::gradient_type(static_cast<float>(round + 1));
    }
    auto const before = buffers.gradients().data();
    auto flight = buffers.launch(queue, first);
    buffers.empty(queue);
    if (first || stable || waits) CHECK(buffers.gradients().data() == before);
    auto const shown = buffers.parameters();
    for (std::size_t i = 0; i < 105; ++i)  // unchanged as long as nothing has landed
      CHECK(static_cast<float>(shown[i]) == (round == 0 ? -1.0F : static_cast<float>(round - 1)));
    first = false;
    auto const carried = flight.gradients().local();
    REQUIRE(carried.size() == shares.padded_size());
    for (std::size_t i = 0; i < carried.size(); ++i)
      CHECK(static_cast<float>(carried[i]) == (i < shares.size() ? static_cast<float>(round + 1) : 0.0F));
    // the trainer goes on meanwhile, with the parameters of the round before, and what it adds is not lost
    if (!waits) {
      for (auto& g : buffers.gradients()) CHECK(static_cast<float>(g) == 0.0F);
      CHECK(static_cast<float>(buffers.parameters()[0]) == (round == 0 ? -1.0F : static_cast<float>(round - 1)));
    }
    for (auto& p : flight.parameters().whole()) p = P(static_cast<float>(round));
    buffers.land(queue, std::move(flight));
    CHECK_FALSE(static_cast<bool>(flight));  // NOLINT(bugprone-use-after-move): a round that has landed owns nothing
    for (std::size_t i = 0; i < 314; ++i)
      CHECK(static_cast<float>(buffers.parameters()[i]) == (frozen && i >= 105 && i < 108 ? -1.0F : static_cast<float>(round)));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("buffers change places in every mode without losing or repeating anything", Storage, acco::host_storage<float>,
                   acco::host_storage<acco::bfloat16, float>, acco::host_storage<double, float>,
                   acco::host_storage<acco::bfloat16>) {
  for (const bool waits : {false, true}) {
    for (const bool stable : {false, true}) {
      for (const bool frozen : {false, true}) rotate<Storage>(waits, stable, frozen);
    }
  }
}

TEST_CASE_TEMPLATE("what a round keeps lies aside: the accumulator is empty, and the next launch carries both", Storage,
                   acco::host_storage<float>, acco::host_storage<acco::bfloat16, float>, acco::host_storage<double, float>) {
  using P = typename Storage::parameter_type;
  for (const bool stable : {false, true}) {
    for (const bool frozen : {false, true}) {
      CAPTURE(stable);
      CAPTURE(frozen);
      acco::parameter_layout layout;
      const auto still = layout.add_group({.frozen = frozen});
      layout.add("a", {105}).add("ice", {3}, still).add("b", {206});
      const acco::partition shares(layout.trainable_size(), 4);
      acco::gradient_accumulator<Storage> buffers(layout, shares, false, stable, true);
      acco::host_queue queue;
      buffers.allocate(Storage{}, queue);
      buffers.set_parameters(queue, std::vector<P>(314, P(-1.0F)));
      const float carried[] = {1, 3, 3, 7, 15, 16};  // kept are the launches 0, 2 and 3
      for (int round = 0; round < 6; ++round) {
        const bool keeps = round == 0 || round == 2 || round == 3;
        const float fresh[] = {1, 2, 3, 4, 8, 16};
        for (auto& g : buffers.gradients()) {
          CHECK(g == 0.0F);
          g = fresh[round];
        }
        auto flight = buffers.launch(queue, round == 0, keeps);
        buffers.empty(queue);
        for (auto const& g : buffers.gradients()) CHECK(g == 0.0F);
        for (auto& p : flight.parameters().whole()) p = P(static_cast<float>(round));  // before the gradients have left
        auto const sent = flight.gradients().local();
        for (std::size_t i = 0; keeps && i < shares.size(); ++i) CHECK(sent[i] == carried[round]);
        buffers.land(queue, std::move(flight));
        CHECK(static_cast<float>(buffers.parameters()[200]) == static_cast<float>(round));
      }
    }
  }
}

TEST_CASE("what arrives is not in use before the round has landed, in any mode") {
  for (const bool waits : {false, true}) {
    for (const bool stable : {false, true}) {
      acco::gradient_accumulator<acco::host_storage<float>> buffers(acco::parameter_layout(100), acco::partition(100, 1), waits,
                                                                    stable);
      acco::host_queue queue;
      buffers.allocate({}, queue);
      buffers.set_parameters(queue, std::vector<float>(100, 3.0F));
      auto flight = buffers.launch(queue, false);
      buffers.empty(queue);
      // half of the ranks' shares may be here when a collective fails
      for (float& p : flight.parameters().whole()) p = 7;
      for (float const p : buffers.parameters()) CHECK(p == 3);
      buffers.land(queue, std::move(flight));
      for (float const p : buffers.parameters()) CHECK(p == 7);
    }
  }
}

TEST_CASE("offsets of trainable elements, slices and scatter skip the frozen ones") {
  acco::parameter_layout layout;
  const auto still = layout.add_group({.frozen = true});
  layout.add("a", {150}).add("ice", {3}, still).add("b", {60});
  const acco::partition shares(210, 2);  // shares of 128: elements 0-127 and 128-209
  const acco::gradient_accumulator<acco::host_storage<float>> buffers(layout, shares, false, false);
  CHECK(buffers.offset_of(149) == 149);
  CHECK(buffers.offset_of(150) == 153);
  std::vector<float> whole(213), slice(128, -1.0F), trainable(210), out(213, -2.0F);
  for (std::size_t i = 0; i < 213; ++i) whole[i] = static_cast<float>(i);
  buffers.for_slice(1, whole.data(), [&](std::size_t offset, float const* from, std::size_t count) {
    std::copy_n(from, count, slice.begin() + static_cast<std::ptrdiff_t>(offset));
  });
  for (std::size_t i = 0; i < 128; ++i)
    CHECK(slice[i] == (i < 22 ? static_cast<float>(128 + i) : i < 82 ? static_cast<float>(131 + i) : -1.0F));
  for (std::size_t i = 0; i < 210; ++i) trainable[i] = static_cast<float>(1000 + i);
  acco::host_queue queue;
  buffers.scatter(queue, trainable.data(), out);
  for (std::size_t i = 0; i < 213; ++i)
    CHECK(out[i] == (i < 150 ? static_cast<float>(1000 + i) : i < 153 ? -2.0F : static_cast<float>(997 + i)));
}
