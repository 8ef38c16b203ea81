// SPDX-License-Identifier: BSD-3-Clause
// reader.cpp — opening a safetensors file and bringing its tensors into memory, by reading or by
// mapping.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "tensor_file/staged_file.h"
#include "tensor_file/tensor_file.h"

namespace fa3::tools {
namespace {

using Kind = TensorFileError::Kind;
constexpr uint64_t kLengthBytes = 8;  // the header's length, before the header

[[noreturn]] void fail(Kind kind, std::string_view file, std::string_view what) {
  throw TensorFileError(kind, fmt::format("{}: {}", file, what));
}

// Fills `to` with the bytes from `offset` on.
void read_exactly(int fd, std::string_view file, void* to, uint64_t bytes, uint64_t offset) {
  constexpr uint64_t kMostAtOnce = 1u << 30;  // Linux moves at most 2 GiB a call
  auto* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, next, std::min(bytes, kMostAtOnce), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(Kind::kRead, file,
           fmt::format("cannot read at byte {}: {}", offset, std::strerror(errno)));
    if (got == 0)
      fail(Kind::kRead, file,
           fmt::format("ended at byte {}: it shrank while it was read; try again", offset));
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

std::shared_ptr<std::byte> allocate(std::string_view file, uint64_t bytes) {
  constexpr std::align_val_t kAlignment{64};  // a cache line, and the widest vector
  void* memory = ::operator new(bytes, kAlignment, std::nothrow);
  if (memory == nullptr)
    fail(Kind::kMemory, file,
         fmt::format("no memory for a tensor of {} bytes; free some or map the file", bytes));
  return {static_cast<std::byte*>(memory), [](std::byte* p) { ::operator delete(p, kAlignment); }};
}

const char* file_kind(mode_t mode) {
  return S_ISDIR(mode)    ? "a directory"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

// The header's length as the file says it, of which `most` are possible.
void check_header_bytes(const std::string& file, uint64_t bytes, uint64_t most) {
  constexpr uint64_t kLeast = 2;  // {}
  if (bytes < kLeast)
    fail(Kind::kContent, file,
         fmt::format("a header of {} bytes, need at least {}; this is not a safetensors file",
                     bytes, kLeast));
  if (bytes > most)
    fail(Kind::kContent, file,
         fmt::format(
             "a header of {} bytes, need at most {}, {}; the file is truncated or not safetensors",
             bytes, most,
             most == kMaxHeaderBytes ? "the format's limit" : "what follows in the file"));
}

// A descriptor of a new file without a name that holds the rest of what `from` gives. Throws as
// soon as that cannot be a safetensors file.
int spool(int from, const std::string& name) {
  std::error_code error;
  const std::string folder = temporary_folder(error);
  if (error)
    fail(Kind::kWrite, name,
         fmt::format("no folder for a temporary copy: {}; set TMPDIR to one", error.message()));
  std::string path = folder + "/.fa3-XXXXXX";
  const int to = ::mkostemp(path.data(), O_CLOEXEC);
  if (to < 0)
    fail(Kind::kWrite, name,
         fmt::format("no temporary file in {} to keep it in: {}; set TMPDIR to a folder with room",
                     folder, std::strerror(errno)));
  ::unlink(path.c_str());
  try {
    std::vector<char> part(1 << 20);
    std::string length;
    while (true) {
      const ssize_t got = ::read(from, part.data(), part.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        fail(Kind::kRead, name, fmt::format("cannot read: {}; try again", std::strerror(errno)));
      if (got == 0) return to;
      if (length.size() < kLengthBytes) {
        length.append(part.data(),
                      std::min(static_cast<size_t>(got), size_t{kLengthBytes} - length.size()));
        uint64_t header_bytes = 0;
        std::memcpy(&header_bytes, length.data(), length.size());
        if (length.size() == kLengthBytes) check_header_bytes(name, header_bytes, kMaxHeaderBytes);
      }
      write_all(to, name + ", kept in " + folder, part.data(), static_cast<uint64_t>(got));
    }
  } catch (...) {
    ::close(to);
    throw;
  }
}

}  // namespace

struct TensorFile::State {
  std::string file;  // its path, for messages
  int fd = -1;
  uint64_t data_begin = 0;                   // byte of the file
  std::shared_ptr<const std::byte> mapping;  // of the whole file; NULL when tensors are read
  TensorHeader header;

  ~State() {
    if (fd >= 0) ::close(fd);
  }
};

TensorFile::TensorFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
TensorFile::TensorFile(TensorFile&&) noexcept = default;
TensorFile& TensorFile::operator=(TensorFile&&) noexcept = default;
TensorFile::~TensorFile() = default;

TensorFile TensorFile::read(int fd, const std::string& name, Access access) {
  auto state = std::make_unique<State>();
  state->file = name;
  struct stat status = {};
  const bool regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  state->fd =
      regular && ::lseek(fd, 0, SEEK_CUR) == 0 ? ::fcntl(fd, F_DUPFD_CLOEXEC, 0) : spool(fd, name);
  return parse(std::move(state), access);
}

TensorFile TensorFile::open(const std::filesystem::path& path, Access access) {
  auto state = std::make_unique<State>();
  const std::string& file = state->file = path.string();
  // O_NONBLOCK: opening a pipe without a writer would block forever.
  state->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat status = {};
  if (state->fd < 0 || ::fstat(state->fd, &status) != 0)
    fail(Kind::kRead, file,
         fmt::format("cannot open: {}; check the path and its permissions", std::strerror(errno)));
  if (!S_ISREG(status.st_mode))
    fail(Kind::kRead, file, fmt::format("is {}, need a regular file", file_kind(status.st_mode)));
  return parse(std::move(state), access);
}

TensorFile TensorFile::parse(std::unique_ptr<State> state, Access access) {
  const std::string& file = state->file;
  struct stat status = {};
  if (::fstat(state->fd, &status) != 0)
    fail(Kind::kRead, file, fmt::format("cannot read: {}; try again", std::strerror(errno)));
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  if (file_bytes < kLengthBytes)
    fail(Kind::kContent, file,
         fmt::format("{} bytes, need at least {}; this is not a safetensors file", file_bytes,
                     kLengthBytes));
  uint64_t header_bytes = 0;
  read_exactly(state->fd, file, &header_bytes, kLengthBytes, 0);
  check_header_bytes(file, header_bytes, std::min(file_bytes - kLengthBytes, kMaxHeaderBytes));
  std::string text(header_bytes, '\0');
  read_exactly(state->fd, file, text.data(), header_bytes, kLengthBytes);
  state->data_begin = kLengthBytes + header_bytes;
  state->header = parse_header(file, text, file_bytes - state->data_begin);

  if (access == Access::kMap) {
    void* pages = ::mmap(nullptr, file_bytes, PROT_READ, MAP_PRIVATE, state->fd, 0);
    if (pages == MAP_FAILED)
      fail(errno == ENOMEM ? Kind::kMemory : Kind::kRead, file,
           fmt::format("cannot map: {}; read it instead", std::strerror(errno)));
    state->mapping = {static_cast<const std::byte*>(pages), [file_bytes](const std::byte* p) {
                        ::munmap(const_cast<std::byte*>(p), file_bytes);
                      }};
  }
  return TensorFile(std::move(state));
}

const std::vector<TensorInfo>& TensorFile::tensors() const { return state_->header.tensors; }
const Metadata& TensorFile::metadata() const { return state_->header.metadata; }

const TensorInfo* TensorFile::find(std::string_view name) const {
  const auto& [tensors, by_name, metadata] = state_->header;
  const auto at = std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [&list = tensors](uint32_t i, std::string_view n) { return list[i].name < n; });
  return at != by_name.end() && tensors[*at].name == name ? &tensors[*at] : nullptr;
}

Tensor TensorFile::load(std::string_view name) const {
  const std::string& file = state_->file;
  const TensorInfo* info = find(name);
  if (info == nullptr) {
    std::string have;
    for (size_t i = 0; i < std::min<size_t>(tensors().size(), 8); ++i)
      have += fmt::format("{}{}", i == 0 ? "" : ", ", printable(tensors()[i].name));
    fail(Kind::kMissing, file,
         fmt::format("no tensor named {}; the file holds {} tensors ({}{}): name one of them",
                     printable(name), tensors().size(), have, tensors().size() > 8 ? ", ..." : ""));
  }
  if (!dtype_readable(info->dtype))
    fail(Kind::kUnsupported, file,
         fmt::format("tensor {} has dtype {}, need F64, F32, F16, BF16, I32, I64, F8_E4M3, I8 or "
                     "BOOL; convert it",
                     printable(name), dtype_name(info->dtype)));

  Tensor tensor{.name = info->name, .dtype = info->dtype, .shape = info->shape};
  if (info->bytes() == 0) return tensor;
  const uint64_t offset = state_->data_begin + info->begin;
  const uint64_t element_bytes = static_cast<uint64_t>(dtype_bits(info->dtype)) / 8;
  if (state_->mapping && offset % element_bytes == 0) {  // a mapping begins on a page
    tensor.owner = state_->mapping;
    tensor.data = state_->mapping.get() + offset;
    return tensor;
  }
  const std::shared_ptr<std::byte> buffer = allocate(file, info->bytes());
  read_exactly(state_->fd, file, buffer.get(), info->bytes(), offset);
  tensor.owner = buffer;
  tensor.data = buffer.get();
  return tensor;
}

}  // namespace fa3::tools
