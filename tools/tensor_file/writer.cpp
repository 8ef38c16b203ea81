// SPDX-License-Identifier: BSD-3-Clause
// writer.cpp — writing a safetensors file as a whole or not at all.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>
#include <utility>

#include "tensor_file/tensor_file.h"

namespace fa3::tools {
namespace {

using Kind = TensorFileError::Kind;
using nlohmann::json;
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

[[noreturn]] void fail(const fs::path& file, std::string_view what) {
  throw TensorFileError(Kind::kWrite, fmt::format("{}: {}", file.string(), what));
}

void write_all(int fd, const fs::path& file, const void* from, uint64_t bytes) {
  constexpr uint64_t kMostAtOnce = 1u << 30;  // Linux moves at most 2 GiB a call
  const auto* next = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = ::write(fd, next, std::min(bytes, kMostAtOnce));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      fail(file, fmt::format(
                     "cannot write: {}; the target is unchanged: free space or name another place",
                     std::strerror(put < 0 ? errno : ENOSPC)));
    next += put;
    bytes -= static_cast<uint64_t>(put);
  }
}

// The folder's entry survives a power cut only once the folder is synced too. Some file systems
// cannot; the file is whole either way.
void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

}  // namespace

std::string make_header(std::string_view file, std::vector<TensorInfo>& tensors,
                        const Metadata& metadata) {
  const auto bad = [&](const std::string& what) {
    return TensorFileError(Kind::kArgument, fmt::format("{}: {}", file, what));
  };
  // Widest first: every tensor then begins at a multiple of its element, and there is no hole.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::make_tuple(-dtype_bits(a.dtype), std::string_view(a.name)) <
           std::make_tuple(-dtype_bits(b.dtype), std::string_view(b.name));
  });
  std::vector<std::string_view> names;
  uint64_t end = 0;
  std::string text = "{";
  try {
    if (!metadata.empty()) text += fmt::format("\"{}\":{},", kMetadataKey, json(metadata).dump());
    for (TensorInfo& tensor : tensors) {
      const std::optional<uint64_t> bytes = dense_bytes(tensor.dtype, tensor.shape);
      if (!bytes || tensor.shape.size() > kMaxRank ||
          *bytes > static_cast<uint64_t>(INT64_MAX) - end)
        throw bad(fmt::format(
            "tensor {}: shape [{}], need extents >= 0, rank <= {} and fewer than 2^63 bits",
            printable(tensor.name), fmt::join(tensor.shape, ", "), kMaxRank));
      if (tensor.name == kMetadataKey)
        throw bad(fmt::format("tensor {}: the name is reserved", kMetadataKey));
      tensor.begin = end;
      end = tensor.end = end + *bytes;
      text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                          json(tensor.name).dump(), dtype_name(tensor.dtype),
                          fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
      names.push_back(tensor.name);
    }
  } catch (const json::exception&) {
    throw bad("a name or the metadata is not valid UTF-8; rename it");
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    throw bad(fmt::format("two tensors named {}; rename one", printable(*twice)));
  if (metadata.size() > kMaxMetadataEntries)
    throw bad(
        fmt::format("{} metadata entries, need at most {}", metadata.size(), kMaxMetadataEntries));
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    throw bad(
        fmt::format("a header of {} bytes, need at most {}; write fewer tensors or less metadata",
                    text.size(), kMaxHeaderBytes));
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

TensorFileWriter::TensorFileWriter(fs::path target) : target_(std::move(target)) {
  std::error_code error;
  if (fs::is_symlink(target_, error))  // replace what it points to, not the link
    if (const fs::path resolved = fs::weakly_canonical(target_, error); !error) target_ = resolved;
  const fs::file_status status = fs::status(target_, error);
  if (!target_.has_filename() || (fs::exists(status) && !fs::is_regular_file(status)))
    fail(target_, "is not a regular file; name a regular or a new file");
  if (fs::exists(status) && ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0)
    fail(target_, fmt::format("cannot write: {}; change its permissions or name another",
                              std::strerror(errno)));

  std::random_device random;
  do {
    temporary_ = folder_of(target_) / fmt::format(".fa3-{:08x}.tmp", random());
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0)
    fail(target_,
         fmt::format("cannot create a file in {}: {}; name a folder that exists and may be written",
                     folder_of(target_).string(), std::strerror(errno)));
}

TensorFileWriter::~TensorFileWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void TensorFileWriter::commit(const std::vector<Tensor>& tensors, const Metadata& metadata) {
  std::map<std::string_view, const void*> data;
  std::vector<TensorInfo> infos;
  for (const Tensor& tensor : tensors) {
    data[tensor.name] = tensor.data;
    infos.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  const std::string header = make_header(target_.string(), infos, metadata);
  for (const TensorInfo& info : infos)
    if (info.bytes() > 0 && data[info.name] == nullptr)
      throw TensorFileError(Kind::kArgument, fmt::format("{}: tensor {} has no data",
                                                         target_.string(), printable(info.name)));

  write_all(fd_, target_, header.data(), header.size());
  for (const TensorInfo& info : infos) write_all(fd_, target_, data[info.name], info.bytes());
  const bool synced = ::fsync(fd_) == 0;
  const bool closed = ::close(std::exchange(fd_, -1)) == 0;
  if (!synced || !closed || ::rename(temporary_.c_str(), target_.c_str()) != 0)
    fail(target_,
         fmt::format(
             "cannot finish the file: {}; the target is unchanged: try again or name another place",
             std::strerror(errno)));
  temporary_.clear();
  sync_folder(folder_of(target_));
}

}  // namespace fa3::tools
