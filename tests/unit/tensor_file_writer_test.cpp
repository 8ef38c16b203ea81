// SPDX-License-Identifier: BSD-3-Clause
// tensor_file_writer_test.cpp — the safetensors writer: what it writes comes back, full disks and
// closed folders leave the target alone, and the target may be the input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "tensor_file/tensor_file.h"
#include "tensor_file_kit.h"

namespace fa3::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<Tensor> sample_tensors() {
  static const std::vector<double> kDoubles{1, 2, 3};
  static const std::vector<float> kFloats{4, 5, 6, 7, 8};
  static const std::vector<uint16_t> kHalves{0x3c00, 0x4000, 0x4200};
  static const std::vector<int32_t> kInts{0, 7, -1};
  return {{.name = "half", .dtype = DType::kF16, .shape = {3}, .data = kHalves.data()},
          {.name = "a \"quoted\" \xc3\xa9",
           .dtype = DType::kF64,
           .shape = {1, 3},
           .data = kDoubles.data()},
          {.name = "bf", .dtype = DType::kBF16, .shape = {}, .data = kHalves.data()},
          {.name = "f", .dtype = DType::kF32, .shape = {5, 1}, .data = kFloats.data()},
          {.name = "i", .dtype = DType::kI32, .shape = {3}, .data = kInts.data()},
          {.name = "", .dtype = DType::kF32, .shape = {4, 0}}};
}

TEST(TensorFileWriter, RoundTrip_AlignedAndIndependentOfOrder) {
  TempDir dir;
  const Metadata metadata{{"text", std::string("line\n\"\\ \0 \xe2\x82\xac", 13)}, {"", "empty"}};
  std::vector<Tensor> tensors = sample_tensors();
  TensorFileWriter(dir / "one").commit(tensors, metadata);
  std::reverse(tensors.begin(), tensors.end());
  TensorFileWriter(dir / "two").commit(tensors, metadata);
  const std::string bytes = read_bytes(dir / "one");
  EXPECT_EQ(bytes, read_bytes(dir / "two"));
  EXPECT_EQ(dir.entries(), 2u);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);

  for (const Access access : {Access::kRead, Access::kMap}) {
    const TensorFile file = TensorFile::open(dir / "one", access);
    EXPECT_EQ(file.metadata(), metadata);
    ASSERT_EQ(file.tensors().size(), tensors.size());
    for (const TensorInfo& info : file.tensors())
      EXPECT_EQ(info.begin % static_cast<uint64_t>(dtype_bits(info.dtype) / 8), 0u) << info.name;
    for (const Tensor& tensor : tensors) {
      const Tensor back = file.load(tensor.name);
      EXPECT_EQ(back.dtype, tensor.dtype);
      EXPECT_EQ(back.shape, tensor.shape);
      EXPECT_EQ(bytes_of(back), bytes_of(tensor));
    }
  }
  TensorFileWriter(dir / "none").commit({});
  EXPECT_EQ(read_bytes(dir / "none"), file_of("{}      "));
}

TEST(TensorFileWriter, RoundTrip_RandomTensors) {
  TempDir dir;
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::string> buffers;
    std::vector<Tensor> tensors;
    const size_t count = random() % 20;
    for (size_t i = 0; i < count; ++i) {
      Tensor tensor{.name = std::to_string(random()), .dtype = static_cast<DType>(random() % 5)};
      for (unsigned rank = random() % 5; rank > 0; --rank) tensor.shape.push_back(random() % 6);
      std::string buffer(
          static_cast<size_t>(element_count(tensor.shape) * dtype_bits(tensor.dtype) / 8), '\0');
      for (char& byte : buffer) byte = static_cast<char>(random());
      buffers.push_back(std::move(buffer));
      tensors.push_back(std::move(tensor));
    }
    for (size_t i = 0; i < count; ++i) tensors[i].data = buffers[i].data();
    TensorFileWriter(dir / "t").commit(tensors);
    const TensorFile file =
        TensorFile::open(dir / "t", seed % 2 == 0 ? Access::kRead : Access::kMap);
    ASSERT_EQ(file.tensors().size(), count);
    for (size_t i = 0; i < count; ++i) {
      const Tensor back = file.load(tensors[i].name);
      EXPECT_EQ(back.dtype, tensors[i].dtype) << "seed " << seed;
      EXPECT_EQ(back.shape, tensors[i].shape) << "seed " << seed;
      EXPECT_EQ(bytes_of(back), buffers[i]) << "seed " << seed;
    }
  }
}

