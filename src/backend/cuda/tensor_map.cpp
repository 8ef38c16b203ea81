// SPDX-License-Identifier: BSD-3-Clause
// tensor_map.cpp — TensorMapSpec in the driver's terms.
#include "backend/cuda/tensor_map.h"

#include "core/tensor_map.h"

namespace fa3::cuda {
namespace {

CUtensorMapDataType driver_type(TmaType type) {
  switch (type) {
    case TmaType::kU8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case TmaType::kU16:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case TmaType::kU32:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case TmaType::kI32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case TmaType::kU64:
      return CU_TENSOR_MAP_DATA_TYPE_UINT64;
    case TmaType::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case TmaType::kBf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case TmaType::kF32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
  throw Error(FA3_INTERNAL, "tensor map: a type passed the check that the driver has no name for");
}

CUtensorMapSwizzle driver_swizzle(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::kNone:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case Swizzle::k32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case Swizzle::k64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::k128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  throw Error(FA3_INTERNAL,
              "tensor map: a swizzle passed the check that the driver has no name for");
}

}  // namespace

Result<TensorMap> encode_tensor_map(const Driver& driver, const TensorMapSpec& spec) {
  FA3_RETURN_IF_ERROR(check_tensor_map(spec));
  uint64_t dims[TensorMapSpec::kMaxRank] = {};
  uint64_t strides[TensorMapSpec::kMaxRank] = {};  // from dimension 1 on
  for (int i = 0; i < spec.rank; ++i) dims[i] = spec.dim[i];
  for (int i = 1; i < spec.rank; ++i) strides[i - 1] = spec.stride_bytes[i];
  TensorMap map{};
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, driver_type(spec.type), static_cast<uint32_t>(spec.rank), spec.base, dims, strides,
      spec.box, spec.element_stride, CU_TENSOR_MAP_INTERLEAVE_NONE, driver_swizzle(spec.swizzle),
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      spec.nan_fill ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
                    : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return Status{FA3_CUDA_ERROR,
                  fmt::format("tensor map: the driver refuses one: cuTensorMapEncodeTiled: {} [{}]",
                              driver.error_text(result), describe(spec))};
  }
  return map;
}

}  // namespace fa3::cuda
