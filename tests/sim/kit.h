// SPDX-License-Identifier: BSD-3-Clause
// kit.h — running a kernel in the simulator from a test: buffers, maps, seeds.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "sim/device.h"
#include "sim/tensor_map.h"
#include "tests/kit/sanitized.h"

namespace fa3::sim {

using kit::kSanitized;
constexpr u64 some_of(u64 seeds) { return kSanitized ? seeds / 25 + 4 : seeds; }

// Values on the simulated device, registered while it lives, at an address that suits TMA.
template <class T>
class Array {
 public:
  Array(Device& device, const char* name, size_t count, bool read_only = false)
      : device_(device), storage_(count * sizeof(T) + 256), count_(count) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    data_ = reinterpret_cast<T*>((address + 127) / 128 * 128);
    std::memset(static_cast<void*>(data_), 0xFF, count * sizeof(T));
    device.memory.add(name, data_, count * sizeof(T), read_only);
  }
  ~Array() { device_.memory.remove(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  size_t size() const { return count_; }

 private:
  Device& device_;
  std::vector<unsigned char> storage_;
  size_t count_;
  T* data_;
};

inline TensorMap encode(const TensorMapSpec& spec) {
  const auto map = encode_tensor_map(spec);
  if (!map.ok()) throw std::runtime_error(map.status().message);
  return map.value();
}

// A row-major matrix with boxes of `box_columns` × `box_rows`.
inline TensorMap matrix_map(void* base, TmaType type, u64 columns, u64 rows, u32 box_columns,
                            u32 box_rows, Swizzle swizzle) {
  TensorMapSpec spec;
  spec.base = base;
  spec.type = type;
  spec.rank = 2;
  spec.dim[0] = columns;
  spec.dim[1] = rows;
  spec.stride_bytes[1] = columns * static_cast<u64>(size_of(type));
  spec.box[0] = box_columns;
  spec.box[1] = box_rows;
  spec.swizzle = swizzle;
  return encode(spec);
}

// What a launch under the device's seed breaks; nothing = it ran.
template <class Args>
std::optional<Violation> violation_of(Device& device, void (*kernel)(const Args),
                                      const LaunchShape& shape, const Args& args) {
  try {
    device.launch([kernel](const void* a) { kernel(*static_cast<const Args*>(a)); }, shape, &args);
  } catch (const Violation& violation) {
    return violation;
  }
  return std::nullopt;
}

}  // namespace fa3::sim
