// SPDX-License-Identifier: BSD-3-Clause
// context_test.cpp — the C interface on the fake driver: kernels where nothing can be compiled,
// and FA3_CHECK=1.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/backend.h"
#include "fa3/fa3.h"
#include "fake_driver.h"
#include "kit.h"

namespace fa3::cuda {
namespace {

using test::ScopedVariable;
using test::TempFolder;
using ::testing::HasSubstr;
using ::testing::Not;

template <class Function>
Function* fake(const char* name) {
  static void* const library = dlopen(FA3_FAKE_DRIVER, RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

void keep_line(void* lines, fa3_log_level, const char* message) {
  static_cast<std::vector<std::string>*>(lines)->push_back(message);
}

// A context of the fake GPU and a stream there. "GPU memory" is the host's.
class GpuContext : public ::testing::Test {
 protected:
  using Context = std::unique_ptr<fa3_context, decltype(&fa3_context_destroy)>;

  GpuContext() {
    fake<void(int)>("fake_cuda_push")(0);
    fake<CUresult(CUstream*, unsigned)>("cuStreamCreate")(&stream_, 0);
  }
  ~GpuContext() override {
    context_.reset();
    fake<CUresult(CUstream)>("cuStreamDestroy_v2")(stream_);
    fake<void()>("fake_cuda_pop")();
  }

  static std::string& calls() { return fake<FakeCuda*()>("fake_cuda")()->calls; }
  static const FakeCuda& books() { return *fake<FakeCuda*()>("fake_cuda")(); }

  fa3_context* open(const char* kernel_pack = nullptr) {
    fa3_context_options options{};
    options.struct_size = sizeof options;
    options.device_type = FA3_DEVICE_CUDA;
    options.cache_dir = cache_.c_str();
    options.kernel_pack = kernel_pack;
    options.log = &keep_line;
    options.log_user = &log_;
    fa3_context* context = nullptr;
    EXPECT_EQ(fa3_context_create(&options, &context), FA3_OK) << fa3_last_error();
    context_ = Context(context, &fa3_context_destroy);
    return context;
  }

  // A kernel bundle of these kernels, made with the fake compiler and a cache of its own.
  std::string pack(const char* names) {
    const ScopedVariable nvrtc("FA3_NVRTC", FA3_FAKE_NVRTC);
    const std::string path = folder_ / "pack";
    EXPECT_EQ(fa3_jit_pack(open(), names, path.c_str()), FA3_OK) << fa3_last_error();
    EXPECT_EQ(fa3_jit_clear(context_.get()), FA3_OK);
    return path;
  }

  // A tuning that asks for the row where 10 rows of 8 bits have head dim 96.
  std::string tuning_file(const std::string& row) {
    const std::string path = folder_ / "tuning";
    const std::string problem =
        "forward f8_e4m3 batch 1 heads 1/1 head_dim 96/96 seqlen 10/10 full";
    test::write_file(path, std::string(R"({"fa3_tuning": 1, "fa3": ")") + fa3_version() +
                               R"(", "gpu": "Fake H200", "problems": [{"problem": ")" + problem +
                               R"(", "row": ")" + row + R"("}]})");
    return path;
  }

  static fa3_tensor tensor(fa3_dtype dtype, const std::vector<int64_t>& shape, void* data) {
    return fa3_dense(data, dtype, static_cast<int32_t>(shape.size()), shape.data());
  }

  // 10 rows of one head: a batch of one, or varlen in two sequences.
  fa3_forward_args args(int64_t head_dim, bool varlen = false) {
    fa3_forward_args a{};
    a.struct_size = sizeof a;
    std::vector<int64_t> shape = {10, 1, head_dim};
    if (!varlen) shape.insert(shape.begin(), 1);
    fa3_tensor* const tensors[] = {&a.q, &a.k, &a.v, &a.o};
    for (int i = 0; i < 4; ++i) *tensors[i] = tensor(FA3_BF16, shape, data_[i].data());
    if (!varlen) return a;
    a.cu_seqlens_q = tensor(FA3_I32, {3}, cu_q_.data());
    a.cu_seqlens_kv = tensor(FA3_I32, {3}, cu_kv_.data());
    a.seqused_kv = tensor(FA3_I32, {2}, used_kv_.data());
    return a;
  }

  static fa3_forward_args in_8_bits(fa3_forward_args a) {
    a.q.dtype = a.k.dtype = a.v.dtype = FA3_F8_E4M3;
    return a;
  }

  fa3_status forward(const fa3_forward_args& a) { return fa3_forward(context_.get(), &a, stream_); }

  const ScopedVariable any_code_{"FAKE_CUDA_FORWARD", "right"};
  const ScopedVariable no_pack_{"FA3_KERNEL_PACK", nullptr};
  const TempFolder folder_;
  const std::string cache_ = folder_ / "cache";
  CUstream stream_ = nullptr;
  Context context_{nullptr, &fa3_context_destroy};
  std::vector<std::string> log_;
  alignas(16) std::array<std::array<uint16_t, 2560>, 4> data_{};
  std::array<int32_t, 3> cu_q_{0, 4, 10}, cu_kv_{0, 5, 10};
  std::array<int32_t, 2> used_kv_{5, 4};
};

// ---- Kernels where nothing compiles -------------------------------------------------------------

TEST_F(GpuContext, PackOfTheTable_ServesOtherHeadDims) {
  const std::string path = pack(R"(["fwd/d96/bf16"])");
  const ScopedVariable nvrtc("FA3_NVRTC", "/absent/libnvrtc.so");
  open(path.c_str());
  ASSERT_EQ(forward(args(80)), FA3_OK) << fa3_last_error();
  const unsigned bytes = books().launch.sharedMemBytes;
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("fwd/d80/bf16/full/dense"));
  EXPECT_THAT(log_[0], HasSubstr("96 and 96"));
  ASSERT_EQ(forward(args(96)), FA3_OK) << fa3_last_error();
  EXPECT_EQ(books().launch.sharedMemBytes, bytes);  // the same kernel
  EXPECT_EQ(books().libraries, 1);

  const ScopedVariable capturing("FAKE_CUDA_CAPTURING", "1");
  EXPECT_EQ(forward(args(80)), FA3_OK) << fa3_last_error();
  fa3_plan* plan = nullptr;
  const fa3_forward_args a = args(80);
  EXPECT_EQ(fa3_plan_forward(context_.get(), &a, &plan), FA3_OK) << fa3_last_error();
  fa3_plan_destroy(plan);
  EXPECT_EQ(log_.size(), 1u);
}

TEST_F(GpuContext, PackWithTheHeadDims_IsPreferred) {
  const std::string path = pack(R"(["fwd/d96/bf16", "fwd/d80/bf16"])");
  const ScopedVariable nvrtc("FA3_NVRTC", "/absent/libnvrtc.so");
  open(path.c_str());
  ASSERT_EQ(forward(args(80)), FA3_OK) << fa3_last_error();
  ASSERT_EQ(forward(args(96)), FA3_OK) << fa3_last_error();
  EXPECT_EQ(books().libraries, 2);
  EXPECT_THAT(log_, ::testing::IsEmpty());
}

TEST_F(GpuContext, KernelThatIsNowhere_IsNamedWithItsRemedy) {
  const std::string path = pack(R"(["fwd/d96/f16", "samples"])");
  const ScopedVariable nvrtc("FA3_NVRTC", "/absent/libnvrtc.so");
  open(path.c_str());
  for (const int64_t d : {80, 96}) {
    EXPECT_EQ(forward(args(d)), FA3_JIT_FAILED);
    const std::string name = "fwd/d" + std::to_string(d) + "/bf16/full/dense";
    EXPECT_THAT(fa3_last_error(), HasSubstr("no usable NVRTC"));
    EXPECT_THAT(fa3_last_error(), HasSubstr("fa3 jit --pack FILE --programs " + name));
  }
}

// The kernel that a tuned row gives way from is the table's own choice of another problem, whose
// row has no wider one.
TEST_F(GpuContext, KernelThatATunedRowLacked_IsNamedWhereItIsTheRowsOwn) {
  const std::string path = pack(R"(["fwd/d128/e4m3"])");
  const ScopedVariable nvrtc("FA3_NVRTC", "/absent/libnvrtc.so");
  const ScopedVariable tuning("FA3_TUNING", tuning_file("d128 8bit short").c_str());
  open(path.c_str());
  const fa3_forward_args tuned = in_8_bits(args(96));
  ASSERT_EQ(forward(tuned), FA3_OK) << fa3_last_error();
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("the one of head dims 128 and 128 takes its place"));
  fa3_forward_args other = tuned;
  other.q.shape[1] = other.o.shape[1] = 9;
  EXPECT_EQ(forward(other), FA3_JIT_FAILED);
  EXPECT_THAT(fa3_last_error(), HasSubstr("the kernel's name is fwd/d96/e4m3"));
}

// A defect of a kernel is not hidden by falling back to another.
TEST_F(GpuContext, KernelThatDoesNotLoad_IsNotReplaced) {
  const std::string path = pack(R"(["fwd/d96/bf16", "fwd/d80/bf16"])");
  const ScopedVariable nvrtc("FA3_NVRTC", "/absent/libnvrtc.so");
  open(path.c_str());
  const ScopedVariable fails("FAKE_CUDA_FAIL", "cuLibraryLoadData"),
      with("FAKE_CUDA_FAIL_WITH", "200");
  EXPECT_EQ(forward(args(80)), FA3_JIT_FAILED);
  EXPECT_THAT(fa3_last_error(), HasSubstr("does not load"));
  EXPECT_THAT(fa3_last_error(), Not(HasSubstr("--programs")));
}

// Nor a failure to load it, which may pass, by a warning that the kernel is nowhere.
TEST_F(GpuContext, TunedKernelThatDoesNotLoad_IsUsedOnceItDoes) {
  const std::string path = pack(R"(["fwd/d96/e4m3", "fwd/d128/e4m3"])");
  const ScopedVariable nvrtc("FA3_NVRTC", "/absent/libnvrtc.so");
  const ScopedVariable tuning("FA3_TUNING", tuning_file("d128 8bit short").c_str());
  open(path.c_str());
  const fa3_forward_args a = in_8_bits(args(96));
  {
    const ScopedVariable fails("FAKE_CUDA_FAIL", "cuLibraryLoadData"),
        with("FAKE_CUDA_FAIL_WITH", "200");
    EXPECT_EQ(forward(a), FA3_JIT_FAILED);
  }
  EXPECT_EQ(forward(a), FA3_OK) << fa3_last_error();
  EXPECT_THAT(log_, ::testing::IsEmpty());
}

// Said before a kernel is looked for, and with the plan of another address in hand.
TEST_F(GpuContext, MisalignedData_DeclinedBeforeAnyWork) {
  const std::string path = pack(R"(["fwd/d64/bf16"])");
  const ScopedVariable nvrtc("FA3_NVRTC", "/absent/libnvrtc.so");
  open(path.c_str());
  fa3_plan* plan = nullptr;
  const fa3_forward_args planned = args(64);
  ASSERT_EQ(fa3_plan_forward(context_.get(), &planned, &plan), FA3_OK) << fa3_last_error();
  for (fa3_tensor fa3_forward_args::*tensor :
       {&fa3_forward_args::q, &fa3_forward_args::k, &fa3_forward_args::v, &fa3_forward_args::o}) {
    fa3_forward_args a = planned, wide = args(80);  // the bundle has no kernel for 80
    for (fa3_forward_args* each : {&a, &wide}) {
      void*& data = (each->*tensor).data;
      data = static_cast<char*>(data) + 8;
    }
    calls().clear();
    EXPECT_EQ(forward(wide), FA3_UNSUPPORTED);
    EXPECT_THAT(fa3_last_error(), HasSubstr("8 bytes past a multiple of 16"));
    EXPECT_EQ(fa3_plan_run(plan, &a, nullptr, 0, stream_), FA3_UNSUPPORTED);
    EXPECT_THAT(fa3_last_error(), HasSubstr("copy the tensor"));
    EXPECT_EQ(calls(), "");
  }
  fa3_plan_destroy(plan);
}

TEST_F(GpuContext, NoQueries_NeedNoKernel) {
  const ScopedVariable nvrtc("FA3_NVRTC", "/absent/libnvrtc.so");
  open();
  fa3_forward_args a = args(80);
  a.q.shape[1] = a.o.shape[1] = 0;
  EXPECT_EQ(forward(a), FA3_OK) << fa3_last_error();
}

// ---- Kernels compiled ahead of time -------------------------------------------------------------

TEST_F(GpuContext, Warm_FillsTheCacheWithWhatIsInMemoryToo) {
  const ScopedVariable nvrtc("FA3_NVRTC", FA3_FAKE_NVRTC);
  const char* const names[] = {"fwd/d80/bf16/full/dense"};
  const char* report = nullptr;
  const auto warm = [&] {
    EXPECT_EQ(fa3_jit_warm_kernels(context_.get(), names, 1, &report), FA3_OK) << fa3_last_error();
    return std::string(report);
  };
  open();
  EXPECT_THAT(warm(), HasSubstr("\"source\": \"compiled\""));
  EXPECT_THAT(warm(), HasSubstr("\"source\": \"memory\""));
  ASSERT_EQ(fa3_jit_clear(context_.get()), FA3_OK) << fa3_last_error();
  EXPECT_THAT(warm(), HasSubstr("\"source\": \"compiled\""));
  EXPECT_EQ(DiskCache::open(cache_).value().list().size(), 2u);  // and for few tiles
}

// ---- The context's workspace ------------------------------------------------------------------

// While one call enqueues with it, another one on the stream neither frees nor writes it.
TEST_F(GpuContext, WorkspaceOfAStream_IsLentToOneCallAtATime) {
  LazyJit jit{JitOptions{}};
  DeviceInfo device;
  device.type = FA3_DEVICE_CUDA;
  CudaBackend backend(device, jit, Logger{}, false);
  std::optional<WorkspaceLease> lease = backend.workspace(1 << 10, stream_).value();
  std::atomic<bool> lent = false;
  std::thread other([&] {
    const WorkspaceLease larger = backend.workspace(1 << 20, stream_).value();
    lent = true;
  });
  EXPECT_NE(backend.workspace(1 << 10, nullptr).value().data(), lease->data());  // another stream's
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(lent);
  lease.reset();
  other.join();
  EXPECT_TRUE(lent);

  const ScopedVariable capturing("FAKE_CUDA_CAPTURING", "1");
  EXPECT_TRUE(backend.workspace(0, stream_).ok());
  const Status refused = backend.workspace(1 << 10, stream_).status();
  EXPECT_EQ(refused.code, FA3_UNSUPPORTED);
  for (const char* text : {"graph", "1024 bytes", "fa3_plan_run"})
    EXPECT_THAT(refused.message, HasSubstr(text));
}

// The stream of a thread that has ended may still work with what it had, and its id goes on to the
// next one.
TEST_F(GpuContext, WorkspaceOfAThreadsStream_IsOfThatThreadAlone) {
  LazyJit jit{JitOptions{}};
  DeviceInfo device;
  device.type = FA3_DEVICE_CUDA;
  CudaBackend backend(device, jit, Logger{}, false);
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      calls().clear();
      EXPECT_TRUE(backend.workspace(1 << 10, kStreamPerThread).ok());
      EXPECT_THAT(calls(), HasSubstr("cuMemAlloc_v2"));
      calls().clear();
      EXPECT_TRUE(backend.workspace(1 << 10, kStreamPerThread).ok());
      EXPECT_THAT(calls(), Not(HasSubstr("cuMem")));
    }).join();
  }
}

