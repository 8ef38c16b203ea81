// SPDX-License-Identifier: BSD-3-Clause
// runtime_test.cpp — CudaRuntime on a real GPU: memory, launch shapes, streams and events, the
// caller's context, errors.
#include "backend/cuda/runtime.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "kit.h"
#include "runtime/launch_shape.h"

namespace fa3::gpu {
namespace {

constexpr DeviceHeader kProbe = {"test/probe.cuh", R"(
#include "device/ptx/barrier.h"
#include "device/ptx/grid.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
namespace test {
struct Args { fa3::u32* out; fa3::u32 value; fa3::u32 smem_words; };
struct Smem { fa3::u32 word[1]; };
// Eight words per CTA: what it was told, where it stands, and a sum over all of its shared memory.
FA3_KERNEL(256) void probe(FA3_GRID_CONSTANT const Args args) {
  using namespace fa3;
  u32* const smem = ptx::smem_as<Smem>().word;
  ptx::pdl_wait();
  for (u32 i = ptx::thread_index(); i < args.smem_words; i += ptx::block_threads()) smem[i] = i;
  ptx::cta_sync();
  const u32 cta = (ptx::block_index_z() * ptx::grid_dim_y() + ptx::block_index_y()) *
                  ptx::grid_dim_x() + ptx::block_index_x();
  if (ptx::thread_index() == 0) {
    u32 sum = 0;
    for (u32 i = 0; i < args.smem_words; ++i) sum += smem[i];
    u32* const out = args.out + 8 * cta;
    out[0] = args.value;
    out[1] = ptx::cluster_rank();
    out[2] = ptx::cluster_size();
    out[3] = ptx::block_threads();
    out[4] = ptx::grid_dim_x() * ptx::grid_dim_y() * ptx::grid_dim_z();
    out[5] = sum;
    out[6] = out[6] + 1;
  }
  ptx::pdl_launch();
}
FA3_KERNEL(32) void fault(FA3_GRID_CONSTANT const Args args) { *(fa3::u32*)64 = args.value; }
}
)"};

struct Args {
  u32* out;
  u32 value;
  u32 smem_words;
};

const Program kProgram{"test/probe.cuh", "test::probe", kHopperArch};

class GpuRuntimeTest : public GpuTest {
 protected:
  cuda::Jit& jit() override {
    static const std::vector<DeviceHeader> headers = [] {
      const auto embedded = cuda::device_headers().headers;
      std::vector<DeviceHeader> all(embedded.begin(), embedded.end());
      all.push_back(kProbe);
      return all;
    }();
    static cuda::Jit jit(jit_options(), headers,
                         std::string(cuda::device_headers().hash) + kProbe.text);
    return jit;
  }

  // Launches the probe and checks what every CTA wrote.
  void expect_probe(const LaunchShape& shape) {
    const u32 ctas = shape.grid[0] * shape.grid[1] * shape.grid[2];
    u32* const out = upload(std::vector<u32>(8 * ctas), "out");
    const Args args{out, 77, shape.smem_bytes / 4};
    FA3_EXPECT_OK(runtime_->launch(kProgram, shape, &args, sizeof args));
    FA3_EXPECT_OK(runtime_->synchronize());
    const std::vector<u32> got = download(out, 8 * ctas);
    u32 sum = 0;
    for (u32 i = 0; i < args.smem_words; ++i) sum += i;
    for (u32 cta = 0; cta < ctas; ++cta) {
      const u32 rank = cta % shape.grid[0] % shape.cluster;
      const std::vector<u32> want = {77, rank, shape.cluster, shape.threads, ctas, sum, 1, 0};
      EXPECT_EQ(std::vector<u32>(got.begin() + 8 * cta, got.begin() + 8 * cta + 8), want) << cta;
    }
    runtime_->release(out);
  }

