// SPDX-License-Identifier: BSD-3-Clause
// api_test.cpp — driver_api.h against cuda.h and nvrtc.h: each function's name and parameters, each
// constant, each struct. Nearly all of it is decided when this file is compiled.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "backend/cuda/driver_api.h"
#include "core/shared_library.h"

namespace fa3::cuda {

// Our functions, under names that no macro of cuda.h is called.
struct Ours {
#define FA3_DECLARE(name, parameters) int ours_##name parameters;
  FA3_DRIVER_FUNCTIONS(FA3_DECLARE)
  FA3_NVRTC_FUNCTIONS(FA3_DECLARE)
#undef FA3_DECLARE
};

}  // namespace fa3::cuda

#include <cuda.h>
#include <nvrtc.h>

namespace fa3::cuda {
namespace {

// Would a compiler pass the two types alike? Enumerations are integers of their size; behind
// pointers, our structs count as theirs.
template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using X = std::remove_pointer_t<A>;
    using Y = std::remove_pointer_t<B>;
    if constexpr (std::is_const_v<X> != std::is_const_v<Y>) {
      return false;
    } else if constexpr (std::is_class_v<X> || std::is_void_v<X> || std::is_void_v<Y>) {
      return std::is_class_v<X> == std::is_class_v<Y>;
    } else {
      return alike<std::remove_cv_t<X>, std::remove_cv_t<Y>>();
    }
  } else {
    const auto whole = [](auto type) {
      using T = typename decltype(type)::type;
      return std::is_integral_v<T> || std::is_enum_v<T>;
    };
    return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
           whole(std::type_identity<A>{}) == whole(std::type_identity<B>{});
  }
}

template <class Ours, class Theirs>
struct SameFunction : std::false_type {};
template <class RA, class... A, class RB, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameFunction<RA (Ours::*)(A...), RB (*)(B...)>
    : std::bool_constant<alike<RA, RB>() && (... && alike<A, B>())> {
};

