// SPDX-License-Identifier: Apache-2.0
// Model files: what is written is read, in any type; what is not what the format asks for is refused, by file, tensor
// and byte.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <acco/bfloat16.hpp>
#include <acco/checkpoint/model_file.hpp>
#include <acco/checkpoint/model_writer.hpp>
#include <acco/half.hpp>

#include "checkpoint/scratch.hpp"

namespace {
/// A file with this header, its length in front, and so many bytes of data.
std::string file_of(std::string const& header, std::size_t data, std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  for (std::size_t k = 0; k < data; ++k) bytes += static_cast<char>(k);
  return bytes;
}
std::string file_of(std::string const& header, std::size_t data) { return file_of(header, data, header.size()); }
std::size_t files_in(std::string const& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] auto const& each : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}
template <class T>
std::vector<T> all_of(acco::model_file const& model, std::string_view name) {
  std::vector<T> values(model.find(name)->elements);
  model.read(name, 0, std::span(values));
  return values;
}
const std::string simple = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
}  // namespace

TEST_CASE("what is written is read, in every type, in pieces of any size") {
  const scratch folder;
  const std::string path = folder.path() + "/model.safetensors";
  const std::vector<acco::tensor_to_write> tensors{
      {"wide", {2, 3}, acco::element_type::float64},    {"plain \"quoted\" \xc3\xa9", {20001}, acco::element_type::float32},
      {"nothing", {5, 0}, acco::element_type::float32}, {"one", {}, acco::element_type::float32},
      {"brain", {4}, acco::element_type::bfloat16},     {"half", {3}, acco::element_type::float16}};
  const std::vector<double> wide{1, -2, 0.1, 1e-300, std::numeric_limits<double>::infinity(), 6};
  std::vector<float> plain(20001);
  for (std::size_t k = 0; k < plain.size(); ++k) plain[k] = 1.0F + 0x1p-23F * static_cast<float>(k);
  const std::vector<acco::bfloat16> brain{acco::bfloat16(1.0F), acco::bfloat16(-3e38F), acco::bfloat16(1e-40F),
                                          acco::bfloat16(0.1F)};
  const std::vector<acco::half> half{acco::half(1.0F), acco::half(65504.0F), acco::half(6e-8F)};
  const float one = 7;
  const std::vector<std::span<std::byte const>> bytes{
      std::as_bytes(std::span(wide)),    std::as_bytes(std::span(plain)), {},
      std::as_bytes(std::span(&one, 1)), std::as_bytes(std::span(brain)), std::as_bytes(std::span(half))};
  acco::write_model(
      path, tensors,
      [&](std::size_t k, std::uint64_t at) { return bytes[k].subspan(at, std::min<std::size_t>(997, bytes[k].size() - at)); },
      {{"format", "pt"}, {"who", "\"me\""}});
  CHECK(files_in(folder.path()) == 1);

  const acco::model_file model(path);
  CHECK(model.files() == std::vector<std::string>{path});
  CHECK(model.about().at("who") == "\"me\"");
  REQUIRE(model.tensors().size() == tensors.size());
  std::uint64_t at = model.tensors().front().begin;
  CHECK(at % 4096 == 0);
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    auto const* const found = model.find(tensors[k].name);
    REQUIRE(found != nullptr);
    CHECK(found->shape == tensors[k].shape);
    CHECK(found->bytes == bytes[k].size());
    CHECK(found->begin == at);
    CHECK(content(path).substr(found->begin, found->bytes) ==
          std::string(reinterpret_cast<char const*>(bytes[k].data()), bytes[k].size()));
    at += found->bytes;
  }
  CHECK(std::filesystem::file_size(path) == at);
  CHECK(all_of<double>(model, "wide") == wide);
  CHECK(all_of<float>(model, tensors[1].name) == plain);
  CHECK(all_of<float>(model, "one") == std::vector<float>{7});
  CHECK(all_of<float>(model, "nothing").empty());
  auto const widened = all_of<double>(model, tensors[1].name);
  auto const narrowed = all_of<acco::bfloat16>(model, tensors[1].name);
  auto const halves = all_of<acco::half>(model, tensors[1].name);
  for (std::size_t k = 0; k < plain.size(); ++k) {
    REQUIRE(widened[k] == static_cast<double>(plain[k]));
    REQUIRE(narrowed[k].bits() == acco::bfloat16(plain[k]).bits());
    REQUIRE(halves[k].bits() == acco::half(plain[k]).bits());
  }
  for (std::size_t k = 0; k < brain.size(); ++k)
    CHECK(all_of<double>(model, "brain")[k] == static_cast<double>(static_cast<float>(brain[k])));
  for (std::size_t k = 0; k < half.size(); ++k) CHECK(all_of<float>(model, "half")[k] == static_cast<float>(half[k]));
  CHECK(all_of<float>(model, "wide")[2] == 0.1F);
  std::vector<double> some(9001);  // across pieces
  model.read(tensors[1].name, 11000, std::span(some));
  CHECK(some.front() == static_cast<double>(plain[11000]));
  CHECK(some.back() == static_cast<double>(plain[20000]));

  CHECK_THROWS_WITH_AS(model.read("wide", 1, std::span(some).first(6)), doctest::Contains("elements 1 to 7 of tensor 'wide'"),
                       acco::usage_error);
  CHECK_THROWS_AS(model.read("wide", ~std::uint64_t{0}, std::span(some).first(2)), acco::usage_error);
  CHECK_THROWS_WITH_AS(model.read("other", 0, std::span(some)), doctest::Contains("has no tensor 'other'"),
                       acco::checkpoint_error);
}

