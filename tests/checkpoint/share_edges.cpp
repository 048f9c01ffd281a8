// SPDX-License-Identifier: Apache-2.0
// A restore reads each byte of the tensors once, over all ranks, also of the chunks that they share; and these are
// checked all the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "support/thorough.hpp"

namespace {
constexpr std::size_t rows = 300, columns = 1000;

acco::parameter_layout layout() {
  acco::parameter_layout layout;
  layout.add("first", {rows, columns}).add("still", {500, 400}, layout.add_group({.frozen = true})).add("last", {7777});
  return layout;
}
/// `bucket`: elements of one.
auto make(acco::threads_backend const& world, std::size_t bucket) {
  return acco::optimizer{
      acco::two_phase{}, acco::adamw{}, acco::host_storage<float>{}, world, layout(), acco::options{.bucket_elements = bucket}};
}
/// So many checkpoints, of 2 ranks; the digest of the newest.
std::uint64_t save(std::string const& run, std::size_t bucket, int saves = 1) {
  std::uint64_t digest = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world, bucket);
    std::vector<float> initial(layout().size());
    for (std::size_t i = 0; i < initial.size(); ++i) initial[i] = 1 + 1e-6F * static_cast<float>(i);
    t.initialize(initial);
    for (int k = 0; k < saves; ++k) {
      for (int m = 0; m < 6; ++m) {
        if (m == 1) t.save(run, [&] { return 17; });  // not at rest: parameters of an estimate are shown then
        for (std::size_t i = 0; i < t.gradients().size(); ++i) t.gradients()[i] += 1e-3F * static_cast<float>(1 + i % 13);
        (void)t.accumulated(1);
      }
      t.finish();
      REQUIRE(t.saved() != nullptr);
      REQUIRE_MESSAGE(t.saved()->complete(), t.saved()->problem);
      if (world.rank() == 0) digest = t.saved()->digest;
    }
  });
  return digest;
}
/// Bytes that this process has read by system calls, and those of the call that found it out, which come next.
struct bytes_read {
  std::uint64_t so_far, next;
};
bytes_read count_bytes() {
  char text[1024];
  const int file = ::open("/proc/self/io", O_RDONLY | O_CLOEXEC);
  const auto size = ::read(file, text, sizeof text - 1);
  ::close(file);
  REQUIRE(size > 0);
  text[size] = 0;
  unsigned long long value = 0;
  REQUIRE(std::sscanf(text, "rchar: %llu", &value) == 1);
  return {value, static_cast<std::uint64_t>(size)};
}
/// What a restore has to read: each byte of the tensors once, but for a block that two shares have a part of, which
/// both read; and on every rank the manifest, the trainers' bytes, and the headers of the files of which it has some.
std::uint64_t expected_bytes(std::string const& path, acco::partition const& shares) {
  using namespace acco::checkpoints;
  auto const m = manifest_of(path);
  const auto ranks = static_cast<std::uint64_t>(shares.ranks());
  std::uint64_t sum = ranks * std::filesystem::file_size(path + "/manifest.json");
  for (file_record const& file : m.files) {
    const std::uint64_t data = file.bytes - file.data;
    if (file.name == frozen_name) {  // rank 0's
      sum += file.bytes;
      continue;
    }
    sum += ranks * file.data;
    if (!file.name.ends_with(".safetensors")) {
      sum += ranks * data;
      continue;
    }
    sum += data;
    for (const std::uint64_t block : share_edges::of(shares, sizeof(float)).blocks)
      sum += std::min(block_bytes, data - block * block_bytes);
  }
  return sum;
}
}  // namespace

