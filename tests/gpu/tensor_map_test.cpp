// SPDX-License-Identifier: BSD-3-Clause
// tensor_map_test.cpp — the validation of tensor maps and the driver agree: what one accepts, the
// other accepts.
#include "core/tensor_map.h"

#include <random>

#include "backend/cuda/tensor_map.h"
#include "kit.h"

namespace fa3::gpu {
namespace {

using GpuTensorMap = GpuTest;

// The driver's own verdict, past our check.
bool driver_takes(const cuda::Driver& driver, const TensorMapSpec& spec) {
  uint64_t dims[5], strides[5];
  for (int i = 0; i < spec.rank; ++i) dims[i] = spec.dim[i];
  for (int i = 1; i < spec.rank; ++i) strides[i - 1] = spec.stride_bytes[i];
  constexpr int kTypes[] = {0, 1, 2, 3, 4, 6, 9, 7};  // in TmaType's order
  const int swizzle = static_cast<int>(spec.swizzle);
  TensorMap map{};
  return driver.cuTensorMapEncodeTiled(
             &map, cuda::CUtensorMapDataType(kTypes[static_cast<int>(spec.type)]),
             static_cast<uint32_t>(spec.rank), spec.base, dims, strides, spec.box,
             spec.element_stride, cuda::CU_TENSOR_MAP_INTERLEAVE_NONE,
             cuda::CUtensorMapSwizzle(swizzle == 128 ? 3 : swizzle / 32),
             cuda::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             cuda::CUtensorMapFloatOOBfill(spec.nan_fill)) == cuda::CUDA_SUCCESS;
}

// Specs at and around every limit, a few fields off at a time.
TensorMapSpec draw(std::mt19937_64& random, void* memory) {
  const auto one_of = [&](auto... values) {
    const u64 all[] = {static_cast<u64>(values)...};
    return all[random() % sizeof...(values)];
  };
  const auto rarely = [&] { return random() % 12 == 0; };
  TensorMapSpec spec;
  spec.base = static_cast<char*>(memory) + (rarely() ? one_of(8, 4) : one_of(0, 16, 48, 128));
  spec.type = TmaType(random() % 8);
  spec.rank = static_cast<int>(1 + random() % 5);
  spec.swizzle = Swizzle(one_of(0, 32, 64, 128));
  for (int i = 0; i < spec.rank; ++i) {
    spec.dim[i] = rarely() ? one_of(0, u64{1} << 32, (u64{1} << 32) + 1) : one_of(1, 7, 64, 4096);
    spec.stride_bytes[i] = rarely() ? one_of(8, 24, u64{1} << 40, (u64{1} << 40) - 16)
                                    : one_of(16, 128, 4096, 1 << 20);
    spec.box[i] = static_cast<u32>(rarely() ? one_of(0, 257, 12) : one_of(1, 8, 16, 32, 64, 256));
    spec.element_stride[i] = static_cast<u32>(rarely() ? one_of(0, 9) : one_of(1, 1, 1, 2, 8));
  }
  spec.nan_fill = random() % 8 == 0;
  return spec;
}

TEST_F(GpuTensorMap, CheckAndDriver_Agree) {
  void* const memory = runtime_->allocate(4096, "tensor");
  const cuda::Context context = cuda::Context::of(*driver_, 0);
  const cuda::ContextScope scope(*driver_, context.get());  // the driver asks for one
  std::mt19937_64 random(1);
  int taken = 0, refused = 0, differ = 0;
  for (int i = 0; i < 200000; ++i) {
    const TensorMapSpec spec = draw(random, memory);
    const Status status = check_tensor_map(spec);
    ++(status.ok() ? taken : refused);
    // Boxes beyond shared memory are refused here whatever the driver says.
    const bool too_big = status.message.find("(shared memory)") != std::string::npos;
    if (too_big || driver_takes(*driver_, spec) == status.ok()) continue;
    ADD_FAILURE() << (status.ok() ? "the driver refuses " + describe(spec)
                                  : "the driver takes it: " + status.message);
    if (++differ == 40) break;
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace fa3::gpu
