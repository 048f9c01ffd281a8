// SPDX-License-Identifier: Apache-2.0
// Files that are not what was written are refused, by name; an older whole checkpoint takes their place. What belongs
// to another training is refused, too.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {
acco::parameter_layout layout() {
  acco::parameter_layout layout;
  layout.add("wte", {1000, 33}).add("still", {7, 9}, layout.add_group({.frozen = true})).add("h.weight", {300, 21});
  return layout;
}
auto make(acco::threads_backend const& world) {
  return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world,
                         layout()};
}
/// Two checkpoints, of other steps; the newest first.
std::vector<std::string> two_checkpoints(std::string const& run) {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world);
    t.initialize(problem::converted<float>(problem::initial(layout().size())));
    for (int save = 0; save < 2; ++save) {
      for (std::size_t m = 0; m < 8; ++m) {
        (void)problem::add_sample(problem::sample_id(world.rank(), m, 0), t.parameters(), t.gradients());
        if (m == 3) t.save(run, [&] { return std::vector<int>(5, world.rank()); });
        (void)t.accumulated(1);
      }
      t.finish();
      REQUIRE(t.saved() != nullptr);
      REQUIRE_MESSAGE(t.saved()->complete(), t.saved()->problem);
    }
  });
  auto found = acco::checkpoints_in(run);
  REQUIRE(found.size() == 2);
  return found;
}
std::string all_of(acco::findings const& found) {
  std::string all;
  for (auto const& each : found.problems) all += each + "\n";
  return all;
}
}  // namespace

TEST_CASE("every byte of a manifest counts") {
  const scratch folder;
  const std::string path = two_checkpoints(folder.run()).front() + "/manifest.json";
  const std::string whole = content(path);
  CHECK_NOTHROW((void)acco::checkpoints::read_manifest(whole));
  for (std::size_t k = 0; k < whole.size(); ++k) {
    constexpr std::array bits{0, 3, 7};
    for (std::size_t which = 0; which < bits.size(); ++which) {
      if (!thorough() && which != k % bits.size()) continue;
      std::string other = whole;
      other[k] = static_cast<char>(other[k] ^ (1 << bits[which]));
      REQUIRE_THROWS_AS((void)acco::checkpoints::read_manifest(other), std::runtime_error);
    }
  }
  for (std::size_t size = 0; size < whole.size(); size += thorough() ? 1 : 7)
    REQUIRE_THROWS_AS((void)acco::checkpoints::read_manifest(whole.substr(0, size)), std::runtime_error);
  REQUIRE_THROWS_AS((void)acco::checkpoints::read_manifest(whole + " "), std::runtime_error);
  REQUIRE_THROWS_AS((void)acco::checkpoints::read_manifest(whole + whole), std::runtime_error);
}

TEST_CASE("bits that flip, files that are cut, grown, missing, or another step's: found, and named") {
  const scratch folder;
  auto const found = two_checkpoints(folder.run());
  std::string const &newest = found[0], &older = found[1];
  REQUIRE(acco::verify_checkpoint(newest));
  REQUIRE(acco::verify_checkpoint(older));
  REQUIRE(acco::latest_checkpoint(folder.run()) == newest);
  std::size_t files = 0;
  for (auto const& each : std::filesystem::directory_iterator(newest)) {
    const std::string name = each.path().filename().string(), path = each.path().string(), whole = content(path);
    CAPTURE(name);
    ++files;
    const auto refused = [&](std::string const& words) {
      const std::string told = all_of(acco::verify_checkpoint(newest));
      CHECK_MESSAGE(told.find(name) != std::string::npos, told);
      CHECK_MESSAGE(told.find(words) != std::string::npos, told);
    };
    std::vector<std::string> skipped;
    write(path, whole.substr(0, whole.size() - 1));
    refused("");
    CHECK(acco::latest_checkpoint(folder.run(), &skipped) == older);
    CHECK(skipped.size() == 1);
    write(path, whole + '\0');
    refused("");
    std::filesystem::remove(path);
    refused("No such file");
    if (name != "frozen.safetensors" && !name.starts_with("trainer")) {
      write(path, content(older + "/" + name));
      if (name != "manifest.json") refused("damaged");
      if (name == "manifest.json") CHECK(!acco::verify_checkpoint(newest));
    }
    if (name == "manifest.json") {
      write(path, whole);
      continue;
    }
    const std::size_t tries = (thorough() ? 1500U : 100U), data = name.ends_with("safetensors") ? 4096 : 0;
    for (std::size_t k = 0; k < tries; ++k) {
      const auto at = static_cast<std::size_t>(problem::unit(k * 3 + 1) * static_cast<double>(whole.size()));
      std::string other = whole;
      other[at] = static_cast<char>(other[at] ^ (1 << (k % 8)));
      write(path, other);
      const std::string told = all_of(acco::verify_checkpoint(newest));
      REQUIRE_MESSAGE(told.find(name) != std::string::npos, told);
      REQUIRE_MESSAGE(told.find(at < data ? "header" : "chunk") != std::string::npos, told);
      if (at >= data && data != 0) REQUIRE_MESSAGE(told.find("tensor") != std::string::npos, told);
    }
    for (std::size_t at = 0; at < data; ++at) {
      std::string other = whole;
      other[at] = static_cast<char>(other[at] ^ 1);
      if (at % (thorough() ? 1 : 64) != 0) continue;
      write(path, other);
      const std::string told = all_of(acco::verify_checkpoint(newest));
      REQUIRE_MESSAGE(told.find(name + ": its header is damaged") != std::string::npos, told);
    }
    write(path, whole);
    REQUIRE(acco::verify_checkpoint(newest));
  }
  CHECK(files == 8);  // manifest, masters, two slots, in use, frozen, two trainers
}

