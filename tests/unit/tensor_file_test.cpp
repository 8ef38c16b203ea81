// SPDX-License-Identifier: BSD-3-Clause
// tensor_file_test.cpp — the safetensors reader against hand-made and hostile files.
#include "tensor_file/tensor_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tensor_file_kit.h"

namespace fa3::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The message of parse_header for this JSON; fails when it is accepted or blamed on anything but
// the content.
std::string header_error(std::string_view json, uint64_t data_bytes = 0) {
  const TensorFileError error = error_of([&] { (void)parse_header("f", json, data_bytes); });
  EXPECT_EQ(error.kind(), Kind::kContent);
  EXPECT_LT(std::strlen(error.what()), 2000u);
  EXPECT_THAT(error.what(), testing::StartsWith("f: header: "));
  return error.what();
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return std::string(R"({"dtype":)")
      .append(dtype)
      .append(R"(,"shape":)")
      .append(shape)
      .append(R"(,"data_offsets":)")
      .append(offsets)
      .append("}");
}

class TensorFileAccess : public testing::TestWithParam<Access> {
 protected:
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Both, TensorFileAccess, testing::Values(Access::kRead, Access::kMap),
                         [](const auto& info) {
                           return info.param == Access::kRead ? "Read" : "Map";
                         });

TEST_P(TensorFileAccess, Load_EveryType) {
  const std::string data = bytes_of<double>({1.5, -2}) + bytes_of<float>({3, 4, 5}) +
                           bytes_of<int32_t>({-7}) + bytes_of<uint16_t>({0x3c00, 0x4000}) +
                           bytes_of<uint16_t>({0x3f80});
  const std::string json = R"({"d":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},
      "f":{"dtype":"F32","shape":[3,1],"data_offsets":[16,28]},
      "i":{"shape":[],"data_offsets":[28,32],"dtype":"I32"},
      "h":{"dtype":"F16","shape":[1,2],"data_offsets":[32,36]},
      "b":{"dtype":"BF16","shape":[1],"data_offsets":[36,38]},
      "none":{"dtype":"F32","shape":[2,0,3],"data_offsets":[38,38]},
      "__metadata__":{"who":"\u00e9","":""}}   )";
  write_bytes(dir_ / "t", file_of(json, data));
  const TensorFile file = TensorFile::open(dir_ / "t", GetParam());
  ASSERT_EQ(file.tensors().size(), 6u);
  EXPECT_EQ(file.tensors().front().name, "d");
  EXPECT_EQ(file.metadata(), (Metadata{{"who", "\xc3\xa9"}, {"", ""}}));
  EXPECT_EQ(file.load("d").dtype, DType::kF64);
  EXPECT_EQ(bytes_of(file.load("d")), data.substr(0, 16));
  EXPECT_EQ(file.load("f").shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(bytes_of(file.load("f")), data.substr(16, 12));
  EXPECT_EQ(file.load("i").shape, std::vector<int64_t>{});
  EXPECT_EQ(bytes_of(file.load("i")), data.substr(28, 4));
  EXPECT_EQ(bytes_of(file.load("h")), data.substr(32, 4));
  EXPECT_EQ(bytes_of(file.load("b")), data.substr(36, 2));
  EXPECT_EQ(file.load("none").shape, (std::vector<int64_t>{2, 0, 3}));
  EXPECT_EQ(file.find("x"), nullptr);
}

TEST_P(TensorFileAccess, Load_DataOffTheElementsAlignment) {
  for (int shift = 0; shift < 4; ++shift) {  // spaces before the data
    std::string json = R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("f":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
    json.append(static_cast<size_t>(shift), ' ');
    const std::string values = bytes_of<float>({1.25f, -8});
    write_bytes(dir_ / "t", file_of(json, "u" + values));
    const Tensor tensor = TensorFile::open(dir_ / "t", GetParam()).load("f");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % sizeof(float), 0u);
    EXPECT_EQ(bytes_of(tensor), values);  // also: the tensor outlives the file object
  }
}

TEST_P(TensorFileAccess, Load_DeclinesByName) {
  write_bytes(dir_ / "t", file_of(R"({"k":{"dtype":"U64","shape":[1],"data_offsets":[0,8]},)"
                                  R"("q4":{"dtype":"F4","shape":[3,2],"data_offsets":[8,11]}})",
                                  "12345678123"));
  const TensorFile file = TensorFile::open(dir_ / "t", GetParam());
  EXPECT_EQ(file.find("q4")->dtype, DType::kF4);
  const TensorFileError type = error_of([&] { (void)file.load("k"); });
  EXPECT_EQ(type.kind(), Kind::kUnsupported);
  EXPECT_THAT(type.what(), AllOf(HasSubstr(R"(tensor "k" has dtype U64)"),
                                 HasSubstr("I32, I64, F8_E4M3, I8 or BOOL")));
  const TensorFileError name = error_of([&] { (void)file.load("q"); });
  EXPECT_EQ(name.kind(), Kind::kMissing);
  EXPECT_THAT(name.what(), AllOf(HasSubstr(R"(no tensor named "q")"), HasSubstr(R"(("k", "q4"))")));
}

