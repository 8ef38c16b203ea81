// SPDX-License-Identifier: BSD-3-Clause
// host_tensor.cpp — tensors between files and the library.
#include "host_tensor.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "error.h"
#include "interrupt.h"
#include "tools/verify/tensor.h"

namespace fa3::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

fa3_dtype library_dtype(tools::DType dtype) {
  switch (dtype) {
    case tools::DType::kF32:
      return FA3_F32;
    case tools::DType::kF16:
      return FA3_F16;
    case tools::DType::kBF16:
      return FA3_BF16;
    case tools::DType::kI32:
      return FA3_I32;
    case tools::DType::kF8E4M3:
      return FA3_F8_E4M3;
    case tools::DType::kI8:
      return FA3_I8;
    case tools::DType::kBool:
      return FA3_BOOL;
    default:
      return FA3_DTYPE_NONE;
  }
}

tools::DType file_dtype(fa3_dtype dtype) {
  switch (dtype) {
    case FA3_F16:
      return tools::DType::kF16;
    case FA3_BF16:
      return tools::DType::kBF16;
    case FA3_I32:
      return tools::DType::kI32;
    case FA3_F8_E4M3:
      return tools::DType::kF8E4M3;
    case FA3_I8:
      return tools::DType::kI8;
    case FA3_BOOL:
      return tools::DType::kBool;
    default:
      return tools::DType::kF32;
  }
}

double element(const tools::Tensor& t, int64_t i) {
  if (t.dtype == tools::DType::kF64) return static_cast<const double*>(t.data)[i];
  if (t.dtype == tools::DType::kI64)
    return static_cast<double>(static_cast<const int64_t*>(t.data)[i]);
  const fa3_dtype dtype = library_dtype(t.dtype);
  return verify::decode(dtype, static_cast<const char*>(t.data) + i * verify::element_bytes(dtype));
}

HostTensor convert(const tools::Tensor& from, fa3_dtype dtype) {
  HostTensor to = allocate(from.name, dtype, from.shape);
  char* out = static_cast<char*>(const_cast<void*>(to.data.get()));
  const int64_t count = tools::element_count(from.shape), bytes = verify::element_bytes(dtype);
  for (int64_t i = 0; i < count; ++i) {
    if (i % (1 << 20) == 0) stop_if_interrupted();
    verify::encode(dtype, element(from, i), out + i * bytes);
  }
  return to;
}

}  // namespace

fa3_tensor HostTensor::view(bool heads_first) const {
  if (!present()) return {};
  if (shape.size() > FA3_MAX_RANK)
    fail(kBadInput, "{}: rank {}, need at most {}", name, shape.size(), FA3_MAX_RANK);
  fa3_tensor t = fa3_dense(data.get(), dtype, static_cast<int32_t>(shape.size()), shape.data());
  if (heads_first && t.rank == 4) {
    std::swap(t.shape[1], t.shape[2]);
    std::swap(t.stride[1], t.stride[2]);
  }
  return t;
}

tools::Tensor HostTensor::file_tensor() const {
  return {name, file_dtype(dtype), shape, data.get(), data};
}

HostTensor allocate(const std::string& name, fa3_dtype dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = verify::element_bytes(dtype);
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      fail(kBadInput, "{}: shape {} has more bytes than 63 bits can count", name,
           shape_text(shape));
  HostTensor t{name, dtype, shape, nullptr};
  const std::shared_ptr<char[]> memory(new char[static_cast<size_t>(bytes)]);
  t.data = std::shared_ptr<const void>(memory, memory.get());
  return t;
}

HostTensor load_int32(const tools::TensorFile& file, const std::string& name, const char* remedy) {
  const tools::Tensor from = file.load(name);
  if (from.dtype == tools::DType::kI32) return load(file, name, FA3_DTYPE_NONE);
  if (from.dtype != tools::DType::kI64)
    fail(kBadInput, "{}: element type {}, need I32 or I64; write it anew as one of them", name,
         tools::dtype_name(from.dtype));
  HostTensor to = allocate(from.name, FA3_I32, from.shape);
  auto* out = static_cast<int32_t*>(const_cast<void*>(to.data.get()));
  const auto* in = static_cast<const int64_t*>(from.data);
  for (int64_t i = 0; i < tools::element_count(from.shape); ++i) {
    if (in[i] < INT32_MIN || in[i] > INT32_MAX)
      fail(kBadInput, "{}: element {} is {}, need a number of 32 bits; {}", name, i, in[i], remedy);
    out[i] = static_cast<int32_t>(in[i]);
  }
  return to;
}

HostTensor load(const tools::TensorFile& file, const std::string& name, fa3_dtype cast) {
  tools::Tensor from = file.load(name);
  const fa3_dtype dtype = library_dtype(from.dtype);
  if (cast == FA3_DTYPE_NONE && dtype == FA3_DTYPE_NONE)
    fail(
        kBadInput,
        "{}: element type {}, need F32, F16, BF16, F8_E4M3 or I8; cast it on load with --dtype f32",
        name, tools::dtype_name(from.dtype));
  if (cast != FA3_DTYPE_NONE && cast != dtype) return convert(from, cast);
  return {name, dtype, std::move(from.shape), std::shared_ptr<const void>(from.owner, from.data)};
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t extent : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", extent);
  return "(" + text + ")";
}

std::string tensor_text(const HostTensor& tensor) {
  return fmt::format("{} {}", shape_text(tensor.shape), verify::dtype_text(tensor.dtype));
}

}  // namespace fa3::cli
