// SPDX-License-Identifier: BSD-3-Clause
// jit_test.cpp — where a kernel comes from, and that it is compiled once.
#include "backend/cuda/jit.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "faults.h"
#include "kit.h"

namespace fa3::cuda {
namespace {

using namespace test;  // NOLINT

constexpr DeviceHeader kHeaders[] = {{"device/a.h", "text"}};
const Program kProgram{"device/a.h", "fa3::a<1>", kHopperArch};

int count(const char* what, const std::string& library = FA3_FAKE_NVRTC) {
  void* const fake = dlopen(library.c_str(), RTLD_NOW);
  return reinterpret_cast<int (*)()>(dlsym(fake, what))();
}

// Compilations of the fake since it was loaded.
int compilations() { return count("fake_nvrtc_compilations"); }

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

// Everything that the compiled bits depend on is in the key.
TEST(Jit, Key_TellsApart) {
  KernelMemory memory;
  const Jit jit({}, kHeaders, "a", memory), other({}, kHeaders, "b", memory);
  const Key key = jit.key(kProgram, 13000);
  EXPECT_EQ(jit.key(kProgram, 13000), key);
  EXPECT_NE(jit.key(kProgram, 12090), key);
  EXPECT_NE(jit.key({"device/a.h", "fa3::a<2>", kHopperArch}, 13000), key);
  EXPECT_NE(jit.key({"device/b.h", "fa3::a<1>", kHopperArch}, 13000), key);
  EXPECT_NE(other.key(kProgram, 13000), key);
  const HeaderSet one{kHeaders, "1"}, two{kHeaders, "2"};
  const Program with_one{"device/a.h", "fa3::a<1>", kHopperArch, &one};
  EXPECT_NE(jit.key(with_one, 13000), key);
  EXPECT_NE(jit.key({"device/a.h", "fa3::a<1>", kHopperArch, &two}, 13000),
            jit.key(with_one, 13000));
  const HeaderSet copy{kHeaders, "1"};
  EXPECT_EQ(jit.key({"device/a.h", "fa3::a<1>", kHopperArch, &copy}, 13000),
            jit.key(with_one, 13000));
}

// A program may lie in another library's headers.
TEST(Jit, ProgramOfOtherHeaders_IsCompiledWithAll) {
  const TempFolder folder;
  static constexpr DeviceHeader kMore[] = {{"device/b.h", "b"}, {"device/c.h", "c"}};
  const HeaderSet more{kMore, "more"};
  const Program program{"device/b.h", "fa3::b", kHopperArch, &more};
  KernelMemory memory, other;
  Jit jit(options(folder.path()), kHeaders, "a", memory);
  const Result<Kernel> compiled = jit.get(program);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message;
  EXPECT_EQ(compiled.value().source, KernelSource::kCompiled);
  EXPECT_EQ(count("fake_nvrtc_headers"), 3);
  EXPECT_EQ(Jit(options(folder.path()), kHeaders, "a", other).get(program).value().source,
            KernelSource::kDisk);
  expect_refusal(jit.get({"device/b.h", "fa3::b", kHopperArch}).status(), FA3_INVALID_ARGUMENT,
                 {"device/b.h", "not a file of the library's device code"});
}

// A process that finds or compiles the program: its exit status is the source.
pid_t start_process(const std::string& folder, const Program& program, const char* ms) {
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("FAKE_NVRTC_MS", ms, 1);
  KernelMemory memory;
  const Result<Kernel> kernel = Jit(options(folder), kHeaders, "a", memory).get(program);
  _exit(kernel.ok() ? static_cast<int>(kernel.value().source) : 99);
}

int exit_status(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool has_lock(const std::string& folder) {
  return std::ranges::any_of(fs::directory_iterator(folder),
                             [](const auto& file) { return file.path().extension() == ".lock"; });
}

// A process that compiles the program, for as long as it lives; it is doing so.
pid_t start_holder(const std::string& folder) {
  const TempFolder other;
  const std::string begun = other / "begun";
  const ScopedVariable file("FAKE_NVRTC_FILE", begun.c_str());
  const pid_t child = start_process(folder, kProgram, "600000");
  while (!fs::exists(begun)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return child;
}

void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(Jit, CrowdOfProcesses_CompilesOnce) {
  const TempFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 64; ++i) children.push_back(start_process(folder.path(), kProgram, "200"));
  int compiled = 0, read = 0;
  for (const pid_t child : children) {
    const int status = exit_status(child);
    compiled += status == static_cast<int>(KernelSource::kCompiled);
    read += status == static_cast<int>(KernelSource::kDisk);
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(read, 63);
  EXPECT_FALSE(has_lock(folder.path()));
}

TEST(Jit, HolderIsKilled_NextOneCompiles) {
  const TempFolder folder;
  const pid_t holder = start_holder(folder.path());
  const pid_t waiting = start_process(folder.path(), kProgram, "0");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(waitpid(waiting, nullptr, WNOHANG), 0) << "it did not wait";
  end(holder);
  EXPECT_EQ(exit_status(waiting), static_cast<int>(KernelSource::kCompiled));
  EXPECT_FALSE(has_lock(folder.path()));
}

TEST(Jit, HolderIsStuck_OthersGoOn) {
  const TempFolder folder;
  const pid_t holder = start_holder(folder.path());
  const Program other{"device/a.h", "fa3::a<2>", kHopperArch};
  KernelMemory memory;
  EXPECT_EQ(Jit(options(folder.path()), kHeaders, "a", memory).get(other).value().source,
            KernelSource::kCompiled);
  JitOptions impatient = options(folder.path());
  impatient.patience = std::chrono::milliseconds(30);
  const Result<Kernel> kernel = Jit(impatient, kHeaders, "a", memory).get(kProgram);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message;
  EXPECT_EQ(kernel.value().source, KernelSource::kCompiled);
  end(holder);
  // Its file stays until the cache is emptied or that kernel is compiled again.
  ASSERT_TRUE(DiskCache::open(folder.path()).value().clear().ok());
  EXPECT_FALSE(has_lock(folder.path()));
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
  const Program broken{"device/a.h", "fa3::broken", kHopperArch};
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

// Of its parent's threads a forked process has the one that forked: no other would end its work.
TEST(Jit, ForkedWhileAnotherThreadCompiles_CompilesItself) {
  const Program program{"device/a.h", "fa3::forked", kHopperArch};
  Jit jit(options(""), kHeaders, "forked");
  ASSERT_TRUE(jit.nvrtc().ok());
  std::thread other;
  const TempFolder folder;
  const std::string file = folder / "compiling";
  {
    const ScopedVariable lasts("FAKE_NVRTC_FILE", file.c_str());
    other = std::thread([&] { EXPECT_TRUE(jit.get(program).ok()); });
    while (!fs::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const int status = in_child([&] {
    alarm(60);
    const Result<Kernel> kernel = Jit(options(""), kHeaders, "forked").get(program);
    return kernel.ok() && kernel.value().source == KernelSource::kCompiled;
  });
  fs::remove(file);
  other.join();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(jit.get(program).value().source, KernelSource::kMemory);
}

// Contexts share the memory, but one may have a compiler where another takes bundled kernels only.
TEST(Jit, FailureOfAnother_IsNoAnswer) {
  KernelMemory memory;
  const auto made = [] {
    return Result<Kernel>({std::make_shared<const Cubin>(sample(1)), KernelSource::kCompiled});
  };
  for (const bool throws : {false, true}) {
    std::promise<void> begun;
    std::thread other([&] {
      const auto fails = [&]() -> Result<Kernel> {
        begun.set_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        if (throws) throw Error(FA3_INTERNAL, "as told");
        return Status{FA3_JIT_FAILED, "as told"};
      };
      try {
        EXPECT_FALSE(memory.get(key_of(1 + throws), fails).ok());
      } catch (const Error&) {
        EXPECT_TRUE(throws);
      }
    });
    begun.get_future().wait();
    EXPECT_TRUE(memory.get(key_of(1 + throws), made).ok());
    other.join();
  }
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

// A cache that cannot be opened costs time, not the kernel; the reason is logged.
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

TEST(Jit, BundledOnly_NeverCompiles) {
  const TempFolder folder;
  JitOptions bundled = options(folder.path());
  bundled.bundled_only = true;
  KernelMemory memory;
  expect_refusal(Jit(bundled, kHeaders, "a", memory).get(kProgram).status(), FA3_IO_ERROR,
                 {"none is named", "FA3_KERNEL_PACK"});
  bundled.kernel_pack = folder / "pack";
  ASSERT_TRUE(write_pack(bundled.kernel_pack, 13000, {{key_of(1), sample(1)}}).ok());
  const int before = compilations();
  expect_refusal(Jit(bundled, kHeaders, "a", memory).get(kProgram).status(), FA3_JIT_FAILED,
                 {"fa3::a<1>", bundled.kernel_pack, "fa3 jit --pack"});
  EXPECT_EQ(compilations(), before);
}

TEST(Jit, PackTooNewForTheDriver_IsRefused) {
  const TempFolder folder;
  JitOptions bundled = options("");
  bundled.kernel_pack = folder / "pack";
  bundled.bundled_only = true;
  bundled.driver_version = 12080;
  ASSERT_TRUE(write_pack(bundled.kernel_pack, 13000, {}).ok());
  KernelMemory memory;
  expect_refusal(Jit(bundled, kHeaders, "a", memory).get(kProgram).status(), FA3_IO_ERROR,
                 {"NVRTC 13.0", "CUDA 12.8"});
}

// ---- The version that is remembered -------------------------------------------------------------

// A copy of the fake compiler that a test may change, and processes that look for a kernel with it.
class KnownNvrtc : public testing::Test {
 protected:
  KnownNvrtc() { fs::copy_file(FA3_FAKE_NVRTC, nvrtc_); }

  // What a new process would do for the kernel. `openings`: of the compiler.
  KernelSource find(int openings, const JitOptions& options, const Program& program = kProgram) {
    KernelMemory memory;
    const int before = count("fake_nvrtc_openings", nvrtc_);
    const Result<Kernel> kernel = Jit(options, kHeaders, "a", memory).get(program);
    EXPECT_EQ(count("fake_nvrtc_openings", nvrtc_) - before, openings);
    EXPECT_TRUE(kernel.ok()) << kernel.status().message;
    return kernel.value().source;
  }
  KernelSource find(int openings) { return find(openings, options(cache_, nvrtc_)); }

  std::vector<std::string> files(const std::string& suffix) const {
    std::vector<std::string> found;
    for (const auto& file : fs::directory_iterator(cache_)) {
      if (file.path().extension() == suffix) found.push_back(file.path());
    }
    return found;
  }

  const TempFolder folder_;
  const std::string nvrtc_ = folder_ / "libnvrtc.so", cache_ = folder_ / "cache";
};

TEST_F(KnownNvrtc, KernelOnDisk_IsFoundWithoutOpening) {
  EXPECT_EQ(find(1), KernelSource::kCompiled);
  for (int process = 0; process < 3; ++process) EXPECT_EQ(find(0), KernelSource::kDisk);
  EXPECT_EQ(find(1, options(cache_, nvrtc_), {"device/a.h", "fa3::a<2>", kHopperArch}),
            KernelSource::kCompiled);
  ASSERT_EQ(files(".note").size(), 1u);
  struct stat info {};
  ASSERT_EQ(stat(files(".note")[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const DiskCache cache = DiskCache::open(cache_).value();
  EXPECT_EQ(cache.list().size(), 2u);  // kernels
  ASSERT_TRUE(cache.clear().ok());
  EXPECT_EQ(files(".note").size(), 0u);
}

TEST_F(KnownNvrtc, OtherFile_IsOpened) {
  EXPECT_EQ(find(1), KernelSource::kCompiled);
  const timespec times[2] = {{1, 0}, {1, 0}};  // as an update would
  ASSERT_EQ(utimensat(AT_FDCWD, nvrtc_.c_str(), times, 0), 0);
  {
    const ScopedVariable updated("FAKE_NVRTC_VERSION", "13010");
    EXPECT_EQ(find(1), KernelSource::kCompiled);
    EXPECT_EQ(find(0), KernelSource::kDisk);
  }
  fs::remove(nvrtc_);
  for (int process = 0; process < 2; ++process) {
    EXPECT_EQ(find(1), KernelSource::kDisk);  // this process has it loaded, for the test
  }
}

TEST_F(KnownNvrtc, OtherSearch_IsMade) {
  EXPECT_EQ(find(1), KernelSource::kCompiled);
  JitOptions driver = options(cache_, nvrtc_);
  driver.driver_version = 13000;
  EXPECT_EQ(find(1, driver), KernelSource::kDisk);
  EXPECT_EQ(find(0, driver), KernelSource::kDisk);
  const ScopedVariable elsewhere("LD_LIBRARY_PATH", folder_.path().c_str());
  EXPECT_EQ(find(1), KernelSource::kDisk);
  EXPECT_EQ(find(0), KernelSource::kDisk);
}

TEST_F(KnownNvrtc, DamagedNote_IsAMiss) {
  EXPECT_EQ(find(1), KernelSource::kCompiled);
  const std::string note = files(".note")[0], sound = read_file(note);
  for (size_t at = 0; at < sound.size(); ++at) {
    std::string bytes = sound;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_file(note, bytes);
    EXPECT_EQ(find(1), KernelSource::kDisk) << "byte " << at;
    EXPECT_EQ(read_file(note), sound);  // mended
  }
  write_file(note, "");
  EXPECT_EQ(find(1), KernelSource::kDisk);
  EXPECT_EQ(find(0), KernelSource::kDisk);
}

// The loader finds another file than it did: existing kernels are of the old one, new ones
// correct the note.
TEST_F(KnownNvrtc, WrongNote_IsCorrectedByTheNextCompilation) {
  EXPECT_EQ(find(1), KernelSource::kCompiled);
  const ScopedVariable other("FAKE_NVRTC_VERSION", "13010");
  EXPECT_EQ(find(0), KernelSource::kDisk);
  EXPECT_EQ(find(1, options(cache_, nvrtc_), {"device/a.h", "fa3::a<2>", kHopperArch}),
            KernelSource::kCompiled);
  EXPECT_EQ(find(1), KernelSource::kCompiled);
  EXPECT_EQ(find(0), KernelSource::kDisk);
}

// A kernel bundle names one compiler: every kernel in it was compiled by that one.
TEST_F(KnownNvrtc, KernelForAPack_IsOfTheCompilerThatIsOpen) {
  EXPECT_EQ(find(1), KernelSource::kCompiled);
  const ScopedVariable other("FAKE_NVRTC_VERSION", "13010");
  KernelMemory memory;
  Jit jit(options(cache_, nvrtc_), kHeaders, "a", memory);
  EXPECT_EQ(jit.get_compiled(kProgram).value().source, KernelSource::kCompiled);
}

TEST_F(KnownNvrtc, FolderThatTakesNothing_CostsTimeOnly) {
  ASSERT_EQ(find(1), KernelSource::kCompiled);
  fs::remove(files(".note")[0]);
  arm(Fault::kFail, 3, EROFS);  // after two looks for the note
  EXPECT_EQ(find(1), KernelSource::kCompiled);
  arm(Fault::kNone, 0);
  EXPECT_EQ(files(".note").size(), 0u);
  EXPECT_EQ(find(1), KernelSource::kDisk);
}

}  // namespace
}  // namespace fa3::cuda