TEST_P(TensorFileAccess, Open_WhatIsNoFile) {
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  const auto check = [&](const fs::path& path, Kind kind, const char* what) {
    const TensorFileError error = error_of([&] { (void)TensorFile::open(path, GetParam()); });
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), AllOf(testing::StartsWith(path.string() + ": "), HasSubstr(what)));
  };
  check(dir_ / "missing", Kind::kRead, "No such file");
  check(dir_.path(), Kind::kRead, "a directory, need a regular file");
  check(dir_ / "pipe", Kind::kRead, "a pipe, need a regular file");
  check("/dev/zero", Kind::kRead, "a device, need a regular file");
  write_bytes(dir_ / "t", "");
  check(dir_ / "t", Kind::kContent, "0 bytes, need at least 8");
  write_bytes(dir_ / "t", "1234567");
  check(dir_ / "t", Kind::kContent, "7 bytes, need at least 8");
  write_bytes(dir_ / "t", file_of(3, "{}"));
  check(dir_ / "t", Kind::kContent, "a header of 3 bytes, need at most 2");
  write_bytes(dir_ / "t", file_of(UINT64_MAX, "{}"));
  check(dir_ / "t", Kind::kContent, "a header of 18446744073709551615 bytes, need at most 2");
  write_bytes(dir_ / "t", file_of(0, ""));
  check(dir_ / "t", Kind::kContent, "a header of 0 bytes, need at least 2");
  write_bytes(dir_ / "t", file_of(kMaxHeaderBytes + 1, "{}"));
  fs::resize_file(dir_ / "t", 2 * kMaxHeaderBytes);  // sparse
  check(dir_ / "t", Kind::kContent, "need at most 100000000, the format's limit");
}

// What never ends is not read to its end: the writer's side of the pipe stays open.
TEST(TensorFile, Read_StreamThatIsNoFile_EndsAtItsHeader) {
  for (const uint64_t length : {uint64_t{0}, kMaxHeaderBytes + 1}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], &length, sizeof length), static_cast<ssize_t>(sizeof length));
    const TensorFileError error = error_of([&] { (void)TensorFile::read(ends[0], "stdin"); });
    EXPECT_EQ(error.kind(), Kind::kContent);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("stdin: a header of"), HasSubstr("need at")));
    ::close(ends[0]), ::close(ends[1]);
  }
}

