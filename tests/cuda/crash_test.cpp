// SPDX-License-Identifier: BSD-3-Clause
// crash_test.cpp — the disk cache under dying writers, full disks and many processes: whatever
// happens, a load gives a whole entry or none.
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <chrono>
#include <random>
#include <thread>

#include "backend/cuda/cache.h"
#include "backend/cuda/pack.h"
#include "faults.h"
#include "kit.h"

namespace fa3::cuda {
namespace {

using namespace test;  // NOLINT

constexpr int kVersions = 4;

DiskCache open_cache(const std::string& folder) {
  Result<DiskCache> cache = DiskCache::open(folder);
  if (!cache.ok()) throw std::runtime_error(cache.status().message);
  return std::move(cache).value();
}

bool has_unfinished(const std::string& folder) {
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().filename().string().rfind(kUnfinished, 0) == 0) return true;
  }
  return false;
}

// Replaces entry 1 (version 0) by version 1 in a child that is killed at each system call in turn.
TEST(Crash, KilledAtEachStep_LeavesOldOrNew) {
  int survived = 0, old = 0, fresh = 0;
  for (int step = 1; survived == 0; ++step) {
    ASSERT_LT(step, 50);
    const TempFolder folder;
    ASSERT_TRUE(open_cache(folder.path()).store(key_of(1), sample(1, 0)).ok());
    const int status = in_child([&] {
      const DiskCache cache = open_cache(folder.path());
      arm(Fault::kKill, step);
      return cache.store(key_of(1), sample(1, 1)).ok();
    });
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      ++survived;
    } else {
      ASSERT_EQ(WTERMSIG(status), SIGKILL);
    }
    const DiskCache cache = open_cache(folder.path());
    const std::optional<Cubin> found = cache.load(key_of(1));
    ASSERT_TRUE(found.has_value()) << "step " << step;
    ASSERT_TRUE(is_sample(*found, 1, 2)) << "step " << step;
    ++(*found == sample(1, 1) ? fresh : old);
    ASSERT_TRUE(cache.store(key_of(1), sample(1, 2)).ok()) << "step " << step;
    EXPECT_EQ(cache.load(key_of(1)), sample(1, 2));
  }
  EXPECT_GE(old, 4);    // create, write, flush, rename
  EXPECT_GE(fresh, 2);  // after the rename, and the one that survived
}

TEST(Crash, KilledAnyTime_LeavesWholeEntries) {
  const TempFolder folder;
  std::mt19937 random(1);
  int found = 0;
  for (int round = 0; round < 40; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      const DiskCache cache = open_cache(folder.path());
      for (int i = 0;; ++i) (void)cache.store(key_of(i % 5), sample(i % 5, i % kVersions));
    }
    const DiskCache cache = open_cache(folder.path());
    do {  // in the first round until an entry is there, however busy the machine
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    } while (round == 0 && cache.list().empty());
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const DiskCache::Entry& entry : cache.list()) EXPECT_GT(entry.bytes, 0u);
    for (int number = 0; number < 5; ++number) {
      const std::optional<Cubin> cubin = cache.load(key_of(number));
      if (!cubin) continue;
      ++found;
      EXPECT_TRUE(is_sample(*cubin, number, kVersions)) << "round " << round;
    }
    EXPECT_EQ(cache.list().size(), [&] {
      size_t sound = 0;
      for (int number = 0; number < 5; ++number) sound += cache.load(key_of(number)).has_value();
      return sound;
    }());
  }
  EXPECT_GT(found, 0);
}

