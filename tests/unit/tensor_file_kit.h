// SPDX-License-Identifier: BSD-3-Clause
// tensor_file_kit.h — what the tests of the tensor file reader and writer share: folders, bytes,
// errors.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_file/tensor_file.h"

namespace fa3::tools {

namespace fs = std::filesystem;
using Kind = TensorFileError::Kind;

// A folder of its own for each test, gone afterwards.
class TempDir {
 public:
  TempDir() : path_((fs::temp_directory_path() / "fa3-test-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  }
  ~TempDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const char* name) const { return fs::path(path_) / name; }
  size_t entries() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_bytes(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.good());
}

inline std::string read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string file_of(uint64_t length, std::string_view json, std::string_view data = {}) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof length)
      .append(json)
      .append(data);
}
inline std::string file_of(std::string_view json, std::string_view data = {}) {
  return file_of(json.size(), json, data);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::string bytes_of(const Tensor& tensor) {
  const auto bytes = element_count(tensor.shape) * dtype_bits(tensor.dtype) / 8;
  return {static_cast<const char*>(tensor.data), static_cast<size_t>(bytes)};
}

// The error that `action` throws; fails when there is none.
template <class Action>
TensorFileError error_of(Action action) {
  try {
    action();
  } catch (const TensorFileError& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {Kind::kRead, ""};
}

}  // namespace fa3::tools
