// SPDX-License-Identifier: BSD-3-Clause
// atomic.h — atomic read-modify-writes of one thread, named operation, order (relaxed at GPU scope
// unless said), type; each returns the old value. Without it: reduce.h. Sections are those of PTX
// ISA 9.1.
#pragma once

#include "device/ptx/smem.h"
#include "device/ptx/twin.h"
#include "device/ptx/vec.h"
#include "device/types.h"

namespace fa3::ptx {

#if FA3_GPU
// OP up to the operands; C is the constraint of the value, A that of the address.
#define FA3_ATOM(OP, C, A, ADDRESS)                                                   \
  decltype(operand) old;                                                              \
  asm volatile(OP " %0, [%1], %2;" : "=" C(old) : A(ADDRESS), C(operand) : "memory"); \
  return old
#else
#define FA3_ATOM_TWIN(OP, TYPE, ORDER)                                                         \
  return from_word<decltype(operand)>(                                                         \
      twin::global_atomic(to, to_word(operand), 0, twin::AtomicOp::OP, twin::ScalarType::TYPE, \
                          twin::Order::ORDER, twin::Scope::kGpu, where))
#define FA3_ATOM_SHARED_TWIN(OP, TYPE)                     \
  return from_word<decltype(operand)>(twin::shared_atomic( \
      to, to_word(operand), 0, twin::AtomicOp::OP, twin::ScalarType::TYPE, where))

// The simulator takes and gives the bits of a value in the low end of 64.
template <class T>
u64 to_word(T value) {
  if constexpr (sizeof(T) == 8) {
    return bits_as<u64>(value);
  } else {
    return bits_as<u32>(value);
  }
}
template <class T>
T from_word(u64 word) {
  if constexpr (sizeof(T) == 8) {
    return bits_as<T>(word);
  } else {
    return bits_as<T>(static_cast<u32>(word));
  }
}
#endif

// atom.relaxed.gpu.global.add.u32 (9.7.13.5).
FA3_DEV u32 atom_add_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.gpu.global.add.u32", "r", "l", to);
#else
  FA3_ATOM_TWIN(kAdd, kU32, kRelaxed);
#endif
}

// atom.relaxed.gpu.global.add.s32 (9.7.13.5).
FA3_DEV i32 atom_add_i32(i32* to, i32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.gpu.global.add.s32", "r", "l", to);
#else
  FA3_ATOM_TWIN(kAdd, kI32, kRelaxed);
#endif
}

// atom.relaxed.gpu.global.add.u64 (9.7.13.5).
FA3_DEV u64 atom_add_u64(u64* to, u64 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.gpu.global.add.u64", "l", "l", to);
#else
  FA3_ATOM_TWIN(kAdd, kU64, kRelaxed);
#endif
}

// atom.relaxed.gpu.global.add.f32 (9.7.13.5).
FA3_DEV float atom_add_f32(float* to, float operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.gpu.global.add.f32", "f", "l", to);
#else
  FA3_ATOM_TWIN(kAdd, kF32, kRelaxed);
#endif
}

// atom.acq_rel.gpu.global.add.u32 (9.7.13.5).
FA3_DEV u32 atom_add_acq_rel_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.acq_rel.gpu.global.add.u32", "r", "l", to);
#else
  FA3_ATOM_TWIN(kAdd, kU32, kAcqRel);
#endif
}

// atom.relaxed.gpu.global.max.u32 (9.7.13.5).
FA3_DEV u32 atom_max_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.gpu.global.max.u32", "r", "l", to);
#else
  FA3_ATOM_TWIN(kMax, kU32, kRelaxed);
#endif
}

// atom.relaxed.gpu.global.max.s32 (9.7.13.5).
FA3_DEV i32 atom_max_i32(i32* to, i32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.gpu.global.max.s32", "r", "l", to);
#else
  FA3_ATOM_TWIN(kMax, kI32, kRelaxed);
#endif
}

