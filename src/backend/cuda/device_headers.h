// SPDX-License-Identifier: BSD-3-Clause
// device_headers.h — the device code that is embedded in the library: src/device as it was when
// the library was built, so that compiling a kernel reads nothing from an install path.
#pragma once

#include <span>

namespace fa3::cuda {

// A file of src/device: its name as included ("device/target.h") and its text. Both end in NUL.
struct DeviceHeader {
  const char* path;
  const char* text;
};

// The device code of a library.
struct HeaderSet {
  std::span<const DeviceHeader> headers;
  const char* hash;  // SHA-256 of all of them, in hex, computed when their library was built
};

// This library's.
const HeaderSet& device_headers();

}  // namespace fa3::cuda
