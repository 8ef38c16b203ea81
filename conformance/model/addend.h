// SPDX-License-Identifier: BSD-3-Clause
// addend.h — what reductions add: elements of a type, and the sum of two.
#pragma once

#include <cstdint>

#include "conformance/model/bytes.h"
#include "conformance/model/random.h"
#include "device/tensor_map.h"

namespace fa3::selftest {

// Any integers; floats that differ in size, so that their sums round.
Bytes random_addends(TmaType type, size_t bytes, Random& random);

// Of the codes of two elements, rounded to nearest.
uint64_t sum_of(TmaType type, uint64_t a, uint64_t b);

}  // namespace fa3::selftest
