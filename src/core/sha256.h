// SPDX-License-Identifier: BSD-3-Clause
// sha256.h — SHA-256 (FIPS 180-4), for the names of compiled kernels. docs/adr/0008 says why here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fa3 {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  Sha256& update(std::string_view bytes);
  // A field: its length (8 bytes, little-endian), then its bytes, so that no two lists of fields
  // are the same bytes.
  Sha256& update_field(std::string_view bytes);
  // Of everything so far. The object is used up.
  Digest finish();

 private:
  void block(const uint8_t* bytes);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  size_t pending_size_ = 0;
  uint64_t total_bytes_ = 0;
};

std::string hex(const Sha256::Digest& digest);  // 64 lower-case digits

}  // namespace fa3
