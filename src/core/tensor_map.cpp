// SPDX-License-Identifier: BSD-3-Clause
// tensor_map.cpp — the limits of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object
// Management"), without interleaving, which no kernel uses.
#include "core/tensor_map.h"

#include <cstdint>

namespace fa3 {
namespace {

constexpr int kAlignment = 16;  // bytes: of the base, of strides and of the innermost box row
constexpr u64 kMaxDim = u64{1} << 32;
constexpr u64 kStrideLimit = u64{1} << 40;  // bytes; first value that is too large
constexpr u32 kMaxBox = 256;
constexpr u64 kMaxBoxBytes = 227 * 1024;
constexpr u32 kMaxElementStride = 8;

const char* type_name(TmaType type) {
  switch (type) {
    case TmaType::kU8:
      return "u8";
    case TmaType::kU16:
      return "u16";
    case TmaType::kU32:
      return "u32";
    case TmaType::kI32:
      return "i32";
    case TmaType::kU64:
      return "u64";
    case TmaType::kF16:
      return "f16";
    case TmaType::kBf16:
      return "bf16";
    case TmaType::kF32:
      return "f32";
  }
  return "unknown";
}

bool is_float(TmaType type) {
  return type == TmaType::kF16 || type == TmaType::kBf16 || type == TmaType::kF32;
}

const char* name_of(const TensorMapSpec& spec) { return spec.name == nullptr ? "?" : spec.name; }

// `{a, b, c}` of the entries [first, rank).
template <class T>
std::string list(const T* values, int first, int rank) {
  std::string text = "{";
  for (int i = first; i < rank && i < TensorMapSpec::kMaxRank; ++i) {
    text += fmt::format("{}{}", i == first ? "" : ", ", values[i]);
  }
  return text + "}";
}

template <class... Args>
Status refuse(const TensorMapSpec& spec, fmt::format_string<Args...> format, Args&&... args) {
  return invalid("tensor map {}: {} [{}]", name_of(spec),
                 fmt::format(format, std::forward<Args>(args)...), describe(spec));
}

// Fields that the rest of the check computes with.
Status check_kinds(const TensorMapSpec& spec) {
  if (size_of(spec.type) == 0) {
    return refuse(spec, "type={} is none; use a TmaType", int{static_cast<u8>(spec.type)});
  }
  if (spec.rank < 1 || spec.rank > TensorMapSpec::kMaxRank) {
    return refuse(spec, "rank={}, need 1…{}; fold or drop dimensions", spec.rank,
                  TensorMapSpec::kMaxRank);
  }
  switch (spec.swizzle) {
    case Swizzle::kNone:
    case Swizzle::k32:
    case Swizzle::k64:
    case Swizzle::k128:
      return {};
  }
  return refuse(spec, "swizzle={}, need 0, 32, 64 or 128; use a Swizzle",
                int{static_cast<u8>(spec.swizzle)});
}

// The programming guide asks for 128 bytes under a swizzle; the driver and the hardware take 16,
// which views into packed buffers rely on.
Status check_base(const TensorMapSpec& spec) {
  if (spec.base == nullptr) {
    return refuse(spec, "base is NULL; need the address of a tensor in device memory");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(spec.base);
  if (address % kAlignment != 0) {
    return refuse(spec, "base={} is {} bytes past a multiple of {}; align it, or copy the tensor",
                  spec.base, address % kAlignment, kAlignment);
  }
  return {};
}

Status check_dimension(const TensorMapSpec& spec, int i) {
  if (spec.dim[i] < 1 || spec.dim[i] > kMaxDim) {
    return refuse(spec, "dim[{}]={}, need 1…{} (2^32); {}", i, spec.dim[i], kMaxDim,
                  spec.dim[i] == 0 ? "an empty tensor takes no tensor map" : "split the tensor");
  }
  if (i > 0 && spec.stride_bytes[i] % kAlignment != 0) {
    return refuse(spec, "stride_bytes[{}]={}, need a multiple of {}; pad the rows, or copy", i,
                  spec.stride_bytes[i], kAlignment);
  }
  if (i > 0 && spec.stride_bytes[i] >= kStrideLimit) {
    return refuse(spec, "stride_bytes[{}]={}, need less than {} (2^40); split the tensor", i,
                  spec.stride_bytes[i], kStrideLimit);
  }
  if (spec.box[i] < 1 || spec.box[i] > kMaxBox) {
    return refuse(spec, "box[{}]={}, need 1…{} elements; use several copies", i, spec.box[i],
                  kMaxBox);
  }
  if (spec.element_stride[i] < 1 || spec.element_stride[i] > kMaxElementStride) {
    return refuse(spec, "element_stride[{}]={}, need 1…{}; 1 takes every element", i,
                  spec.element_stride[i], kMaxElementStride);
  }
  return {};
}

Status check_box_row(const TensorMapSpec& spec) {
  const u32 row_bytes = spec.box[0] * static_cast<u32>(size_of(spec.type));
  if (row_bytes % kAlignment != 0) {
    return refuse(spec, "box[0]={} is {} bytes of {}, need a multiple of {}; widen the box",
                  spec.box[0], row_bytes, type_name(spec.type), kAlignment);
  }
  const u32 width = static_cast<u8>(spec.swizzle);
  if (width != 0 && row_bytes > width) {
    return refuse(spec, "box[0]={} is {} bytes of {}, need at most {} with swizzle={}; use panels",
                  spec.box[0], row_bytes, type_name(spec.type), width, width);
  }
  return {};
}

// Not in the manual: drivers refuse boxes from 256 KiB on, and a CTA's shared memory ends before.
Status check_box(const TensorMapSpec& spec) {
  u64 bytes = static_cast<u64>(size_of(spec.type));
  for (int i = 0; i < spec.rank; ++i) bytes *= spec.box[i];
  if (bytes > kMaxBoxBytes) {
    return refuse(spec, "box={} is {} bytes, need at most {} (shared memory); use several copies",
                  list(spec.box, 0, spec.rank), bytes, kMaxBoxBytes);
  }
  return {};
}

}  // namespace

Status check_tensor_map(const TensorMapSpec& spec) {
  FA3_RETURN_IF_ERROR(check_kinds(spec));
  FA3_RETURN_IF_ERROR(check_base(spec));
  for (int i = 0; i < spec.rank; ++i) FA3_RETURN_IF_ERROR(check_dimension(spec, i));
  FA3_RETURN_IF_ERROR(check_box_row(spec));
  FA3_RETURN_IF_ERROR(check_box(spec));
  if (spec.nan_fill && !is_float(spec.type)) {
    return refuse(spec, "nan_fill with type={}, need f16, bf16 or f32; use zero fill",
                  type_name(spec.type));
  }
  return {};
}

std::string describe(const TensorMapSpec& spec) {
  return fmt::format(
      "name={} base={} type={} rank={} dim={} stride_bytes[1…]={} box={} element_stride={} "
      "swizzle={} nan_fill={}",
      name_of(spec), spec.base, type_name(spec.type), spec.rank, list(spec.dim, 0, spec.rank),
      list(spec.stride_bytes, 1, spec.rank), list(spec.box, 0, spec.rank),
      list(spec.element_stride, 0, spec.rank), int{static_cast<u8>(spec.swizzle)}, spec.nan_fill);
}

}  // namespace fa3
