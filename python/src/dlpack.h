// SPDX-License-Identifier: BSD-3-Clause
// dlpack.h — the part of DLPack that the Python module reads: tensors in capsules, and the table of
// functions by which a type lends them without one.
// Source: the DLPack standard, versions 1.0 (capsules) and 1.3 (table of functions); names of ours.
#pragma once
#include <cstdint>

namespace fa3::python::dlpack {

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kBool = 6,
  kE4m3 = 10
};

struct Tensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;      // in elements; NULL = contiguous
  std::uint64_t byte_offset;  // of the first element from data
};

struct Version {
  std::uint32_t major, minor;
};

struct
    VersionedTensor {  // in a capsule "dltensor_versioned"; in one "dltensor" a Tensor comes first
  Version version;
  void* context;
  void (*deleter)(VersionedTensor*);
  std::uint64_t flags;
  Tensor tensor;
};
inline constexpr std::uint64_t kReadOnly = 1;

// What the attribute __dlpack_c_exchange_api__ of a type points to, a capsule named
// "dlpack_exchange_api". Functions return 0, or −1 with a Python exception set.
struct Exchange {
  Version version;
  Exchange* older;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*borrow)(void* object, Tensor* out);  // may be NULL; the object must outlive *out
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

}  // namespace fa3::python::dlpack
