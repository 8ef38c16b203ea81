// SPDX-License-Identifier: BSD-3-Clause
// jit_test.cpp — where a kernel comes from, and that it is compiled once.
#include "backend/cuda/jit.h"

#include <dlfcn.h>

#include <atomic>
#include <thread>

#include "kit.h"

namespace fa3::cuda {
namespace {

using namespace test;  // NOLINT

constexpr DeviceHeader kHeaders[] = {{"device/a.h", "text"}};
const Program kProgram{"device/a.h", "fa3::a<1>"};

// Compilations of the fake since it was loaded.
int compilations() {
  void* const library = dlopen(FA3_FAKE_NVRTC, RTLD_NOW);
  return reinterpret_cast<int (*)()>(dlsym(library, "fake_nvrtc_compilations"))();
}

JitOptions options(const std::string& cache_dir, const std::string& nvrtc = FA3_FAKE_NVRTC) {
  JitOptions options;
  options.cache_dir = cache_dir;
  options.nvrtc = nvrtc;
  return options;
}

TEST(Jit, NearestPlaceFirst) {
  const TempFolder folder;
  const std::string pack = folder / "pack";
  {
    KernelMemory memory;
    Jit jit(options(folder.path()), kHeaders, "a", memory);
    const Result<Kernel> first = jit.get(kProgram), second = jit.get(kProgram);
    ASSERT_TRUE(first.ok()) << first.status().message;
    EXPECT_EQ(first.value().source, KernelSource::kCompiled);
    EXPECT_EQ(first.value().cubin->symbol, kProgram.expression);
    EXPECT_EQ(first.value().cubin->image, "#include \"device/a.h\"\nfa3::a<1>");
    EXPECT_EQ(second.value().source, KernelSource::kMemory);
    EXPECT_EQ(second.value().cubin, first.value().cubin);
    ASSERT_TRUE(write_pack(pack, 13000, {{jit.key(kProgram, 13000), *first.value().cubin}}).ok());
  }
  JitOptions with_pack = options(folder.path());
  with_pack.kernel_pack = pack;
  {
    KernelMemory memory;
    EXPECT_EQ(Jit(with_pack, kHeaders, "a", memory).get(kProgram).value().source,
              KernelSource::kDisk);
  }
  ASSERT_TRUE(DiskCache::open(folder.path()).value().clear().ok());
  for (const char* nvrtc : {FA3_FAKE_NVRTC, "/absent/libnvrtc.so"}) {
    KernelMemory memory;
    with_pack.nvrtc = nvrtc;
    const Result<Kernel> kernel = Jit(with_pack, kHeaders, "a", memory).get(kProgram);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message;
    EXPECT_EQ(kernel.value().source, KernelSource::kPack);
  }
}

// What the bits depend on is in the key.
TEST(Jit, Key_TellsApart) {
  KernelMemory memory;
  const Jit jit({}, kHeaders, "a", memory), other({}, kHeaders, "b", memory);
  const Key key = jit.key(kProgram, 13000);
  EXPECT_EQ(jit.key(kProgram, 13000), key);
  EXPECT_NE(jit.key(kProgram, 12090), key);
  EXPECT_NE(jit.key({"device/a.h", "fa3::a<2>"}, 13000), key);
  EXPECT_NE(jit.key({"device/b.h", "fa3::a<1>"}, 13000), key);
  EXPECT_NE(other.key(kProgram, 13000), key);
}

TEST(Jit, CrowdOfThreads_CompilesOnce) {
  const ScopedVariable slow("FAKE_NVRTC_MS", "50");
  const TempFolder folder;
  KernelMemory memory;
  Jit jit(options(folder.path()), kHeaders, "a", memory);
  Jit beside(options(folder.path()), kHeaders, "a", memory);
  ASSERT_TRUE(jit.nvrtc().ok());
  const int before = compilations();
  std::vector<std::thread> threads;
  std::atomic<int> compiled{0}, found{0};
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      const Result<Kernel> kernel = (i % 2 == 0 ? jit : beside).get(kProgram);
      if (!kernel.ok()) return;
      ++(kernel.value().source == KernelSource::kCompiled ? compiled : found);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compilations() - before, 1);
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(found, 15);
}

TEST(Jit, Failure_ReachesAllAndIsForgotten) {
  const ScopedVariable slow("FAKE_NVRTC_MS", "20");
  KernelMemory memory;
  Jit jit(options(""), kHeaders, "a", memory);
  const Program broken{"device/a.h", "fa3::broken"};
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { failures += jit.get(broken).status().code == FA3_JIT_FAILED; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 8);
  const int before = compilations();
  expect_refusal(jit.get(broken).status(), FA3_JIT_FAILED,
                 {"fa3::broken", "device/a.h", "NVRTC_ERROR_COMPILATION", "fake log"});
  EXPECT_EQ(compilations() - before, 1);  // tried again
}

TEST(Jit, MakerThatThrows_ReachesItsCallerAndIsForgotten) {
  KernelMemory memory;
  const auto fails = []() -> Result<Kernel> { throw Error(FA3_INTERNAL, "as told"); };
  EXPECT_THROW((void)memory.get(key_of(1), fails), Error);
  const Result<Kernel> kernel = memory.get(key_of(1), [] {
    return Result<Kernel>({std::make_shared<const Cubin>(sample(1)), KernelSource::kCompiled});
  });
  EXPECT_TRUE(kernel.ok());
}

// A cache that cannot be had costs time, not the kernel; the reason is logged.
TEST(Jit, NoCache_Compiles) {
  std::string log;
  JitOptions without = options("relative");
  without.logger = {
      [](void* user, fa3_log_level, const char* line) { *static_cast<std::string*>(user) += line; },
      &log};
  KernelMemory memory;
  Jit jit(without, kHeaders, "a", memory);
  EXPECT_EQ(jit.get(kProgram).value().source, KernelSource::kCompiled);
  EXPECT_THAT(log, ::testing::HasSubstr("absolute path"));
  KernelMemory other;
  Jit nameless(options(""), kHeaders, "a", other);
  EXPECT_TRUE(nameless.get(kProgram).ok());
  expect_refusal(nameless.disk().status(), FA3_IO_ERROR, {"HOME", "FA3_CACHE_DIR"});
}

TEST(Jit, NothingToCompileWith_SaysWhy) {
  const TempFolder folder;
  KernelMemory memory;
  Jit jit(options(folder.path(), "/absent/libnvrtc.so"), kHeaders, "a", memory);
  expect_refusal(jit.get(kProgram).status(), FA3_JIT_FAILED,
                 {"no usable NVRTC", "/absent/libnvrtc.so", "FA3_NVRTC"});
}

TEST(Jit, PackedOnly_NeverCompiles) {
  const TempFolder folder;
  JitOptions packed = options(folder.path());
  packed.packed_only = true;
  KernelMemory memory;
  expect_refusal(Jit(packed, kHeaders, "a", memory).get(kProgram).status(), FA3_IO_ERROR,
                 {"none is named", "FA3_KERNEL_PACK"});
  packed.kernel_pack = folder / "pack";
  ASSERT_TRUE(write_pack(packed.kernel_pack, 13000, {{key_of(1), sample(1)}}).ok());
  const int before = compilations();
  expect_refusal(Jit(packed, kHeaders, "a", memory).get(kProgram).status(), FA3_JIT_FAILED,
                 {"fa3::a<1>", packed.kernel_pack, "fa3 jit --pack"});
  EXPECT_EQ(compilations(), before);
}

TEST(Jit, PackTooNewForTheDriver_IsRefused) {
  const TempFolder folder;
  JitOptions packed = options("");
  packed.kernel_pack = folder / "pack";
  packed.packed_only = true;
  packed.driver_version = 12080;
  ASSERT_TRUE(write_pack(packed.kernel_pack, 13000, {}).ok());
  KernelMemory memory;
  expect_refusal(Jit(packed, kHeaders, "a", memory).get(kProgram).status(), FA3_IO_ERROR,
                 {"NVRTC 13.0", "CUDA 12.8"});
}

}  // namespace
}  // namespace fa3::cuda
