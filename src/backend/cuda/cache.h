// SPDX-License-Identifier: BSD-3-Clause
// cache.h — compiled kernels on disk, shared by all processes of a user. A folder that others
// could write to is refused, since what lies in it runs on the GPU.
#pragma once

#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/cubin_entry.h"
#include "core/atomic_file.h"
#include "core/status.h"

namespace fa3::cuda {

inline constexpr uint64_t kDiskCacheLimit = uint64_t{256} << 20;  // bytes; a kernel takes ~100 KB

// Safe to use from many threads and processes at once.
class DiskCache {
 public:
  // Whether open() would have to make the folder.
  static bool absent(const std::string& folder);

  // Opens the folder; makes it, for its owner alone, when it is not there. IO_ERROR when the path
  // is relative, cannot be made or opened, or others own it or may write to it.
  static Result<DiskCache> open(const std::string& folder, uint64_t limit_bytes = kDiskCacheLimit);

  const std::string& folder() const { return folder_; }
  uint64_t limit_bytes() const { return limit_bytes_; }

  // nullopt when there is no entry or not a sound one. Marks the entry as used.
  std::optional<Cubin> load(const Key& key) const;

  // Is there a file for it? Sound or not.
  bool has(const Key& key) const;

  // Adds or replaces an entry, then drops the longest unused ones until the rest is within limit.
  // IO_ERROR naming what failed; the folder is then as it was.
  Status store(const Key& key, const Cubin& cubin) const;

  // The exclusive right to make an entry, among processes and threads; released with the object or
  // the process. Empty where it could not be acquired.
  class Turn {
   public:
    Turn() = default;
    Turn(Turn&& other) noexcept = default;
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    friend class DiskCache;
    Turn(const FileDescriptor& folder, std::string name, FileDescriptor file)
        : folder_(&folder), name_(std::move(name)), file_(std::move(file)) {}

    const FileDescriptor* folder_ = nullptr;
    std::string name_;
    FileDescriptor file_;
  };

  // Waits while another owner has the turn, for at most `patience`; look for the entry again once
  // you have it. Empty after a timeout or when the folder takes no lock: make the entry then.
  Turn take_turn(const Key& key, std::chrono::milliseconds patience) const;

  // A line of text, without NUL, kept next to the kernels under the same rules.
  std::optional<std::string> load_note(const Key& key) const;
  Status store_note(const Key& key, const std::string& text) const;

  struct Entry {
    std::string name;  // file name: the key in hex and a suffix
    uint64_t bytes = 0;
    timespec used{};
  };
  std::vector<Entry> list() const;  // longest unused first; no notes

  // Removes every entry and note. IO_ERROR naming the first that stays.
  Status clear() const;

 private:
  DiskCache(FileDescriptor descriptor, std::string folder, uint64_t limit_bytes)
      : descriptor_(std::move(descriptor)), folder_(std::move(folder)), limit_bytes_(limit_bytes) {}
  std::optional<Cubin> load_file(const std::string& name, const Key& key) const;
  FileDescriptor lock(const std::string& name, bool& busy) const;
  Status store_file(const std::string& name, const std::string& bytes) const;
  void drop_unused() const;

  FileDescriptor descriptor_;
  std::string folder_;
  uint64_t limit_bytes_;
};

}  // namespace fa3::cuda
