// SPDX-License-Identifier: BSD-3-Clause
// fwd_plan_kit.h — problems and devices to plan the Hopper forward for.
#pragma once

#include "core/device.h"
#include "core/problem.h"

namespace fa3::sm90 {

inline DeviceInfo device() {
  DeviceInfo info;
  info.type = FA3_DEVICE_CUDA;
  info.backend = FA3_BACKEND_CUDA;
  info.sm = 90;
  info.multiprocessors = 132;
  info.l2_bytes = 50 << 20;
  return info;
}

inline Layout dense(fa3_dtype dtype, int64_t rows, int64_t heads, int64_t columns) {
  return {dtype, rows * heads * columns, heads * columns, columns};
}

// BF16, batch 2, 4 heads over 2, dense, 300 queries and keys.
inline Problem problem(int64_t d_qk = 128, int64_t d_v = 128, int64_t q = 300, int64_t kv = 300) {
  Problem p;
  p.batch = 2;
  p.heads_q = 4;
  p.heads_kv = 2;
  p.head_dim_qk = d_qk;
  p.head_dim_v = d_v;
  p.q.rows = p.q.max_seqlen = q;
  p.kv.rows = p.kv.max_seqlen = kv;
  p.softmax_scale = 0.1;
  p.layout[kQ] = dense(FA3_BF16, q, 4, d_qk);
  p.layout[kK] = dense(FA3_BF16, kv, 2, d_qk);
  p.layout[kV] = dense(FA3_BF16, kv, 2, d_v);
  p.layout[kO] = dense(FA3_BF16, q, 4, d_v);
  p.layout[kLse] = {FA3_F32, 4 * q, 1, q};
  return p;
}

}  // namespace fa3::sm90
