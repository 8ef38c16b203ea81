// SPDX-License-Identifier: BSD-3-Clause
// numbers.h — arithmetic on bits that several primitives share.
#pragma once

#include "device/ptx/twin.h"

namespace fa3::sim {

// Exponentials that this OS thread has computed since the last call.
u32 take_exponentials();

// old + operand in the type, as an atomic add rounds: F32 flushes subnormals, F16 and BF16 keep
// them.
u64 add_bits(u64 old, u64 operand, twin::ScalarType type);
// to[i] += from[i] over `bytes` of elements.
void reduce_add(u8* to, const u8* from, u64 bytes, twin::ScalarType type);
u32 bytes_of(twin::ScalarType type);
float e4m3_to_f32(u8 bits);
float e5m2_to_f32(u8 bits);

}  // namespace fa3::sim
