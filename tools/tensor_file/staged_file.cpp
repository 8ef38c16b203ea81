// SPDX-License-Identifier: BSD-3-Clause
// staged_file.cpp — temporary file, lock, then rename.
#include "tensor_file/staged_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string_view>

#include "tensor_file/tensor_file.h"

namespace fa3::tools {
namespace {

using Kind = TensorFileError::Kind;
namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& name, std::string_view what) {
  throw TensorFileError(Kind::kWrite, fmt::format("{}: {}", name, what));
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

constexpr std::string_view kBegin = ".fa3-", kEnd = ".tmp";
constexpr size_t kDigits = 8;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

bool is_temporary(std::string_view name) {
  const bool framed = name.size() == kBegin.size() + kDigits + kEnd.size() &&
                      name.starts_with(kBegin) && name.ends_with(kEnd);
  return framed &&
         name.find_first_not_of("0123456789abcdef", kBegin.size()) == kBegin.size() + kDigits;
}

// Removes a temporary file that no process holds locked. A lock ends with its process, however that
// ended; where the file system has none, the file stays.
void remove_if_stale(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat opened = {}, named = {};
  const bool ours =
      ::fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) && opened.st_uid == ::geteuid();
  // Its process may have renamed it since, and another file may bear the name now.
  if (ours && ::flock(fd, LOCK_EX | LOCK_NB) == 0 && ::lstat(file.c_str(), &named) == 0 &&
      named.st_dev == opened.st_dev && named.st_ino == opened.st_ino)
    ::unlink(file.c_str());
  ::close(fd);
}

// By readdir, which needs no memory for an entry: a directory_iterator does, and its increment is
// noexcept, so that it would end the process instead of throwing.
void remove_stale_files(const fs::path& folder) {
  const std::unique_ptr<DIR, CloseFolder> open(::opendir(folder.c_str()));
  if (!open) return;
  while (const dirent* entry = ::readdir(open.get()))
    if (is_temporary(entry->d_name)) remove_if_stale(folder / entry->d_name);
}

// A new, locked file in the folder; its descriptor, −1 with errno when there can be none.
int create_locked(const fs::path& folder, mode_t mode, fs::path* file) {
  std::random_device random;
  while (true) {
    *file = folder / fmt::format("{}{:08x}{}", kBegin, random(), kEnd);
    const int fd = ::open(file->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return fd;
    // Another process may have taken it for a stale one before it was locked.
    struct stat status = {};
    const bool contested = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!contested && ::fstat(fd, &status) == 0 && status.st_nlink > 0) return fd;
    ::unlink(file->c_str());
    ::close(fd);
  }
}

// The folder's entry survives a power cut only once the folder is synced too. Some file systems
// cannot; the file is whole either way.
void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

// A file of another user in a sticky folder, such as /tmp, which cannot be renamed over.
bool is_protected(const fs::path& file, const fs::path& folder) {
  struct stat of_file = {}, of_folder = {};
  if (::stat(file.c_str(), &of_file) != 0 || ::stat(folder.c_str(), &of_folder) != 0) return false;
  const uid_t user = ::geteuid();
  return (of_folder.st_mode & S_ISVTX) != 0 && user != 0 && user != of_file.st_uid &&
         user != of_folder.st_uid;
}

// As the replaced file had them. Only root may give a file away, so the owner is best effort.
void take_over(int fd, const struct stat& replaced) {
  if (::fchown(fd, replaced.st_uid, replaced.st_gid) != 0) [[maybe_unused]]
    const int wish = ::fchown(fd, static_cast<uid_t>(-1), replaced.st_gid);
  ::fchmod(fd, replaced.st_mode & 0777);
}

}  // namespace

void write_all(int fd, const std::string& name, const void* from, uint64_t bytes) {
  constexpr uint64_t kMostAtOnce = 1u << 30;  // Linux moves at most 2 GiB a call
  const auto* next = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = ::write(fd, next, std::min(bytes, kMostAtOnce));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EPIPE)
      throw TensorFileError(Kind::kClosed, fmt::format("{}: nobody reads it any more", name));
    if (put <= 0)
      fail(name, fmt::format("cannot write: {}; free space or name another place",
                             std::strerror(put < 0 ? errno : ENOSPC)));
    next += put;
    bytes -= static_cast<uint64_t>(put);
  }
}

fs::path follow_links(const fs::path& path, std::error_code& error) {
  constexpr int kMost = 40;  // Linux follows as many
  error.clear();
  fs::path at = path;
  std::error_code no_link;
  for (int links = 0; fs::is_symlink(fs::symlink_status(at, no_link)); ++links) {
    if (links == kMost) error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
    const fs::path next = error ? fs::path() : fs::read_symlink(at, error);
    if (error) return path;
    at = at.parent_path() / next;  // `next` alone where it is absolute
  }
  return at;
}

fs::path temporary_folder(std::error_code& error) {
  const char* const set = std::getenv("TMPDIR");  // lint-ok(env): the system's, not the library's
  error.clear();
  return set != nullptr && *set == '\0' ? fs::path("/tmp") : fs::temp_directory_path(error);
}

StagedFile::StagedFile(fs::path target, const std::string& label) : target_(std::move(target)) {
  std::error_code error;
  name_ = label + target_.string();
  const fs::file_status status = fs::status(target_, error);
  if (!target_.has_filename() || (fs::exists(status) && !fs::is_regular_file(status)))
    fail(name_, "is not a regular file; name a regular or a new file");
  if (error == std::errc::filename_too_long)
    fail(name_, fmt::format("cannot create: {}; name a shorter one", error.message()));
  target_ = follow_links(target_, error);  // replace what a link points to, not the link
  if (error)
    fail(name_, fmt::format("cannot follow the link: {}; name another place", error.message()));
  name_ = label + target_.string();
  if (fs::exists(status) && ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0)
    fail(name_, fmt::format("cannot write: {}; change its permissions or name another",
                            std::strerror(errno)));
  const fs::path folder = folder_of(target_);
  if (fs::exists(status) && is_protected(target_, folder))
    fail(name_,
         "cannot replace: it is another user's, in a folder where only owners may; name another");
  remove_stale_files(folder);
  // Next to a file that others may not read: they may not read its replacement either.
  fd_ = create_locked(folder, fs::exists(status) ? 0600 : 0666, &temporary_);
  if (fd_ < 0)
    fail(name_,
         fmt::format("cannot create a file in {}: {}; name a folder that exists and may be written",
                     folder.string(), std::strerror(errno)));
}

StagedFile::~StagedFile() {
  if (fd_ < 0) return;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  ::close(fd_);
}

void StagedFile::commit() {
  const fs::path folder = folder_of(target_);  // before the rename: memory may run out
  struct stat replaced = {};
  if (::stat(target_.c_str(), &replaced) == 0) take_over(fd_, replaced);
  // Renamed before it is closed: the lock shows that it is not a stale file.
  if (::fsync(fd_) != 0 || ::rename(temporary_.c_str(), target_.c_str()) != 0)
    fail(name_, fmt::format("cannot finish the file: {}; the target is unchanged: try again or "
                            "name another place",
                            std::strerror(errno)));
  temporary_.clear();
  ::close(std::exchange(fd_, -1));
  sync_folder(folder);
}

}  // namespace fa3::tools
