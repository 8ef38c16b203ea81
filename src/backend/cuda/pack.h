// SPDX-License-Identifier: BSD-3-Clause
// pack.h — a kernel bundle: compiled kernels in one file, for machines without NVRTC.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cubin_entry.h"
#include "core/atomic_file.h"
#include "core/status.h"

namespace fa3::cuda {

// Layout: magic (8 bytes), version of the NVRTC that compiled the kernels (4), their number (4),
// xxHash64 of these and the index (8), index = {key, offset, bytes} each, then entries as in
// entry.h.
class Pack {
 public:
  // IO_ERROR when the file cannot be read or its index is not sound.
  static Result<Pack> open(const std::string& path);

  const std::string& path() const { return path_; }
  int nvrtc_version() const { return nvrtc_version_; }
  size_t size() const { return index_.size(); }
  bool has(const Key& key) const { return index_.count(key) != 0; }

  // nullopt when there is no entry or not a sound one. Safe to call from many threads.
  std::optional<Cubin> load(const Key& key) const;

 private:
  struct Place {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  Pack() = default;

  FileDescriptor file_;
  std::string path_;
  int nvrtc_version_ = 0;
  std::map<Key, Place> index_;
};

// Writes a bundle; the file appears whole or not at all. IO_ERROR naming what failed.
Status check_pack_place(const std::string& path);  // whether it could, before there is anything
Status write_pack(const std::string& path, int nvrtc_version,
                  const std::vector<std::pair<Key, Cubin>>& kernels);

}  // namespace fa3::cuda
