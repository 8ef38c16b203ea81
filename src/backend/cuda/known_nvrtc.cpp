// SPDX-License-Identifier: BSD-3-Clause
// known_nvrtc.cpp — notes of which search found which file, and what version it was.
#include "backend/cuda/known_nvrtc.h"

#include <sys/stat.h>

#include <cstdlib>

#include "core/env.h"
#include "core/shared_library.h"

namespace fa3::cuda {
namespace {

// An identity that changes with the file; "" when there is none.
std::string identity(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return "";
  return fmt::format("{} {} {}.{:09}", info.st_size, info.st_ino, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
}

// Everything that decides which file is found: for a bare name, also where the loader looks.
Key key_of(const NvrtcSearch& search) {
  Sha256 hash;
  hash.update_field("nvrtc").update_field(std::to_string(search.driver_version));
  hash.update_field(own_folder()).update_field(loader_folders());
  hash.update_field(identity("/etc/ld.so.cache"));
  for (const std::string& place : search.places) hash.update_field(place);
  return hash.finish();
}

// "13000 4096 1234 1700000000.000000000 /path": version, identity, path.
std::string note_of(int version, const std::string& path) {
  return fmt::format("{} {} {}", version, identity(path), path);
}

}  // namespace

std::optional<int> known_version(const DiskCache& disk, const NvrtcSearch& search) {
  const std::optional<std::string> note = disk.load_note(key_of(search));
  const size_t slash = note ? note->find('/') : std::string::npos;
  if (slash == std::string::npos) return std::nullopt;
  const int version = std::atoi(note->c_str());
  const std::string path = note->substr(slash);
  if (identity(path).empty() || *note != note_of(version, path)) return std::nullopt;
  return version;
}

void remember(const DiskCache& disk, const NvrtcSearch& search, const Nvrtc& found) {
  const std::string note = note_of(found.version(), found.path());
  if (disk.load_note(key_of(search)) == note) return;
  static_cast<void>(disk.store_note(key_of(search), note).ok());
}

}  // namespace fa3::cuda
