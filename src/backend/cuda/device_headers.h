// SPDX-License-Identifier: BSD-3-Clause
// device_headers.h — the device code that is embedded in the library: src/device as it was when
// the library was built, so that compiling a kernel reads nothing from an install path.
#pragma once

#include <span>

namespace fa3::cuda {

// A file of src/device: as it is included ("device/target.h"), and its whole text. Both end in NUL.
struct DeviceHeader {
  const char* path;
  const char* text;
};

std::span<const DeviceHeader> device_headers();

// SHA-256 of all of them, in hex, computed when the library was built.
const char* device_headers_hash();

}  // namespace fa3::cuda
