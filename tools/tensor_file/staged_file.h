// SPDX-License-Identifier: BSD-3-Clause
// staged_file.h — a file that appears whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

namespace fa3::tools {

// Holds a temporary file `.fa3-xxxxxxxx.tmp` next to the target, which replaces the target in
// commit(), with the target's mode and, where that is allowed, its owner; and vanishes otherwise.
// Made early, it reveals an unwritable target before the work. It is locked for as long as its
// process lives: an unlocked one was left by a process that was killed, and the next
// StagedFile in that folder removes it. All functions throw TensorFileError(kWrite), whose message
// begins with `label`.
class StagedFile {
 public:
  // The target may exist (a regular file, also one that is open for reading) or be a link to such
  // or to where none is yet.
  explicit StagedFile(std::filesystem::path target, const std::string& label = "");
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  const std::string& name() const { return name_; }  // for messages
  int descriptor() const { return fd_; }             // to be written to, from the beginning
  void commit();                                     // syncs and renames; once

 private:
  std::filesystem::path target_, temporary_;
  std::string name_;
  int fd_ = -1;
};

// What a link names, through links to links, whether it is there or not; any other path as it is.
// With an error (a loop) the path itself.
std::filesystem::path follow_links(const std::filesystem::path& path, std::error_code& error);

// The system's folder for temporary files: TMPDIR, unless that is empty.
std::filesystem::path temporary_folder(std::error_code& error);

// Writes all of it to a descriptor that `name` names in messages. Throws TensorFileError: kClosed
// when it is a pipe whose reader is gone, else kWrite.
void write_all(int fd, const std::string& name, const void* from, uint64_t bytes);

}  // namespace fa3::tools
