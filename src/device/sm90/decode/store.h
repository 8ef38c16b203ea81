// SPDX-License-Identifier: BSD-3-Clause
// store.h — where a packed row's O and LSE lie, and how they are stored.
#pragma once

#include "device/hopper/operand.h"
#include "device/ptx/memory.h"
#include "device/sm90/decode/args.h"
#include "device/sm90/decode/unit.h"

namespace fa3::sm90 {

struct RowPlace {
  i64 o, lse;  // elements from the tensors' first
};

FA3_DEV RowPlace place_of(const DecodeOutput& out, const DecodeShape& shape, const DecodeUnit& unit,
                          const PackedRow& packed) {
  const i64 row = first_row(shape.q_axis, unit.q) + packed.query;
  return {unit.batch * out.o_batch + row * out.o_row + packed.head * out.o_head,
          unit.batch * out.lse_batch + row * out.lse_row + packed.head * out.lse_head};
}

// The sink of a row of the unit; rows beyond those that count have none.
FA3_DEV float sink_of(const DecodeOutput& out, const DecodeUnit& unit, const PackedRow& packed) {
  return packed.query < unit.q.used ? out.sinks.of_head(packed.head) : -kInf;
}

using Four = ptx::Vec<float, 4>;

// Four columns of a row; at: elements from the tensor's first.
template <MmaType kType, bool kF32>
FA3_DEV void store_four(const DecodeOutput& out, i64 at, const Four& x) {
  if constexpr (kF32) {
    ptx::st_global(reinterpret_cast<Four*>(static_cast<float*>(out.o) + at), x);
  } else {
    const ptx::Vec<u32, 2> packed{{pack16<kType>(x[0], x[1]), pack16<kType>(x[2], x[3])}};
    ptx::st_global(reinterpret_cast<ptx::Vec<u32, 2>*>(static_cast<u16*>(out.o) + at), packed);
  }
}

FA3_DEV void store_lse(const DecodeOutput& out, const RowPlace& to, float lse) {
  if (out.lse != nullptr) ptx::st_global(out.lse + to.lse, lse);
}

}  // namespace fa3::sm90
