// SPDX-License-Identifier: Apache-2.0
// Writes the inputs that fuzzing begins with: seeds FOLDER.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <acco/checkpoint/manifest.hpp>
#include <acco/checkpoint/tensor_file.hpp>

namespace {
using namespace acco::checkpoints;

void write(std::string const& path, std::string const& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

acco::checkpoints::manifest small_manifest() {
  acco::checkpoints::manifest m;
  m.library = "0.1.0";
  m.run = m.session = "0123456789ab";
  m.sequence = 3;
  m.shape.parameter = acco::element_type::bfloat16;
  for (char const* name : {"master", "adamw.0", "adamw.1", "average"}) m.shape.add({.name = name});
  m.shape.add({.name = "residual", .extent = acco::array_extent::whole, .use = acco::array_use::feedback});
  m.construction = {"schedule = two_phase", "rule = adamw"};
  m.numbers.run.steps = 12;
  m.numbers.run.samples = 96;
  m.numbers.completed = m.numbers.last.apply = true;
  m.numbers.last.step_weight = 8;
  m.numbers.last.measured = {1.5, 0x1p-1074};
  m.files = {{"master.safetensors", 4096 + 12, 4096, 77, {5}}, {"trainer-00000-of-00001", 4, 0, sum_of({}), {6}}};
  m.ranks = {{.micro_batches = 3, .bytes_sent = 40, .has_trainer = true, .level = {}}};
  return m;
}
}  // namespace

int main(int count, char** words) {
  if (count != 2) return 1;
  const std::string folder = words[1];
  std::filesystem::create_directories(folder + "/tensor_header");
  std::filesystem::create_directories(folder + "/manifest");

  const auto write_one = [&](std::string const& name, acco::checkpoints::manifest const& m) {
    const std::string all = write_manifest(m);
    write(folder + "/manifest/" + name, all.substr(0, all.rfind(",\n \"sum\"")));
  };
  acco::checkpoints::manifest m = small_manifest();
  write_one("small", m);
  m.ranks.front().level.emplace();
  write_one("local_updates", m);
  write(folder + "/manifest/empty", "{");

  const std::vector<tensor_entry> tensors{{"wte", acco::element_type::float32, {2, 3}, 6},
                                          {"empty", acco::element_type::float16, {0}, 0}};
  std::string file = header_of(tensors, {{"format", "pt"}});
  file.resize(file.size() + 24);
  write(folder + "/tensor_header/file", '\0' + file);
  int number = 0;
  const auto header = [&](std::string const& text, std::uint16_t data) {
    std::string input("\1");
    input += static_cast<char>(data & 0xffU);
    input += static_cast<char>(data >> 8U);
    write(folder + "/tensor_header/header-" + std::to_string(number++), input + text);
  };
  header("{}", 0);
  header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )", 8);
  header(
      R"({"__metadata__":{"a":"b","":"\u0041"},"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})",
      5);
  header(R"({"x":{"shape":[4,1],"data_offsets":[0,2],"dtype":"F4"},"y":{"dtype":"F64","shape":[1],"data_offsets":[2,10]}})", 10);
  header(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"I64","shape":[18446744073709551615],"data_offsets":[8,1e1]}})",
      8);
}
