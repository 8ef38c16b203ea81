// SPDX-License-Identifier: BSD-3-Clause
// kit.h — what the tests of the cuda runtime share: folders, files, child processes, sample cubins.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "backend/cuda/cubin_entry.h"
#include "tests/kit/scoped_variable.h"

namespace fa3::cuda::test {

namespace fs = std::filesystem;

// A folder of the test's own, gone with the object.
class TempFolder {
 public:
  TempFolder() : path_((fs::temp_directory_path() / "fa3-cuda-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::permissions(path_, fs::perms::owner_all, ignored);
    fs::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

using fa3::kit::ScopedVariable;

inline std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Runs body in a child process, which ends with 0 when it returns true, 1 when it returns false or
// throws. The status as waitpid() gives it.
inline int in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      code = body() ? 0 : 1;
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

inline Key key_of(int number) {
  Key key{};
  key[0] = static_cast<uint8_t>(number);
  key[31] = static_cast<uint8_t>(number >> 8);
  return key;
}

// A cubin that proves itself: its image repeats its symbol, and the length depends on the version.
inline Cubin sample(int number, int version = 0) {
  Cubin cubin;
  cubin.symbol = "kernel" + std::to_string(number) + "v" + std::to_string(version) + ".";
  for (int i = 0; i < 500 + 100 * version; ++i) cubin.image += cubin.symbol;
  return cubin;
}

inline bool is_sample(const Cubin& cubin, int number, int versions) {
  for (int version = 0; version < versions; ++version) {
    const Cubin expected = sample(number, version);
    if (cubin.symbol == expected.symbol) return cubin.image == expected.image;
  }
  return false;
}

// A refusal with that code and with each of the texts in its message.
inline void expect_refusal(const Status& status, fa3_status code,
                           const std::vector<std::string>& says) {
  EXPECT_EQ(status.code, code) << status.message;
  for (const std::string& text : says) EXPECT_THAT(status.message, ::testing::HasSubstr(text));
}

}  // namespace fa3::cuda::test
