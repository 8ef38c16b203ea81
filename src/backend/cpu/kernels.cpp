// SPDX-License-Identifier: BSD-3-Clause
// kernels.cpp — compiles the SIMD layer once per instruction set (Highway's foreach_target) and
// hands out the tables.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: must come before highway.h
#include <hwy/highway.h>

#include "backend/cpu/few_rows-inl.h"
#include "backend/cpu/pack-inl.h"
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fa3::cpu::HWY_NAMESPACE {

#define FA3_OP op_f32
#define FA3_OP_ATTR HWY_ATTR
#define FA3_OP_UNIT 1
#define FA3_OP_DOT(a, b, c) hn::MulAdd(a, b, c)
#include "backend/cpu/few_dot-inl.h"
#include "backend/cpu/gemm-inl.h"
#undef FA3_OP
#undef FA3_OP_ATTR
#undef FA3_OP_UNIT
#undef FA3_OP_DOT

const Kernels& table() {
  static constexpr Kernels kTable = {
      .lanes = kLanes,
      .panel = kPanel,
      .unit = 1,
      .pack_transposed = pack_transposed,
      .pack_rows = pack_rows,
      .copy_rows = copy_rows,
      .gemm_columns = op_f32::gemm_columns,
      .gemm_depth = op_f32::gemm_depth<kTileRows, false>,
      .gemm_depth_at = op_f32::gemm_depth<kTileRows, true>,
      .gemm_depth_rows = op_f32::gemm_depth<1, false>,
      .gemm_depth_at_rows = op_f32::gemm_depth<1, true>,
      .few_dot = op_f32::few_dot<>,
      .few_add = few_add,
      .softmax = softmax<float>,
      .softmax_grad = softmax_grad<float>,
      .row_sums = row_sums,
      .pair_rows = nullptr,
      .scale_rows = scale_rows,
      .store_rows = store_rows,
      .row_dot = row_dot,
  };
  return kTable;
}

#if HWY_TARGET == HWY_AVX3 && HWY_ARCH_X86
// Highway has no BF16 dot product on x86 yet: this uses the intrinsic, in functions with a target
// attribute (clang takes no second target pragma).
#define FA3_OP op_bf16
#define FA3_OP_ATTR __attribute__((target(HWY_TARGET_STR ",avx512bf16")))
#define FA3_OP_UNIT 2
#define FA3_OP_DOT(a, b, c) (VF{_mm512_dpbf16_ps((c).raw, (__m512bh)(a).raw, (__m512bh)(b).raw)})
#include "backend/cpu/few_dot-inl.h"
#include "backend/cpu/gemm-inl.h"
#undef FA3_OP
#undef FA3_OP_ATTR
#undef FA3_OP_UNIT
#undef FA3_OP_DOT
#include "backend/cpu/bf16-inl.h"

const Kernels& bf16_table() {
  static constexpr Kernels kTable = {
      .lanes = kLanes,
      .panel = kPanel,
      .unit = 2,
      .pack_transposed = pack_transposed_bf16,
      .pack_rows = pack_rows_bf16,
      .copy_rows = copy_rows_bf16,
      .gemm_columns = op_bf16::gemm_columns,
      .gemm_depth = op_bf16::gemm_depth<kTileRows, false>,
      .gemm_depth_at = op_bf16::gemm_depth<kTileRows, true>,
      .gemm_depth_rows = gemm_depth_rows_bf16<false>,
      .gemm_depth_at_rows = gemm_depth_rows_bf16<true>,
      .few_dot = nullptr,
      .few_add = nullptr,
      .softmax = softmax<Bf16>,
      .softmax_grad = softmax_grad<Bf16>,
      .row_sums = row_sums,
      .pair_rows = pair_rows_bf16,
      .scale_rows = scale_rows,
      .store_rows = store_rows,
      .row_dot = row_dot,
  };
  return kTable;
}
// P stays in FP32: the sums of values are those of FP32.
const Kernels& few_bf16_table() {
  static const Kernels kTable = [] {
    Kernels few = table();
    few.copy_rows = copy_rows_bf16;
    few.few_dot = op_bf16::few_dot<>;
    return few;
  }();
  return kTable;
}
#endif

}  // namespace fa3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fa3::cpu {

const Kernels& kernels(Isa isa, [[maybe_unused]] fa3_dtype dtype, [[maybe_unused]] bool few_rows) {
  switch (isa) {
#if HWY_TARGETS & HWY_AVX3
    case Isa::kAvx3Bf16:
      if (dtype != FA3_BF16) return N_AVX3::table();
      return few_rows ? N_AVX3::few_bf16_table() : N_AVX3::bf16_table();
    case Isa::kAvx3:
      return N_AVX3::table();
#endif
#if HWY_TARGETS & HWY_AVX2
    case Isa::kAvx2:
      return N_AVX2::table();
#endif
#if HWY_TARGETS & HWY_SSE4
    case Isa::kSse4:
      return N_SSE4::table();
#endif
#if HWY_TARGETS & HWY_NEON
    case Isa::kNeon:
      return N_NEON::table();
#endif
    default:
      return HWY_STATIC_DISPATCH(table)();
  }
}

}  // namespace fa3::cpu
#endif
