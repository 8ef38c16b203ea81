// SPDX-License-Identifier: BSD-3-Clause
// header_set.h — device code that is embedded in a library as text.
#pragma once

#include <span>

namespace fa3 {

// A file: its name as included ("device/target.h") and its text. Both end in NUL.
struct DeviceHeader {
  const char* path;
  const char* text;
};

// The device code of a library.
struct HeaderSet {
  std::span<const DeviceHeader> headers;
  const char* hash;  // SHA-256 of all of them, in hex, computed when their library was built
};

}  // namespace fa3
