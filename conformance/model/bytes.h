// SPDX-License-Identifier: BSD-3-Clause
// bytes.h — the content of a buffer, and values as bytes.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace fa3::selftest {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes to_bytes(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
Bytes bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  Bytes bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

}  // namespace fa3::selftest
