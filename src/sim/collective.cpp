// SPDX-License-Identifier: BSD-3-Clause
// collective.cpp — warp instructions: rendezvous, shuffles, votes, matrix moves, warp_sync.
#include "sim/collective.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fa3::sim {
namespace {

u32 all_lanes(const Warp& warp) { return warp.lanes == 32 ? ~0u : (1u << warp.lanes) - 1; }

[[noreturn]] void fail_mask(Thread& thread, const Lane& lane) {
  const Warp& warp = *thread.warp;
  const u32 missing = lane.mask & (~all_lanes(warp) | warp.exited);
  const char* why = !(lane.mask >> thread.lane & 1) ? "does not name the lane that executes it"
                    : missing & warp.exited         ? "names lanes that have ended"
                                                    : "names lanes that do not exist";
  fail(*thread.cta, Rule::kDivergence, "",
       fmt::format("{} with mask {:#010x}, which {}", lane.op, lane.mask, why),
       "a mask of the lanes that execute the instruction, all of them alive",
       {access_of(thread, lane.op, lane.where)});
}

[[noreturn]] void fail_divergence(Thread& thread, const Lane& lane, const Collective& pending) {
  fail(*thread.cta, Rule::kDivergence, "",
       fmt::format("lanes of warp {} diverge: some wait in {} at {} (mask {:#010x}), lane {} "
                   "executes {} at {} (mask {:#010x}){}",
                   thread.warp->index, pending.op, text(pending.where), pending.mask, thread.lane,
                   lane.op, text(lane.where), lane.mask,
                   pending.op == lane.op && pending.key != lane.key ? " with other operands" : ""),
       "all lanes of the mask must reach the same instruction together",
       {access_of(thread, lane.op, lane.where),
        {pending.op, fmt::format("warp {}", thread.warp->index), text(pending.where)}});
}

}  // namespace

void gather_lanes(Thread& thread, const Lane& lane, void* operand, Action act) {
  Warp& warp = *thread.warp;
  const u32 bit = 1u << thread.lane;
  if (!(lane.mask & bit) || (lane.mask & (~all_lanes(warp) | warp.exited))) fail_mask(thread, lane);
  // Lanes that wait in another instruction for this one, while it waits for them, never meet.
  size_t index = 0;
  for (; index < warp.pending.size(); index++) {
    const Collective& other = warp.pending[index];
    const bool same = other.op == lane.op && other.mask == lane.mask && other.key == lane.key &&
                      (!lane.aligned || (other.where.line == lane.where.line &&
                                         std::strcmp(other.where.file, lane.where.file) == 0));
    if (same && !(other.arrived & bit)) break;
    if ((other.arrived & lane.mask) != 0 && (other.mask & bit) != 0)
      fail_divergence(thread, lane, other);
  }
  if (index == warp.pending.size()) {
    Collective fresh;
    fresh.op = lane.op;
    fresh.where = lane.where;
    fresh.mask = lane.mask;
    fresh.key = lane.key;
    warp.pending.push_back(fresh);
  }
  Collective& slot = warp.pending[index];
  slot.operands[thread.lane] = operand;
  slot.arrived |= bit;
  Worker& worker = *thread.cta->cluster.worker;
  if (slot.arrived != slot.mask) {
    worker.block(thread, {Waiting::On::kCollective, 0, 0});
    return;
  }
  const Collective done = slot;
  warp.pending.erase(warp.pending.begin() + static_cast<std::ptrdiff_t>(index));
  act.run(act.context, done.operands);
  for (u32 i = 0; i < kWarp; i++)
    if ((done.mask & ~bit) >> i & 1) worker.wake(warp.threads[i]);
}

}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

void warp_sync(u32 mask, Where where) {
  if (omitted("warp_sync", where)) return;
  Thread& thread = enter("warp_sync", where, Yields::kMeeting);
  const u32 width = thread.cta->cluster.width;
  gather(thread, {"warp_sync", where, mask, false}, &thread, [&](void* const* operands) {
    std::vector<Tick> all(width, 0);
    for (u32 i = 0; i < kWarp; i++)
      if (operands[i] != nullptr) {
        const Tick* clock = static_cast<Thread*>(operands[i])->clock;
        for (u32 a = 0; a < width; a++) all[a] = std::max(all[a], clock[a]);
      }
    for (u32 i = 0; i < kWarp; i++)
      if (operands[i] != nullptr) {
        Thread& other = *static_cast<Thread*>(operands[i]);
        const Tick own = other.tick();
        std::memcpy(other.clock, all.data(), width * sizeof(Tick));
        other.tick() = own + 1;
        other.version++;
      }
  });
}

u32 shuffle(u32 value, u32 operand, Shuffle kind, u32 width, u32 mask, Where where) {
  struct Operand {
    u32 value, operand, result;
  } mine{value, operand, value};
  Thread& thread = enter("shuffle", where, Yields::kMeeting);
  if (width == 0 || width > 32 || !std::has_single_bit(width))
    fail(*thread.cta, Rule::kDivergence, "", fmt::format("shuffle with width {}", width),
         "a power of two up to 32", {access_of(thread, "shuffle", where)});
  u32 absent = ~0u;  // lane whose value was asked for and who takes no part
  gather(thread, {"shuffle", where, mask, false, u64{width} * 4 + static_cast<u32>(kind)}, &mine,
         [&](void* const* operands) {
           for (u32 lane = 0; lane < kWarp; lane++) {
             auto* to = static_cast<Operand*>(operands[lane]);
             if (to == nullptr) continue;
             const u32 first = lane / width * width;
             const u32 inside = lane - first;
             u32 from = lane;
             if (kind == Shuffle::kIndex) from = first + to->operand % width;
             // The exchange may leave the segment downwards: the hardware checks its upper end
             // only.
             if (kind == Shuffle::kXor && (lane ^ to->operand) < first + width)
               from = lane ^ to->operand;
             if (kind == Shuffle::kUp && inside >= to->operand) from = lane - to->operand;
             if (kind == Shuffle::kDown && inside + to->operand < width) from = lane + to->operand;
             if (operands[from] == nullptr)
               absent = from;
             else
               to->result = static_cast<Operand*>(operands[from])->value;
           }
         });
  if (absent != ~0u)
    fail(*thread.cta, Rule::kDivergence, "",
         fmt::format("shuffle reads lane {}, which is not in mask {:#010x}", absent, mask),
         "a mask that holds every lane read", {access_of(thread, "shuffle", where)});
  return mine.result;
}

