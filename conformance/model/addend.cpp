// SPDX-License-Identifier: BSD-3-Clause
// addend.cpp — random elements by type, and their sums by the definitions of their formats.
#include "conformance/model/addend.h"

#include <bit>

#include "conformance/model/numbers.h"

namespace fa3::selftest {
namespace {

uint64_t random_addend(TmaType type, Random& random) {
  const double value = (2 * random.unit() - 1) * (random.integer(0, 1) == 0 ? 1 : 64);
  switch (type) {
    case TmaType::kF16:
      return encode(kF16, value);
    case TmaType::kBf16:
      return encode(kBf16, value);
    case TmaType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    default:
      return random.bits();
  }
}

}  // namespace

Bytes random_addends(TmaType type, size_t bytes, Random& random) {
  const size_t es = static_cast<size_t>(size_of(type));
  Bytes elements(bytes);
  for (size_t i = 0; i < bytes; i += es) {
    const uint64_t element = random_addend(type, random);
    std::memcpy(elements.data() + i, &element, es);
  }
  return elements;
}

uint64_t sum_of(TmaType type, uint64_t a, uint64_t b) {
  const auto narrow = [&](const Format& format) {
    return encode(format, decode(format, static_cast<uint32_t>(a)) +
                              decode(format, static_cast<uint32_t>(b)));
  };
  switch (type) {
    case TmaType::kF16:
      return narrow(kF16);
    case TmaType::kBf16:
      return narrow(kBf16);
    case TmaType::kF32:
      return std::bit_cast<uint32_t>(std::bit_cast<float>(static_cast<uint32_t>(a)) +
                                     std::bit_cast<float>(static_cast<uint32_t>(b)));
    default:
      return a + b;
  }
}

}  // namespace fa3::selftest
