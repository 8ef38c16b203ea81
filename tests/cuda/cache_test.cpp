// SPDX-License-Identifier: BSD-3-Clause
// cache_test.cpp — the disk cache: what it keeps, what it refuses, what damage does.
#include "backend/cuda/cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "kit.h"

namespace fa3::cuda {
namespace {

using namespace test;  // NOLINT

DiskCache open_cache(const std::string& folder, uint64_t limit = kDiskCacheLimit) {
  Result<DiskCache> cache = DiskCache::open(folder, limit);
  if (!cache.ok()) throw std::runtime_error(cache.status().message);
  return std::move(cache).value();
}

std::string only_file(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& file : fs::directory_iterator(folder)) files.push_back(file.path());
  return files.size() == 1 ? files[0] : "";
}

TEST(DiskCache, Stored_IsLoadedByAnyProcess) {
  const TempFolder folder;
  const std::string cache = folder / "a/b/cache";
  ASSERT_EQ(in_child([&] { return open_cache(cache).store(key_of(1), sample(1)).ok(); }), 0);
  EXPECT_EQ(open_cache(cache).load(key_of(1)), sample(1));
  EXPECT_FALSE(open_cache(cache).load(key_of(2)).has_value());
}

TEST(DiskCache, Folder_IsForItsOwnerAlone) {
  const TempFolder folder;
  const mode_t old = umask(0);
  const Status stored = open_cache(folder / "new").store(key_of(1), sample(1));
  umask(old);
  ASSERT_TRUE(stored.ok());
  struct stat info {};
  ASSERT_EQ(stat((folder / "new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  ASSERT_EQ(stat(only_file(folder / "new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST(DiskCache, WritableByOthers_IsRefused) {
  for (const mode_t mode : {0770, 0702, 0777}) {
    const TempFolder folder;
    ASSERT_EQ(chmod(folder.path().c_str(), mode), 0);
    expect_refusal(DiskCache::open(folder.path()).status(), FA3_IO_ERROR,
                   {folder.path(), fmt::format("mode {:o}", mode), "700", "FA3_CACHE_DIR"});
  }
  const TempFolder readable;
  ASSERT_EQ(chmod(readable.path().c_str(), 0755), 0);
  EXPECT_TRUE(DiskCache::open(readable.path()).ok());
}

TEST(DiskCache, OfAnotherUser_IsRefused) {
  const TempFolder folder;
  if (chown(folder.path().c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "only root can give a folder away";
  }
  expect_refusal(DiskCache::open(folder.path()).status(), FA3_IO_ERROR,
                 {folder.path(), "belongs to user 12345", "need 0"});
}

TEST(DiskCache, EntryOfAnotherUser_IsMissed) {
  const TempFolder folder;
  const DiskCache cache = open_cache(folder.path());
  ASSERT_TRUE(cache.store(key_of(1), sample(1)).ok());
  if (chown(only_file(folder.path()).c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "only root can give a file away";
  }
  EXPECT_FALSE(cache.load(key_of(1)).has_value());
}

// The working directory would decide what a kernel is.
TEST(DiskCache, RelativePath_IsRefused) {
  for (const char* path : {"", ".", "cache", "../cache"}) {
    expect_refusal(DiskCache::open(path).status(), FA3_IO_ERROR, {"absolute path"});
  }
}

TEST(DiskCache, NoFolder_SaysWhy) {
  const TempFolder folder;
  write_file(folder / "file", "");
  expect_refusal(DiskCache::open(folder / "file").status(), FA3_IO_ERROR, {"Not a directory"});
  expect_refusal(DiskCache::open(folder / "file/below").status(), FA3_IO_ERROR,
                 {"Not a directory"});
}

// As another user, since root may write anywhere.
TEST(DiskCache, ReadOnlyFolder_IsReadAndRefusesToStore) {
  const TempFolder folder;
  const std::string path = folder / "cache";
  ASSERT_TRUE(open_cache(path).store(key_of(1), sample(1)).ok());
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 65534, static_cast<gid_t>(-1)), 0);
    ASSERT_EQ(chown(only_file(path).c_str(), 65534, static_cast<gid_t>(-1)), 0);
    ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  }
  ASSERT_EQ(chmod(path.c_str(), 0500), 0);
  EXPECT_EQ(in_child([&] {
              if (geteuid() == 0 && setuid(65534) != 0) return false;
              const DiskCache cache = open_cache(path);
              const Status stored = cache.store(key_of(2), sample(2));
              return cache.load(key_of(1)) == sample(1) && stored.code == FA3_IO_ERROR &&
                     stored.message.find("Permission denied") != std::string::npos;
            }),
            0);
}

// ---- Damage -------------------------------------------------------------------------------------

// Every byte of the header, and bytes throughout the rest.
TEST(DiskCache, AnyWrongByte_IsAMiss) {
  const TempFolder folder;
  const DiskCache cache = open_cache(folder.path());
  ASSERT_TRUE(cache.store(key_of(1), sample(1)).ok());
  const std::string file = only_file(folder.path());
  const std::string sound = read_file(file);
  for (size_t at = 0; at < sound.size(); at += at < 128 ? 1 : 97) {
    for (const int flip : {1, 128, 255}) {
      std::string bytes = sound;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      write_file(file, bytes);
      EXPECT_FALSE(cache.load(key_of(1)).has_value()) << "byte " << at;
    }
  }
  write_file(file, sound);
  EXPECT_TRUE(cache.load(key_of(1)).has_value());
}

TEST(DiskCache, AnyOtherLength_IsAMiss) {
  const TempFolder folder;
  const DiskCache cache = open_cache(folder.path());
  ASSERT_TRUE(cache.store(key_of(1), sample(1)).ok());
  const std::string file = only_file(folder.path());
  const std::string sound = read_file(file);
  for (size_t size = 0; size < sound.size(); size += size < 128 ? 1 : 97) {
    write_file(file, sound.substr(0, size));
    EXPECT_FALSE(cache.load(key_of(1)).has_value()) << "length " << size;
  }
  write_file(file, sound + '\0');
  EXPECT_FALSE(cache.load(key_of(1)).has_value());
  ASSERT_TRUE(cache.store(key_of(1), sample(1)).ok());  // repairs it
  EXPECT_EQ(cache.load(key_of(1)), sample(1));
}

TEST(DiskCache, WhatIsNoEntry_IsAMiss) {
  const TempFolder folder;
  const DiskCache cache = open_cache(folder.path());
  ASSERT_TRUE(cache.store(key_of(1), sample(1)).ok());
  const std::string file = only_file(folder.path());
  const std::string other = folder / (hex(key_of(2)) + ".cubin");
  fs::copy_file(file, other);  // a sound entry under another's name
  EXPECT_FALSE(cache.load(key_of(2)).has_value());
  fs::remove(other);
  const std::string elsewhere = folder / "elsewhere";  // sound, but not in the folder itself
  write_file(elsewhere, encode_entry(key_of(2), sample(2)));
  fs::create_symlink(elsewhere, other);
  EXPECT_FALSE(cache.load(key_of(2)).has_value());
  fs::remove(other);
  fs::create_directory(other);
  EXPECT_FALSE(cache.load(key_of(2)).has_value());
  fs::remove(other);
  ASSERT_EQ(mkfifo(other.c_str(), 0600), 0);  // must not wait for a writer
  EXPECT_FALSE(cache.load(key_of(2)).has_value());
}

// ---- Size ---------------------------------------------------------------------------------------

TEST(DiskCache, LongestUnused_GoesFirst) {
  const TempFolder folder;
  const uint64_t one = encode_entry(key_of(1), sample(1)).size();
  const DiskCache cache = open_cache(folder.path(), 3 * one + one / 2);
  const auto age = [&](int number, int seconds) {
    const timespec times[2] = {{time(nullptr) - seconds, 0}, {time(nullptr) - seconds, 0}};
    const std::string file = folder / (hex(key_of(number)) + ".cubin");
    ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  };
  for (int number : {1, 2, 3}) {
    ASSERT_TRUE(cache.store(key_of(number), sample(number)).ok());
    age(number, 100 - number);
  }
  ASSERT_TRUE(cache.load(key_of(1)).has_value());  // used now: 2 is the one unused longest
  ASSERT_TRUE(cache.store(key_of(4), sample(4)).ok());
  EXPECT_FALSE(cache.load(key_of(2)).has_value());
  for (int number : {1, 3, 4}) EXPECT_TRUE(cache.load(key_of(number)).has_value()) << number;
}

TEST(DiskCache, Cleared_IsEmptyButForOthersFiles) {
  const TempFolder folder;
  const DiskCache cache = open_cache(folder.path());
  for (int number : {1, 2}) ASSERT_TRUE(cache.store(key_of(number), sample(number)).ok());
  write_file(folder / "notes.txt", "mine");
  write_file(folder / (std::string(kUnfinished) + "1-2-3"), "half");
  EXPECT_EQ(cache.list().size(), 2u);
  EXPECT_TRUE(cache.clear().ok());
  EXPECT_EQ(cache.list().size(), 0u);
  EXPECT_EQ(only_file(folder.path()), folder / "notes.txt");
}

TEST(DiskCache, AbandonedFiles_GoAfterAnHour) {
  const TempFolder folder;
  const DiskCache cache = open_cache(folder.path());
  const std::string old = folder / (std::string(kUnfinished) + "old");
  const std::string fresh = folder / (std::string(kUnfinished) + "fresh");
  write_file(old, "half");
  write_file(fresh, "half");
  const timespec times[2] = {{time(nullptr) - 4000, 0}, {time(nullptr) - 4000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, old.c_str(), times, 0), 0);
  ASSERT_TRUE(cache.store(key_of(1), sample(1)).ok());
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
}

}  // namespace
}  // namespace fa3::cuda