u32 ballot(bool predicate, u32 mask, Where where) {
  struct Operand {
    bool predicate;
    u32 result;
  } mine{predicate, 0};
  Thread& thread = enter("ballot", where, Yields::kMeeting);
  gather(thread, {"ballot", where, mask, false}, &mine, [](void* const* operands) {
    u32 bits = 0;
    for (u32 i = 0; i < kWarp; i++)
      if (operands[i] != nullptr && static_cast<Operand*>(operands[i])->predicate) bits |= 1u << i;
    for (u32 i = 0; i < kWarp; i++)
      if (operands[i] != nullptr) static_cast<Operand*>(operands[i])->result = bits;
  });
  return mine.result;
}

bool elect(u32 mask, Where where) {
  Thread& thread = enter("elect", where, Yields::kMeeting);
  Worker& worker = *thread.cta->cluster.worker;
  gather(thread, {"elect", where, mask, false}, &thread, [](void* const*) {});
  // The same leader for a mask throughout a run; which one is not specified.
  if (worker.grid.device.options.elect_lane_0)
    return thread.lane == static_cast<u32>(std::countr_zero(mask));
  Random random(worker.grid.device.options.seed ^ mask);
  u32 rest = mask;
  for (u32 skip = random.below(static_cast<u32>(std::popcount(mask))); skip > 0; skip--)
    rest &= rest - 1;
  return thread.lane == static_cast<u32>(std::countr_zero(rest));
}

u32 redux(u32 value, Redux op, bool is_signed, u32 mask, Where where) {
  struct Operand {
    u32 value, result;
  } mine{value, 0};
  Thread& thread = enter("redux", where, Yields::kMeeting);
  const u64 key = static_cast<u32>(op) * 2u + is_signed;
  gather(thread, {"redux", where, mask, false, key}, &mine, [&](void* const* operands) {
    bool first = true;
    u32 all = 0;
    for (u32 i = 0; i < kWarp; i++) {
      if (operands[i] == nullptr) continue;
      const u32 one = static_cast<Operand*>(operands[i])->value;
      const bool less = is_signed ? static_cast<i32>(one) < static_cast<i32>(all) : one < all;
      if (first) {
        all = one;
      } else {
        switch (op) {
          case Redux::kAdd:
            all += one;
            break;
          case Redux::kMin:
            all = less ? one : all;
            break;
          case Redux::kMax:
            all = less ? all : one;
            break;
          case Redux::kAnd:
            all &= one;
            break;
          case Redux::kOr:
            all |= one;
            break;
          case Redux::kXor:
            all ^= one;
            break;
        }
      }
      first = false;
    }
    for (u32 i = 0; i < kWarp; i++)
      if (operands[i] != nullptr) static_cast<Operand*>(operands[i])->result = all;
  });
  return mine.result;
}

u32 movmatrix(u32 value, Where where) {
  struct Operand {
    u32 value, result;
  } mine{value, 0};
  Thread& thread = enter("movmatrix", where);
  gather(thread, {"movmatrix", where, ~0u, true}, &mine, [](void* const* operands) {
    const auto half = [&](u32 row, u32 column) {
      const u32 pair = static_cast<Operand*>(operands[row * 4 + column / 2])->value;
      return column % 2 == 0 ? pair & 0xFFFF : pair >> 16;
    };
    for (u32 lane = 0; lane < kWarp; lane++)
      static_cast<Operand*>(operands[lane])->result =
          half(lane % 4 * 2, lane / 4) | half(lane % 4 * 2 + 1, lane / 4) << 16;
  });
  return mine.result;
}

void mma_16x8x16(MmaType type, float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, Where where) {
  struct Operand {
    MmaType type;
    float d[4];
    u32 a[4], b[2];
  } mine{type, {d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  Thread& thread = enter("mma_16x8x16", where);
  gather(thread, {"mma_16x8x16", where, ~0u, true}, &mine, [](void* const* operands) {
    const auto of = [&](u32 lane) -> Operand& { return *static_cast<Operand*>(operands[lane]); };
    const auto half = [](MmaType of_type, u32 pair, u32 high) {
      const u16 bits = static_cast<u16>(high != 0 ? pair >> 16 : pair);
      return of_type == MmaType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    };
    for (u32 lane = 0; lane < kWarp; lane++) {
      Operand& to = of(lane);
      for (u32 i = 0; i < 4; i++) {
        const u32 row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
        for (u32 k = 0; k < 16; k++) {
          const Operand& from_a = of(row % 8 * 4 + k % 8 / 2);
          const Operand& from_b = of(column * 4 + k % 8 / 2);
          to.d[i] += half(to.type, from_a.a[2 * (k / 8) + row / 8], k % 2) *
                     half(to.type, from_b.b[k / 8], k % 2);
        }
      }
    }
  });
  for (int i = 0; i < 4; i++) d[i] = mine.d[i];
}

}  // namespace fa3::twin