TEST_CASE("files cut at any length, and files of another run, of another step, or of another array: found, named, passed over") {
  const scratch folder;
  auto const found = two_checkpoints(folder.run());
  auto const others = two_checkpoints(folder.run("other"));  // of the same steps, with the same values
  std::string const& newest = found[0];
  std::vector<std::string> names;
  for (auto const& each : std::filesystem::directory_iterator(newest)) names.push_back(each.path().filename().string());
  std::size_t tried = 0;
  const auto refused = [&](std::string const& name, std::string const& bytes, std::string const& words) {
    const std::string path = newest + "/" + name, whole = content(path);
    CAPTURE(name);
    CAPTURE(bytes.size());
    write(path, bytes);
    ++tried;
    const std::string told = all_of(acco::verify_checkpoint(newest));
    CHECK_MESSAGE(told.find(words) != std::string::npos, told);
    std::vector<std::string> skipped;
    CHECK(acco::latest_checkpoint(folder.run(), &skipped) == found[1]);
    CHECK(!skipped.empty());
    write(path, whole);
  };
  const std::size_t lengths = thorough() ? 100 : 10;
  for (std::string const& name : names) {
    const std::string whole = content(newest + "/" + name), path = newest + "/" + name;
    std::set<std::size_t> cut{0, 1, 7, 8, 9, 4095, 4096, 4097, whole.size() / 2, whole.size() - 1};
    for (std::size_t k = 0; k < lengths; ++k)
      cut.insert(static_cast<std::size_t>(problem::unit(k * 7 + 5) * static_cast<double>(whole.size())));
    for (const std::size_t size : cut) {
      if (size >= whole.size()) continue;
      const bool manifest = name == "manifest.json";
      refused(name, whole.substr(0, size),
              manifest ? path + ": it does not end as a manifest ends"
                       : path + " has " + std::to_string(size) + " bytes, and the manifest says " + std::to_string(whole.size()));
    }
    if (name.starts_with("trainer")) continue;  // the same bytes in both
    for (std::string const& other : others) {
      refused(name, content(other + "/" + name),
              name == "manifest.json" ? newest + "/master.safetensors: its header is damaged" : path + ": its header is damaged");
    }
    if (name == "adamw.0.safetensors" || name == "master.safetensors")  // the same header
      refused(name, content(newest + "/adamw.1.safetensors"), path + ": chunk 0 is damaged, in the tensors 'wte' to 'h.weight'");
  }
  CHECK(acco::verify_checkpoint(newest));
  CHECK(tried > names.size() * lengths / 3);
  // What belongs to another run is found even where its sums are right: header and manifest of one run, and the files
  // of another.
  for (std::string const& name : names) {
    if (name == "manifest.json") continue;
    std::filesystem::copy_file(others[0] + "/" + name, newest + "/" + name, std::filesystem::copy_options::overwrite_existing);
  }
  CHECK(all_of(acco::verify_checkpoint(newest)).find("master.safetensors: its header is damaged") != std::string::npos);
}

