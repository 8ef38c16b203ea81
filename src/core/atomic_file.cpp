// SPDX-License-Identifier: BSD-3-Clause
// atomic_file.cpp — write a temporary file, flush, rename.
#include "core/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>

namespace fa3 {
namespace {

Status failed(const char* step, const std::string& name, int error) {
  return {FA3_IO_ERROR, fmt::format("{} {}: {}", step, name, system_error_text(error))};
}

// Differs between threads, processes and, for shared folders, machines.
std::string unfinished_name() {
  static std::atomic<unsigned> count{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{}{}-{}-{}", kUnfinished, getpid(), count++, now);
}

// 0, or the errno of what went wrong.
int write_and_flush(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? 0 : errno;
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

std::string system_error_text(int error) { return std::generic_category().message(error); }

Status write_atomically(const FileDescriptor& folder, const std::string& name,
                        std::string_view bytes, mode_t mode) {
  const std::string unfinished = unfinished_name();
  const FileDescriptor file(openat(folder.get(), unfinished.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.open()) return failed("create", name, errno);
  Status status;
  if (const int error = write_and_flush(file.get(), bytes)) {
    status = failed("write", name, error);
  } else if (renameat(folder.get(), unfinished.c_str(), folder.get(), name.c_str()) != 0) {
    status = failed("rename to", name, errno);
  } else {
    // The new name survives a power cut. Some file systems cannot flush a folder; then it may not,
    // and the file is absent, never torn.
    fsync(folder.get());
    return {};
  }
  unlinkat(folder.get(), unfinished.c_str(), 0);
  return status;
}

std::optional<uint64_t> size_of(const FileDescriptor& file) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || info.st_size < 0) return std::nullopt;
  return static_cast<uint64_t>(info.st_size);
}

std::optional<std::string> read_part(const FileDescriptor& file, uint64_t offset, uint64_t size) {
  const std::optional<uint64_t> end = size_of(file);
  if (!end || offset > *end || size > *end - offset) return std::nullopt;
  std::string bytes(size, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t got =
        pread(file.get(), bytes.data() + at, size - at, static_cast<off_t>(offset + at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    at += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace fa3
