// SPDX-License-Identifier: BSD-3-Clause
// env_test.cpp — the environment's values, and what is malformed.
#include "core/env.h"

#include "args_kit.h"
#include "backend/cpu/cpu.h"
#include "tests/kit/scoped_variable.h"

namespace fa3 {
namespace {

using kit::ScopedVariable;

TEST(Environment, Unset_AsksForNothing) {
  const ScopedVariable threads("FA3_NUM_THREADS", nullptr), simd("FA3_SIMD", "");
  const Result<Environment> environment = read_environment();
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment.value().num_threads, 0);
  EXPECT_FALSE(environment.value().simd.has_value());
}

TEST(Environment, Values) {
  const ScopedVariable threads("FA3_NUM_THREADS", "3"), simd("FA3_SIMD", "avx2");
  const Result<Environment> environment = read_environment();
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment.value().num_threads, 3);
  EXPECT_EQ(environment.value().simd, Isa::kAvx2);
}

TEST(Environment, Paths) {
  const ScopedVariable cache("FA3_CACHE_DIR", "/a"), pack("FA3_KERNEL_PACK", "/b");
  const ScopedVariable nvrtc("FA3_NVRTC", "/c"), trace("FA3_SIM_TRACE", "d.json");
  const Result<Environment> environment = read_environment();
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment.value().cache_dir, "/a");
  EXPECT_EQ(environment.value().kernel_pack, "/b");
  EXPECT_EQ(environment.value().nvrtc, "/c");
  EXPECT_EQ(environment.value().sim_trace, "d.json");
}

TEST(Environment, SimSeed_Is64Bits) {
  for (const auto& [text, seed] :
       {std::pair{"", 0ull}, {"7", 7ull}, {"18446744073709551615", ~0ull}}) {
    const ScopedVariable variable("FA3_SIM_SEED", text);
    ASSERT_TRUE(read_environment().ok());
    EXPECT_EQ(read_environment().value().sim_seed, seed) << text;
  }
  for (const char* text : {"-1", "18446744073709551616", "seven", "7 "}) {
    const ScopedVariable variable("FA3_SIM_SEED", text);
    test::expect_refusal(read_environment().status(), FA3_INVALID_ARGUMENT,
                         {std::string("FA3_SIM_SEED=") + text, "64 bits"});
  }
}

TEST(Environment, Check_IsAFlag) {
  for (const auto& [text, on] : {std::pair{"1", true}, {"0", false}, {"", false}}) {
    const ScopedVariable check("FA3_CHECK", text);
    ASSERT_TRUE(read_environment().ok());
    EXPECT_EQ(read_environment().value().check, on) << text;
  }
  const ScopedVariable check("FA3_CHECK", "yes");
  test::expect_refusal(read_environment().status(), FA3_INVALID_ARGUMENT,
                       {"FA3_CHECK=yes ", "0 or 1"});
}

// Values whose meaning would depend on the working directory.
TEST(Environment, RelativePaths_AreRefused) {
  for (const char* name : {"FA3_CACHE_DIR", "FA3_KERNEL_PACK", "FA3_NVRTC", "FA3_TUNING"}) {
    const ScopedVariable variable(name, "kernels");
    test::expect_refusal(read_environment().status(), FA3_INVALID_ARGUMENT,
                         {std::string(name) + "=kernels ", "absolute path"});
  }
}

TEST(Environment, UserCacheFolder_FollowsXdg) {
  const ScopedVariable home("HOME", "/h");
  {
    const ScopedVariable xdg("XDG_CACHE_HOME", "/x");
    EXPECT_EQ(user_cache_folder(), "/x");
  }
  for (const char* unusable : {"relative", "", static_cast<const char*>(nullptr)}) {
    const ScopedVariable xdg("XDG_CACHE_HOME", unusable);
    EXPECT_EQ(user_cache_folder(), "/h/.cache");
    const ScopedVariable no_home("HOME", nullptr);
    EXPECT_EQ(user_cache_folder(), "");
  }
}

TEST(Environment, Malformed_NamesVariableValueAndLegalOnes) {
  for (const char* value : {"0", "-1", "1025", "2x", " 2", "two", "99999999999999999999"}) {
    const ScopedVariable threads("FA3_NUM_THREADS", value);
    test::expect_refusal(read_environment().status(), FA3_INVALID_ARGUMENT,
                         {std::string("FA3_NUM_THREADS=") + value + " ", "1…1024"});
  }
  for (const char* value : {"avx512", "AVX2", "sse", "1"}) {
    const ScopedVariable simd("FA3_SIMD", value);
    test::expect_refusal(
        read_environment().status(), FA3_INVALID_ARGUMENT,
        {std::string("FA3_SIMD=") + value + " ", "scalar, sse4, avx2, avx3, avx3_bf16, neon"});
  }
}

TEST(Environment, Registry_ListsAtMostTwelveWithTheirValues) {
  const ScopedVariable threads("FA3_NUM_THREADS", "3"), simd("FA3_SIMD", nullptr);
  const auto rows = environment_variables();
  EXPECT_LE(rows.size(), 12u);
  for (const EnvironmentVariable& row : rows) {
    EXPECT_STRNE(row.meaning, "");
    EXPECT_STRNE(row.default_value, "");
    if (std::string(row.name) == "FA3_NUM_THREADS") {
      EXPECT_EQ(row.value, "3");
    } else {
      EXPECT_FALSE(row.value.has_value());
    }
  }
}

TEST(ChooseIsa, WhatWasAskedFor_OrARefusalThatListsTheOffer) {
  EXPECT_EQ(cpu::choose_isa(Isa::kScalar).value(), Isa::kScalar);
  const Isa fastest = cpu::choose_isa(std::nullopt).value();
  EXPECT_EQ(cpu::choose_isa(fastest).value(), fastest);
  const Isa foreign = fastest == Isa::kNeon ? Isa::kAvx2 : Isa::kNeon;
  test::expect_refusal(cpu::choose_isa(foreign).status(), FA3_INVALID_ARGUMENT,
                       {std::string("FA3_SIMD=") + isa_name(foreign), isa_name(fastest), "scalar"});
}

TEST(HostDevice, SaysWhatItKnows) {
  const DeviceInfo device = host_device();
  EXPECT_GE(device.threads, 1);
  EXPECT_LE(device.threads, kMaxThreads);
  EXPECT_FALSE(device.name.empty());
  EXPECT_GE(device.l1_bytes, 0);
  EXPECT_GT(device.memory_bytes, 0);
}

}  // namespace
}  // namespace fa3
