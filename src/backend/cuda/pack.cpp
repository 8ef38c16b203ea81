// SPDX-License-Identifier: BSD-3-Clause
// pack.cpp — reads and writes kernel bundles.
#include "backend/cuda/pack.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace fa3::cuda {
namespace {

constexpr char kMagic[8] = {'f', 'a', '3', 'p', 'a', 'c', 'k', '1'};
constexpr mode_t kFileMode = 0644;  // for anyone to read

struct Header {
  char magic[8];
  int32_t nvrtc_version;
  uint32_t count;
  uint64_t checksum;  // of the fields above and the index
};
static_assert(sizeof(Header) == 24);

struct Row {
  Key key;
  uint64_t offset;  // from the beginning of the file
  uint64_t bytes;
};
static_assert(sizeof(Row) == 48);

uint64_t checksum_of(const Header& header, std::string_view index) {
  return checksum({reinterpret_cast<const char*>(&header), offsetof(Header, checksum)}, index);
}

Status refuse(const std::string& path, const std::string& why) {
  return {FA3_IO_ERROR, fmt::format("kernel pack: {} {}", path, why)};
}

Status refuse_content(const std::string& path) {
  return refuse(path, "is not a sound pack of kernels; make it again with `fa3 jit --pack`");
}

}  // namespace

Result<Pack> Pack::open(const std::string& path) {
  Pack pack;
  pack.path_ = path;
  // Without O_NONBLOCK, opening a pipe of that name would block until it has a writer.
  pack.file_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!pack.file_.open()) {
    return refuse(path, fmt::format("cannot be opened: {}; name another in FA3_KERNEL_PACK or the "
                                    "option kernel_pack",
                                    system_error_text(errno)));
  }
  Header header{};
  const std::optional<std::string> first = read_part(pack.file_, 0, sizeof header);
  if (!first) return refuse_content(path);
  std::memcpy(&header, first->data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return refuse_content(path);
  const std::optional<std::string> index =
      read_part(pack.file_, sizeof header, uint64_t{header.count} * sizeof(Row));
  if (!index || header.checksum != checksum_of(header, *index)) return refuse_content(path);
  pack.nvrtc_version_ = header.nvrtc_version;
  const uint64_t end = size_of(pack.file_).value_or(0);
  for (uint32_t i = 0; i < header.count; ++i) {
    Row row{};
    std::memcpy(&row, index->data() + i * sizeof row, sizeof row);
    if (row.offset > end || row.bytes > end - row.offset) return refuse_content(path);
    pack.index_[row.key] = {row.offset, row.bytes};
  }
  return pack;
}

std::optional<Cubin> Pack::load(const Key& key) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  const std::optional<std::string> bytes =
      read_part(file_, found->second.offset, found->second.bytes);
  return bytes ? decode_entry(key, *bytes) : std::nullopt;
}

namespace {

// Where a file is written: its folder, open, and its name there.
struct Place {
  FileDescriptor folder;
  std::string name;
};

// IO_ERROR saying why nothing can be written there.
Result<Place> place_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  // The new file replaces whatever has the name, also a device or a link such as /dev/stdout.
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0) {
    if (!S_ISREG(there.st_mode))
      return refuse(path, "cannot be written: it exists and is not an ordinary file; name another");
  } else if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) {
    return refuse(path,
                  fmt::format("cannot be written: {}; name another", system_error_text(errno)));
  }
  Place place{FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
              slash == std::string::npos ? path : path.substr(slash + 1)};
  if (!place.folder.open() || ::faccessat(place.folder.get(), ".", W_OK, AT_EACCESS) != 0) {
    return refuse(
        path, fmt::format("cannot be written: {}: {}; name a file in a folder that exists and can "
                          "be written",
                          folder, system_error_text(errno)));
  }
  return place;
}

}  // namespace

Status check_pack_place(const std::string& path) { return place_of(path).status(); }

Status write_pack(const std::string& path, int nvrtc_version,
                  const std::vector<std::pair<Key, Cubin>>& kernels) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.nvrtc_version = nvrtc_version;
  header.count = static_cast<uint32_t>(kernels.size());
  std::string index, entries;
  const uint64_t entries_at = sizeof header + kernels.size() * sizeof(Row);
  for (const auto& [key, cubin] : kernels) {
    const std::string entry = encode_entry(key, cubin);
    const Row row{key, entries_at + entries.size(), entry.size()};
    index.append(reinterpret_cast<const char*>(&row), sizeof row);
    entries += entry;
  }
  header.checksum = checksum_of(header, index);
  const std::string bytes =
      std::string(reinterpret_cast<const char*>(&header), sizeof header) + index + entries;

  FA3_TRY(const Place place, place_of(path));
  const Status status = write_atomically(place.folder, place.name, bytes, kFileMode);
  if (!status.ok())
    return refuse(path, fmt::format("cannot be written: {}; free space or name another place",
                                    status.message));
  return {};
}

}  // namespace fa3::cuda
