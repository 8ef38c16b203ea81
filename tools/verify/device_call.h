// SPDX-License-Identifier: BSD-3-Clause
// device_call.h — the tensors of an operation copied to a GPU and back, with guard bytes
// around and between their rows that nothing may write.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/gpu.h"

namespace fa3::verify {

// A view of host memory and its copy in the GPU's: same shape and strides, and the host's alignment
// where that is 16 bytes, which TMA asks for, to 256. Bytes of the copy that are no elements are
// guards.
class DeviceTensor {
 public:
  DeviceTensor(Gpu& gpu, const fa3_tensor& host);  // copies the elements there
  ~DeviceTensor();
  DeviceTensor(DeviceTensor&& other) noexcept;
  DeviceTensor& operator=(DeviceTensor&&) = delete;

  const fa3_tensor& view() const { return view_; }

  void send();           // copies the elements there again, and new guards
  void fetch();          // copies the elements back
  bool changed() const;  // whether any byte, guards too, differs from those of the host

 private:
  std::vector<std::byte> image() const;  // of the copy, as the host's elements make it

  Gpu* gpu_;
  fa3_tensor host_, view_;
  size_t offset_ = 0, bytes_ = 0;
  void* memory_ = nullptr;
};

class DeviceTensors {
 public:
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  const void* call_args() const { return call_args_; }  // of the DeviceCall that this is part of
  void send_outputs();
  void fetch_outputs();
  // After fetch_outputs: "" or which tensor's guards, or which input, something has written to.
  std::string damage() const;

 protected:
  explicit DeviceTensors(const void* call_args) : call_args_(call_args) {}

  // Copies a tensor that is there, and makes it a view of the copy.
  void copy(Gpu& gpu, const fa3_field& field, bool written, fa3_tensor& t);

 private:
  struct Entry {
    const char* name;
    bool output;
    DeviceTensor tensor;
  };
  const void* call_args_;
  std::vector<Entry> entries_;
};

// Args: fa3_forward_args, fa3_backward_args, fa3_quantize_args or fa3_combine_args.
template <class Args>
class DeviceCall : public DeviceTensors {
 public:
  // Copies all tensors of `host`, outputs too. Their memory must outlive this.
  DeviceCall(Gpu& gpu, const Args& host);

  const Args& args() const { return args_; }

 private:
  Args args_;
};

using DeviceForward = DeviceCall<fa3_forward_args>;
using DeviceBackward = DeviceCall<fa3_backward_args>;

}  // namespace fa3::verify
