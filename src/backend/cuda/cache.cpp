// SPDX-License-Identifier: BSD-3-Clause
// cache.cpp — checks of the folder, entries as files, and eviction when it is full.
#include "backend/cuda/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <string_view>
#include <thread>

namespace fa3::cuda {
namespace {

constexpr std::string_view kSuffix = ".cubin", kNoteSuffix = ".note", kLockSuffix = ".lock";
constexpr size_t kKeyDigits = 64;
constexpr mode_t kFolderMode = 0700, kFileMode = 0600;
constexpr uint64_t kMaxEntryBytes = uint64_t{256} << 20;
constexpr time_t kAbandonedSeconds = 3600;   // an unfinished file or a lock this old has no owner
constexpr time_t kNoteSeconds = 30 * 86400;  // unused; notes are too small to count

// Between two polls of another owner's lock; a compilation takes ten times as long or more.
constexpr std::chrono::milliseconds kLongestPause{20};

constexpr const char* kRemedy = "name another folder in FA3_CACHE_DIR or the option cache_dir";

Status refuse(const std::string& folder, const std::string& why) {
  return {FA3_IO_ERROR, fmt::format("kernel cache: {} {}; {}", folder, why, kRemedy)};
}

// As `mkdir -p`. A failure shows when the folder is opened.
void make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    mkdir(path.substr(0, slash).c_str(), kFolderMode);
    if (slash == std::string::npos) return;
  }
}

Status check_folder(const std::string& folder, const struct stat& info) {
  if (info.st_uid != geteuid()) {
    return refuse(
        folder, fmt::format("belongs to user {}, need {}, who runs this", info.st_uid, geteuid()));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refuse(folder, fmt::format("has mode {:o}, which lets others write to it; need 700: "
                                      "chmod it",
                                      info.st_mode & 07777));
  }
  return {};
}

std::string file_name(const Key& key) { return hex(key) + std::string(kSuffix); }
std::string note_name(const Key& key) { return hex(key) + std::string(kNoteSuffix); }

bool is_named(std::string_view name, std::string_view suffix) {
  return name.size() == kKeyDigits + suffix.size() && name.substr(kKeyDigits) == suffix &&
         name.find_first_not_of("0123456789abcdef") >= kKeyDigits;
}
bool is_entry(std::string_view name) { return is_named(name, kSuffix); }
bool is_note(std::string_view name) { return is_named(name, kNoteSuffix); }

bool is_lock(std::string_view name) { return is_named(name, kLockSuffix); }

bool is_unfinished(std::string_view name) {
  return name.substr(0, kUnfinished.size()) == kUnfinished;
}

bool earlier(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

// Calls visit(name, its properties) for each regular file of the folder.
template <class Visit>
void each_file(const FileDescriptor& folder, const Visit& visit) {
  const int fd = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(fd), closedir);
  if (!stream) {
    const int error = errno;
    close(fd);
    if (error == ENOMEM) throw std::bad_alloc();
    return;
  }
  while (const dirent* file = readdir(stream.get())) {
    struct stat info {};
    if (fstatat(folder.get(), file->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode)) visit(std::string(file->d_name), info);
  }
}

}  // namespace

bool DiskCache::absent(const std::string& folder) {
  struct stat info {};
  return folder.starts_with('/') && lstat(folder.c_str(), &info) != 0 && errno == ENOENT;
}

Result<DiskCache> DiskCache::open(const std::string& folder, uint64_t limit_bytes) {
  if (folder.empty() || folder[0] != '/') {
    return refuse(fmt::format("'{}'", folder), "is not an absolute path");
  }
  make_folders(folder);
  FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.open()) {
    return refuse(folder, fmt::format("cannot be made or opened: {}", system_error_text(errno)));
  }
  struct stat info {};
  if (fstat(descriptor.get(), &info) != 0) {
    return refuse(folder, fmt::format("cannot be examined: {}", system_error_text(errno)));
  }
  FA3_RETURN_IF_ERROR(check_folder(folder, info));
  return DiskCache(std::move(descriptor), folder, limit_bytes);
}

std::optional<Cubin> DiskCache::load(const Key& key) const {
  return load_file(file_name(key), key);
}

std::optional<std::string> DiskCache::load_note(const Key& key) const {
  std::optional<Cubin> note = load_file(note_name(key), key);
  if (!note) return std::nullopt;
  return std::move(note->symbol);
}

