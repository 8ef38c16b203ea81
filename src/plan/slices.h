// SPDX-License-Identifier: BSD-3-Clause
// slices.h — the workspace of a plan in named slices: a kernel says which it writes and reads, and
// one allocator lays them out.
#pragma once

#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

namespace fa3 {

inline constexpr size_t kCacheLine = 64;  // of the processor; workspaces begin with one

// A slice as the kernel that writes it asks for it; kernels that write the same one agree.
struct Slice {
  const char* name = "";  // unique among the kernels that compute one problem
  size_t bytes = 0;
  size_t align = 16;
  bool zeroed = false;  // before the first step that uses it
};

// A slice of a plan, whose steps first … last use it.
struct PlacedSlice {
  // For the whole plan, like the tensors that quantisations leave to attention.
  static constexpr int kWholePlan = std::numeric_limits<int>::max();

  Slice slice;
  int first = 0;
  int last = 0;
  size_t offset = 0;  // from the aligned beginning of the workspace

  size_t end() const { return offset + slice.bytes; }
};

// Sets offsets: those of the whole plan come first, then those that are zeroed, so that few calls
// zero them; each lies behind those before it that are used at the same time. Slices that are not
// share the memory. Returns the bytes of all.
size_t lay_out(std::vector<PlacedSlice>& slices);

// Bytes to set to 0.
struct ZeroedRange {
  size_t offset, bytes;
};

// The slices to zero before a step, adjacent ones in one range.
std::vector<ZeroedRange> zeroed_before(int step, const std::vector<PlacedSlice>& slices);

}  // namespace fa3
