// SPDX-License-Identifier: Apache-2.0
// Manifests whose sum is right and whose words are not: each value missing, of another type, or out of its range is
// refused, by file and field.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {
using json = nlohmann::ordered_json;

acco::parameter_layout layout() {
  acco::parameter_layout layout;
  layout.add("wte", {10, 33}).add("still", {7, 9}, layout.add_group({.frozen = true}));
  return layout;
}
auto make(acco::threads_backend const& world) {
  return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world,
                         layout()};
}
/// A checkpoint in the folder of a run; its path.
std::string checkpoint(std::string const& run) {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world);
    t.initialize(problem::converted<float>(problem::initial(layout().size())));
    for (std::size_t m = 0; m < 6; ++m) {
      (void)problem::add_sample(problem::sample_id(world.rank(), m, 0), t.parameters(), t.gradients());
      if (m == 3) t.save(run, [&] { return world.rank(); });
      (void)t.accumulated(1);
    }
    t.finish();
  });
  return acco::latest_checkpoint(run).value();
}
/// These words with the sum that they have.
std::string with_sum(std::string const& words) {
  return words + ",\n \"sum\": \"" + acco::checkpoints::hex(acco::checkpoints::sum_of(std::as_bytes(std::span(words)))) +
         "\"\n}\n";
}
std::string with_sum(json tree) {
  tree.erase("sum");
  const std::string text = tree.dump(1);
  return with_sum(text.substr(0, text.size() - 2));
}
/// What is said of it; empty: it is taken.
std::string said_of(std::string const& manifest) {
  try {
    (void)acco::checkpoints::read_manifest(manifest);
  } catch (std::runtime_error const& e) {
    return e.what();
  }
  return "";
}
/// Calls visit(pointer) for every value of the tree, the outermost excluded.
template <class Visit>
void for_values(json const& tree, json::json_pointer const& at, Visit&& visit) {
  if (!tree.is_structured()) return;
  std::size_t number = 0;
  for (auto const& [key, value] : tree.items()) {
    const auto here = tree.is_array() ? at / number++ : at / key;
    visit(here);
    for_values(value, here, visit);
  }
}
/// How a message names what lies there: "files"[0]."name".
std::string named(json const& tree, json::json_pointer at) {
  std::vector<std::string> words;
  for (; !at.empty(); at = at.parent_pointer())
    words.insert(words.begin(), tree[at.parent_pointer()].is_array() ? "[" + at.back() + "]" : "\"" + at.back() + "\"");
  std::string name;
  for (auto const& each : words) name += (name.empty() || each[0] == '[' ? "" : ".") + each;
  return name;
}
}  // namespace

TEST_CASE("each value of a manifest, missing, or of another type, with a sum that is right") {
  const scratch folder;
  const json whole = json::parse(content(checkpoint(folder.run()) + "/manifest.json"));
  REQUIRE(said_of(with_sum(whole)).empty());
  const std::vector<json> others{nullptr,
                                 true,
                                 7,
                                 -1,
                                 1.5,
                                 std::numeric_limits<std::uint64_t>::max(),
                                 "",
                                 "nothing",
                                 "../x",
                                 "nan(1)",
                                 "0x1.8q+3",
                                 json::array(),
                                 json::object(),
                                 json::array({1, 2}),
                                 json::object({{"name", 1}})};
  std::size_t values = 0, tried = 0;
  for_values(whole, json::json_pointer(), [&](json::json_pointer const& at) {
    if (at.back() == "sum") return;
    ++values;
    json const& value = whole[at];
    const std::string name = named(whole, at);
    CAPTURE(name);
    const bool in_array = whole[at.parent_pointer()].is_array();
    if (!in_array) {
      json other = whole;
      other[at.parent_pointer()].erase(at.back());
      // a count that is younger than the oldest manifests may be missing
      const bool may = name.ends_with("\"round counts\".\"" + at.back() + "\"") &&
                       std::ranges::find(acco::checkpoints::listed_sums, at.back()) == std::end(acco::checkpoints::listed_sums);
      std::string const said = said_of(with_sum(other));
      CHECK((may ? said.empty() : said.starts_with(name + ": ")));
    }
    const std::string top = at.to_string();
    const bool free_text = top == "/library" || top.starts_with("/construction/");
    const bool file_name = top.starts_with("/files/") && at.back() == "name";
    for (std::size_t k = 0; k < others.size(); ++k) {
      if (!thorough() && (k + values) % 4 != 0) continue;  // each of these with a quarter of the values
      json const& each = others[k];
      CAPTURE(each.dump());
      const bool same_kind =
          each.type() == value.type() || (each.is_array() && value.is_array()) || (each.is_object() && value.is_object());
      if (same_kind && (free_text || (file_name && each == "nothing") || each == value || value.is_boolean())) continue;
      if (each.is_number_unsigned() && value.is_number_unsigned() && each == 7) continue;  // as good a number
      if (each.is_number_integer() && each == 7 && value.is_number_unsigned()) continue;
      if (each.is_array() && (at.back() == "round regions" || at.back() == "construction") && each.empty())
        continue;  // these may be empty
      json other = whole;
      other[at] = each;
      const std::string told = said_of(with_sum(other));
      ++tried;
      CHECK_MESSAGE(!told.empty(), "taken");
      if (each.is_array() || each.is_object() || at.back() == "format")
        continue;  // then a value inside is named, or the format told
      CHECK_MESSAGE(told.find(name) != std::string::npos, told);
    }
  });
  CHECK(values > 100);
  CHECK(tried > (thorough() ? 1000U : 250U));
}

