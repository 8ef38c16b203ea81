// SPDX-License-Identifier: BSD-3-Clause
// workspace.cpp — workspaces as anonymous mappings.
#include "backend/workspace.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace fa3 {

Workspace::Workspace(size_t bytes) {
  if (bytes == 0) return;
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(pages, bytes, MADV_HUGEPAGE);  // a hint: nothing depends on it
#endif
  data_ = static_cast<std::byte*>(pages);
  bytes_ = bytes;
}

Workspace::~Workspace() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Workspace::Workspace(Workspace&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

WorkspaceLease WorkspaceCache::borrow(size_t bytes) {
  WorkspaceLease lease;
  lease.lock_ = std::unique_lock(mutex_, std::try_to_lock);
  if (!lease.lock_.owns_lock()) {
    lease.own_ = Workspace(bytes);
    lease.data_ = lease.own_.data();
    return lease;
  }
  if (kept_.bytes() < bytes) {
    kept_ = Workspace();  // free before allocating, so that both never exist at once
    kept_ = Workspace(bytes);
  }
  lease.data_ = kept_.data();
  return lease;
}

}  // namespace fa3
