// SPDX-License-Identifier: BSD-3-Clause
// cubin_entry.h — a compiled kernel as self-checking bytes: what the disk cache and bundles hold.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "backend/cuda/nvrtc.h"
#include "core/sha256.h"

namespace fa3::cuda {

// Names a compiled program: a hash of everything that its bits depend on.
using Key = Sha256::Digest;

// Layout: magic (8 bytes), key (32), payload length (8), xxHash64 of all before it and the payload
// (8), payload = symbol, NUL, image. Little-endian.
std::string encode_entry(const Key& key, const Cubin& cubin);

// nullopt unless the bytes are exactly an entry of that key: any flipped bit is detected.
std::optional<Cubin> decode_entry(const Key& key, std::string_view bytes);

uint64_t checksum(std::string_view a, std::string_view b);  // xxHash64 of a then b

}  // namespace fa3::cuda