TEST(TensorFileWriter, Declines_Arguments) {
  TempDir dir;
  write_bytes(dir / "t", "before");
  const auto check = [&](const std::vector<Tensor>& tensors, const Metadata& metadata,
                         const char* what) {
    const TensorFileError error =
        error_of([&] { TensorFileWriter(dir / "t").commit(tensors, metadata); });
    EXPECT_EQ(error.kind(), Kind::kArgument) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(what));
    EXPECT_EQ(read_bytes(dir / "t"), "before");
    EXPECT_EQ(dir.entries(), 1u);
  };
  const float one = 1;
  const Tensor good{.name = "a", .shape = {1}, .data = &one};
  check({good, good}, {}, "two tensors named \"a\"");
  check({{.name = "__metadata__", .shape = {1}, .data = &one}}, {}, "reserved");
  check({{.name = "\xff", .shape = {1}, .data = &one}}, {}, "UTF-8");
  check({good}, {{"k", "\xc3"}}, "UTF-8");
  check({{.name = "a", .shape = {-1}, .data = &one}}, {}, "need extents >= 0");
  check({{.name = "a", .shape = {INT64_MAX, 2}, .data = &one}}, {}, "need extents >= 0");
  check({{.name = "a", .shape = std::vector<int64_t>(65, 1), .data = &one}}, {}, "rank <= 64");
  check({{.name = "a", .shape = {1}}}, {}, "has no data");
  check({{.name = std::string(kMaxHeaderBytes, 'n'), .shape = {0}}}, {}, "need at most 100000000");
}

TEST(TensorFileWriter, DiskFull_TargetUntouched) {
  TempDir dir;
  write_bytes(dir / "old", "before");
  const std::vector<float> values(1 << 20, 1.f);
  const std::vector<Tensor> tensors{{.name = "a", .shape = {1 << 20}, .data = values.data()}};
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // the write then fails as on a full disk
  for (const char* name : {"old", "new"}) {
    const rlimit limit{100'000, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const TensorFileError error = error_of([&] { TensorFileWriter(dir / name).commit(tensors); });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(error.kind(), Kind::kWrite);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot write"), HasSubstr("free space")));
    EXPECT_EQ(dir.entries(), 1u);
    EXPECT_EQ(read_bytes(dir / "old"), "before");
  }
  std::signal(SIGXFSZ, handler);
}

TEST(TensorFileWriter, OddTargets) {
  TempDir dir;
  const auto check = [&](const fs::path& target, const char* what) {
    const TensorFileError error = error_of([&] { TensorFileWriter writer(target); });
    EXPECT_EQ(error.kind(), Kind::kWrite) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr(target.string()), HasSubstr(what)));
  };
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  check(dir / "pipe", "not a regular file");
  check(dir / "new" / "", "not a regular file");
  check(dir / "missing" / "t", "No such file");
  check(dir / "pipe" / "t", "Not a directory");
  check(dir.path(), "not a regular file");
  check("/dev/null", "not a regular file");
  check("", "not a regular file");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(dir.entries(), 1u);

  write_bytes(dir / "real", "before");
  fs::create_symlink("real", dir / "link");
  TensorFileWriter(dir / "link").commit(sample_tensors());
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(TensorFile::open(dir / "real").tensors().size(), sample_tensors().size());

  fs::create_directory(dir / "folder");
  fs::create_symlink("folder/chain", dir / "dangling");
  fs::create_symlink(dir / "new", dir / "folder" / "chain");
  TensorFileWriter(dir / "dangling").commit(sample_tensors());
  EXPECT_TRUE(fs::is_symlink(dir / "dangling"));
  EXPECT_TRUE(fs::is_symlink(dir / "folder" / "chain"));
  EXPECT_EQ(TensorFile::open(dir / "new").tensors().size(), sample_tensors().size());
  fs::create_symlink("loop", dir / "loop");
  check(dir / "loop", "Too many levels of symbolic links");
  EXPECT_TRUE(fs::is_symlink(dir / "loop"));

  const fs::path long_name =
      dir / std::string(255, 'n').c_str();  // the longest name: no space for a suffix
  TensorFileWriter(long_name).commit({});
  EXPECT_TRUE(fs::exists(long_name));
}

