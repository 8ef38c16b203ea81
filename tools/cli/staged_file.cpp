// SPDX-License-Identifier: BSD-3-Clause
// staged_file.cpp — temporary file, then rename.
#include "staged_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "error.h"

namespace fa3::cli {
namespace fs = std::filesystem;

StagedFile::StagedFile(const char* option, fs::path target)
    : option_(option), target_(std::move(target)) {
  std::error_code ignored;
  const fs::file_status status = fs::status(target_, ignored);
  if (!target_.has_filename() || (fs::exists(status) && !fs::is_regular_file(status)))
    fail(kFailed, "{}: {} is not a regular file; name a regular or a new file", option_,
         target_.string());
  std::random_device random;
  do {
    temporary_ = target_.parent_path() / fmt::format(".fa3-{:08x}.tmp", random());
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) fail_with("cannot be created", errno);
}

StagedFile::~StagedFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void StagedFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail_with("cannot be written", put < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  if (::fsync(fd_) != 0) fail_with("cannot be written", errno);
}

void StagedFile::commit() {
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with("cannot be replaced", errno);
  ::close(fd_);
  fd_ = -1;
}

void StagedFile::fail_with(const char* what, int error) const {
  fail(kFailed, "{}: {} {} ({}); name another place or free space", option_, target_.string(), what,
       std::strerror(error));
}

}  // namespace fa3::cli
