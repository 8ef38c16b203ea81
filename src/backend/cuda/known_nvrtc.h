// SPDX-License-Identifier: BSD-3-Clause
// known_nvrtc.h — the version of the NVRTC that would be opened, remembered beside the kernels: to
// open it takes a hundred times as long as to find a kernel on disk.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/cache.h"
#include "backend/cuda/nvrtc.h"

namespace fa3::cuda {

// Arguments of find_nvrtc().
struct NvrtcSearch {
  std::vector<std::string> places;
  int driver_version = 0;
};

// Of the library that this search found before. nullopt when nothing is known, the file is not the
// one it was, or the system's loader may find another.
std::optional<int> known_version(const DiskCache& disk, const NvrtcSearch& search);

// Keeps what a search found. A folder that does not take it costs the next process time, no more.
void remember(const DiskCache& disk, const NvrtcSearch& search, const Nvrtc& found);

}  // namespace fa3::cuda