TEST_CASE("what manifests had before, and nobody reads any more, is passed over") {
  const scratch folder;
  json older = json::parse(content(checkpoint(folder.run()) + "/manifest.json"));
  older["state"]["silent in a row"] = 3;
  older["state"]["idle in a row"] = 0;
  older["state"]["had gradients"] = true;
  older["state"]["loss scale now"] = "0x1p+4";
  for (json& each : older["ranks"]) each["habits"] = json::array({"0123456789abcdef", "0x0p+0"});
  CHECK(said_of(with_sum(older)).empty());
}

TEST_CASE("values of a manifest that are out of their range") {
  const scratch folder;
  const std::string path = checkpoint(folder.run());
  const json whole = json::parse(content(path + "/manifest.json"));
  const auto refused = [&](char const* at, json const& value, std::string const& words) {
    json other = whole;
    other[json::json_pointer(at)] = value;
    const std::string told = said_of(with_sum(other));
    CAPTURE(value.dump());
    CHECK_MESSAGE(told.find(words) != std::string::npos, at, ": ", told);
  };
  for (char const* const number : {"nan", "inf", "-inf"}) {
    refused("/state/samples before", number, "\"state\".\"samples before\" is not finite");
    refused("/state/step weight", number, "is not finite");
    refused("/state/round rate", number, "is not finite");
    refused("/state/round loss scale", number, "is not finite");
  }
  for (char const* const number :
       {"1.5", "0x", "0x1p", " 0x1p+0", "0x1p+0 ", "--0x1p+0", "0x-1p+0", "0x1p+99999", "NAN", "infinity", "0x1,8p+0"})
    refused("/state/step loss sum", number, "\"state\".\"step loss sum\" is no number in hexadecimal digits");
  refused("/state/round loss scale", "-0x1p+0", "\"state\".\"round loss scale\" is not positive");
  refused("/state/round loss scale", "0x0p+0", "\"state\".\"round loss scale\" is not positive");
  refused("/sequence", std::uint64_t{1} << 63U, "\"sequence\" is no whole number of at most 4611686018427387904");
  // which older ones have in the place of arrays
  refused("/slots", 1001, "\"slots\" is no whole number of at most 1000");
  refused("/arrays", json::array(), "\"arrays\" lacks the masters");
  refused("/arrays/1/extent", "half", "\"arrays\"[1].\"extent\" is 'half', which is none of its words");
  refused("/arrays/1/name", "adamw.7", "\"arrays\"[1].\"name\" is 'adamw.7', of which a file is missing");
  refused("/step", whole["step"].get<int>() + 1, "\"step\" is not what \"state\" comes to");
  refused("/samples", 1e300, "\"samples\" is not what \"state\" comes to");
  refused("/master", "I64", "\"master\" is 'I64', which is no type of elements");
  refused("/run", "../../etc", "\"run\" is no number of a run");
  refused("/from", "0123456789ab", "\"from\" is no array");
  refused("/from", json::array({"0123456789ab", "../../etc"}), "\"from\"[1] is no number of a run");
  refused("/digest", "xyz", "\"digest\" is no sum");
  refused("/ranks", json::array(), "\"ranks\" is empty");
  for (char const* const name :
       {"../master.safetensors", "/etc/passwd", "a/b", ".", "..", "", ".hidden", "a\nb", "a\\b", "\xc3\xa9"})
    refused("/files/0/name", name, "\"files\"[0].\"name\" is '");
  refused("/files/0/name", std::string("master\0x", 8), "no plain name of a file");
  refused("/files/0/name", std::string(256, 'a'), "no plain name of a file");
  refused("/files/0/name", whole["files"][1]["name"],
          "\"files\"[1].\"name\" is '" + whole["files"][1]["name"].get<std::string>() + "' a second time");
  refused("/files/0/data", whole["files"][0]["bytes"].get<int>() + 1, "\"files\"[0].\"data\" is more than the file has");
  refused("/files/0/bytes", std::uint64_t{1} << 60U,
          "\"files\"[0].\"chunks\" has other sums than the size of 'master.safetensors' asks for");
  refused("/files/0/chunks", json::array(), "\"files\"[0].\"chunks\" has other sums");
  refused("/files/0/chunks/0", "12", "\"files\"[0].\"chunks\"[0] is no sum");
  refused("/state/pace", json::array({"0x1p+0"}), "\"state\".\"pace\" does not have 5 numbers");
  refused("/ranks/1/bytes_sent", -1, "\"ranks\"[1].\"bytes_sent\" is no whole number");
  {
    json other = whole;
    other["files"].erase(other["files"].size() - 1);
    CHECK(said_of(with_sum(other)) == "\"files\" lacks trainer-00001-of-00002, which \"ranks\" tells of");
  }
  double back = 0;
  for (double number :
       {0.0, -0.0, 1.0, -1.5, 5e-324, 2.5e-310, 1.7976931348623157e308, 0.1, std::numeric_limits<double>::infinity()}) {
    CHECK(acco::checkpoints::read_exactly(acco::checkpoints::exactly(number), back));
    CHECK(std::bit_cast<std::uint64_t>(back) == std::bit_cast<std::uint64_t>(number));
  }
  CHECK(acco::checkpoints::exactly(-12.0) == "-0x1.8p+3");
  const double no_number = std::numeric_limits<double>::signaling_NaN();
  CHECK((acco::checkpoints::read_exactly(acco::checkpoints::exactly(-no_number), back) && std::isnan(back)));
  for (std::string_view text : {"",
                                "-",
                                "0x",
                                "0xp+3",
                                "0x1",
                                "1p+3",
                                "0x1p",
                                "0x1p+-3",
                                "0x1p++3",
                                "0x1p+3 ",
                                "0x 1p+0",
                                "0x.8p+1",
                                "0x1..p+1",
                                "--0x1p+0",
                                "0x1p+1024",
                                "0x1p-1075",
                                "0x1p+99999999999",
                                "0x-1p+0",
                                "0x+1p+0",
                                "nan(1)",
                                "0x1.fffffffffffff8p+1"}) {
    CAPTURE(text);
    CHECK_FALSE(acco::checkpoints::read_exactly(text, back));
  }
}

