// SPDX-License-Identifier: BSD-3-Clause
// operand.h — wgmma's operands as the host builds them from the PTX specification: element codes,
// images in shared memory with their descriptors, and the register fragments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/model/bytes.h"
#include "conformance/model/random.h"
#include "device/ptx/mma_types.h"
#include "device/tensor_map.h"

namespace fa3::selftest {

// "bf16", and "fa3::MmaType::kBf16" as a name expression spells it.
std::string short_name(MmaType type);
std::string enumerator(MmaType type);

double value_of(MmaType type, uint32_t code);
uint32_t code_of(MmaType type, double value);

// Small integers make every sum exact, whatever its order; fractions do not.
enum class Values { kIntegers, kFractions };
double random_value(MmaType type, Values values, Random& random);

// One operand: mn rows (of A) or columns (of B), k() elements along the contraction.
struct Operand {
  MmaType type;
  int mn = 0;
  int k = 0;
  std::vector<double> value;  // [mn][k], representable in the type

  double at(int m, int i) const { return value[static_cast<size_t>(m * k + i)]; }
};
Operand random_operand(MmaType type, int mn, int k, Values values, Random& random);

// Where the elements of an operand lie in shared memory, and the descriptor fields that say so.
struct SmemLayout {
  Swizzle swizzle = Swizzle::kNone;
  bool mn_major = false;
  uint32_t lbo = 0, sbo = 0;     // bytes
  std::vector<uint32_t> offset;  // of each step's first byte; a step is 32 bytes along K

  uint64_t descriptor() const;  // with start address 0
  // Byte of element (mn, k) of a step, k counted in the step.
  uint32_t address(int step, int element_bytes, int m, int i) const;
};

// `compact`: blocks adjacent along K are adjacent in memory, else those adjacent along MN.
SmemLayout smem_layout(int mn, int k, int element_bytes, Swizzle swizzle, bool mn_major,
                       bool compact);

// Bytes that no element covers are 0xFF: NaN in every floating type.
Bytes smem_image(const Operand& operand, const SmemLayout& layout);

// A as registers: [step][register][thread].
Bytes a_fragments(const Operand& a);

// Row and column of register i of a thread's accumulator.
struct Place {
  int row, column;
};
Place accumulator_place(int thread, int i);

// XOR pattern of a swizzle on byte addresses.
uint32_t swizzled(uint32_t address, Swizzle swizzle);

}  // namespace fa3::selftest