std::optional<Cubin> DiskCache::load_file(const std::string& name, const Key& key) const {
  const FileDescriptor file(
      openat(descriptor_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!file.open() || fstat(file.get(), &info) != 0) return std::nullopt;
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) return std::nullopt;
  const std::optional<uint64_t> size = size_of(file);
  if (!size || *size > kMaxEntryBytes) return std::nullopt;
  const std::optional<std::string> bytes = read_part(file, 0, *size);
  if (!bytes) return std::nullopt;
  std::optional<Cubin> cubin = decode_entry(key, *bytes);
  if (cubin) futimens(file.get(), nullptr);  // fails on a folder that is read-only: no matter
  return cubin;
}

bool DiskCache::has(const Key& key) const {
  return faccessat(descriptor_.get(), file_name(key).c_str(), R_OK, 0) == 0;
}

Status DiskCache::store(const Key& key, const Cubin& cubin) const {
  return store_file(file_name(key), encode_entry(key, cubin));
}

Status DiskCache::store_note(const Key& key, const std::string& text) const {
  return store_file(note_name(key), encode_entry(key, {text, ""}));
}

Status DiskCache::store_file(const std::string& name, const std::string& bytes) const {
  const Status status = write_atomically(descriptor_, name, bytes, kFileMode);
  if (!status.ok()) return refuse(folder_, "does not take an entry: " + status.message);
  drop_unused();
  return {};
}

// flock is on the open file, so it ends with its owner. The file is unlinked while the lock is
// held; a waiter that then locks it sees that it has no name any more, and opens the next one.
DiskCache::Turn::~Turn() {
  if (file_.open()) unlinkat(folder_->get(), name_.c_str(), 0);
}

// An empty descriptor when another owner holds the lock (busy) or the file cannot be opened.
FileDescriptor DiskCache::lock(const std::string& name, bool& busy) const {
  FileDescriptor file(openat(descriptor_.get(), name.c_str(),
                             O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kFileMode));
  busy = false;
  if (!file.open()) return file;
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    busy = errno == EWOULDBLOCK || errno == EINTR;
    return FileDescriptor();
  }
  struct stat opened {
  }, named{};
  busy = fstat(file.get(), &opened) != 0 ||
         fstatat(descriptor_.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
         opened.st_ino != named.st_ino || opened.st_dev != named.st_dev;
  return busy ? FileDescriptor() : std::move(file);
}

DiskCache::Turn DiskCache::take_turn(const Key& key, std::chrono::milliseconds patience) const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + patience;
  std::string name = hex(key) + std::string(kLockSuffix);
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
    bool busy = false;
    FileDescriptor file = lock(name, busy);
    if (file.open()) return Turn(descriptor_, std::move(name), std::move(file));
    if (!busy || Clock::now() >= end) return {};
    std::this_thread::sleep_for(pause);
  }
}

std::vector<DiskCache::Entry> DiskCache::list() const {
  std::vector<Entry> entries;
  each_file(descriptor_, [&](const std::string& name, const struct stat& info) {
    if (!is_entry(name)) return;
    entries.push_back({name, static_cast<uint64_t>(info.st_size), info.st_mtim});
  });
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return earlier(a.used, b.used); });
  return entries;
}

// Another process may drop the same entries: a file that is gone already is no failure.
void DiskCache::drop_unused() const {
  const time_t now = time(nullptr);
  each_file(descriptor_, [&](const std::string& name, const struct stat& info) {
    const time_t age = now - info.st_mtim.tv_sec;
    const bool passing = is_unfinished(name) || is_lock(name);
    if ((passing && age > kAbandonedSeconds) || (is_note(name) && age > kNoteSeconds)) {
      unlinkat(descriptor_.get(), name.c_str(), 0);
    }
  });
  const std::vector<Entry> entries = list();
  uint64_t total = 0;
  for (const Entry& entry : entries) total += entry.bytes;
  for (const Entry& entry : entries) {
    if (total <= limit_bytes_) return;
    unlinkat(descriptor_.get(), entry.name.c_str(), 0);
    total -= entry.bytes;
  }
}

Status DiskCache::clear() const {
  Status status;
  each_file(descriptor_, [&](const std::string& name, const struct stat&) {
    if (!is_entry(name) && !is_note(name) && !is_lock(name) && !is_unfinished(name)) return;
    if (unlinkat(descriptor_.get(), name.c_str(), 0) != 0 && errno != ENOENT && status.ok()) {
      status = refuse(folder_, fmt::format("keeps {}: {}", name, system_error_text(errno)));
    }
  });
  return status;
}

}  // namespace fa3::cuda