TEST_CASE("a model that is not finished leaves what was there; one that is takes its place") {
  const scratch folder;
  const std::string path = folder.path() + "/model.safetensors";
  write(path, "before");
  const std::vector<float> values{1, 2, 3};
  const auto bytes = std::as_bytes(std::span(values));
  {
    acco::model_writer writer(path, {{"a", {3}}});
    writer.append(bytes.first(5));
    CHECK(writer.missing() == 7);
    CHECK(files_in(folder.path()) == 2);
    CHECK_THROWS_WITH_AS(writer.commit(), doctest::Contains("7 bytes of its tensors have not been given"), acco::usage_error);
    CHECK_THROWS_WITH_AS(writer.append(bytes.first(8)), doctest::Contains("8 bytes more were given"), acco::usage_error);
  }
  CHECK(files_in(folder.path()) == 1);
  CHECK(content(path) == "before");
  CHECK_THROWS_WITH_AS(acco::write_model(path, {{"a", {3}}}, [&](auto, auto) { return bytes.first(0); }),
                       doctest::Contains("gave 0 bytes of tensor 'a'"), acco::usage_error);
  write(folder.path() + "/.model.safetensors.writing-1-0", "of one that was killed");
  {
    acco::model_writer writer(path, {{"a", {3}}});
    writer.append(bytes);
    CHECK(content(path) == "before");
    writer.commit();
    CHECK_THROWS_AS(writer.commit(), acco::usage_error);
    CHECK_THROWS_AS(writer.append(bytes.first(0)), acco::usage_error);
  }
  CHECK(files_in(folder.path()) == 1);
  CHECK(all_of<float>(acco::model_file(path), "a") == values);

  const auto refused = [&](std::vector<acco::tensor_to_write> const& tensors, std::string const& words) {
    CHECK_THROWS_WITH_AS(acco::model_writer(path, tensors), doctest::Contains(words.c_str()), acco::usage_error);
    CHECK(files_in(folder.path()) == 1);
  };
  refused({{"a", {3}}, {"a", {3}}}, "tensor 'a' cannot be written: it has a name that is taken");
  refused({{"__metadata__", {3}}}, "tensor '__metadata__' cannot be written: it has a name that is taken");
  refused({{"a", {3}, acco::element_type::float16}, {"b", {1}}}, "tensor 'b' cannot be written: it would not be aligned");
  refused({{"a", {std::uint64_t{1} << 40U, std::uint64_t{1} << 30U}}}, "tensor 'a' cannot be written: it has too many elements");
  refused({{"a\xff", {1}}}, "is not UTF-8");
  CHECK_THROWS_WITH_AS(acco::model_writer(folder.path() + "/none/model", {{"a", {1}}}), doctest::Contains("No such file"),
                       acco::checkpoint_error);
}

