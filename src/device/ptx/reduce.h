// SPDX-License-Identifier: BSD-3-Clause
// reduce.h — atomic additions to global memory that return nothing. Sections are those of PTX ISA
// 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/ptx/vec.h"
#include "device/types.h"

namespace fa3::ptx {

// red.release.gpu.global.add.u32 (9.7.13.6).
FA3_DEV void red_add_release_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(operand) : "memory");
#else
  twin::global_atomic(to, operand, 0, twin::AtomicOp::kAdd, twin::ScalarType::kU32,
                      twin::Order::kRelease, twin::Scope::kGpu, where);
#endif
}

// red.relaxed.gpu.global.add.u32 (9.7.13.6).
FA3_DEV void red_add_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(operand) : "memory");
#else
  twin::global_atomic(to, operand, 0, twin::AtomicOp::kAdd, twin::ScalarType::kU32,
                      twin::Order::kRelaxed, twin::Scope::kGpu, where);
#endif
}

// red.relaxed.gpu.global.or.b32 (9.7.13.6).
FA3_DEV void red_or_b32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(to), "r"(operand) : "memory");
#else
  twin::global_atomic(to, operand, 0, twin::AtomicOp::kOr, twin::ScalarType::kU32,
                      twin::Order::kRelaxed, twin::Scope::kGpu, where);
#endif
}

// red.relaxed.gpu.global.add.f32 (9.7.13.6).
FA3_DEV void red_add_f32(float* to, float operand, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(operand) : "memory");
#else
  twin::global_reduce_add_f32(to, &operand, 1, where);
#endif
}

// red.relaxed.gpu.global.add.v4.f32 (9.7.13.6): four neighbours, aligned to 16 bytes, each atomic.
FA3_DEV void red_add_v4_f32(float* to, Vec<float, 4> operand, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "f"(operand.v[0]), "f"(operand.v[1]), "f"(operand.v[2]), "f"(operand.v[3])
               : "memory");
#else
  twin::global_reduce_add_f32(to, operand.v, 4, where);
#endif
}

}  // namespace fa3::ptx
