// SPDX-License-Identifier: BSD-3-Clause
// arguments.cpp — from a problem and its addresses to what device code takes.
#include "backend/launch/arguments.h"

#include "plan/sm90/float_types.h"

namespace fa3 {

RowAxis lengths_of(const Problem& p, TensorId id, const Buffers& buffers) {
  const Axis axis = kTensors[id].axis;
  return {.cu_seqlens = buffers.in<i32>(cu_seqlens_of(axis)),
          .seqused = buffers.in<i32>(seqused_of(axis)),
          .rows = static_cast<i32>(p.axis_of(id).rows),
          .batch_rows = 0};
}

ElementArgs element_args_of(const Problem& p, const Buffers& buffers, float slope_factor) {
  return {.alibi_slopes = buffers.in<float>(kAlibiSlopes),
          .slope_batch = p.layout[kAlibiSlopes].batch,
          .slope_factor = slope_factor,
          .ids_q = buffers.in<i32>(kSequenceIdsQ),
          .ids_kv = buffers.in<i32>(kSequenceIdsKv),
          .id_q_batch = p.layout[kSequenceIdsQ].batch,
          .id_kv_batch = p.layout[kSequenceIdsKv].batch};
}

sm90::SinkArgs sink_args_of(const Problem& p, const Buffers& buffers) {
  return {buffers.in<void>(kSinks), sm90::float_type_of(p.layout[kSinks].dtype)};
}

sm90::MaxLogitArgs max_logit_args_of(const Problem& p, const Buffers& buffers) {
  return {buffers.out<float>(kMaxLogit), p.layout[kMaxLogit].head};
}

}  // namespace fa3
