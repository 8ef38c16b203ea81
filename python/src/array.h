// SPDX-License-Identifier: BSD-3-Clause
// array.h — Python arrays as fa3_tensor, without a copy: NumPy's, PyTorch's, anything of DLPack.
#pragma once
#include <fa3/fa3.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dlpack.h"

namespace fa3::python {
namespace nb = nanobind;

struct Device {
  std::int32_t type = FA3_DEVICE_DEFAULT;  // fa3_device_type
  std::int32_t id = 0;
  bool operator==(const Device& o) const { return type == o.type && id == o.id; }
  bool operator!=(const Device& o) const { return !(*this == o); }
};
Device device_of(const std::string& name);  // "cpu", "cuda", "cuda:1"; else ValueError
std::string name_of(Device device);

// A tensor without memory, where only a plan is made.
struct Spec {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements
  std::int32_t dtype;                 // fa3_dtype
  Device device;
};

// fa3_dtype of a name ("float32", "bfloat16", …); NONE where there is no such name.
std::int32_t dtype_of(const char* name);
const char* name_of_dtype(std::int32_t dtype);

// How arrays are read.
struct Reading {
  // What unsigned integers hold, for those who keep BF16 as uint16 or FP8 as uint8.
  std::int32_t in16 = FA3_DTYPE_NONE;
  std::int32_t in8 = FA3_DTYPE_NONE;
  bool recorded = false;  // gradients are the caller's business: tensors may require them
};

// What an array is, without its memory. Unsigned integers count as bfloat16 and float8_e4m3fn.
// For arrays that do not say it by attributes of their own. name: the argument's, for errors.
Spec spec_of(const std::string& name, nb::handle object);

// Reads the arrays of one call. They must be on one device; what lends their memory is held
// until the reader goes.
class Reader {
 public:
  explicit Reader(Reading how) : how_(how) {}

  // object: an array or a Spec. name: the argument's, for errors. Arrays that are lent by a method
  // of their own are read by finish(), when the stream is known.
  void read(const char* name, nb::handle object, bool written, fa3_tensor* out);
  // stream: as DLPack counts CUDA streams (1 the legacy default, 2 each thread's, else a pointer,
  // −1: no synchronisation, the legacy default); none = PyTorch's current one, else 1.
  void finish(std::optional<std::int64_t> stream);

  Device device() const { return device_; }
  void* stream() const { return stream_; }
  const char* without_data() const { return without_data_; }  // a Spec's argument, or NULL

 private:
  struct Later {
    const char* name;
    nb::handle object;
    bool written;
    fa3_tensor* out;
  };
  void numpy(const char* name, nb::handle object, bool written, fa3_tensor* out);
  void spec(const char* name, const Spec& spec, fa3_tensor* out);
  void lent(const char* name, const dlpack::Tensor& tensor, const Reading& how, fa3_tensor* out);
  void capsule(const Later& array, std::optional<std::int64_t> stream);
  void at(const char* name, Device device);

  Reading how_;
  Device device_;
  const char* first_ = nullptr;
  const char* without_data_ = nullptr;
  void* stream_ = nullptr;
  bool has_stream_ = false;
  std::vector<Later> later_;
  std::vector<nb::object> held_;
};

}  // namespace fa3::python