TEST_CASE("text of a manifest that is no JSON, or that is made to exhaust its reader") {
  const scratch folder;
  const std::string path = checkpoint(folder.run()), file = path + "/manifest.json";
  const std::string whole = content(file), words = whole.substr(0, whole.rfind(",\n \"sum\""));
  REQUIRE(with_sum(words) == whole);
  const auto refused = [&](std::string const& other, std::string const& why) {
    const std::string told = said_of(with_sum(other));
    CHECK_MESSAGE(told.find(why) != std::string::npos, told.substr(0, 300));
    write(file, with_sum(other));
    auto const found = acco::verify_checkpoint(path);
    REQUIRE(found.problems.size() == 1);
    CHECK(found.problems[0].starts_with(file + ": "));
  };
  refused(words + ",\n \"more\": " + std::string(1'000'000, '['), "parse error");
  refused(words + std::string(1, '\0'), "parse error");
  refused(words + " // words", "parse error");
  refused(words.substr(1), "parse error");
  refused("", "parse error");
  CHECK(said_of(with_sum(words + ",\n \"more\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']'))).empty());
  write(file, whole);
  CHECK(acco::verify_checkpoint(path));
}

TEST_CASE("a header that no reader takes is found where all sums are right") {
  const scratch folder;
  const std::string path = checkpoint(folder.run()), file = path + "/master.safetensors", whole = content(file);
  json tree = json::parse(content(path + "/manifest.json"));
  const auto header = [&](std::string const& from, std::string const& to) {
    std::string other = whole;
    other.replace(other.find(from), from.size(), to);
    write(file, other);
    tree["files"][0]["header"] = acco::checkpoints::hex(acco::checkpoints::sum_of(std::as_bytes(std::span(other).first(4096))));
    write(path + "/manifest.json", with_sum(tree));
    auto const found = acco::verify_checkpoint(path);
    return found ? std::string() : found.problems[0];
  };
  CHECK(header("wte", "wtf").empty());  // names of other tensors are refused by a restore
  CHECK(header("[0,1320]", "[0,1321]").starts_with(file + ": its header is refused: tensor 'wte' has bytes 0 to 1321"));
  CHECK(header("{\"__metadata__\":{", "{\"__metadata__\":[")
            .starts_with(file + ": its header is refused: '__metadata__' is an array"));
  CHECK(header("\"dtype\":\"F32\"", "\"dtype\":\"F33\"").starts_with(file + ": its header is refused: "));
  (void)header("wte", "wtf");
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world);
    CHECK_THROWS_WITH_AS((void)t.restore(path), doctest::Contains("its header names other tensors"), acco::checkpoint_error);
  });
}

