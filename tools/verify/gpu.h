// SPDX-License-Identifier: BSD-3-Clause
// gpu.h — memory of the GPU that libfa3 computes on, and a stream with a clock, for checks and the
// command: the few functions of the CUDA driver that these need, opened at run time.
#pragma once

#include <cstddef>
#include <functional>

struct CUctx_st;
struct CUstream_st;

namespace fa3::verify {

// Throws std::runtime_error with the driver's reason. Neither its thread's CUDA context nor other
// users of the GPU notice it; its memory is freed before it.
class Gpu {
 public:
  // In the GPU's primary context, which libfa3 uses too.
  explicit Gpu(int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void* allocate(size_t bytes);  // never NULL, aligned to 256 bytes; 0 bytes count as 1
  void release(void* memory) noexcept;

  // In the order of the stream; both wait until the bytes are there.
  void upload(void* to, const void* from, size_t bytes);
  void download(void* to, const void* from, size_t bytes);

  CUstream_st* stream() const { return stream_; }  // its own
  void synchronize();
  // Milliseconds on the GPU, between two events, of what `submit` puts on the stream.
  double time_ms(const std::function<void()>& submit);

  // A further function of the driver, by its exported name, for calls inside within().
  static void* function(const char* name);
  // Calls `work` with the context current.
  void within(const std::function<void()>& work);

 private:
  int device_ = 0;
  CUctx_st* context_ = nullptr;
  CUstream_st* stream_ = nullptr;
};

}  // namespace fa3::verify
