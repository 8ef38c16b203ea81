// SPDX-License-Identifier: BSD-3-Clause
// cubin_entry.cpp — writes and verifies entries.
#include "backend/cuda/cubin_entry.h"

#define XXH_INLINE_ALL  // headers only: no library to load
#include <xxhash.h>

#include <bit>
#include <cstring>

namespace fa3::cuda {
namespace {

static_assert(std::endian::native == std::endian::little, "entries are written as memory is");

constexpr char kMagic[8] = {'f', 'a', '3', 'c', 'u', 'b', '0', '1'};

struct Header {
  char magic[8];
  Key key;
  uint64_t payload_bytes;
  uint64_t checksum;  // of the fields above and the payload
};
static_assert(sizeof(Header) == 56);

std::string_view checked_part(const Header& header) {
  return {reinterpret_cast<const char*>(&header), offsetof(Header, checksum)};
}

}  // namespace

uint64_t checksum(std::string_view a, std::string_view b) {
  XXH64_state_t state;
  XXH64_reset(&state, 0);
  XXH64_update(&state, a.data(), a.size());
  XXH64_update(&state, b.data(), b.size());
  return XXH64_digest(&state);
}

std::string encode_entry(const Key& key, const Cubin& cubin) {
  std::string payload = cubin.symbol;
  payload += '\0';
  payload += cubin.image;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key = key;
  header.payload_bytes = payload.size();
  header.checksum = checksum(checked_part(header), payload);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload;
}

std::optional<Cubin> decode_entry(const Key& key, std::string_view bytes) {
  Header header{};
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string_view payload = bytes.substr(sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key != key ||
      header.payload_bytes != payload.size() ||
      header.checksum != checksum(checked_part(header), payload)) {
    return std::nullopt;
  }
  const size_t end = payload.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return Cubin{std::string(payload.substr(0, end)), std::string(payload.substr(end + 1))};
}

}  // namespace fa3::cuda