TEST_CASE("a restore passes over a hostile checkpoint, or refuses it by name, alike on every rank") {
  const scratch folder;
  const std::string older = checkpoint(folder.run()), newer = folder.run() + "/step-00000099999";
  std::filesystem::copy(older, newer);
  json tree = json::parse(content(older + "/manifest.json"));
  tree["sequence"] = 99;
  tree["files"][0]["name"] = "../" + std::filesystem::path(older).filename().string() + "/master.safetensors";
  write(newer + "/manifest.json", with_sum(tree));
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    auto t = make(world);
    auto const back = t.restore(folder.run());
    CHECK(back.path == older);
    if (world.rank() == 0) {
      REQUIRE(back.skipped.size() == 1);
      CHECK_MESSAGE(back.skipped[0].find(newer + "/manifest.json: \"files\"[0].\"name\" is '../step-") == 0, back.skipped[0]);
    }
    t.finish();
  });
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto t = make(world);
    CHECK_THROWS_WITH_AS((void)t.restore(newer), doctest::Contains("no plain name of a file"), acco::checkpoint_error);
  });
}

TEST_CASE(
    "a manifest whose files are shorter than their tensors, or of a type that its construction denies, writes over nothing") {
  using namespace acco::checkpoints;
  const auto refused = [](std::string const& path, manifest const& m, int ranks) {
    write(path + "/manifest.json", write_manifest(m));
    std::string what;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto t = make(world);
      try {
        (void)t.restore(path);
      } catch (std::exception const& e) {
        if (world.rank() == 0) what = e.what();
      }
    });
    return what;
  };
  SUBCASE("shorter") {
    for (const int ranks : {1, 2}) {
      for (const std::uint64_t bytes : {4U, 100U, 200U}) {
        const scratch folder(in_memory());
        const std::string path = checkpoint(folder.run("short"));
        manifest m = manifest_of(path);
        file_record& file = m.files.front();
        REQUIRE(file.name == "master.safetensors");
        file.bytes = file.data + bytes;
        std::filesystem::resize_file(path + "/" + file.name, file.bytes);
        const std::string words = content(path + "/" + file.name);
        file.chunks = {sum_of_blocks(std::as_bytes(std::span(words)).subspan(file.data), 0)};
        auto const what = refused(path, m, ranks);
        CAPTURE(what);
        CHECK(what.find("its tensors take") != std::string::npos);
      }
    }
  }
  SUBCASE("of another type") {
    const scratch folder(in_memory());
    const std::string run = folder.run("type");
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float, float, double>{},
                        world, layout()};
      t.initialize(problem::converted<float>(problem::initial(layout().size())));
      t.save(run);
      for (int k = 0; k < 6; ++k) {
        t.gradients()[0] += 1;
        (void)t.accumulated(1);
      }
      t.finish();
    });
    const std::string path = acco::latest_checkpoint(run).value();
    manifest m = manifest_of(path);
    bool forged = false;
    for (std::string& line : m.construction) {
      if (line != "master type = double") continue;
      line = "master type = float";
      forged = true;
    }
    REQUIRE(forged);
    auto const what = refused(path, m, 2);
    CAPTURE(what);
    CHECK(what.find("of another type than its construction says") != std::string::npos);
  }
}
