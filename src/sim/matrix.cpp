// SPDX-License-Identifier: BSD-3-Clause
// matrix.cpp — ldmatrix and stmatrix: 8×8 tiles of 16-bit elements between rows in shared memory
// and the lanes of a warp.
#include <fmt/core.h>

#include <cstring>

#include "sim/collective.h"

namespace fa3::sim {
namespace {

struct Operand {
  Thread* thread;
  char* row;
  u32* registers;
};

// The 16-byte row that lane gives, checked; a lane beyond 8·matrices gives none.
u32 row_offset(const Operand& by, const char* op, Where where) {
  Thread& thread = *by.thread;
  Cta& cta = *thread.cta;
  const std::ptrdiff_t offset = by.row - cta.smem.get();
  if (offset < 0 || offset + 16 > static_cast<std::ptrdiff_t>(cta.smem_bytes))
    fail(cta, Rule::kOutOfBounds, "",
         fmt::format("{}: the row of lane {} lies outside of shared memory", op, thread.lane),
         "a row of 16 bytes in the CTA's shared memory", {access_of(thread, op, where)});
  if (offset % 16 != 0)
    fail(cta, Rule::kAlignment, cta.name(static_cast<u32>(offset)),
         fmt::format("{}: the row of lane {} is {} past a multiple of 16", op, thread.lane,
                     offset % 16),
         "rows at multiples of 16 bytes", {access_of(thread, op, where)});
  return static_cast<u32>(offset);
}

// Extra cycles of the eight rows of a matrix: rows whose 16 bytes share banks.
u32 bank_conflicts(const u32* offsets) {
  u32 used[8] = {}, worst = 1;
  for (u32 r = 0; r < 8; r++) worst = std::max(worst, ++used[offsets[r] / 16 % 8]);
  return worst - 1;
}

void move(Thread& thread, const char* op, char* row, u32* registers, u32 matrices, bool transposed,
          bool store, Where where) {
  Operand mine{&thread, row, registers};
  gather(
      thread, {op, where, ~0u, true, matrices * 2u + transposed}, &mine,
      [&](void* const* operands) {
        const auto lane_of = [&](u32 lane) { return static_cast<Operand*>(operands[lane]); };
        for (u32 m = 0; m < matrices; m++) {
          u32 offsets[8];
          for (u32 r = 0; r < 8; r++) {
            const Operand& giver = *lane_of(8 * m + r);
            offsets[r] = row_offset(giver, op, where);
            const Accessor by{giver.thread->clock, giver.thread->epoch(), intern(op, where), false};
            if (store)
              thread.cta->shadow.write(by, offsets[r], 16);
            else
              thread.cta->shadow.read(by, offsets[r], 16);
          }
          thread.cta->cluster.worker->stats.bank_conflicts += bank_conflicts(offsets);
          for (u32 lane = 0; lane < kWarp; lane++) {
            for (u32 half = 0; half < 2; half++) {
              const u32 r = transposed ? lane % 4 * 2 + half : lane / 4;
              const u32 c = transposed ? lane / 4 : lane % 4 * 2 + half;
              char* element = lane_of(8 * m + r)->row + 2 * c;
              char* part = reinterpret_cast<char*>(&lane_of(lane)->registers[m]) + 2 * half;
              if (store)
                std::memcpy(element, part, 2);
              else
                std::memcpy(part, element, 2);
            }
          }
        }
      });
}

}  // namespace
}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

void ldmatrix(u32* registers, const void* row, u32 matrices, bool transposed, Where where) {
  Thread& thread = enter("ldmatrix", where);
  move(thread, "ldmatrix", static_cast<char*>(const_cast<void*>(row)), registers, matrices,
       transposed, false, where);
}

void stmatrix(void* row, const u32* registers, u32 matrices, bool transposed, Where where) {
  Thread& thread = enter("stmatrix", where);
  move(thread, "stmatrix", static_cast<char*>(row), const_cast<u32*>(registers), matrices,
       transposed, true, where);
}

}  // namespace fa3::twin