TEST_CASE("each byte of the tensors is read once, over all ranks, whatever their number and their buckets") {
  if (!std::filesystem::exists("/proc/self/io")) return;
  const scratch folder(in_memory());
  for (const std::size_t bucket : {std::size_t{10000000}, std::size_t{100000}}) {
    const std::string run = folder.run(std::to_string(bucket));
    const std::uint64_t digest = save(run, bucket);
    const std::string path = acco::checkpoints_in(run).front();
    for (const int ranks : {1, 2, 3, 5}) {
      if (!thorough() && ranks != 3) continue;
      CAPTURE(bucket);
      CAPTURE(ranks);
      std::uint64_t read = std::numeric_limits<std::uint64_t>::max();
      for (int repeat = 0; repeat < 3; ++repeat) {  // whatever else reads, reads more
        auto const before = count_bytes();
        acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
          auto t = make(world, bucket);
          CHECK(t.restore(path).digest == digest);
        });
        read = std::min(read, count_bytes().so_far - before.so_far - before.next);
      }
      const acco::partition shares(layout().trainable_size(), ranks, bucket);
      CHECK((ranks == 1 || !acco::checkpoints::share_edges::of(shares, sizeof(float)).chunks.empty()));
      CHECK(read == expected_bytes(path, shares));
    }
  }
}

TEST_CASE("damage in a chunk of which each rank reads a part is found and named, wherever it lies, and passed over") {
  const scratch folder(in_memory());
  constexpr std::size_t bucket = 10000000;
  (void)save(folder.run(), bucket, 2);
  auto const found = acco::checkpoints_in(folder.run());
  REQUIRE(found.size() == 2);
  constexpr int ranks = 3;
  const acco::partition shares(layout().trainable_size(), ranks, bucket);
  auto const m = acco::checkpoints::manifest_of(found[0]);
  for (std::string const name : {"master.safetensors", "adamw.1.safetensors", "shown.safetensors", "frozen.safetensors"}) {
    CAPTURE(name);
    auto const* const record = m.find(name);
    REQUIRE(record != nullptr);
    const std::string path = found[0] + "/" + name, whole = content(path);
    // Around where the second rank's share begins, within a block; in the middle; and at the end.
    const std::uint64_t begin = shares.position(1, 0) * sizeof(float), data = record->bytes - record->data;
    REQUIRE(begin % acco::checkpoints::block_bytes != 0);
    for (const std::uint64_t at : {begin - 5000, begin - 1, begin, begin + 5000, data / 2, data - 1}) {
      if (at >= data) continue;
      if (!thorough() && at != begin && at != data - 1) continue;
      CAPTURE(at);
      std::string other = whole;
      other[record->data + at] = static_cast<char>(other[record->data + at] ^ 16);
      write(path, other);
      acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
        auto t = make(world, bucket);
        auto const back = t.restore(folder.run());
        CHECK(back.path == found[1]);
        CHECK(t.world_digest() == acco::checkpoints::manifest_of(found[1]).digest);
        if (world.rank() != 0) return;
        REQUIRE(back.skipped.size() == 1);
        const std::string words = name + ": chunk " + std::to_string(at / acco::checkpoints::chunk_bytes) + " is damaged, in ";
        CHECK_MESSAGE(back.skipped[0].find(words) != std::string::npos, back.skipped[0]);
      });
    }
    write(path, whole);
  }
}

