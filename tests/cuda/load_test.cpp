// SPDX-License-Identifier: BSD-3-Clause
// load_test.cpp — drivers and compilers that are absent, too old, incomplete, or do not fit each
// other: a reason, never a crash.
#include "backend/cuda/driver.h"
#include "backend/cuda/nvrtc.h"
#include "kit.h"

namespace fa3::cuda {
namespace {

using namespace test;  // NOLINT

// ---- Driver -------------------------------------------------------------------------------------

TEST(DriverLoad, Absent) {
  expect_refusal(Driver::open("libcuda-absent.so.1").status(), FA3_UNSUPPORTED,
                 {"no NVIDIA driver", "libcuda-absent.so.1", "550"});
}

TEST(DriverLoad, NotALibrary) {
  const TempFolder folder;
  write_file(folder / "libcuda.so.1", "text");
  expect_refusal(Driver::open(folder / "libcuda.so.1").status(), FA3_UNSUPPORTED,
                 {"no NVIDIA driver", folder.path()});
}

TEST(DriverLoad, TooOld) {
  const ScopedVariable version("FAKE_CUDA_VERSION", "12030");
  expect_refusal(Driver::open(FA3_FAKE_DRIVER).status(), FA3_UNSUPPORTED,
                 {FA3_FAKE_DRIVER, "CUDA 12.3", "12.4", "550"});
}

TEST(DriverLoad, OldestAndNewer) {
  for (const char* text : {"12040", "13000", "14010"}) {
    const ScopedVariable version("FAKE_CUDA_VERSION", text);
    const Result<Driver> driver = Driver::open(FA3_FAKE_DRIVER);
    ASSERT_TRUE(driver.ok()) << driver.status().message;
    EXPECT_EQ(driver.value().version(), std::stoi(text));
  }
}

TEST(DriverLoad, Incomplete) {
  expect_refusal(Driver::open(FA3_FAKE_PARTIAL).status(), FA3_UNSUPPORTED,
                 {"incomplete", "cuInit", "550"});
}

TEST(DriverLoad, RefusesToStart) {
  const ScopedVariable result("FAKE_CUDA_INIT", "999");
  expect_refusal(Driver::open(FA3_FAKE_DRIVER).status(), FA3_UNSUPPORTED,
                 {"cuInit", "CUDA_ERROR_FAKE", "nvidia-smi"});
}

TEST(DriverLoad, NoGpu) {
  const ScopedVariable result("FAKE_CUDA_INIT", "100"), gpus("FAKE_CUDA_GPUS", "0");
  const Result<Driver> driver = Driver::open(FA3_FAKE_DRIVER);
  ASSERT_TRUE(driver.ok());
  expect_refusal(driver.value().gpu(0).status(), FA3_UNSUPPORTED, {"sees no GPU", "Hopper"});
}

// What the driver says of its state is no answer on GPUs.
TEST(DriverLoad, CountThatFails_IsTheDriversError) {
  const Result<Driver> driver = Driver::open(FA3_FAKE_DRIVER);
  ASSERT_TRUE(driver.ok());
  for (const auto& [result, code] :
       {std::pair{"3", FA3_CUDA_ERROR}, std::pair{"2", FA3_OUT_OF_MEMORY}}) {
    const ScopedVariable fails("FAKE_CUDA_FAIL", "cuDeviceGetCount"),
        with("FAKE_CUDA_FAIL_WITH", result);
    try {
      (void)driver.value().gpu(0);
      FAIL();
    } catch (const Error& error) {
      expect_refusal(error.status(), code, {"cuDeviceGetCount", "as told"});
    }
  }
}

TEST(DriverLoad, OtherGpu) {
  const Result<Driver> driver = Driver::open(FA3_FAKE_DRIVER);
  ASSERT_TRUE(driver.ok());
  for (const char* text : {"80", "89", "100"}) {
    const ScopedVariable capability("FAKE_CUDA_CAPABILITY", text);
    const int number = std::stoi(text);
    expect_refusal(driver.value().gpu(0).status(), FA3_UNSUPPORTED,
                   {fmt::format("capability {}.{}", number / 10, number % 10), "9.0", "Fake H200"});
  }
  for (const int ordinal : {-1, 2}) {
    expect_refusal(driver.value().gpu(ordinal).status(), FA3_INVALID_ARGUMENT,
                   {fmt::format("GPU {}", ordinal), "0…1"});
  }
  const Result<GpuInfo> gpu = driver.value().gpu(1);
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(gpu.value().ordinal, 1);
  EXPECT_EQ(gpu.value().sm_count, 132);
  EXPECT_EQ(gpu.value().smem_bytes, 227 * 1024);
}

// ---- NVRTC --------------------------------------------------------------------------------------

TEST(NvrtcLoad, Absent) {
  expect_refusal(find_nvrtc({"libnvrtc-absent.so.1", "/absent/libnvrtc.so"}, 0).status(),
                 FA3_UNSUPPORTED,
                 {"no usable NVRTC", "libnvrtc-absent.so.1", "/absent/libnvrtc.so", "12.4",
                  "FA3_NVRTC", "pack"});
}

TEST(NvrtcLoad, TooOld) {
  const ScopedVariable version("FAKE_NVRTC_VERSION", "12030");
  expect_refusal(find_nvrtc({FA3_FAKE_NVRTC}, 0).status(), FA3_UNSUPPORTED,
                 {FA3_FAKE_NVRTC, "version 12.3", "12.4"});
}

TEST(NvrtcLoad, Incomplete) {
  expect_refusal(find_nvrtc({FA3_FAKE_PARTIAL}, 0).status(), FA3_UNSUPPORTED,
                 {FA3_FAKE_PARTIAL, "nvrtcCreateProgram"});
}

// A driver loads kernels from compilers of its own major version and older.
TEST(NvrtcLoad, MustFitTheDriver) {
  const ScopedVariable version("FAKE_NVRTC_VERSION", "13000");
  expect_refusal(find_nvrtc({FA3_FAKE_NVRTC}, 12090).status(), FA3_UNSUPPORTED,
                 {"version 13.0", "too new", "CUDA 12.9"});
  for (const int driver : {0, 13000, 13010, 14000}) {
    EXPECT_TRUE(find_nvrtc({FA3_FAKE_NVRTC}, driver).ok()) << driver;
  }
}

TEST(NvrtcLoad, FirstThatFits_IsTaken) {
  const Result<Nvrtc> nvrtc = find_nvrtc({"libnvrtc-absent.so.1", FA3_FAKE_NVRTC}, 13000);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().message;
  EXPECT_EQ(nvrtc.value().version(), 13000);
  EXPECT_EQ(nvrtc.value().path(), FA3_FAKE_NVRTC);
}

TEST(NvrtcLoad, Places_StartWithTheLoader) {
  const std::vector<std::string> places = nvrtc_places();
  ASSERT_GE(places.size(), 2u);
  EXPECT_EQ(places[0], "libnvrtc.so.13");
  EXPECT_EQ(places[1], "libnvrtc.so.12");
}

// ---- The real compiler, where there is one ------------------------------------------------------

constexpr DeviceHeader kHeaders[] = {
    {"test/scale.cuh",
     "#include \"test/config.h\"\n"
     "namespace test {\n"
     "struct Args { float* data; float factor; };\n"
     "template <Config kCfg> __global__ void __launch_bounds__(kCfg.threads())\n"
     "scale(const __grid_constant__ Args args) {\n"
     "  args.data[blockIdx.x * kCfg.threads() + threadIdx.x] *= args.factor + kCfg.bias;\n"
     "}\n"
     "}\n"},
    {"test/config.h",
     "#pragma once\n"
     "namespace test { struct Config { int warps; int bias; bool flag;\n"
     "  constexpr int threads() const { return 32 * warps; } }; }\n"},
};

TEST(NvrtcCompile, ConfigAsTemplateArgument_GivesACubin) {
  const Result<Nvrtc> nvrtc = find_nvrtc(nvrtc_places(), 0);
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message;
  const Result<Compiled> compiled = nvrtc.value().compile(
      {"test/scale.cuh", "test::scale<test::Config{.warps = 4, .bias = 2, .flag = true}>",
       kHopperArch},
      kHeaders);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message;
  EXPECT_EQ(compiled.value().cubin.image.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_THAT(compiled.value().cubin.symbol, ::testing::HasSubstr("scale"));
  EXPECT_THAT(compiled.value().cubin.image, ::testing::HasSubstr(compiled.value().cubin.symbol));
  EXPECT_THAT(compiled.value().log, ::testing::HasSubstr("registers"));
}

TEST(NvrtcCompile, Failure_HandsOnTheLog) {
  const Result<Nvrtc> nvrtc = find_nvrtc(nvrtc_places(), 0);
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message;
  expect_refusal(
      nvrtc.value().compile({"test/scale.cuh", "test::absent", kHopperArch}, kHeaders).status(),
      FA3_JIT_FAILED, {"test::absent", "test/scale.cuh", "error"});
  expect_refusal(
      nvrtc.value().compile({"test/absent.cuh", "test::scale", kHopperArch}, kHeaders).status(),
      FA3_JIT_FAILED, {"test/absent.cuh", "cannot open"});
}

}  // namespace
}  // namespace fa3::cuda