// atom.relaxed.gpu.global.min.u32 (9.7.13.5).
FA3_DEV u32 atom_min_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.gpu.global.min.u32", "r", "l", to);
#else
  FA3_ATOM_TWIN(kMin, kU32, kRelaxed);
#endif
}

// atom.relaxed.gpu.global.min.s32 (9.7.13.5).
FA3_DEV i32 atom_min_i32(i32* to, i32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.gpu.global.min.s32", "r", "l", to);
#else
  FA3_ATOM_TWIN(kMin, kI32, kRelaxed);
#endif
}

// atom.relaxed.gpu.global.exch.b32 (9.7.13.5).
FA3_DEV u32 atom_exch_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.gpu.global.exch.b32", "r", "l", to);
#else
  FA3_ATOM_TWIN(kExchange, kU32, kRelaxed);
#endif
}

// atom.acq_rel.gpu.global.exch.b32 (9.7.13.5).
FA3_DEV u32 atom_exch_acq_rel_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.acq_rel.gpu.global.exch.b32", "r", "l", to);
#else
  FA3_ATOM_TWIN(kExchange, kU32, kAcqRel);
#endif
}

// atom.relaxed.gpu.global.cas.b32 (9.7.13.5): stores `desired` where `expected` stood.
FA3_DEV u32 atom_cas_u32(u32* to, u32 expected, u32 desired, Where where = Where::here()) {
#if FA3_GPU
  u32 old;
  asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(to), "r"(expected), "r"(desired)
               : "memory");
  return old;
#else
  return static_cast<u32>(twin::global_atomic(to, desired, expected, twin::AtomicOp::kCompareSwap,
                                              twin::ScalarType::kU32, twin::Order::kRelaxed,
                                              twin::Scope::kGpu, where));
#endif
}

// atom.acq_rel.gpu.global.cas.b32 (9.7.13.5): stores `desired` where `expected` stood.
FA3_DEV u32 atom_cas_acq_rel_u32(u32* to, u32 expected, u32 desired, Where where = Where::here()) {
#if FA3_GPU
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(to), "r"(expected), "r"(desired)
               : "memory");
  return old;
#else
  return static_cast<u32>(twin::global_atomic(to, desired, expected, twin::AtomicOp::kCompareSwap,
                                              twin::ScalarType::kU32, twin::Order::kAcqRel,
                                              twin::Scope::kGpu, where));
#endif
}

// atom.relaxed.cta.shared.add.u32 (9.7.13.5).
FA3_DEV u32 atom_shared_add_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.cta.shared.add.u32", "r", "r", smem_address(to));
#else
  FA3_ATOM_SHARED_TWIN(kAdd, kU32);
#endif
}

// atom.relaxed.cta.shared.add.f32 (9.7.13.5).
FA3_DEV float atom_shared_add_f32(float* to, float operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.cta.shared.add.f32", "f", "r", smem_address(to));
#else
  FA3_ATOM_SHARED_TWIN(kAdd, kF32);
#endif
}

// atom.relaxed.cta.shared.max.u32 (9.7.13.5).
FA3_DEV u32 atom_shared_max_u32(u32* to, u32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.cta.shared.max.u32", "r", "r", smem_address(to));
#else
  FA3_ATOM_SHARED_TWIN(kMax, kU32);
#endif
}

// atom.relaxed.cta.shared.max.s32 (9.7.13.5).
FA3_DEV i32 atom_shared_max_i32(i32* to, i32 operand, Where where = Where::here()) {
#if FA3_GPU
  FA3_ATOM("atom.relaxed.cta.shared.max.s32", "r", "r", smem_address(to));
#else
  FA3_ATOM_SHARED_TWIN(kMax, kI32);
#endif
}

#if FA3_GPU
#undef FA3_ATOM
#else
#undef FA3_ATOM_TWIN
#undef FA3_ATOM_SHARED_TWIN
#endif

}  // namespace fa3::ptx