TEST(TensorFile, Load_FileShrankSinceOpen) {
  TempDir dir;
  write_bytes(dir / "t",
              file_of(R"({"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", "12345678"));
  const TensorFile file = TensorFile::open(dir / "t");
  fs::resize_file(dir / "t", fs::file_size(dir / "t") - 1);
  const TensorFileError error = error_of([&] { (void)file.load("a"); });
  EXPECT_EQ(error.kind(), Kind::kRead);
  EXPECT_THAT(error.what(), HasSubstr("it shrank"));
}

TEST(TensorHeader, Accepts) {
  EXPECT_TRUE(parse_header("f", "{}", 0).tensors.empty());
  EXPECT_TRUE(parse_header("f", R"({"__metadata__":{}}    )", 0).metadata.empty());
  // Order in the JSON is free; the list follows the data. Tensors without elements may be anywhere
  // between.
  const TensorHeader header = parse_header(
      "f",
      "{\"b\":" + entry("\"U8\"", "[2]", "[1,3]") + ",\"a\":" + entry("\"U8\"", "[1]", "[0,1]") +
          ",\"z\":" + entry("\"F64\"", "[0,1099511627776]", "[1,1]") + "}",
      3);
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "z");
  EXPECT_EQ(header.tensors[2].name, "b");
}

TEST(TensorHeader, Declines_Json) {
  for (const char* json : {"", " {}", "[]", "null", "\xef\xbb\xbf{}", "x"})
    EXPECT_THAT(header_error(json), HasSubstr("does not begin with '{'")) << json;
  for (const char* json :
       {"{", "{}}", "{} x", "{\"a\"}", "{\"a\":}", "{'a':1}", "{\"a\\ud800\":{}}", "{\"\xff\":{}}",
        "{/**/}", "{\"a\":{\"shape\":[1e999]}}", "{\"a\":{\"shape\":[01]}}", "{,}"})
    EXPECT_THAT(header_error(json), HasSubstr("is not valid JSON in UTF-8")) << json;
  EXPECT_THAT(header_error("{} x"), HasSubstr("byte 11 of the file"));
  EXPECT_THAT(header_error(std::string_view("{}\0\0", 4)), HasSubstr("NUL byte"));
}

TEST(TensorHeader, Declines_Structure) {
  for (const char* value : {"1", "-1", "1.5", "null", "true", "\"x\"", "[]"})
    EXPECT_THAT(header_error(std::string("{\"a\":") + value + "}"), HasSubstr("tensor \"a\""))
        << value;
  for (const char* value : {"1", "-1", "1.5", "null", "true", "\"x\"", "[]", "{\"k\":1}",
                            "{\"k\":null}", "{\"k\":{}}", "{\"k\":[]}"})
    EXPECT_THAT(header_error(std::string("{\"__metadata__\":") + value + "}"),
                HasSubstr("__metadata__"))
        << value;
  for (const char* fields : {"", R"("dtype":"F32")", R"("shape":[],"data_offsets":[0,0])",
                             R"("dtype":"F32","shape":[0])"})
    EXPECT_THAT(header_error(std::string("{\"a\":{") + fields + "}}"),
                HasSubstr("a field is missing"))
        << fields;
  EXPECT_THAT(header_error(R"({"a":{"offsets":[0,0]}})"),
              HasSubstr("field \"offsets\", need dtype, shape"));
}

TEST(TensorHeader, Declines_Fields) {
  const auto with = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return header_error("{\"a\":" + entry(dtype, shape, offsets) + "}", 64);
  };
  for (const char* dtype : {"\"\"", "\"f32\"", "\"F32 \"", "\"FLOAT\"", "\"BF1\""})
    EXPECT_THAT(with(dtype, "[16]", "[0,64]"), HasSubstr("need a name of the format")) << dtype;
  for (const char* dtype : {"1", "null", "[\"F32\"]", "{}", "true"})
    EXPECT_THAT(with(dtype, "[16]", "[0,64]"), HasSubstr("a string in dtype")) << dtype;
  for (const char* shape : {"16", "\"16\"", "null", "{}", "[16.0]", "[-16]", "[-0]", "[[16]]",
                            "[\"16\"]", "[null]", "[{}]", "[true]", "[18446744073709551616]"})
    EXPECT_THAT(with("\"F32\"", shape, "[0,64]"), HasSubstr("an array of whole numbers in shape"))
        << shape;
  EXPECT_THAT(with("\"F32\"", "[9223372036854775808]", "[0,64]"),
              HasSubstr("shape[0]=9223372036854775808"));
  for (const char* shape :
       {"[4611686018427387904,4]", "[9223372036854775807]", "[4294967296,4294967296,0]",
        "[3037000500,3037000500]", "[288230376151711744]"})
    EXPECT_THAT(with("\"F32\"", shape, "[0,64]"), HasSubstr("fewer than 2^63 bits")) << shape;
  for (const char* shape : {"[]", "[15]", "[17]", "[0]", "[2,2,2]"})
    EXPECT_THAT(with("\"F32\"", shape, "[0,64]"), HasSubstr("data_offsets span 64 bytes, need "))
        << shape;
  for (const char* offsets : {"0", "null", "{}", "[0.0,64]", "[-1,64]", "[[0,64]]", "[\"0\",64]"})
    EXPECT_THAT(with("\"F32\"", "[16]", offsets), HasSubstr("two whole numbers in data_offsets"))
        << offsets;
  for (const char* offsets : {"[]", "[0]", "[0,64,64]"})
    EXPECT_THAT(with("\"F32\"", "[16]", offsets), HasSubstr("need [begin, end]")) << offsets;
  for (const char* offsets :
       {"[64,0]", "[0,65]", "[1,65]", "[18446744073709551552,0]", "[0,18446744073709551615]"})
    EXPECT_THAT(with("\"F32\"", "[16]", offsets), HasSubstr("need begin <= end <= 64")) << offsets;
  EXPECT_THAT(header_error("{\"a\":" + entry("\"F4\"", "[3]", "[0,1]") + "}", 1),
              HasSubstr("whole bytes"));
}

