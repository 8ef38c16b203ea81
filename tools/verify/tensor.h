// SPDX-License-Identifier: BSD-3-Clause
// tensor.h — tensors that own their memory, with guard bytes and any strides, for checks.
//
// Rounding here is independent of the library's own (src/core/dtype.h), so that one can check the
// other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fa3/fa3.h"

namespace fa3::verify {

// ---- Elements --------------------------------------------------------------------------------

int64_t element_bytes(int32_t dtype);
const char* dtype_text(int32_t dtype);  // "f32", "f16", "bf16", "i32", "f8_e4m3", "i8", "bool", "?"
bool is_8_bit(int32_t dtype);           // F8_E4M3, I8

// x rounded to the nearest value of dtype, ties to even; Inf when it overflows. I32: to the nearest
// integer. 8 bits have no Inf: F8_E4M3 ends at ±448, I8 at −128 and 127, and has no NaN either:
// −128. BOOL: 0 or 1.
double round_to(int32_t dtype, double x);
// Largest relative error of that rounding: 2^-24 (F32), 2^-11 (F16), 2^-8 (BF16), 2^-4 (F8_E4M3).
double unit_roundoff(int32_t dtype);
double max_finite(int32_t dtype);
double min_normal(int32_t dtype);

double decode(int32_t dtype, const void* at);
void encode(int32_t dtype, double value, void* at);

// ---- Views -----------------------------------------------------------------------------------

using Index = std::array<int64_t, FA3_MAX_RANK>;

int64_t element_count(const fa3_tensor& t);
// Calls visit(index, address) for every innermost run, index.last = 0. None for an empty tensor.
void for_each_row(const fa3_tensor& t, const std::function<void(const Index&, void*)>& visit);

double get(const fa3_tensor& t, const Index& index);
void set(const fa3_tensor& t, const Index& index, double value);
void fill(const fa3_tensor& t, double value);
void generate(const fa3_tensor& t, const std::function<double()>& next);  // element by element

// ---- Owning ----------------------------------------------------------------------------------

// Bytes that start as 0xff, which reads as NaN in every floating-point type, but as −1 in I8:
// nothing tells there whether a byte was read that should not be. Bytes that no view claims are
// guards: they must keep that value. Under AddressSanitizer they may not even be read.
class Storage {
 public:
  explicit Storage(size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() { return bytes_.data(); }
  void claim(const fa3_tensor& view);  // its elements are no guards
  bool guards_intact() const;
  std::vector<std::byte> snapshot() const;  // all bytes, to tell later whether any changed

 private:
  template <class Visit>
  void for_each_guard(const Visit& visit) const;
  void set_poison(bool on) const;

  std::vector<std::byte> bytes_;
  std::vector<uint8_t> claimed_;  // of each byte: 1 if it is an element's
};

// A view and the memory that it lies in, which several Tensors may share. Default: absent.
struct Tensor {
  fa3_tensor view{};
  std::shared_ptr<Storage> storage;
};

// How the dimensions of a tensor lie in memory.
struct MemoryOrder {
  std::vector<int>
      order;  // dimensions from outermost to innermost; {} = as they come. The last stays last
  int64_t padding = 0;           // unused elements after each innermost run
  std::vector<int> broadcast{};  // dimensions with stride 0
  int64_t alignment = 0;         // of the data in bytes, a power of two and not of the next; of
                                 // padding too; 0 = that of an element
};

// A tensor of its own memory; elements are NaN until written.
Tensor make_tensor(int32_t dtype, const std::vector<int64_t>& shape,
                   const MemoryOrder& memory = {});

// Tensors that alternate along dimension `dim` of one dense tensor, as q, k, v do in a packed QKV
// projection: they share dtype and all other extents.
std::vector<Tensor> make_interleaved(int32_t dtype, std::vector<int64_t> shape, int dim,
                                     const std::vector<int64_t>& extents, int64_t alignment = 0);

}  // namespace fa3::verify
