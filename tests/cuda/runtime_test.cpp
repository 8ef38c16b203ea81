// SPDX-License-Identifier: BSD-3-Clause
// runtime_test.cpp — CudaRuntime on the fake driver: whose context is used, what a launch passes,
// what is given back.
#include "backend/cuda/runtime.h"

#include <dlfcn.h>

#include <atomic>
#include <thread>

#include "core/tensor_map.h"
#include "fake_driver.h"
#include "kit.h"

namespace fa3::cuda {
namespace {

using namespace test;  // NOLINT
using ::testing::HasSubstr;

const Program kProgram{"device/a.h", "fa3::a<1>", kHopperArch};
constexpr DeviceHeader kHeaders[] = {{"device/a.h", "text"}};

template <class Function>
Function* fake(const char* name) {
  static void* const library = dlopen(FA3_FAKE_DRIVER, RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

class CudaRuntimeTest : public ::testing::Test {
 protected:
  CudaRuntimeTest() : driver_(Driver::open(FA3_FAKE_DRIVER)), jit_({}, kHeaders, "a", memory_) {
    books() = {};
    add(kProgram, {"kernel", std::string("cubin\0", 6)});
  }
  // Everything that a runtime took has been given back, and the caller's context is as it was.
  ~CudaRuntimeTest() override {
    EXPECT_EQ(books().retained, 0);
    EXPECT_EQ(books().allocations, 0);
    EXPECT_EQ(books().streams, 0);
    EXPECT_EQ(books().events, 0);
    EXPECT_EQ(books().libraries, 0);
    EXPECT_EQ(fake<int()>("fake_cuda_depth")(), 0);
  }

  static FakeCuda& books() { return *fake<FakeCuda*()>("fake_cuda")(); }

  void add(const Program& program, Cubin cubin) {
    const Result<Kernel> kernel = memory_.get(jit_.key(program, 0), [&]() -> Result<Kernel> {
      return Kernel{std::make_shared<const Cubin>(cubin), KernelSource::kPack};
    });
    ASSERT_TRUE(kernel.ok());
  }

  std::unique_ptr<CudaRuntime> open(int device = 0, CUstream stream = nullptr) {
    Result<std::unique_ptr<CudaRuntime>> runtime =
        CudaRuntime::open(driver_.value(), jit_, device, stream);
    if (!runtime.ok()) throw std::runtime_error(runtime.status().message);
    return std::move(runtime).value();
  }

  static LaunchShape shape() {
    LaunchShape shape;
    shape.grid[0] = 4;
    shape.grid[1] = 3;
    shape.grid[2] = 2;
    shape.threads = 384;
    return shape;
  }

  Result<Driver> driver_;
  KernelMemory memory_;
  Jit jit_;
};

TEST_F(CudaRuntimeTest, Memory_ThereAndBack) {
  const auto runtime = open();
  EXPECT_EQ(runtime->name(), "Fake H200");
  const int sent[3] = {1, 2, 3};
  int received[3] = {};
  void* const memory = runtime->allocate(sizeof sent, "x");
  runtime->upload(memory, sent, sizeof sent);
  runtime->download(received, memory, sizeof received);
  EXPECT_THAT(received, ::testing::ElementsAre(1, 2, 3));
  runtime->upload(memory, sent, 0);
  runtime->release(memory);
  runtime->release(nullptr);
  EXPECT_THROW(runtime->release(memory), Error);
  EXPECT_NE(runtime->allocate(0, "empty"), nullptr);  // left to the runtime
}

TEST_F(CudaRuntimeTest, OutOfMemory_NamesTheTensorAndWhatIsFree) {
  const auto runtime = open();
  try {
    runtime->allocate(size_t{1} << 50, "k cache");
    FAIL();
  } catch (const Error& error) {
    expect_refusal(error.status(), FA3_OUT_OF_MEMORY,
                   {"k cache", "1125899906842624 bytes", "GPU 0 (Fake H200)", "7 of 9"});
  }
}

// ---- Contexts -----------------------------------------------------------------------------------

TEST_F(CudaRuntimeTest, NoContext_PrimaryIsUsed) {
  const auto runtime = open();
  EXPECT_EQ(books().retained, 1);
  EXPECT_EQ(fake<int()>("fake_cuda_depth")(), 0);
}

TEST_F(CudaRuntimeTest, CallersContext_IsUsedAndKept) {
  fake<void(int)>("fake_cuda_push")(0);
  {
    const auto runtime = open();
    EXPECT_EQ(books().retained, 0);
    runtime->release(runtime->allocate(8, "x"));
    EXPECT_EQ(fake<int()>("fake_cuda_depth")(), 1);
  }
  fake<void()>("fake_cuda_pop")();
}

TEST_F(CudaRuntimeTest, CallersContextOfAnotherGpu_IsLeftAlone) {
  fake<void(int)>("fake_cuda_push")(0);
  {
    const auto runtime = open(1);
    EXPECT_EQ(books().retained, 1);
    EXPECT_EQ(runtime->gpu().ordinal, 1);
    runtime->release(runtime->allocate(8, "x"));
    EXPECT_EQ(fake<int()>("fake_cuda_depth")(), 1);
  }
  fake<void()>("fake_cuda_pop")();
}

TEST_F(CudaRuntimeTest, CallersStream_IsUsedAndKept) {
  const auto owner = open();
  {
    const auto runtime = open(0, owner->stream());
    FakeArgs args;
    ASSERT_TRUE(runtime->launch(kProgram, shape(), &args, sizeof args).ok());
    EXPECT_EQ(books().launch.hStream, owner->stream());
  }
  EXPECT_EQ(books().streams, 1);
}

TEST_F(CudaRuntimeTest, FailureWhileOpening_LeavesNothing) {
  for (const char* function : {"cuStreamCreate", "cuDeviceGet", "cuDevicePrimaryCtxRetain"}) {
    const ScopedVariable fails("FAKE_CUDA_FAIL", function);
    EXPECT_THROW((void)open(), Error) << function;
    EXPECT_EQ(books().retained, 0);
  }
}

// ---- Launches -----------------------------------------------------------------------------------

TEST_F(CudaRuntimeTest, Launch_PassesShapeAndArguments) {
  const auto runtime = open();
  const FakeArgs args{5, 6};
  ASSERT_TRUE(runtime->launch(kProgram, shape(), &args, sizeof args).ok());
  const CUlaunchConfig& launch = books().launch;
  EXPECT_EQ(launch.gridDimX, 4u);
  EXPECT_EQ(launch.gridDimY, 3u);
  EXPECT_EQ(launch.gridDimZ, 2u);
  EXPECT_EQ(launch.blockDimX, 384u);
  EXPECT_EQ(launch.blockDimY * launch.blockDimZ, 1u);
  EXPECT_EQ(launch.hStream, runtime->stream());
  EXPECT_EQ(launch.numAttrs, 0u);
  EXPECT_EQ(books().args.value, 5);
  EXPECT_EQ(books().args.other, 6);
  EXPECT_EQ(books().attributes, "");
  EXPECT_TRUE(runtime->synchronize().ok());
  EXPECT_EQ(runtime->registers(kProgram).value(), 168);
}

TEST_F(CudaRuntimeTest, ClusterPdlAndInteraction_AreLaunchAttributes) {
  const auto runtime = open();
  const FakeArgs args;
  LaunchShape wide = shape();
  wide.cluster = 2;
  wide.pdl = true;
  wide.waiting = true;
  ASSERT_TRUE(runtime->launch(kProgram, wide, &args, sizeof args).ok());
  ASSERT_EQ(books().launch_attributes.size(), 3u);
  EXPECT_EQ(books().launch_attributes[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(books().launch_attributes[0].value.clusterDim.x, 2u);
  EXPECT_EQ(books().launch_attributes[0].value.clusterDim.y, 1u);
  EXPECT_EQ(books().launch_attributes[0].value.clusterDim.z, 1u);
  EXPECT_EQ(books().launch_attributes[1].id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(books().launch_attributes[1].value.programmaticStreamSerializationAllowed, 1);
  EXPECT_EQ(books().launch_attributes[2].id, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  EXPECT_EQ(books().launch_attributes[2].value.cooperative, 1);
}

TEST_F(CudaRuntimeTest, WaitingGridThatDoesNotFit_IsRefused) {
  const auto runtime = open();
  const FakeArgs args;
  LaunchShape large = shape();
  large.grid[0] = 1000;
  large.waiting = true;
  expect_refusal(runtime->launch(kProgram, large, &args, sizeof args), FA3_INVALID_ARGUMENT,
                 {"fa3::a<1>", "grid 1000×3×2", "132 SMs", "fewer CTAs"});
}

// Each allowance is asked for once.
TEST_F(CudaRuntimeTest, LargeSharedMemoryAndClusters_AreAllowedFirst) {
  const auto runtime = open();
  const FakeArgs args;
  LaunchShape large = shape();
  for (const u32 bytes : {49152u, 49153u, 100000u, 60000u, 232448u}) {
    large.smem_bytes = bytes;
    ASSERT_TRUE(runtime->launch(kProgram, large, &args, sizeof args).ok());
    EXPECT_EQ(books().launch.sharedMemBytes, bytes);
  }
  EXPECT_EQ(books().attributes, "8=49153 8=100000 8=232448 ");
  for (int i = 0; i < 2; ++i) {
    large.cluster = large.grid[0] = 16;
    ASSERT_TRUE(runtime->launch(kProgram, large, &args, sizeof args).ok());
  }
  EXPECT_EQ(books().attributes, "8=49153 8=100000 8=232448 14=1 ");
}

TEST_F(CudaRuntimeTest, WrongArguments_AreRefusedBeforeTheLaunch) {
  const auto runtime = open();
  const FakeArgs args;
  expect_refusal(runtime->launch(kProgram, shape(), &args, sizeof args + 4), FA3_INVALID_ARGUMENT,
                 {"fa3::a<1>", "args_bytes=12", "need 8"});
  LaunchShape odd = shape();
  odd.cluster = 3;
  expect_refusal(runtime->launch(kProgram, odd, &args, sizeof args), FA3_INVALID_ARGUMENT,
                 {"grid[0]=4", "cluster=3"});
  EXPECT_THAT(books().calls, ::testing::Not(HasSubstr("cuLaunchKernelEx")));
}

TEST_F(CudaRuntimeTest, DriversErrors_AreHandedOn) {
  const auto runtime = open();
  const FakeArgs args;
  {
    const ScopedVariable fails("FAKE_CUDA_FAIL", "cuLaunchKernelEx");
    expect_refusal(runtime->launch(kProgram, shape(), &args, sizeof args), FA3_CUDA_ERROR,
                   {"fa3::a<1>", "CUDA_ERROR_FAKE", "grid 4×3×2", "threads 384"});
  }
  {
    const ScopedVariable fails("FAKE_CUDA_FAIL", "cuStreamSynchronize");
    expect_refusal(runtime->synchronize(), FA3_CUDA_ERROR, {"GPU 0 (Fake H200)", "as told"});
    int word = 0;
    EXPECT_THROW(runtime->upload(&word, &word, sizeof word), Error);
  }
  {
    const ScopedVariable fails("FAKE_CUDA_FAIL", "cuLibraryLoadData");
    const Program other{"device/a.h", "fa3::other", kHopperArch};
    add(other, {"kernel", std::string("cubin\0", 6)});
    for (const char* image : {"200", "209", "222"}) {
      const ScopedVariable with("FAKE_CUDA_FAIL_WITH", image);
      expect_refusal(runtime->prepare(other), FA3_JIT_FAILED,
                     {"fa3::other", "CUDA 13.0", "from memory", "CUDA_ERROR_FAKE", "--clear"});
    }
    const ScopedVariable with("FAKE_CUDA_FAIL_WITH", "700");  // of earlier work
    expect_refusal(runtime->prepare(other), FA3_CUDA_ERROR,
                   {"fa3::other", "cuLibraryLoadData", "CUDA_ERROR_FAKE"});
    EXPECT_THAT(runtime->prepare(other).message, ::testing::Not(HasSubstr("--clear")));
  }
}

TEST_F(CudaRuntimeTest, NoMemoryInTheDriver_IsOutOfMemory) {
  const ScopedVariable with("FAKE_CUDA_FAIL_WITH", "2");
  const auto runtime = open();
  const FakeArgs args;
  for (const char* call : {"cuLibraryLoadData", "cuLaunchKernelEx"}) {
    const ScopedVariable fails("FAKE_CUDA_FAIL", call);
    expect_refusal(runtime->launch(kProgram, shape(), &args, sizeof args), FA3_OUT_OF_MEMORY,
                   {"fa3::a<1>", call, "CUDA_ERROR_OUT_OF_MEMORY"});
  }
  const ScopedVariable fails("FAKE_CUDA_FAIL", "cuStreamCreate");
  try {
    (void)open();
    FAIL();
  } catch (const Error& error) {
    expect_refusal(error.status(), FA3_OUT_OF_MEMORY, {"cuStreamCreate"});
  }
}

TEST_F(CudaRuntimeTest, CubinWithoutTheKernel_IsRefused) {
  const auto runtime = open();
  const Program other{"device/a.h", "fa3::other", kHopperArch};
  add(other, {"absent", std::string("cubin\0", 6)});
  expect_refusal(runtime->prepare(other), FA3_JIT_FAILED, {"fa3::other", "absent"});
}

TEST_F(CudaRuntimeTest, Program_IsLoadedOnce) {
  const auto runtime = open();
  ASSERT_TRUE(runtime->prepare(kProgram).ok());
  ASSERT_TRUE(runtime->prepare(kProgram).ok());
  EXPECT_EQ(books().libraries, 1);
}

TEST_F(CudaRuntimeTest, CrowdOfThreads_LoadsOnce) {
  const auto runtime = open();
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const FakeArgs args{t, t};
      LaunchShape large = shape();
      for (u32 i = 0; i < 50; ++i) {
        large.smem_bytes = 48 * 1024 + 1024 * i;
        failures += !runtime->launch(kProgram, large, &args, sizeof args).ok();
        runtime->release(runtime->allocate(64, "x"));
        failures += !runtime->synchronize().ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(books().libraries, 1);
}

TEST_F(CudaRuntimeTest, Capture_TakesPreparedProgramsOnly) {
  const auto runtime = open();
  const FakeArgs args;
  const ScopedVariable capturing("FAKE_CUDA_CAPTURING", "1");
  expect_refusal(runtime->launch(kProgram, shape(), &args, sizeof args), FA3_UNSUPPORTED,
                 {"fa3::a<1>", "not prepared", "capture"});
  {
    const ScopedVariable before("FAKE_CUDA_CAPTURING", "0");
    ASSERT_TRUE(runtime->prepare(kProgram).ok());
  }
  EXPECT_TRUE(runtime->launch(kProgram, shape(), &args, sizeof args).ok());
}

// ---- Events, several GPUs, tensor maps ----------------------------------------------------------

TEST_F(CudaRuntimeTest, Events_OrderAndMeasure) {
  const auto runtime = open(0), other = open(1);
  const Event start = runtime->record();
  const Event end = runtime->record();
  other->wait_for(end);
  EXPECT_THAT(books().calls, HasSubstr("cuStreamWaitEvent"));
  EXPECT_DOUBLE_EQ(end.milliseconds_since(start), 1.5);
  EXPECT_EQ(books().retained, 2);
  const ScopedVariable fails("FAKE_CUDA_FAIL", "cuEventRecord");
  EXPECT_THROW((void)runtime->record(), Error);
}

TEST_F(CudaRuntimeTest, TensorMap_ReachesTheDriver) {
  const auto runtime = open();
  TensorMapSpec spec;
  spec.base = reinterpret_cast<void*>(0x1000);
  spec.type = TmaType::kBf16;
  spec.rank = 3;
  for (int i = 0; i < 3; ++i) {
    spec.dim[i] = 64u + i;
    spec.stride_bytes[i] = 128u * i;
    spec.box[i] = i == 0 ? 64 : 1;
    spec.element_stride[i] = 1u + i;
  }
  spec.swizzle = Swizzle::k128;
  spec.nan_fill = true;
  const Result<TensorMap> map = runtime->encode(spec);
  ASSERT_TRUE(map.ok()) << map.status().message;
  const u64* bits = map.value().opaque;
  EXPECT_EQ(bits[0], 9u | 3u << 8 | 3u << 16 | 1u << 24);
  EXPECT_EQ(bits[1], 0x1000u);
  EXPECT_THAT(std::vector<u64>(bits + 2, bits + 10),
              ::testing::ElementsAre(64, 65, 66, 128, 256, 64 | 1ull << 32, 1 | 2ull << 32,
                                     1 | 3ull << 32));
  spec.box[1] = 257;
  expect_refusal(runtime->encode(spec).status(), FA3_INVALID_ARGUMENT, {"box[1]=257"});
  spec.box[1] = 1;
  const ScopedVariable fails("FAKE_CUDA_FAIL", "cuTensorMapEncodeTiled");
  expect_refusal(runtime->encode(spec).status(), FA3_CUDA_ERROR,
                 {"CUDA_ERROR_FAKE", describe(spec)});
}

}  // namespace
}  // namespace fa3::cuda