TEST(TensorHeader, Declines_Coverage) {
  const auto two = [](const char* first, const char* second, const char* shape = "[4]") {
    return header_error("{\"a\":" + entry("\"U8\"", "[4]", first) +
                            ",\"b\":" + entry("\"U8\"", shape, second) + "}",
                        9);
  };
  EXPECT_THAT(two("[0,4]", "[5,9]"),
              HasSubstr("tensor \"b\": data_offsets begin at 5, which leaves a hole; need 4"));
  EXPECT_THAT(two("[1,5]", "[5,9]"),
              HasSubstr("tensor \"a\": data_offsets begin at 1, which leaves a hole; need 0"));
  EXPECT_THAT(two("[0,4]", "[3,7]"), HasSubstr("begin at 3, which overlaps; need 4"));
  EXPECT_THAT(two("[0,4]", "[0,4]"), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0,4]", "[2,2]", "[0]"), HasSubstr("overlaps"));
  EXPECT_THAT(two("[4,8]", "[0,4]"), HasSubstr("tensors end at byte 8 of the data, need 9"));
  EXPECT_THAT(header_error("{}", 1), HasSubstr("tensors end at byte 0 of the data, need 1"));
}

TEST(TensorHeader, Declines_Duplicates) {
  const std::string a = "\"a\":" + entry("\"F32\"", "[0]", "[0,0]");
  EXPECT_THAT(header_error("{" + a + "," + a + "}"), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(header_error("{" + a + ",\"b\":" + entry("\"F32\"", "[0]", "[0,0]") +
                           ",\"\\u0061\":" + entry("\"F32\"", "[0]", "[0,0]") + "}"),
              HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(
      header_error(R"({"a":{"dtype":"F32","shape":[0],"dtype":"F32","data_offsets":[0,0]}})"),
      HasSubstr("tensor \"a\": duplicate key \"dtype\""));
  EXPECT_THAT(header_error(R"({"__metadata__":{"x":"1","x":"1"}})"),
              HasSubstr("duplicate key \"x\""));
  EXPECT_THAT(header_error(R"({"__metadata__":{},"__metadata__":{}})"),
              HasSubstr("duplicate key __metadata__"));
}

TEST(TensorHeader, Declines_Bombs) {
  std::string nested = "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) nested += "{\"a\":";
  EXPECT_THAT(header_error(nested), HasSubstr("tensor \"a\""));
  EXPECT_THAT(header_error("{\"a\":{\"shape\":" + std::string(1'000'000, '[')),
              HasSubstr("an array"));
  std::string ones;
  for (int i = 0; i < 1'000'000; ++i) ones += "1,";
  EXPECT_THAT(header_error("{\"a\":{\"shape\":[" + ones),
              HasSubstr("rank above 64, the limit of this reader"));
  EXPECT_THAT(header_error("{\"a\":{\"data_offsets\":[" + ones + "1]}}"),
              HasSubstr("of 1000001 numbers"));
  EXPECT_THAT(header_error("{\"" + std::string(1'000'000, 'n') + "\":1}"), HasSubstr("nnn..."));
  std::string entries;
  for (size_t i = 0; i <= kMaxMetadataEntries; ++i) entries += fmt::format("\"{}\":\"\",", i);
  EXPECT_THAT(header_error("{\"__metadata__\":{" + entries), HasSubstr("more than 100000 entries"));
  // Control characters must not reach a terminal.
  EXPECT_THAT(header_error("{\"\\u001b[2J\xc2\x9b\":1}"), HasSubstr(R"("\u001b[2J\u009b")"));
}

TEST(TensorHeader, ReadableTypes_AreThoseThatTheCommandTakes) {
  std::string names;
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i)
    if (dtype_readable(DType(i))) names += std::string(dtype_name(DType(i))) + " ";
  EXPECT_EQ(names, "F64 F32 F16 BF16 I32 I64 F8_E4M3 I8 BOOL ");
  EXPECT_STREQ(dtype_name(DType::kF8E5M2), "F8_E5M2");
  EXPECT_EQ(dtype_bits(DType::kF8E4M3), 8);
}

TEST(TensorHeader, AMillionTensors) {
  std::string json = "{";
  for (uint64_t i = 0; i < 1'000'000; ++i) {
    const uint64_t begin = 999'999 - i;  // backwards: the order of the data must be found
    json += fmt::format(R"("{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}},)", i, begin,
                        begin + 1);
  }
  json.back() = '}';
  const TensorHeader header = parse_header("f", json, 1'000'000);
  ASSERT_EQ(header.tensors.size(), 1'000'000u);
  EXPECT_EQ(header.tensors.front().name, "999999");
  EXPECT_EQ(header.tensors[header.by_name.front()].name, "0");
}

}  // namespace
}  // namespace fa3::tools