TEST_CASE("a block that two ranks read is the same for both, or the one that read other bytes says so") {
  const scratch folder(in_memory());
  constexpr std::size_t bucket = 10000000;
  (void)save(folder.run(), bucket);
  const std::string path = acco::checkpoints_in(folder.run()).front(), file = path + "/shown.safetensors";
  auto const m = acco::checkpoints::manifest_of(path);
  const acco::parameter_layout all = layout();
  const acco::partition shares(all.trainable_size(), 2, bucket);
  for (const bool damaged : {false, true}) {
    acco::checkpoints::reader ranks[] = {{path, m, all, m.shape, shares, 0}, {path, m, all, m.shape, shares, 1}};
    std::vector<float> values(shares.size());
    std::string whole = content(file);
    const auto read = [&](std::size_t rank) {
      shares.for_shares(static_cast<int>(rank), [&](std::size_t, std::size_t first, std::size_t count) {
        ranks[rank].read(m.shape.shown(), first, count, reinterpret_cast<std::byte*>(values.data() + first));
      });
    };
    read(0);
    if (damaged) {  // after one rank has read it: in the other's part of the block
      auto& byte = whole[m.find("shown.safetensors")->data + shares.position(1, 0) * sizeof(float) + 9];
      byte = static_cast<char>(byte ^ 1);
      write(file, whole);
    }
    read(1);
    auto sums = ranks[0].to_sum(), others = ranks[1].to_sum();
    REQUIRE(sums.size() == others.size());
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += others[k];
    CHECK_NOTHROW(ranks[0].check(sums));
    if (damaged) {
      CHECK_THROWS_WITH_AS(ranks[1].check(sums), doctest::Contains("shown.safetensors: chunk "), std::runtime_error);
    } else {
      CHECK_NOTHROW(ranks[1].check(sums));
    }
  }
}

TEST_CASE("a schedule that waits needs no parameters in use: theirs are not read, and not missed") {
  const scratch folder(in_memory());
  const std::string run = folder.run("waits");
  const std::uint64_t digest = save(run, 0);
  REQUIRE(std::filesystem::exists(acco::checkpoints_in(run).front() + "/shown.safetensors"));
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      acco::optimizer t{acco::synchronous{}, acco::adamw{}, acco::host_storage<float>{}, world, layout()};
      CHECK(t.restore(run, acco::changes::allowed).digest == digest);
      t.finish();
    });
  }
}
TEST_CASE("parameters in use that were half-read from a damaged checkpoint are those of the one before") {
  const scratch folder(in_memory());
  const acco::parameter_layout whole(300000);  // nothing is frozen: they are read to where they lie
  const auto make_whole = [&](acco::threads_backend const& world) {
    return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world,
                           whole};
  };
  const auto train = [](auto& t, int from, int to) {
    for (int m = from; m < to; ++m) {
      for (std::size_t i = 0; i < t.gradients().size(); ++i)
        t.gradients()[i] += 1e-3F * static_cast<float>(1 + (i + static_cast<std::size_t>(m)) % 13) + 0.01F * t.parameters()[i];
      (void)t.accumulated(1);
    }
  };
  const std::string run = folder.run("in_place");
  std::vector<std::uint64_t> expected(2);
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make_whole(world);
    t.initialize(std::vector<float>(whole.size(), 1.0F));
    std::size_t cut = 0;
    for (int k = 0; k < 2; ++k) {  // each is whole before the next one is asked for
      t.save(run);
      for (int m = 0; t.saved() == nullptr || t.saved()->step <= cut; ++m) train(t, m, m + 1);
      cut = t.saved()->step;
    }
    t.finish();
  });
  auto const found = acco::checkpoints_in(run);
  REQUIRE(found.size() == 2);
  const auto go_on = [&](std::string const& from, std::vector<std::uint64_t>& digests) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto t = make_whole(world);
      auto const at = t.restore(from);
      if (world.rank() == 0) CHECK(at.skipped.empty() == (from != run));
      train(t, 0, 4);
      t.finish();
      digests[static_cast<std::size_t>(world.rank())] = t.state_digest();
    });
  };
  go_on(found[1], expected);
  {
    const std::string name = found[0] + "/shown.safetensors";
    const int file = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(file >= 0);
    const auto at = static_cast<::off_t>(std::filesystem::file_size(name) - 5);
    unsigned char byte = 0;
    REQUIRE(::pread(file, &byte, 1, at) == 1);
    byte ^= 1U;
    REQUIRE(::pwrite(file, &byte, 1, at) == 1);
    ::close(file);
  }
  std::vector<std::uint64_t> passed_over(2);
  go_on(run, passed_over);
  CHECK(passed_over == expected);
}