  static LaunchShape shape(u32 x, u32 y = 1, u32 z = 1) {
    LaunchShape shape;
    shape.grid[0] = x, shape.grid[1] = y, shape.grid[2] = z;
    shape.threads = 256;
    shape.smem_bytes = 1024;
    return shape;
  }
};

TEST_F(GpuRuntimeTest, Memory_ThereAndBack) {
  std::vector<u32> sent(1 << 20);
  std::iota(sent.begin(), sent.end(), 0u);
  u32* const memory = upload(sent, "numbers");
  EXPECT_EQ(download(memory, sent.size()), sent);
  runtime_->release(memory);
  EXPECT_THROW(runtime_->allocate(size_t{1} << 50, "too large"), Error);
}

TEST_F(GpuRuntimeTest, Grid) {
  expect_probe(shape(1));
  expect_probe(shape(300));
  expect_probe(shape(5, 7, 3));
}

TEST_F(GpuRuntimeTest, SharedMemory_UpToTheLimit) {
  EXPECT_EQ(runtime_->gpu().smem_bytes, static_cast<int>(kHopperSmemBytes));
  for (const u32 bytes : {48u * 1024, 48u * 1024 + 1024, 200u * 1024, kHopperSmemBytes}) {
    LaunchShape large = shape(8);
    large.smem_bytes = bytes;
    expect_probe(large);
  }
}

TEST_F(GpuRuntimeTest, Clusters) {
  for (const u32 cluster : {1u, 2u, 4u, 8u, 16u}) {
    LaunchShape clustered = shape(32, 2);
    clustered.cluster = cluster;
    expect_probe(clustered);
  }
}

// Launches that may overlap the one before still come in order.
TEST_F(GpuRuntimeTest, ProgrammaticLaunch_KeepsOrder) {
  constexpr u32 kLaunches = 100;
  LaunchShape chained = shape(64);
  chained.pdl = true;
  u32* const out = upload(std::vector<u32>(8 * 64), "out");
  for (u32 i = 0; i < kLaunches; ++i) {
    const Args args{out, i, 256};
    FA3_EXPECT_OK(runtime_->launch(kProgram, chained, &args, sizeof args));
  }
  FA3_EXPECT_OK(runtime_->synchronize());
  const std::vector<u32> got = download(out, 8 * 64);
  for (u32 cta = 0; cta < 64; ++cta) {
    EXPECT_EQ(got[8 * cta], kLaunches - 1);
    EXPECT_EQ(got[8 * cta + 6], kLaunches);
  }
}

// All CTAs at once; a grid that does not fit is refused and harms nothing.
TEST_F(GpuRuntimeTest, WaitingCtas_FitOrAreRefused) {
  LaunchShape all = shape(4, 3, 2);
  all.waiting = true;
  expect_probe(all);
  all.cluster = 2;
  expect_probe(all);
  all.pdl = true;
  expect_probe(all);
  const Args args{};
  LaunchShape large = shape(1u << 20);
  large.waiting = true;
  const Status status = runtime_->launch(kProgram, large, &args, sizeof args);
  EXPECT_EQ(status.code, FA3_INVALID_ARGUMENT) << status.message;
  EXPECT_THAT(status.message, testing::HasSubstr("fewer CTAs"));
  expect_probe(all);
}

TEST_F(GpuRuntimeTest, Events_OrderTwoRuntimes) {
  const auto other = open(0);
  EXPECT_NE(other->stream(), runtime_->stream());
  u32* const out = upload(std::vector<u32>(8 * 264), "out");
  const cuda::Event start = runtime_->record();
  for (u32 i = 0; i < 20; ++i) {
    const Args args{out, i, 8192};
    LaunchShape slow = shape(264);
    slow.smem_bytes = 32 * 1024;
    FA3_EXPECT_OK((i % 2 == 0 ? *runtime_ : *other).launch(kProgram, slow, &args, sizeof args));
    if (i % 2 == 0) {
      other->wait_for(runtime_->record());
    } else {
      runtime_->wait_for(other->record());
    }
  }
  const cuda::Event end = runtime_->record();
  EXPECT_GT(end.milliseconds_since(start), 0);
  FA3_EXPECT_OK(other->synchronize());
  const std::vector<u32> got = download(out, 8 * 264);
  for (u32 cta = 0; cta < 264; ++cta) EXPECT_EQ(got[8 * cta + 6], 20u) << cta;
}

TEST_F(GpuRuntimeTest, CallersContext_IsUsedAndKept) {
  cuda::CUcontext primary = nullptr, current = nullptr;
  ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&primary, runtime_->gpu().device), 0);
  ASSERT_EQ(driver_->cuCtxPushCurrent_v2(primary), 0);
  runtime_ = open(0);
  expect_probe(shape(3));
  ASSERT_EQ(driver_->cuCtxGetCurrent(&current), 0);
  EXPECT_EQ(current, primary);
  runtime_.reset();
  ASSERT_EQ(driver_->cuCtxPopCurrent_v2(&current), 0);
  EXPECT_EQ(current, primary);
  ASSERT_EQ(driver_->cuDevicePrimaryCtxRelease_v2(cuda::CUdevice{0}), 0);
}

TEST_F(GpuRuntimeTest, EveryGpu) {
  for (int device = 0; device < driver_->device_count(); ++device) {
    runtime_ = open(device);
    expect_probe(shape(17));
  }
}

TEST_F(GpuRuntimeTest, Kernel_ReportsItsRegisters) {
  const Result<int> registers = runtime_->registers(kProgram);
  ASSERT_TRUE(registers.ok()) << registers.status().message;
  EXPECT_GT(registers.value(), 0);
  EXPECT_LE(registers.value(), 255);
}

TEST_F(GpuRuntimeTest, WrongArguments_AreRefused) {
  const u64 short_args = 0;
  EXPECT_EQ(runtime_->launch(kProgram, shape(1), &short_args, sizeof short_args).code,
            FA3_INVALID_ARGUMENT);
}

// In a process of its own: the context does not survive a fault.
class GpuRuntimeDeathTest : public GpuRuntimeTest {
 protected:
  // Ends the process: 0 when the fault came back as an error, whose message goes to stderr.
  [[noreturn]] void fault() {
    const Args args{nullptr, 1, 0};
    LaunchShape one;
    one.threads = 32;
    const Program program{"test/probe.cuh", "test::fault", kHopperArch};
    const Status launched = runtime_->launch(program, one, &args, sizeof args);
    const Status done = runtime_->synchronize();
    std::fprintf(stderr, "%s%s\n", launched.message.c_str(), done.message.c_str());
    std::exit(launched.ok() && done.code == FA3_CUDA_ERROR ? 0 : 1);
  }
};

TEST_F(GpuRuntimeDeathTest, Fault_ComesBackAsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fault(), ::testing::ExitedWithCode(0), "ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace fa3::gpu