// `::name` is what CUDA's own programs call: where cuda.h has a newer version of a function, that
// one, whose parameters must then be the same.
#define FA3_COMPARE(name, parameters)                                            \
  static_assert(SameFunction<decltype(&Ours::ours_##name), decltype(&::name)>(), \
                #name ": its parameters are not those of CUDA's header");
FA3_DRIVER_FUNCTIONS(FA3_COMPARE)
FA3_NVRTC_FUNCTIONS(FA3_COMPARE)
#undef FA3_COMPARE

// The comparison itself notices a parameter too few, a size, a missing const and a missing level.
static_assert(!SameFunction<int (Ours::*)(int), int (*)(int, int)>());
static_assert(!SameFunction<int (Ours::*)(unsigned long), int (*)(int)>());
static_assert(!SameFunction<int (Ours::*)(char*), int (*)(const char*)>());
static_assert(!SameFunction<int (Ours::*)(char*), int (*)(char**)>());
static_assert(SameFunction<int (Ours::*)(int, const char*), CUresult (*)(CUresult, const char*)>());

#define FA3_COMPARE(name) \
  static_assert(int{name} == static_cast<int>(::name), #name ": not the value of CUDA's header")
FA3_COMPARE(CUDA_SUCCESS);
FA3_COMPARE(CUDA_ERROR_OUT_OF_MEMORY);
FA3_COMPARE(CUDA_ERROR_NO_DEVICE);
FA3_COMPARE(CUDA_ERROR_INVALID_IMAGE);
FA3_COMPARE(CUDA_ERROR_NO_BINARY_FOR_GPU);
FA3_COMPARE(CUDA_ERROR_INVALID_PTX);
FA3_COMPARE(CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
FA3_COMPARE(CUDA_ERROR_INVALID_SOURCE);
FA3_COMPARE(CUDA_ERROR_NOT_FOUND);
FA3_COMPARE(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
FA3_COMPARE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
FA3_COMPARE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
FA3_COMPARE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
FA3_COMPARE(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
FA3_COMPARE(CU_FUNC_ATTRIBUTE_NUM_REGS);
FA3_COMPARE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
FA3_COMPARE(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
FA3_COMPARE(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
FA3_COMPARE(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
FA3_COMPARE(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
FA3_COMPARE(CU_TENSOR_MAP_DATA_TYPE_UINT8);
FA3_COMPARE(CU_TENSOR_MAP_DATA_TYPE_UINT16);
FA3_COMPARE(CU_TENSOR_MAP_DATA_TYPE_UINT32);
FA3_COMPARE(CU_TENSOR_MAP_DATA_TYPE_INT32);
FA3_COMPARE(CU_TENSOR_MAP_DATA_TYPE_UINT64);
FA3_COMPARE(CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
FA3_COMPARE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
FA3_COMPARE(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
FA3_COMPARE(CU_TENSOR_MAP_INTERLEAVE_NONE);
FA3_COMPARE(CU_TENSOR_MAP_SWIZZLE_NONE);
FA3_COMPARE(CU_TENSOR_MAP_SWIZZLE_32B);
FA3_COMPARE(CU_TENSOR_MAP_SWIZZLE_64B);
FA3_COMPARE(CU_TENSOR_MAP_SWIZZLE_128B);
FA3_COMPARE(CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
FA3_COMPARE(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
FA3_COMPARE(CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
FA3_COMPARE(CU_STREAM_CAPTURE_STATUS_NONE);
FA3_COMPARE(NVRTC_SUCCESS);
FA3_COMPARE(NVRTC_ERROR_COMPILATION);
#undef FA3_COMPARE
static_assert(unsigned{CU_STREAM_NON_BLOCKING} == ::CU_STREAM_NON_BLOCKING);
static_assert(unsigned{CU_EVENT_DEFAULT} == ::CU_EVENT_DEFAULT);

static_assert(sizeof(TensorMap) == sizeof(::CUtensorMap));
static_assert(alignof(TensorMap) >= alignof(::CUtensorMap));
static_assert(sizeof(CUlaunchAttribute) == sizeof(::CUlaunchAttribute));
static_assert(sizeof(CUlaunchAttributeValue) == sizeof(::CUlaunchAttributeValue));
static_assert(sizeof(CUlaunchConfig) == sizeof(::CUlaunchConfig));
#define FA3_COMPARE(type, field)                                                                \
  static_assert(offsetof(type, field) == offsetof(::type, field) &&                             \
                    sizeof(std::declval<type>().field) == sizeof(std::declval<::type>().field), \
                #type "." #field ": not where CUDA's header has it")
FA3_COMPARE(CUlaunchAttribute, id);
FA3_COMPARE(CUlaunchAttribute, value);
FA3_COMPARE(CUlaunchAttributeValue, cooperative);
FA3_COMPARE(CUlaunchAttributeValue, clusterDim);
FA3_COMPARE(CUlaunchAttributeValue, programmaticStreamSerializationAllowed);
FA3_COMPARE(CUlaunchConfig, gridDimX);
FA3_COMPARE(CUlaunchConfig, gridDimY);
FA3_COMPARE(CUlaunchConfig, gridDimZ);
FA3_COMPARE(CUlaunchConfig, blockDimX);
FA3_COMPARE(CUlaunchConfig, blockDimY);
FA3_COMPARE(CUlaunchConfig, blockDimZ);
FA3_COMPARE(CUlaunchConfig, sharedMemBytes);
FA3_COMPARE(CUlaunchConfig, hStream);
FA3_COMPARE(CUlaunchConfig, attrs);
FA3_COMPARE(CUlaunchConfig, numAttrs);
#undef FA3_COMPARE

// The toolkit's stub driver exports the same functions as a real one.
TEST(DriverApi, Functions_AreExported) {
  const Result<SharedLibrary> stub = SharedLibrary::open(FA3_CUDA_STUB);
  if (!stub.ok()) GTEST_SKIP() << stub.status().message;
#define FA3_FIND(name, parameters) EXPECT_TRUE(stub.value().find(#name).ok()) << #name;
  FA3_DRIVER_FUNCTIONS(FA3_FIND)
#undef FA3_FIND
}

}  // namespace
}  // namespace fa3::cuda
