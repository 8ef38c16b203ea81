// SPDX-License-Identifier: BSD-3-Clause
// tensor_file.h — tensors in files: a safetensors reader that trusts nothing, and a writer.
//
// The format: 8 bytes N (u64, little-endian) · N bytes of JSON, {"name": {"dtype", "shape",
// "data_offsets": [begin, end]}, …, "__metadata__": {string: string}} · the data, row-major, dense,
// without holes; offsets count from its first byte. Source:
// https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor_file/staged_file.h"

namespace fa3::tools {

// Limits of the reader, in addition to those of the format; stated in docs/guide/tensor_files.md.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the format's own library
inline constexpr size_t kMaxRank = 64;
inline constexpr size_t kMaxMetadataEntries = 100'000;

// Every element type that the format defines. Tensors of the first nine can be loaded; the others
// are listed, and declined when asked for.
enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI32,
  kI64,
  kF8E4M3,
  kI8,
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kF8E5M2,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kU32,
  kC64,
  kU64,
};
const char* dtype_name(DType dtype);  // the format's own name, e.g. "BF16"
int dtype_bits(DType dtype);          // bits per element: 4, 6, 8, 16, 32 or 64
bool dtype_readable(DType dtype);     // F64, F32, F16, BF16, I32, I64, F8_E4M3, I8, BOOL

// A string from a file in a form safe for a message or a terminal: quoted, ASCII, no control
// characters, cut short after 64 bytes.
std::string printable(std::string_view text);

// What went wrong with a file. The message reads `file: what, got, need; what to do`.
class TensorFileError : public std::runtime_error {
 public:
  enum class Kind {
    kRead,         // the file cannot be opened or read
    kWrite,        // the file cannot be written
    kClosed,       // the pipe cannot be written: its reader is gone
    kContent,      // the file was read and is not a valid safetensors file
    kMissing,      // the file is valid but holds no tensor of the name asked for
    kMemory,       // no memory for what the file holds
    kUnsupported,  // the tensor exists but its element type cannot be read
    kArgument,     // the tensors handed to the writer contradict the format
  };
  TensorFileError(Kind kind, const std::string& message)
      : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// One tensor as the header describes it.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape = {};  // extents ≥ 0, outermost first; empty = a scalar
  uint64_t begin = 0, end = 0;      // bytes [begin, end) of the file's data
  uint64_t bytes() const { return end - begin; }
};

// One tensor in memory: dense, row-major, little-endian.
struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape = {};
  const void* data = nullptr;  // aligned to the element; may be NULL when there are no elements
  std::shared_ptr<const void> owner = {};  // keeps `data` alive; empty = the caller does
};
int64_t element_count(const std::vector<int64_t>& shape);  // 1 for a scalar

// Bytes of a dense tensor; nothing when an extent is negative, when its bits, empty extents left
// out, are 2^63 or more, or when elements narrower than a byte do not fill the last one.
std::optional<uint64_t> dense_bytes(DType dtype, const std::vector<int64_t>& shape);

using Metadata = std::map<std::string, std::string>;
inline constexpr char kMetadataKey[] = "__metadata__";

// What a header says, checked in full: names unique, types known, sizes consistent, offsets without
// holes.
struct TensorHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  std::vector<uint32_t> by_name;    // indices into tensors, sorted by name
  Metadata metadata;
};

// Parses and checks the JSON of a header for a file with data_bytes bytes of data. `file` names it
// in messages. Throws TensorFileError(kContent). Memory is bounded by a small multiple of
// json.size().
TensorHeader parse_header(std::string_view file, std::string_view json, uint64_t data_bytes);

// The bytes that precede the data: length, JSON, spaces up to a multiple of 8. Uses names, types
// and shapes, and sets begin and end: widest elements first, then by name, so that all data is
// aligned and the bytes depend on the content only. Throws TensorFileError(kArgument).
std::string make_header(std::string_view file, std::vector<TensorInfo>& tensors,
                        const Metadata& metadata);

// How tensors come into memory. kMap shows the file's pages: nothing is copied, but a file that
// another process shrinks meanwhile ends this one with SIGBUS, and one that it overwrites changes
// the tensors; kRead has neither flaw.
enum class Access { kRead, kMap };

// An open safetensors file. Only the header is read at once; tensors come on demand. Replacing the
// file by rename (as TensorFileWriter does) disturbs neither this object nor its tensors.
class TensorFile {
 public:
  // Opens a regular file and checks it. Throws TensorFileError(kRead, kContent).
  static TensorFile open(const std::filesystem::path& path, Access access = Access::kRead);
  // Copies what a pipe holds into a temporary file that has no name, and opens that; a regular file
  // is opened as it is. `name` names it in messages. The descriptor stays the caller's. Throws as
  // open() does, and TensorFileError(kWrite) where there is no space for the copy.
  static TensorFile read(int fd, const std::string& name, Access access = Access::kRead);
  TensorFile(TensorFile&&) noexcept;
  TensorFile& operator=(TensorFile&&) noexcept;
  ~TensorFile();

  const std::vector<TensorInfo>& tensors() const;  // in the order of their data
  const Metadata& metadata() const;
  const TensorInfo* find(std::string_view name) const;  // NULL when there is none

  // The tensor of that name, read or mapped; valid for as long as its owner, also after this object
  // is gone. In a mapping whose data is not aligned to the element the tensor is copied. Throws
  // TensorFileError(kMissing, kUnsupported, kRead).
  Tensor load(std::string_view name) const;

 private:
  struct State;
  explicit TensorFile(std::unique_ptr<State> state);
  static TensorFile parse(std::unique_ptr<State> state, Access access);
  std::unique_ptr<State> state_;
};

// Writes the tensors, in any order, to a descriptor that `name` names in messages: a pipe, or what
// is to become a file. The bytes depend on the content only, not on the order. Throws
// TensorFileError(kWrite, kClosed, kArgument).
void write_tensors(int fd, const std::string& name, const std::vector<Tensor>& tensors,
                   const Metadata& metadata = {});

// Writes a file as a whole or not at all: see StagedFile.
class TensorFileWriter {
 public:
  // Throws TensorFileError(kWrite) when the target cannot be written.
  explicit TensorFileWriter(std::filesystem::path target) : file_(std::move(target)) {}

  // Throws TensorFileError(kWrite, kArgument); the target is then as it was. Call it once.
  void commit(const std::vector<Tensor>& tensors, const Metadata& metadata = {});

 private:
  StagedFile file_;
};

}  // namespace fa3::tools