TEST_CASE(
    "a restore takes the newest whole one, tells what it passed over, and refuses alike on every rank where there is none") {
  const scratch folder;
  auto const found = two_checkpoints(folder.run());
  const auto spoil = [](std::string const& path) {
    std::string bytes = content(path);
    bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 4);
    write(path, bytes);
  };
  spoil(found[0] + "/adamw.1.safetensors");  // at its end: the last rank's share
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    auto t = make(world);
    auto const back = t.restore(folder.run());
    CHECK(back.path == found[1]);
    if (world.rank() == 0) {
      REQUIRE(back.skipped.size() == 1);
      CHECK_MESSAGE(back.skipped[0].find("adamw.1.safetensors: chunk 0 is damaged, in the tensors 'wte' to 'h.weight'") !=
                        std::string::npos,
                    back.skipped[0]);
    }
    t.finish();
  });
  spoil(found[1] + "/master.safetensors");
  std::filesystem::create_directories(folder.run() + "/step-00000000099");  // without a manifest: none
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    auto t = make(world);
    std::string words;
    try {
      (void)t.restore(folder.run());
    } catch (acco::checkpoint_error const& e) {
      words = e.what();
    }
    CHECK_MESSAGE(words.find("no whole checkpoint in " + folder.run()) != std::string::npos, words);
    CHECK_MESSAGE(words.find("and 2 more") != std::string::npos, words);
    CHECK_THROWS_AS(t.finish(), acco::checkpoint_error);
  });
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world);
    CHECK_THROWS_WITH_AS((void)t.restore(folder.run("nowhere")), doctest::Contains("there is none"), acco::checkpoint_error);
  });
}

TEST_CASE("another training's checkpoint is refused by the line that differs; what may change does, where that is asked for") {
  const scratch folder;
  const std::string newest = two_checkpoints(folder.run()).front();
  const auto refused = [&](auto const& make_other, std::string const& words, bool always) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      std::string told;
      try {
        auto t = make_other(world);
        (void)t.restore(folder.run());
      } catch (acco::checkpoint_error const& e) {
        told = e.what();
      }
      CHECK_MESSAGE(told.find("is another training's: the checkpoint has " + words) != std::string::npos, told);
    });
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      auto t = make_other(world);
      if (always) {  // whatever is asked for
        CHECK_THROWS_AS((void)t.restore(folder.run(), acco::changes::allowed), acco::checkpoint_error);
        return;
      }
      auto const back = t.restore(folder.run(), acco::changes::allowed);
      CHECK(!back.exact);
      CHECK(back.step == t.steps() + (t.world_digest() == back.digest && t.steps() != back.step ? 1 : 0));
      CHECK(t.world_digest() == acco::checkpoints::manifest_of(newest).digest);
      for (std::size_t m = 0; m < 4; ++m) {
        (void)problem::add_sample(m, t.parameters(), t.gradients());
        (void)t.accumulated(1);
      }
      t.finish();
      CHECK(t.steps() > back.step);
    });
  };
  using storage = acco::host_storage<float>;
  refused([](auto const& w) { return acco::optimizer{acco::delayed{}, acco::adamw{}, storage{}, w, layout()}; },
          "'schedule = two_phase', this training has 'schedule = delayed'", false);
  refused(
      [](auto const& w) {
        return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{2}}, acco::adamw{}, storage{}, w, layout()};
      },
      "'pace.first = 1 to 1', this training has 'pace.first = 2 to 2'", false);
  refused(
      [](auto const& w) {
        return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{.learning_rate = 0.5}, storage{}, w,
                               layout()};
      },
      "'rule.learning_rate = 0.001', this training has 'rule.learning_rate = 0.5'", false);
  refused(
      [](auto const& w) {
        return acco::optimizer{
            acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, storage{}, w, layout(), acco::options{.clip_norm = 2}};
      },
      "'options.clip_norm = 0', this training has 'options.clip_norm = 2'", false);
  refused(
      [](auto const& w) {
        return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::lion{}, storage{}, w, layout()};
      },
      "'rule = adamw', this training has 'rule = lion'", true);
  refused(
      [](auto const& w) {
        return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, storage{}, w,
                               layout().add("more", {3})};
      },
      "'", true);
  refused(
      [](auto const& w) {
        return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{},
                               acco::host_storage<acco::bfloat16, float>{}, w, layout()};
      },
      "'parameter type = float', this training has 'parameter type = bfloat16'", true);
  refused(
      [](auto const& w) {
        return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, storage{}, w, layout(),
                               acco::options{.average_decay = 0.9}};
      },
      "'options.average_decay = 0', this training has 'options.average_decay = 0.9'", true);
}
