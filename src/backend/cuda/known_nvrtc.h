// SPDX-License-Identifier: BSD-3-Clause
// known_nvrtc.h — the version of the NVRTC that would be opened, recorded next to the kernels:
// opening it takes a hundred times as long as finding a kernel on disk.
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

// The version of the library that this search found before. nullopt when none is recorded, the file
// has changed, or the system's loader may find another one.
std::optional<int> known_version(const DiskCache& disk, const NvrtcSearch& search);

// Records what a search found. Where the folder refuses it, the next process only loses time.
void remember(const DiskCache& disk, const NvrtcSearch& search, const Nvrtc& found);

}  // namespace fa3::cuda