// ---- FA3_CHECK ----------------------------------------------------------------------------------

class CheckedValues : public GpuContext {
 protected:
  // The message of a run on the CPU.
  std::string on_cpu(const fa3_forward_args& a) {
    fa3_context* cpu = nullptr;
    EXPECT_EQ(fa3_context_create(nullptr, &cpu), FA3_OK);
    EXPECT_EQ(fa3_forward(cpu, &a, nullptr), FA3_INVALID_ARGUMENT);
    const std::string message = fa3_last_error();
    fa3_context_destroy(cpu);
    return message;
  }

  const ScopedVariable nvrtc_{"FA3_NVRTC", FA3_FAKE_NVRTC};
};

TEST_F(CheckedValues, Off_NothingIsReadOrWaitedFor) {
  for (const char* off : {"", "0"}) {
    const ScopedVariable check("FA3_CHECK", off);
    open();
    cu_q_ = {0, 40, -1};
    ASSERT_EQ(forward(args(64, true)), FA3_OK) << fa3_last_error();
    calls().clear();
    EXPECT_EQ(forward(args(64, true)), FA3_OK);
    EXPECT_THAT(calls(), HasSubstr("cuLaunchKernelEx"));
    for (const char* call : {"DtoH", "Synchronize", "IsCapturing"})
      EXPECT_THAT(calls(), Not(HasSubstr(call)));
  }
}

