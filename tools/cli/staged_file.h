// SPDX-License-Identifier: BSD-3-Clause
// staged_file.h — a file that appears whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace fa3::cli {

// Holds a temporary file beside the target, which replaces the target in commit() and vanishes
// otherwise. Made early, it shows an unwritable target before the work. All functions throw
// CliError{kFailed}, naming `option`.
class StagedFile {
 public:
  StagedFile(const char* option, std::filesystem::path target);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void write(std::string_view bytes);  // the whole content, once
  void commit();

 private:
  [[noreturn]] void fail_with(const char* what, int error) const;

  const char* option_;
  std::filesystem::path target_, temporary_;
  int fd_ = -1;
};

}  // namespace fa3::cli
