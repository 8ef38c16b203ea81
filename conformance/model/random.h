// SPDX-License-Identifier: BSD-3-Clause
// random.h — reproducible random numbers for inputs: the same seed, the same case, on any host.
#pragma once

#include <cstdint>
#include <string_view>

namespace fa3::selftest {

// SplitMix64: a counter whose bits are mixed well.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // The stream of one case under a seed.
  Random(uint64_t seed, std::string_view name) : state_(seed) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }

  uint64_t bits() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }
  uint32_t word() { return static_cast<uint32_t>(bits() >> 32); }
  // Uniform in [low, high].
  int integer(int low, int high) {
    const auto span = static_cast<uint64_t>(static_cast<int64_t>(high) - low + 1);
    return static_cast<int>(low + static_cast<int64_t>(bits() % span));
  }
  // Uniform in [0, 1), 53 bits.
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace fa3::selftest