TEST_F(CheckedValues, On_FirstBadEntryIsNamedAsOnTheCpu) {
  const ScopedVariable check("FA3_CHECK", "1");
  open();
  const fa3_forward_args a = args(64, true);
  fa3_plan* plan = nullptr;
  ASSERT_EQ(fa3_plan_forward(context_.get(), &a, &plan), FA3_OK) << fa3_last_error();
  std::vector<char> workspace(fa3_plan_workspace_bytes(plan));
  const auto run = [&] {
    return fa3_plan_run(plan, &a, workspace.data(), workspace.size(), stream_);
  };
  EXPECT_EQ(forward(a), FA3_OK) << fa3_last_error();
  EXPECT_EQ(run(), FA3_OK) << fa3_last_error();

  struct Case {
    int32_t* entry;
    int32_t bad;
    const char* says;
  };
  for (const Case& x :
       {Case{&cu_q_[0], 1, "cu_seqlens_q[0]=1"}, Case{&cu_q_[2], 11, "cu_seqlens_q[2]=11"},
        Case{&cu_kv_[1], -1, "cu_seqlens_kv[1]=-1"}, Case{&used_kv_[1], 6, "seqused_kv[1]=6"}}) {
    const int32_t good = std::exchange(*x.entry, x.bad);
    calls().clear();
    EXPECT_EQ(forward(a), FA3_INVALID_ARGUMENT);
    const std::string message = fa3_last_error();
    EXPECT_THAT(message, HasSubstr(x.says));
    EXPECT_EQ(run(), FA3_INVALID_ARGUMENT);
    EXPECT_EQ(fa3_last_error(), message);
    EXPECT_EQ(on_cpu(a), message);
    EXPECT_THAT(calls(), Not(HasSubstr("cuLaunchKernelEx")));
    EXPECT_THAT(calls(), HasSubstr("cuStreamSynchronize"));
    *x.entry = good;
  }
  fa3_plan_destroy(plan);
}

