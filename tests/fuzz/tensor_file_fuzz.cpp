// SPDX-License-Identifier: BSD-3-Clause
// tensor_file_fuzz.cpp — any bytes as a tensor file: the reader declines or delivers exactly what
// is in the file, read and mapped alike, and what it accepts survives the writer.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tensor_file/tensor_file.h"

namespace {

using namespace fa3::tools;

void require(bool holds) {
  if (!holds) std::abort();
}

// A header made of the same tensors describes the same tensors; only their order in the data may
// differ.
void check_writer(const TensorFile& file, uint64_t data_bytes) {
  std::vector<TensorInfo> tensors = file.tensors();
  std::string made;
  try {
    made = make_header("made", tensors, file.metadata());
  } catch (const TensorFileError& error) {
    require(false);
  }
  const TensorHeader again = parse_header("made", std::string_view(made).substr(8), data_bytes);
  require(again.metadata == file.metadata() && again.tensors.size() == tensors.size());
  for (const TensorInfo& tensor : again.tensors) {
    const TensorInfo* before = file.find(tensor.name);
    require(before != nullptr && before->dtype == tensor.dtype && before->shape == tensor.shape &&
            before->bytes() == tensor.bytes());
  }
}

void check_file(const std::string& path, const uint8_t* bytes, size_t size, Access access) {
  try {
    const TensorFile file = TensorFile::open(path, access);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes, 8);
    const uint8_t* data = bytes + 8 + header_bytes;
    for (const TensorInfo& info : file.tensors()) {
      require(file.find(info.name) == &info);
      try {
        const Tensor tensor = file.load(info.name);
        require(element_count(tensor.shape) * dtype_bits(tensor.dtype) / 8 ==
                static_cast<int64_t>(info.bytes()));
        require(info.bytes() == 0 ||
                std::memcmp(tensor.data, data + info.begin, info.bytes()) == 0);
      } catch (const TensorFileError& error) {
        require(error.kind() == TensorFileError::Kind::kUnsupported && !dtype_readable(info.dtype));
      }
    }
    check_writer(file, size - 8 - header_bytes);
  } catch (const TensorFileError& error) {
    require(error.kind() == TensorFileError::Kind::kContent && std::strlen(error.what()) < 4000);
  }
}

void check_bytes(const uint8_t* bytes, size_t size) {
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);  // a regular file without a disk
  require(fd >= 0 && ::write(fd, bytes, size) == static_cast<ssize_t>(size));
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  check_file(path, bytes, size, Access::kRead);
  check_file(path, bytes, size, Access::kMap);
  ::close(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  check_bytes(bytes, size);
  uint64_t header_bytes = 0;
  if (size < sizeof header_bytes) return 0;
  std::memcpy(&header_bytes, bytes, sizeof header_bytes);
  if (header_bytes >
      size - sizeof header_bytes) {  // most mutations: let the parser see the JSON all the same
    std::vector<uint8_t> mended(bytes, bytes + size);
    header_bytes = size - sizeof header_bytes;
    std::memcpy(mended.data(), &header_bytes, sizeof header_bytes);
    check_bytes(mended.data(), size);
  }
  return 0;
}
