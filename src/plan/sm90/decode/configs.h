// SPDX-License-Identifier: BSD-3-Clause
// configs.h — the decode kernels that the simulator has: those of few head dims, packed rows and
// score functions, with lengths, which compute dense problems, too.
#pragma once

#include "device/sm90/decode/config.h"

namespace fa3::sm90 {

// The configuration of a head dim, with as many stages as shared memory holds.
constexpr DecodeConfig decode_of(int head_dim, int rows, ScoreKind score = ScoreKind::kPlain) {
  DecodeConfig c;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.rows = rows;
  c.score = score;
  c.ragged = true;
  return with_stages(with_tile(c));
}
constexpr DecodeConfig with_alibi(DecodeConfig c) {
  c.alibi = true;
  return c;
}
constexpr DecodeConfig with_f32(DecodeConfig c) {
  c.o_f32 = true;
  return c;
}
constexpr DecodeConfig with_f16(DecodeConfig c) {
  c.dtype = MmaType::kF16;
  return c;
}

inline constexpr DecodeConfig kDecodeAhead[] = {
    decode_of(64, 16),
    decode_of(64, 16, ScoreKind::kSoftcap),
    with_alibi(decode_of(64, 16, ScoreKind::kScaled)),
    with_f32(decode_of(64, 16)),
    decode_of(64, 64),
    with_f16(decode_of(128, 8)),
    decode_of(128, 8),
    decode_of(128, 32),
    decode_of(256, 16),
};

}  // namespace fa3::sm90
