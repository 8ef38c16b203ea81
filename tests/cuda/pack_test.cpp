// SPDX-License-Identifier: BSD-3-Clause
// pack_test.cpp — kernel bundles: what is put in comes out, and damage is noticed.
#include "backend/cuda/pack.h"

#include "kit.h"

namespace fa3::cuda {
namespace {

using namespace test;  // NOLINT

TEST(Pack, Kernels_ComeOutAsTheyWentIn) {
  const TempFolder folder;
  const std::string path = folder / "kernels.fa3pack";
  std::vector<std::pair<Key, Cubin>> kernels;
  for (int number = 0; number < 20; ++number) {
    kernels.emplace_back(key_of(number), sample(number, number % 3));
  }
  ASSERT_TRUE(write_pack(path, 12090, kernels).ok());
  const Result<Pack> pack = Pack::open(path);
  ASSERT_TRUE(pack.ok()) << pack.status().message;
  EXPECT_EQ(pack.value().nvrtc_version(), 12090);
  EXPECT_EQ(pack.value().size(), kernels.size());
  for (const auto& [key, cubin] : kernels) EXPECT_EQ(pack.value().load(key), cubin);
  EXPECT_FALSE(pack.value().load(key_of(99)).has_value());
}

TEST(Pack, Empty_IsLegal) {
  const TempFolder folder;
  ASSERT_TRUE(write_pack(folder / "empty", 13000, {}).ok());
  const Result<Pack> pack = Pack::open(folder / "empty");
  ASSERT_TRUE(pack.ok());
  EXPECT_FALSE(pack.value().load(key_of(1)).has_value());
}

// A wrong byte or a missing end makes the bundle, or the entry, unusable; never a wrong kernel.
TEST(Pack, Damage_NeverGivesAWrongKernel) {
  const TempFolder folder;
  const std::string path = folder / "kernels.fa3pack";
  ASSERT_TRUE(write_pack(path, 13000, {{key_of(1), sample(1)}, {key_of(2), sample(2)}}).ok());
  const std::string sound = read_file(path);
  constexpr size_t kIndexEnd = 24 + 2 * 48;
  const auto examine = [&](const std::string& bytes, size_t at) {
    write_file(path, bytes);
    const Result<Pack> pack = Pack::open(path);
    if (at < kIndexEnd) {
      EXPECT_FALSE(pack.ok()) << "byte " << at;
      expect_refusal(pack.status(), FA3_IO_ERROR, {path, "fa3 jit --pack"});
      return;
    }
    ASSERT_TRUE(pack.ok()) << "byte " << at;
    int sound_kernels = 0;
    for (int number : {1, 2}) {
      const std::optional<Cubin> cubin = pack.value().load(key_of(number));
      if (!cubin) continue;
      ++sound_kernels;
      EXPECT_EQ(*cubin, sample(number)) << "byte " << at;
    }
    EXPECT_LE(sound_kernels, 1) << "byte " << at;
  };
  for (size_t at = 0; at < sound.size(); at += at < kIndexEnd + 128 ? 1 : 97) {
    std::string bytes = sound;
    bytes[at] = static_cast<char>(bytes[at] ^ 64);
    examine(bytes, at);
    write_file(path, sound.substr(0, at));
    expect_refusal(Pack::open(path).status(), FA3_IO_ERROR, {path, "not a sound pack"});
  }
}

TEST(Pack, WhatIsNone_SaysWhy) {
  const TempFolder folder;
  expect_refusal(Pack::open(folder / "absent").status(), FA3_IO_ERROR,
                 {"absent", "No such file or directory"});
  expect_refusal(Pack::open(folder.path()).status(), FA3_IO_ERROR, {folder.path()});
  expect_refusal(write_pack(folder / "no/folder/pack", 13000, {}), FA3_IO_ERROR,
                 {"no/folder/pack", "No such file or directory"});
  // Known before anything is compiled.
  expect_refusal(check_pack_place(folder / "no/folder/pack"), FA3_IO_ERROR, {"no/folder/pack"});
  expect_refusal(check_pack_place("/dev/null"), FA3_IO_ERROR, {"/dev/null", "ordinary file"});
  expect_refusal(check_pack_place(folder.path()), FA3_IO_ERROR, {"ordinary file"});
  expect_refusal(check_pack_place(folder / std::string(1000, 'x')), FA3_IO_ERROR, {"too long"});
  EXPECT_TRUE(check_pack_place(folder / "pack").ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "pack"));
}

}  // namespace
}  // namespace fa3::cuda
