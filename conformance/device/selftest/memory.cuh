// SPDX-License-Identifier: BSD-3-Clause
// memory.cuh — conformance of copies without tensor maps and of atomics: bulk copies and
// reductions, cp.async, atom, red.
#pragma once

#include "device/ptx/async_copy.h"
#include "device/ptx/atomic.h"
#include "device/ptx/barrier.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/mbarrier.h"
#include "device/ptx/memory.h"
#include "device/ptx/reduce.h"
#include "device/ptx/thread.h"

namespace fa3::selftest {

// ---- Bulk copies --------------------------------------------------------------------------------

enum class BulkOp : u32 { kStore, kAddF32, kAddF16, kAddBf16, kAddS32, kAddU32 };
inline constexpr u32 kBulkMaxBytes = 4096;

struct BulkArgs {
  const u8* from;
  u8* to;
  u32 bytes;
  BulkOp op;
};

struct BulkSmem {
  alignas(128) u8 data[kBulkMaxBytes];
  alignas(8) u64 bar;
  FA3_NAMED(data, bar)
};

// Global → shared → global, stored or added there.
FA3_KERNEL(32)
void bulk(FA3_GRID_CONSTANT const BulkArgs args) {
  auto& smem = ptx::smem_as<BulkSmem>();
  if (ptx::thread_index() != 0) return;
  const u32 bar = ptx::smem_address(&smem.bar), data = ptx::smem_address(smem.data);
  ptx::mbar_init(bar, 1);
  ptx::fence_mbar_init();
  ptx::mbar_arrive_expect_tx(bar, args.bytes);
  ptx::bulk_load(data, args.from, args.bytes, bar);
  ptx::mbar_wait(bar, 0);
  switch (args.op) {
    case BulkOp::kStore:
      ptx::bulk_store(args.to, data, args.bytes);
      break;
    case BulkOp::kAddF32:
      ptx::bulk_reduce_add_f32(reinterpret_cast<float*>(args.to), data, args.bytes);
      break;
    case BulkOp::kAddF16:
      ptx::bulk_reduce_add_f16(args.to, data, args.bytes);
      break;
    case BulkOp::kAddBf16:
      ptx::bulk_reduce_add_bf16(args.to, data, args.bytes);
      break;
    case BulkOp::kAddS32:
      ptx::bulk_reduce_add_s32(reinterpret_cast<i32*>(args.to), data, args.bytes);
      break;
    case BulkOp::kAddU32:
      ptx::bulk_reduce_add_u32(reinterpret_cast<u32*>(args.to), data, args.bytes);
      break;
  }
  ptx::bulk_commit();
  ptx::bulk_wait<0>();
}

// ---- cp.async -----------------------------------------------------------------------------------

// How a lane learns that copies are complete.
enum class CpAsyncWait : u32 { kGroup, kAll, kBarrier, kBarrierNoinc, kCount };
inline constexpr u32 kCpAsyncRounds = static_cast<u32>(CpAsyncWait::kCount);

struct CpAsyncArgs {
  const u8* from;           // [round][lane][16]
  const u32* source_bytes;  // [round][lane], 0…16; the rest arrives as zeros
  u8* to;                   // [round][lane][16]: what the lane's neighbour copied
};

struct CpAsyncSmem {
  alignas(16) u8 data[kCpAsyncRounds][32][16];
  alignas(8) u64 bar[kCpAsyncRounds];
  FA3_NAMED(data, bar)
};

FA3_KERNEL(32)
void cp_async(FA3_GRID_CONSTANT const CpAsyncArgs args) {
  using Row = ptx::Vec<u32, 4>;
  auto& smem = ptx::smem_as<CpAsyncSmem>();
  const u32 lane = ptx::thread_index();
  if (lane == 0) {
    for (u32 r = 0; r < kCpAsyncRounds; ++r) ptx::mbar_init(ptx::smem_address(&smem.bar[r]), 32);
    ptx::fence_mbar_init();
  }
  ptx::warp_sync();
  for (u32 r = 0; r < kCpAsyncRounds; ++r) {
    const u32 bar = ptx::smem_address(&smem.bar[r]), at = 32 * r + lane;
    ptx::cp_async_16(ptx::smem_address(smem.data[r][lane]), args.from + 16 * at,
                     ptx::ld_global(args.source_bytes + at));
    switch (static_cast<CpAsyncWait>(r)) {
      case CpAsyncWait::kGroup:
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        ptx::warp_sync();
        break;
      case CpAsyncWait::kAll:
        ptx::cp_async_wait_all();
        ptx::warp_sync();
        break;
      case CpAsyncWait::kBarrier:
        ptx::cp_async_mbar_arrive(bar);
        ptx::mbar_arrive(bar);
        ptx::mbar_wait(bar, 0);
        break;
      default:
        ptx::cp_async_mbar_arrive_noinc(bar);
        ptx::mbar_wait(bar, 0);
        break;
    }
    const Row row = ptx::ld_shared(reinterpret_cast<const Row*>(smem.data[r][lane ^ 1]));
    ptx::st_global(reinterpret_cast<Row*>(args.to + 16 * at), row);
  }
}

// ---- Atomics ------------------------------------------------------------------------------------

// Each lane has a word of its own in each row, so that old and new value are known.
enum class AtomicRow : u32 {
  kAddU32,
  kAddI32,
  kAddAcqRel,
  kMaxU32,
  kMaxI32,
  kMinU32,
  kMinI32,
  kExchange,
  kExchangeAcqRel,
  kCas,        // expects an even word's own value and, of an odd one, another
  kCasAcqRel,  // the same
  kAddF32,
  kRedRelease,  // red: no old value
  kRedOr,
  kRedF32,
  kRedV4F32,  // every fourth lane, for four
  kSharedAddU32,
  kSharedAddF32,
  kSharedMaxU32,
  kSharedMaxI32,
  kCount,
};
inline constexpr u32 kAtomicRows = static_cast<u32>(AtomicRow::kCount);
inline constexpr u32 kAtomicCtas = 3;

struct AtomicArgs {
  u32* word;           // [row][32]; only CTA 0 works on it
  const u32* operand;  // [row][32]
  u32* old;            // [row][32]
  u32* u32_sum;        // what all CTAs add to: 1 per lane
  float* f32_sum;      // the lane's number, and in [4…7] four times by vectors
  u64* u64_sum;        // 2^31 per lane
};

struct AtomicSmem {
  u32 word[32];
  FA3_NAMED(word)
};

FA3_DEV void atomic_shared(AtomicSmem& smem, const AtomicArgs& args, AtomicRow row) {
  const u32 lane = ptx::thread_index(), at = 32 * static_cast<u32>(row) + lane;
  const u32 operand = ptx::ld_global(args.operand + at);
  u32* word = smem.word + lane;
  ptx::st_shared(word, ptx::ld_global(args.word + at));
  u32 old = 0;
  if (row == AtomicRow::kSharedAddU32) old = ptx::atom_shared_add_u32(word, operand);
  if (row == AtomicRow::kSharedMaxU32) old = ptx::atom_shared_max_u32(word, operand);
  if (row == AtomicRow::kSharedMaxI32) {
    const i32 got =
        ptx::atom_shared_max_i32(reinterpret_cast<i32*>(word), static_cast<i32>(operand));
    old = static_cast<u32>(got);
  }
  if (row == AtomicRow::kSharedAddF32) {
    const float got =
        ptx::atom_shared_add_f32(reinterpret_cast<float*>(word), ptx::bits_as<float>(operand));
    old = ptx::bits_as<u32>(got);
  }
  ptx::st_global(args.old + at, old);
  ptx::st_global(args.word + at, ptx::ld_shared(word));
}

FA3_DEV void atomic_global(const AtomicArgs& args) {
  const u32 lane = ptx::thread_index();
  const auto word = [&](AtomicRow row) { return args.word + 32 * static_cast<u32>(row) + lane; };
  const auto word_i32 = [&](AtomicRow row) { return reinterpret_cast<i32*>(word(row)); };
  const auto word_f32 = [&](AtomicRow row) { return reinterpret_cast<float*>(word(row)); };
  const auto operand = [&](AtomicRow row) {
    return ptx::ld_global(args.operand + 32 * static_cast<u32>(row) + lane);
  };
  const auto operand_i32 = [&](AtomicRow row) { return static_cast<i32>(operand(row)); };
  const auto operand_f32 = [&](AtomicRow row) { return ptx::bits_as<float>(operand(row)); };
  const auto write = [&](AtomicRow row, u32 old) {
    ptx::st_global(args.old + 32 * static_cast<u32>(row) + lane, old);
  };
  using R = AtomicRow;
  write(R::kAddU32, ptx::atom_add_u32(word(R::kAddU32), operand(R::kAddU32)));
  write(R::kAddI32,
        static_cast<u32>(ptx::atom_add_i32(word_i32(R::kAddI32), operand_i32(R::kAddI32))));
  write(R::kAddAcqRel, ptx::atom_add_acq_rel_u32(word(R::kAddAcqRel), operand(R::kAddAcqRel)));
  write(R::kMaxU32, ptx::atom_max_u32(word(R::kMaxU32), operand(R::kMaxU32)));
  write(R::kMaxI32,
        static_cast<u32>(ptx::atom_max_i32(word_i32(R::kMaxI32), operand_i32(R::kMaxI32))));
  write(R::kMinU32, ptx::atom_min_u32(word(R::kMinU32), operand(R::kMinU32)));
  write(R::kMinI32,
        static_cast<u32>(ptx::atom_min_i32(word_i32(R::kMinI32), operand_i32(R::kMinI32))));
  write(R::kExchange, ptx::atom_exch_u32(word(R::kExchange), operand(R::kExchange)));
  write(R::kExchangeAcqRel,
        ptx::atom_exch_acq_rel_u32(word(R::kExchangeAcqRel), operand(R::kExchangeAcqRel)));
  const u32 cas = ptx::ld_global(word(R::kCas)) ^ (lane & 1);
  write(R::kCas, ptx::atom_cas_u32(word(R::kCas), cas, operand(R::kCas)));
  const u32 cas_acq_rel = ptx::ld_global(word(R::kCasAcqRel)) ^ (lane & 1);
  write(R::kCasAcqRel,
        ptx::atom_cas_acq_rel_u32(word(R::kCasAcqRel), cas_acq_rel, operand(R::kCasAcqRel)));
  write(R::kAddF32,
        ptx::bits_as<u32>(ptx::atom_add_f32(word_f32(R::kAddF32), operand_f32(R::kAddF32))));
  ptx::red_add_release_u32(word(R::kRedRelease), operand(R::kRedRelease));
  ptx::red_or_b32(word(R::kRedOr), operand(R::kRedOr));
  ptx::red_add_f32(word_f32(R::kRedF32), operand_f32(R::kRedF32));
  const auto operands = [&](AtomicRow row, u32 i) {
    return ptx::bits_as<float>(
        ptx::ld_global(args.operand + 32 * static_cast<u32>(row) + lane + i));
  };
  if (lane % 4 == 0) {
    ptx::red_add_v4_f32(word_f32(R::kRedV4F32),
                        {operands(R::kRedV4F32, 0), operands(R::kRedV4F32, 1),
                         operands(R::kRedV4F32, 2), operands(R::kRedV4F32, 3)});
  }
}

FA3_KERNEL(32)
void atomics(FA3_GRID_CONSTANT const AtomicArgs args) {
  auto& smem = ptx::smem_as<AtomicSmem>();
  if (ptx::block_index_x() == 0) {
    atomic_global(args);
    for (u32 row = static_cast<u32>(AtomicRow::kSharedAddU32); row < kAtomicRows; ++row) {
      atomic_shared(smem, args, static_cast<AtomicRow>(row));
    }
  }
  const float number = static_cast<float>(ptx::thread_index());
  ptx::atom_add_u32(args.u32_sum, 1);
  ptx::red_add_f32(args.f32_sum, number);
  ptx::red_add_v4_f32(args.f32_sum + 4, {number, number, number, number});
  ptx::atom_add_u64(args.u64_sum, u64{1} << 31);
}

}  // namespace fa3::selftest