namespace {
/// The real calls, of which one fails.
class failing_calls final : public acco::checkpoints::system_calls {
 public:
  explicit failing_calls(int at) : left_(at) {}
  [[nodiscard]] bool failed() const noexcept { return left_ < 0; }
  std::vector<std::string> calls;

  int open(std::string const& path, int flags) override { return now("open") ? system_calls::open(path, flags) : -1; }
  int fallocate(int file, std::uint64_t at, std::uint64_t bytes) override {
    return now("fallocate") ? system_calls::fallocate(file, at, bytes) : -1;
  }
  ssize_t pwrite(int file, std::span<std::byte const> bytes, std::uint64_t at) override {
    return now("pwrite") ? system_calls::pwrite(file, bytes, at) : -1;
  }
  int fsync(int file) override { return now("fsync") ? system_calls::fsync(file) : -1; }
  int close(int file) override {
    const int closed = system_calls::close(file);
    return now("close") ? closed : -1;
  }
  int rename(std::string const& from, std::string const& to) override {
    return now("rename") ? system_calls::rename(from, to) : -1;
  }
  int unlink(std::string const& path) override { return now("unlink") ? system_calls::unlink(path) : -1; }

 private:
  bool now(char const* call) {
    calls.emplace_back(call);
    if (--left_ != -1) return true;
    errno = EIO;
    return false;
  }
  int left_;
};
}  // namespace

TEST_CASE(
    "each call of the disk fails once: the file is what it was, or the new one; nothing else is left; the order is the durable "
    "one") {
  const std::vector<float> values{1, 2, 3};
  const auto model = [&](std::string const& path, failing_calls& by) {
    acco::model_writer writer(path, {{"a", {3}}}, {}, &by);
    writer.append(std::as_bytes(std::span(values)));
    writer.commit();
  };
  const std::vector<std::string> order{"open",  "fallocate", "pwrite", "pwrite", "fsync",
                                       "close", "rename",    "open",   "fsync",  "close"};
  for (std::size_t at = 0; at <= order.size(); ++at) {
    CAPTURE(at);
    const scratch folder;
    const std::string path = folder.path() + "/model.safetensors";
    write(path, "before");
    failing_calls by(static_cast<int>(at));
    const bool fails = at + 1 < order.size();  // the last one closes a folder that is synced already
    if (fails) {
      CHECK_THROWS_WITH_AS(model(path, by), doctest::Contains("the model could not be written to "), acco::checkpoint_error);
    } else {
      model(path, by);
    }
    CHECK(by.failed() == (at < order.size()));
    if (at == order.size()) CHECK(by.calls == order);
    CHECK(files_in(folder.path()) == 1);
    if (at < 7) CHECK(content(path) == "before");
    if (at >= 7) CHECK(all_of<float>(acco::model_file(path), "a") == values);
  }
}

TEST_CASE("headers of others that are right") {
  const scratch folder;
  const std::string path = folder.path() + "/m.safetensors";
  const auto taken = [&](std::string const& header, std::size_t data, std::size_t tensors) {
    CAPTURE(header);
    write(path, file_of(header, data));
    CHECK(acco::model_file(path).tensors().size() == tensors);
  };
  taken("{}", 0, 0);
  taken("{}      ", 0, 0);
  taken(simple, 8, 1);
  taken(R"({ "a" : { "data_offsets" : [ 0 , 8 ] , "dtype":"F32",
    "shape":[2]} } )",
        8, 1);
  taken(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]},"a":{"dtype":"BF16","shape":[1,1,1],"data_offsets":[0,2]}})", 5,
        2);
  taken(
      R"({"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},"a":{"dtype":"F16","shape":[],"data_offsets":[0,2]},"c":{"dtype":"I8","shape":[1],"data_offsets":[2,3]}})",
      3, 3);
  taken(R"({"__metadata__":{"format":"pt","":"A"},"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2, 1);
  taken(R"({"\u0061":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3, 1);
  CHECK(acco::model_file(path).find("a") != nullptr);
  write(path, file_of(R"({"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8));
  double value = 0;
  CHECK_THROWS_WITH_AS(acco::model_file(path).read("n", 0, std::span(&value, 1)),
                       doctest::Contains("m.safetensors: tensor 'n' holds I64"), acco::checkpoint_error);
}