TEST(TensorFileWriter, NoPermission) {
  TempDir dir;
  fs::create_directory(dir / "closed");
  write_bytes(dir / "closed" / "t", "before");
  write_bytes(dir / "kept", "before");
  fs::permissions(dir / "closed", fs::perms{0555});
  fs::permissions(dir / "kept", fs::perms{0444});
  fs::permissions(dir.path(), fs::perms{0777});
  const bool root = ::geteuid() == 0;  // permissions do not bind root
  constexpr uid_t kNobody = 65534;
  ASSERT_TRUE(!root || ::seteuid(kNobody) == 0);
  const TensorFileError closed = error_of([&] { TensorFileWriter writer(dir / "closed" / "new"); });
  const TensorFileError kept = error_of([&] { TensorFileWriter writer(dir / "kept"); });
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  EXPECT_EQ(closed.kind(), Kind::kWrite);
  EXPECT_THAT(closed.what(),
              AllOf(HasSubstr("cannot create a file in"), HasSubstr("Permission denied")));
  EXPECT_THAT(kept.what(), AllOf(HasSubstr("cannot write: Permission denied"),
                                 HasSubstr("change its permissions")));
  fs::permissions(dir / "closed", fs::perms{0755});
}

TEST(TensorFileWriter, Abandoned_LeavesNothing) {
  TempDir dir;
  write_bytes(dir / "t", "before");
  {
    TensorFileWriter writer(dir / "t");
    EXPECT_EQ(dir.entries(), 2u);  // created at once, so that a full or closed folder shows early
  }
  EXPECT_EQ(dir.entries(), 1u);
  EXPECT_EQ(read_bytes(dir / "t"), "before");
}

TEST(TensorFileWriter, ModeFollowsUmask) {
  TempDir dir;
  const mode_t before = ::umask(027);
  TensorFileWriter(dir / "t").commit({});
  ::umask(before);
  EXPECT_EQ(fs::status(dir / "t").permissions(), fs::perms{0640});
}

TEST(TensorFileWriter, TargetIsTheInput) {
  TempDir dir;
  const std::vector<float> values(100'000, 2.5f);
  const Tensor tensor{.name = "a", .shape = {100'000}, .data = values.data()};
  for (const Access access : {Access::kRead, Access::kMap}) {
    TensorFileWriter(dir / "t").commit({tensor});
    const TensorFile file = TensorFile::open(dir / "t", access);
    Tensor loaded = file.load("a");
    loaded.name = "b";
    TensorFileWriter(dir / "t").commit({loaded});
    EXPECT_EQ(bytes_of(loaded), bytes_of(tensor));
    EXPECT_EQ(bytes_of(file.load("a")), bytes_of(tensor));  // the old file, still open
    EXPECT_EQ(bytes_of(TensorFile::open(dir / "t").load("b")), bytes_of(tensor));
  }
}

}  // namespace
}  // namespace fa3::tools
