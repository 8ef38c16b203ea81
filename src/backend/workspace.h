// SPDX-License-Identifier: BSD-3-Clause
// workspace.h — the memory that a context lends to its one-call functions and keeps between them.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>

namespace fa3 {

// Anonymous pages of its own; large ones where the system has them, since a first touch costs per
// page. Throws std::bad_alloc.
class Workspace {
 public:
  Workspace() = default;
  explicit Workspace(size_t bytes);
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// The memory of one call: owned elsewhere, cached and locked for this call, or its own.
class WorkspaceLease {
 public:
  WorkspaceLease() = default;
  // Of memory that its owner locks for one call at a time.
  WorkspaceLease(std::byte* kept, std::unique_lock<std::mutex> lock)
      : lock_(std::move(lock)), data_(kept) {}

  std::byte* data() const { return data_; }

 private:
  friend class WorkspaceCache;
  std::unique_lock<std::mutex> lock_;  // held: the kept one is in use
  Workspace own_;
  std::byte* data_ = nullptr;
};

// Keeps the largest workspace asked for until the context closes. A call that comes while another
// one uses it gets one for itself, freed at its end.
class WorkspaceCache {
 public:
  WorkspaceLease borrow(size_t bytes);

 private:
  std::mutex mutex_;
  Workspace kept_;
};

}  // namespace fa3