TEST_CASE("headers that are refused, and why") {
  const scratch folder;
  const std::string path = folder.path() + "/m.safetensors";
  const auto refused_file = [&](std::string const& bytes, std::string const& words) {
    CAPTURE(bytes);
    write(path, bytes);
    std::string told;
    try {
      const acco::model_file model(path);
    } catch (acco::checkpoint_error const& e) {
      told = e.what();
    }
    CHECK_MESSAGE(told.find(words) != std::string::npos, told);
    CHECK_MESSAGE(told.find("no model can be read from " + path) != std::string::npos, told);
  };
  const auto refused = [&](std::string const& header, std::size_t data, std::string const& words) {
    refused_file(file_of(header, data), words);
  };
  const auto entry = [](std::string const& dtype, std::string const& shape, std::string const& offsets) {
    return "{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  // Lengths.
  refused_file("", "has 0 bytes, fewer than 8");
  refused_file("1234567", "has 7 bytes, fewer than 8");
  refused_file(file_of("", 0), "does not end with '}'");
  refused_file(file_of(simple, 8, simple.size() + 9), "tell a header of 63 bytes, and the file has 62 behind them");
  refused_file(file_of(simple, 8, ~std::uint64_t{0}),
               "tell a header of 18446744073709551615 bytes, and the format ends at 100000000");
  refused_file(file_of(simple, 8, 100'000'001), "the format ends at 100000000");
  refused_file(file_of(simple, 8, 100'000'000), "the file has 62 behind them");
  refused_file(file_of(simple, 8, simple.size() - 1), "byte 54 of its JSON is not");
  refused(simple, 7, "its tensors end at byte 8 of the data, and the file has 7 bytes of data");
  refused(simple, 9, "the file has 9 bytes of data");
  refused("{}", 1, "its tensors end at byte 0 of the data");
  write(path, file_of("{}", 0, 100'000'001));
  std::filesystem::resize_file(path, 100'000'009);  // as long as it says
  CHECK_THROWS_WITH_AS(acco::model_file{path}, doctest::Contains("the format ends at 100000000"), acco::checkpoint_error);
  // What is around the object.
  refused(" " + simple, 8, "it does not begin with '{'");
  refused("\xef\xbb\xbf" + simple, 8, "it does not begin with '{'");
  refused("[]", 0, "does not end with '}'");
  refused(simple + "\n", 8, "does not end with '}' and spaces");
  refused(simple + "\t ", 8, "does not end with '}' and spaces");
  refused(simple + std::string(1, '\0'), 8, "does not end with '}' and spaces");
  refused(simple + std::string(1, '\0') + "}", 8, "it has a zero byte, the 54th");
  refused(simple + "{}", 8, "byte 55 of its JSON");
  refused(simple + ",}", 8, "byte 55 of its JSON");
  refused("{\"a\":}", 8, "byte 6 of its JSON");
  refused("{/**/}", 0, "byte 2 of its JSON");
  refused("{\"a\xff\":{}}", 0, "byte 4 of its JSON");
  refused("{\"\\ud800\":{}}", 0, "of its JSON");
  refused("{\"a\nb\":{}}", 0, "of its JSON");
  refused("{'a':{}}", 0, "byte 2 of its JSON");
  // Keys that stand twice.
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
          "'a' stands there twice");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"\u0061":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
          16, "'a' stands there twice");
  refused(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "'a'.'dtype' stands there twice");
  refused(R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", 8, "'a'.'shape' stands there twice");
  refused(R"({"__metadata__":{"x":"1","x":"2"}})", 0, "'__metadata__'.'x' stands there twice");
  refused(R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' stands there twice");
  // Values of other types.
  refused(R"({"a":1})", 0, "'a' is a number, and should be none");
  refused(R"({"a":"x"})", 0, "'a' is a text, and should be none");
  refused(R"({"a":null})", 0, "'a' is null, and should be none");
  refused(R"({"a":[]})", 0, "'a' is an array, not an object");
  refused(R"({"a":{}})", 0, "tensor 'a' has no dtype");
  refused(R"({"a":{"dtype":"F32","shape":[2]}})", 0, "tensor 'a' has no data_offsets");
  refused(R"({"a":{"dtype":"F32","data_offsets":[0,0]}})", 0, "tensor 'a' has no shape");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8, "'a'.'more' is a number");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":[1]}})", 8, "'a'.'more' is not what an entry has there");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":{}}})", 8, "'a'.'more' is not what an entry has there");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":"x"}})", 8, "'a'.'more' is a text");
  refused(R"({"__metadata__":[]})", 0, "'__metadata__' is an array");
  refused(R"({"__metadata__":null})", 0, "'__metadata__' is null");
  refused(R"({"__metadata__":{"x":1}})", 0, "'__metadata__'.'x' is a number");
  refused(R"({"__metadata__":{"x":{}}})", 0, "'__metadata__'.'x' is no text");
  refused(R"({"__metadata__":{"x":null}})", 0, "'__metadata__'.'x' is null");
  refused(entry("F33", "[2]", "[0,8]"), 8, "'a'.'dtype' is 'F33', which is no type");
  refused(entry("f32", "[2]", "[0,8]"), 8, "'a'.'dtype' is 'f32', which is no type");
  refused(entry("", "[2]", "[0,8]"), 8, "which is no type");
  refused(entry("F32", "2", "[0,8]"), 8, "'a'.'shape' is a number");
  refused(entry("F32", "{}", "[0,8]"), 8, "'a'.'shape' is not what an entry has there");
  refused(entry("F32", "[[2]]", "[0,8]"), 8, "'a'.'shape'[0] has more levels");
  refused(entry("F32", "[\"2\"]", "[0,8]"), 8, "'a'.'shape'[0] is a text");
  refused(entry("F32", "[true]", "[0,8]"), 8, "'a'.'shape'[0] is a truth value");
  refused(entry("F32", "[2]", "[0]"), 8, "'a'.'data_offsets' is not two offsets");
  refused(entry("F32", "[2]", "[]"), 8, "'a'.'data_offsets' is not two offsets");
  refused(entry("F32", "[2]", "[0,8,8]"), 8, "'a'.'data_offsets'[2] is a third offset");
  // Numbers.
  refused(entry("F32", "[2.0]", "[0,8]"), 8, "'a'.'shape'[0] is '2.0', not a plain whole number");
  refused(entry("F32", "[2e0]", "[0,8]"), 8, "'a'.'shape'[0] is '2e0', not a plain whole number");
  refused(entry("F32", "[-2]", "[0,8]"), 8, "'a'.'shape'[0] is a negative number");
  refused(entry("F32", "[2]", "[-0,8]"), 8, "'a'.'data_offsets'[0] is a negative number");
  refused(entry("F32", "[18446744073709551616]", "[0,8]"), 8,
          "'a'.'shape'[0] is '18446744073709551616', not a plain whole number");
  refused(entry("F32", "[02]", "[0,8]"), 8, "of its JSON");
  refused(entry("F32", "[+2]", "[0,8]"), 8, "of its JSON");
  refused(entry("F32", "[NaN]", "[0,8]"), 8, "of its JSON");
  // Offsets and shapes.
  refused(entry("F32", "[2]", "[1,9]"), 9, "tensor 'a' has bytes 1 to 9 of the data, and the one before it ends at 0: a hole");
  refused(entry("F32", "[2]", "[8,0]"), 8, "tensor 'a' has bytes 8 to 0 of the data, and the one before it ends at 0");
  refused(entry("F32", "[2]", "[0,7]"), 7, "tensor 'a' has bytes 0 to 7 of the data, and its shape and type ask for 8");
  refused(entry("F32", "[0]", "[0,8]"), 8, "ask for 0");
  refused(entry("F64", "[2]", "[0,8]"), 8, "ask for 16");
  refused(entry("F4", "[3]", "[0,2]"), 2, "tensor 'a' does not fill whole bytes");
  refused(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0, "tensor 'a' has a shape of more than 2^64 elements");
  refused(entry("F32", "[9223372036854775808,2,0]", "[0,0]"), 0, "tensor 'a' has a shape of more than 2^64 elements");
  refused(entry("F32", "[4611686018427387904]", "[0,0]"), 0, "tensor 'a' has a shape of more than 2^64 bits");
  refused(entry("U8", "[18446744073709551615]", "[0,18446744073709551615]"), 8, "more than 2^64 bits");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
          "tensor 'b' has bytes 4 to 12 of the data, and the one before it ends at 8: they overlap");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
          "they overlap");
  refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})", 20,
          "ends at 8: a hole");
  // Depth, control characters in messages, folders.
  refused("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", 0, "'a' is an array");
  refused("{\"a\\u001b[31m\":1}", 0, "'a?[31m' is a number");
  CHECK_THROWS_WITH_AS(acco::model_file(folder.path()), doctest::Contains("Is a directory"), acco::checkpoint_error);
  const std::string pipe = folder.path() + "/pipe.safetensors";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(acco::model_file{pipe}, doctest::Contains("is no regular file"), acco::checkpoint_error);
  CHECK_THROWS_WITH_AS(acco::model_file(folder.path() + "/none"), doctest::Contains("No such file"), acco::checkpoint_error);
}