// Each system call of a store fails in turn: the old entry stays, and no temporary files.
TEST(Crash, FullDiskAtEachStep_LeavesOldEntry) {
  const TempFolder folder;
  const DiskCache cache = open_cache(folder.path());
  ASSERT_TRUE(cache.store(key_of(1), sample(1, 0)).ok());
  int refusals = 0;
  for (int step = 1; step < 50; ++step) {
    arm(Fault::kFail, step, ENOSPC);
    const Status status = cache.store(key_of(1), sample(1, 1));
    arm(Fault::kNone, 0);
    if (status.ok()) break;
    ++refusals;
    expect_refusal(status, FA3_IO_ERROR, {folder.path(), "No space left on device"});
    EXPECT_EQ(cache.load(key_of(1)), sample(1, 0)) << "step " << step;
    EXPECT_FALSE(has_unfinished(folder.path())) << "step " << step;
  }
  EXPECT_GE(refusals, 4);  // create, write, flush, rename
}

TEST(Crash, FileSizeLimit_IsRefusedCleanly) {
  const TempFolder folder;
  EXPECT_EQ(in_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{4096, 4096};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
              const DiskCache cache = open_cache(folder.path());
              const Status status = cache.store(key_of(1), sample(1));
              return status.code == FA3_IO_ERROR &&
                     status.message.find("File too large") != std::string::npos &&
                     !cache.load(key_of(1)) && !has_unfinished(folder.path());
            }),
            0);
}

TEST(Crash, SmallFileSystem_IsRefusedCleanly) {
  const TempFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=16k,mode=0700") != 0) {
    GTEST_SKIP() << "only root may mount a small file system";
  }
  Cubin large = sample(1);
  large.image.resize(100000, 'x');
  {
    const DiskCache cache = open_cache(folder.path());
    expect_refusal(cache.store(key_of(1), large), FA3_IO_ERROR, {"No space left on device"});
    EXPECT_FALSE(has_unfinished(folder.path()));
    Cubin small = sample(2);
    small.image.resize(1000);
    EXPECT_TRUE(cache.store(key_of(2), small).ok());
    EXPECT_EQ(cache.load(key_of(2)), small);
  }
  EXPECT_EQ(umount(folder.path().c_str()), 0);
}

// 4 processes of 3 threads each store and load the same entries, in versions of different lengths.
TEST(Crash, Crowd_SeesWholeEntries) {
  const TempFolder folder;
  const auto visit = [&](unsigned seed) {
    const DiskCache cache = open_cache(folder.path());
    std::mt19937 random(seed);
    for (int i = 0; i < 100; ++i) {
      const int number = static_cast<int>(random() % 6);
      if (random() % 4 == 0) {
        const int version = static_cast<int>(random() % kVersions);
        if (!cache.store(key_of(number), sample(number, version)).ok()) return false;
      }
      const std::optional<Cubin> cubin = cache.load(key_of(number));
      if (cubin && !is_sample(*cubin, number, kVersions)) return false;
    }
    return true;
  };
  std::vector<pid_t> children;
  for (unsigned process = 0; process < 4; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      bool good[3] = {};
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] { good[t] = visit(10 * process + t); });
      }
      for (std::thread& thread : threads) thread.join();
      _exit(good[0] && good[1] && good[2] ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_FALSE(has_unfinished(folder.path()));
}

// Kernel bundles are written by the same steps.
TEST(Crash, PackKilledAtEachStep_LeavesOldOrNew) {
  int survived = 0;
  for (int step = 1; survived == 0; ++step) {
    ASSERT_LT(step, 50);
    const TempFolder folder;
    const std::string path = folder / "kernels.fa3pack";
    ASSERT_TRUE(write_pack(path, 13000, {{key_of(1), sample(1, 0)}}).ok());
    const int status = in_child([&] {
      arm(Fault::kKill, step);
      return write_pack(path, 13000, {{key_of(1), sample(1, 1)}}).ok();
    });
    survived += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const Result<Pack> pack = Pack::open(path);
    ASSERT_TRUE(pack.ok()) << pack.status().message;
    const std::optional<Cubin> cubin = pack.value().load(key_of(1));
    ASSERT_TRUE(cubin && is_sample(*cubin, 1, 2)) << "step " << step;
  }
}

}  // namespace
}  // namespace fa3::cuda
