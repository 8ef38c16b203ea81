// SPDX-License-Identifier: BSD-3-Clause
// atomic_file.h — files that are whole or absent: read in one piece, replaced in one step.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/status.h"

namespace fa3 {

// An open file or folder, closed with the object. -1 = none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// errno as text: "No space left on device".
std::string system_error_text(int error);

// Names of files that a writer had not finished begin with this.
inline constexpr std::string_view kUnfinished = ".fa3-unfinished-";

// Makes `name` in the folder hold exactly `bytes`, or leaves it as it was: a reader, another writer
// or a crash sees the old file or the new one. IO_ERROR naming the step that failed.
Status write_atomically(const FileDescriptor& folder, const std::string& name,
                        std::string_view bytes, mode_t mode);

// The file's length; nullopt when the system does not say.
std::optional<uint64_t> size_of(const FileDescriptor& file);

// Bytes [offset, offset + size) of a file; nullopt when it does not have them.
std::optional<std::string> read_part(const FileDescriptor& file, uint64_t offset, uint64_t size);

}  // namespace fa3