TEST_CASE("a model in several files, and an index that lies") {
  const scratch folder;
  const std::string path = folder.path() + "/model.safetensors.index.json";
  write(
      folder.path() + "/x.safetensors",
      file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"both":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
              8));
  write(folder.path() + "/y.safetensors", file_of(R"({"both":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
  const auto index = [&](std::string const& map) {
    write(path, R"({"metadata":{"total_size":1.2e1,"more":[1,{"x":null}]},"weight_map":)" + map + "}\n");
  };
  index(R"({"a":"x.safetensors","both":"y.safetensors"})");
  const acco::model_file model(path);
  CHECK(model.tensors().size() == 2);
  CHECK(model.files().size() == 2);
  CHECK(model.find("both")->shape == std::vector<std::uint64_t>{2});
  CHECK(model.files()[model.find("both")->file] == folder.path() + "/y.safetensors");
  CHECK(all_of<float>(model, "both").size() == 2);
  const auto refused = [&](std::string const& words) {
    CHECK_THROWS_WITH_AS(acco::model_file{path}, doctest::Contains(words.c_str()), acco::checkpoint_error);
  };
  index(R"({"a":"x.safetensors","c":"y.safetensors"})");
  refused("its weight_map says that tensor 'c' is in y.safetensors, and it is not");
  index(R"({"a":"../x.safetensors"})");
  refused("'weight_map'.'a' is '../x.safetensors', and no plain name");
  index(R"({"a":"/etc/passwd"})");
  refused("no plain name of a file beside it");
  index(R"({"a":".."})");
  refused("no plain name of a file beside it");
  index(R"({"a":"x.safetensors","a":"y.safetensors"})");
  refused("'weight_map'.'a' stands there twice");
  index(R"({"a":1})");
  refused("'weight_map'.'a' is a number, not the name of a file");
  index(R"({"a":{"b":"x.safetensors"}})");
  refused("more than names of files");
  index(R"("x.safetensors")");
  refused("'weight_map' is 'x.safetensors', and no plain name");
  index(R"({"a":"z.safetensors"})");
  refused("No such file");
}
