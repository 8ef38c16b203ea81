// SPDX-License-Identifier: BSD-3-Clause
// matrix.h — 8×8 matrices of 16-bit elements between shared memory and the registers of a warp.
// Lane l gives the address of one row of 16 bytes: lanes 8j…8j+7 those of matrix j (lanes above are
// not read). Lane l holds, of each matrix, elements [l/4][2(l%4)] (low half) and [l/4][2(l%4)+1];
// `_trans` exchanges row and column. All lanes of the warp must call. Sections are those of PTX ISA
// 9.1.
#pragma once

#include "device/ptx/smem.h"
#include "device/ptx/twin.h"
#include "device/ptx/vec.h"
#include "device/types.h"

namespace fa3::ptx {

// ldmatrix.sync.aligned.m8n8.x1.shared.b16 (9.7.14.5.15).
FA3_DEV u32 ldmatrix_x1(const void* row, Where where = Where::here()) {
  u32 out;
#if FA3_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(out)
               : "r"(smem_address(row))
               : "memory");
#else
  twin::ldmatrix(&out, row, 1, false, where);
#endif
  return out;
}

// ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 (9.7.14.5.15).
FA3_DEV u32 ldmatrix_x1_trans(const void* row, Where where = Where::here()) {
  u32 out;
#if FA3_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(out)
               : "r"(smem_address(row))
               : "memory");
#else
  twin::ldmatrix(&out, row, 1, true, where);
#endif
  return out;
}

// ldmatrix.sync.aligned.m8n8.x2.shared.b16 (9.7.14.5.15).
FA3_DEV Vec<u32, 2> ldmatrix_x2(const void* row, Where where = Where::here()) {
  Vec<u32, 2> out;
#if FA3_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(out.v[0]), "=r"(out.v[1])
               : "r"(smem_address(row))
               : "memory");
#else
  twin::ldmatrix(out.v, row, 2, false, where);
#endif
  return out;
}

// ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 (9.7.14.5.15).
FA3_DEV Vec<u32, 2> ldmatrix_x2_trans(const void* row, Where where = Where::here()) {
  Vec<u32, 2> out;
#if FA3_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(out.v[0]), "=r"(out.v[1])
               : "r"(smem_address(row))
               : "memory");
#else
  twin::ldmatrix(out.v, row, 2, true, where);
#endif
  return out;
}

// ldmatrix.sync.aligned.m8n8.x4.shared.b16 (9.7.14.5.15).
FA3_DEV Vec<u32, 4> ldmatrix_x4(const void* row, Where where = Where::here()) {
  Vec<u32, 4> out;
#if FA3_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.v[0]), "=r"(out.v[1]), "=r"(out.v[2]), "=r"(out.v[3])
               : "r"(smem_address(row))
               : "memory");
#else
  twin::ldmatrix(out.v, row, 4, false, where);
#endif
  return out;
}

// ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 (9.7.14.5.15).
FA3_DEV Vec<u32, 4> ldmatrix_x4_trans(const void* row, Where where = Where::here()) {
  Vec<u32, 4> out;
#if FA3_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.v[0]), "=r"(out.v[1]), "=r"(out.v[2]), "=r"(out.v[3])
               : "r"(smem_address(row))
               : "memory");
#else
  twin::ldmatrix(out.v, row, 4, true, where);
#endif
  return out;
}

// stmatrix.sync.aligned.m8n8.x1.shared.b16 (9.7.14.5.16).
FA3_DEV void stmatrix_x1(void* row, u32 value, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(smem_address(row)),
               "r"(value)
               : "memory");
#else
  twin::stmatrix(row, &value, 1, false, where);
#endif
}

// stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 (9.7.14.5.16).
FA3_DEV void stmatrix_x1_trans(void* row, u32 value, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(smem_address(row)),
      "r"(value)
      : "memory");
#else
  twin::stmatrix(row, &value, 1, true, where);
#endif
}

// stmatrix.sync.aligned.m8n8.x2.shared.b16 (9.7.14.5.16).
FA3_DEV void stmatrix_x2(void* row, Vec<u32, 2> value, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(smem_address(row)),
               "r"(value.v[0]), "r"(value.v[1])
               : "memory");
#else
  twin::stmatrix(row, value.v, 2, false, where);
#endif
}

// stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 (9.7.14.5.16).
FA3_DEV void stmatrix_x2_trans(void* row, Vec<u32, 2> value, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(smem_address(row)),
      "r"(value.v[0]), "r"(value.v[1])
      : "memory");
#else
  twin::stmatrix(row, value.v, 2, true, where);
#endif
}

// stmatrix.sync.aligned.m8n8.x4.shared.b16 (9.7.14.5.16).
FA3_DEV void stmatrix_x4(void* row, Vec<u32, 4> value, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(row)),
      "r"(value.v[0]), "r"(value.v[1]), "r"(value.v[2]), "r"(value.v[3])
      : "memory");
#else
  twin::stmatrix(row, value.v, 4, false, where);
#endif
}

// stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 (9.7.14.5.16).
FA3_DEV void stmatrix_x4_trans(void* row, Vec<u32, 4> value, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   smem_address(row)),
               "r"(value.v[0]), "r"(value.v[1]), "r"(value.v[2]), "r"(value.v[3])
               : "memory");
#else
  twin::stmatrix(row, value.v, 4, true, where);
#endif
}

// movmatrix.sync.aligned.m8n8.trans.b16 (9.7.14.5.17): the matrix transposed, registers only.
FA3_DEV u32 movmatrix(u32 value, Where where = Where::here()) {
#if FA3_GPU
  u32 out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(value));
  return out;
#else
  return twin::movmatrix(value, where);
#endif
}

}  // namespace fa3::ptx
