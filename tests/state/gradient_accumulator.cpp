// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <doctest/doctest.h>

#include <acco/state/gradient_accumulator.hpp>
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
  layout.add("a", {5}).add("ice", {3}, still).add("b", {6});
  const acco::partition shares(layout.trainable_size(), 4);
  acco::gradient_accumulator<Storage> buffers(layout, shares, waits, stable);
  acco::host_queue queue;
  buffers.allocate(Storage{}, queue);
  buffers.set_parameters(queue, std::vector<P>(14, P(-1.0F)));
  bool first = true;
  for (int round = 0; round < 7; ++round) {
    for (auto& g : buffers.gradients()) {
      CHECK(static_cast<float>(g) == 0.0F);  // an empty accumulator, every time
      g = typename Storage::gradient_type(static_cast<float>(round + 1));
    }
    auto const before = buffers.gradients().data();
    auto flight = buffers.launch(queue, first);
    if (first || stable || waits) CHECK(buffers.gradients().data() == before);
    first = false;
    auto const carried = flight.gradients().local();
    REQUIRE(carried.size() == shares.padded_size());
    for (std::size_t i = 0; i < carried.size(); ++i)
      CHECK(static_cast<float>(carried[i]) == (i < shares.size() ? static_cast<float>(round + 1) : 0.0F));
    if (!waits) {  // the trainer goes on meanwhile, with the parameters of the round before, and what it adds is not lost
      for (auto& g : buffers.gradients()) CHECK(static_cast<float>(g) == 0.0F);
      CHECK(static_cast<float>(buffers.parameters()[0]) == (round == 0 ? -1.0F : static_cast<float>(round - 1)));
    }
    for (auto& p : flight.parameters().whole()) p = P(static_cast<float>(round));
    buffers.land(queue, std::move(flight));
    CHECK_FALSE(static_cast<bool>(flight));  // NOLINT(bugprone-use-after-move): a round that has landed owns nothing
    for (std::size_t i = 0; i < 14; ++i)
      CHECK(static_cast<float>(buffers.parameters()[i]) == (frozen && i >= 5 && i < 8 ? -1.0F : static_cast<float>(round)));
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

TEST_CASE("offsets of trainable elements, slices and scatter skip the frozen ones") {
  acco::parameter_layout layout;
  const auto still = layout.add_group({.frozen = true});
  layout.add("a", {5}).add("ice", {3}, still).add("b", {6});
  const acco::partition shares(11, 3);  // slices 0-3, 4-7, 8-10
  const acco::gradient_accumulator<acco::host_storage<float>> buffers(layout, shares, false, false);
  CHECK(buffers.offset_of(4) == 4);
  CHECK(buffers.offset_of(5) == 8);
  std::vector<float> whole(14), slice(4, -1.0F), trainable(11), out(14, -2.0F);
  for (std::size_t i = 0; i < 14; ++i) whole[i] = static_cast<float>(i);
  buffers.for_slice(1, whole.data(), [&](std::size_t offset, float const* from, std::size_t count) {
    std::copy_n(from, count, slice.begin() + static_cast<std::ptrdiff_t>(offset));
  });
  CHECK(slice == std::vector<float>{4, 8, 9, 10});
  for (std::size_t i = 0; i < 11; ++i) trainable[i] = static_cast<float>(100 + i);
  acco::host_queue queue;
  buffers.scatter(queue, trainable.data(), out);
  CHECK(out == std::vector<float>{100, 101, 102, 103, 104, -2, -2, -2, 105, 106, 107, 108, 109, 110});
}