TEST_F(CheckedValues, On_BadScaleIsNamedAsOnTheCpu) {
  const ScopedVariable check("FA3_CHECK", "1");
  open();
  float scale = 0.5f;
  fa3_forward_args a = args(64);
  a.q.dtype = a.k.dtype = a.v.dtype = FA3_F8_E4M3;
  a.k_scale = tensor(FA3_F32, {1, 1}, &scale);
  EXPECT_EQ(forward(a), FA3_OK) << fa3_last_error();
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity()}) {
    scale = bad;
    EXPECT_EQ(forward(a), FA3_INVALID_ARGUMENT) << bad;
    const std::string message = fa3_last_error();
    EXPECT_THAT(message, HasSubstr("k_scale of sequence 0, head 0"));
    EXPECT_EQ(on_cpu(a), message);
  }
}

TEST_F(CheckedValues, On_GraphCaptureIsRefused) {
  const ScopedVariable check("FA3_CHECK", "1");
  open();
  ASSERT_EQ(forward(args(64, true)), FA3_OK) << fa3_last_error();
  ASSERT_EQ(forward(args(64)), FA3_OK) << fa3_last_error();
  calls().clear();
  const ScopedVariable capturing("FAKE_CUDA_CAPTURING", "1");
  EXPECT_EQ(forward(args(64, true)), FA3_UNSUPPORTED);
  for (const char* text : {"FA3_CHECK=1", "cu_seqlens_q", "graph", "unset"})
    EXPECT_THAT(fa3_last_error(), HasSubstr(text));
  EXPECT_THAT(calls(), Not(HasSubstr("DtoH")));
  EXPECT_EQ(forward(args(64)), FA3_OK) << fa3_last_error();  // has nothing to read
}

}  // namespace
}  // namespace fa3::cuda
