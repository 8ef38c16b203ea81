// SPDX-License-Identifier: BSD-3-Clause
// tma.cpp — tensor copies: boxes with swizzles and parts outside the tensor, in pieces.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "device/hopper/swizzle.h"
#include "sim/copy.h"
#include "sim/numbers.h"
#include "sim/tensor_map.h"

namespace fa3::sim {
namespace {

// A box of a tensor: a map, where it starts, and its rows, each box[0] elements wide.
struct Box {
  SimTensorMap map;
  i32 start[5] = {};
  u32 count[5] = {1, 1, 1, 1, 1};  // elements per dimension after element strides
  u32 rows = 1;
  u32 row_bytes = 0;
  u32 pitch = 0;  // of rows in shared memory: at least the swizzle's width, whatever the box's

  u64 bytes() const { return u64{rows} * row_bytes; }  // that the copy counts
  u64 extent() const { return u64{rows - 1} * pitch + row_bytes; }

  // Row r in global memory: where it would start, and which bytes [from, to) of it are inside.
  struct Row {
    u64 address;
    u32 from, to;
  };
  Row row(u32 r) const {
    const u32 size = static_cast<u32>(fa3::size_of(map.type));
    u64 at = map.base + static_cast<u64>(i64{start[0]} * size);  // wraps at 2^64, as on a GPU
    bool inside = true;
    for (u32 d = 1; d < map.rank; d++) {
      const i64 c = i64{start[d]} + i64{r % count[d]} * map.element_stride[d];
      r /= count[d];
      inside = inside && c >= 0 && c <= map.last[d];
      at += static_cast<u64>(c) * map.stride_bytes[d];
    }
    const i64 first = std::clamp<i64>(-i64{start[0]}, 0, count[0]);
    const i64 last = std::clamp<i64>(i64{map.last[0]} + 1 - start[0], first, count[0]);
    if (!inside) return {0, 0, 0};
    return {at, static_cast<u32>(first) * size, static_cast<u32>(last) * size};
  }
};

Box make_box(Thread& thread, const char* op, const TensorMap& bits, const i32* coordinate, u32 rank,
             Where where) {
  Box box;
  std::memcpy(&box.map, &bits, sizeof box.map);
  if (box.map.magic != SimTensorMap::kMagic)
    fail(*thread.cta, Rule::kTma, "",
         fmt::format("{} with a tensor map that the simulator did not encode", op),
         "a map from GpuRuntime::encode(), passed inside the kernel's argument struct",
         {access_of(thread, op, where)});
  if (box.map.rank != rank)
    fail(*thread.cta, Rule::kTma, "",
         fmt::format("{} with {} coordinates on a map of rank {}", op, rank, box.map.rank),
         "as many coordinates as the tensor has dimensions", {access_of(thread, op, where)});
  const i64 start_bytes = i64{coordinate[0]} * fa3::size_of(box.map.type);
  if (start_bytes % 16 != 0)
    fail(*thread.cta, Rule::kTma, "",
         fmt::format("{} starts at coordinate {} of dimension 0, {} bytes from the tensor's start",
                     op, coordinate[0], start_bytes),
         "a multiple of 16 bytes in dimension 0: an H200 stops with an illegal instruction at "
         "others",
         {access_of(thread, op, where)});
  for (u32 d = 0; d < rank; d++) {
    box.start[d] = coordinate[d];
    const u32 step = box.map.element_stride[d];
    box.count[d] = (box.map.box[d] + step - 1) / step;
    if (d > 0) box.rows *= box.count[d];
  }
  box.row_bytes = box.count[0] * static_cast<u32>(fa3::size_of(box.map.type));
  box.pitch = std::max(box.row_bytes, static_cast<u32>(box.map.swizzle));
  return box;
}

// Shared memory must start where the swizzle pattern does. The pattern follows addresses: boxes of
// fewer rows may be parts of a tile that starts there, if these follow one another.
u32 alignment_of(const Box& box) {
  const u32 part = box.pitch * (box.rows & (0 - box.rows));
  return std::max(128u, std::min(part, swizzle_period(box.map.swizzle)));
}

// The value of elements outside the tensor: zero, or a NaN of the type.
void fill(u8* row, const Box& box) {
  if (!box.map.nan_fill) {
    std::memset(row, 0, box.row_bytes);
    return;
  }
  const u32 nan = box.map.type == TmaType::kF32 ? 0x7FFFFFFF : 0x7FFF7FFF;  // two of 16 bits
  for (u32 i = 0; i < box.row_bytes; i += 4) std::memcpy(row + i, &nan, 4);
}

void load_rows(const Copy& copy, const Box& box, Cta& cta, u32 to, u32 first, u32 last) {
  GlobalMemory& memory = cta.cluster.worker->grid.device.memory;
  u8 line[2048];
  cta.shadow.fresh_view();
  const Accessor writer = copy.writer();
  for (u32 r = first; r < last; r++) {
    const Box::Row row = box.row(r);
    if (row.from > 0 || row.to < box.row_bytes) fill(line, box);
    if (row.from < row.to) {
      const void* from = reinterpret_cast<const void*>(row.address + row.from);
      memory.read(copy.global(false, false), from, row.to - row.from);
      std::memcpy(line + row.from, from, row.to - row.from);
    }
    for (u32 i = 0; i < box.row_bytes; i += 16) {
      const u32 place = swizzled(to + r * box.pitch + i, box.map.swizzle) - kSmemWindow;
      cta.shadow.write(writer, place, 16);
      cta.shadow.set_format(place, box.map.swizzle);
      std::memcpy(cta.smem.get() + place, line + i, 16);
    }
  }
}

twin::ScalarType scalar_of(TmaType type) {
  switch (type) {
    case TmaType::kF16:
      return twin::ScalarType::kF16;
    case TmaType::kBf16:
      return twin::ScalarType::kBf16;
    case TmaType::kF32:
      return twin::ScalarType::kF32;
    case TmaType::kI32:
      return twin::ScalarType::kI32;
    case TmaType::kU64:
      return twin::ScalarType::kU64;
    default:
      return twin::ScalarType::kU32;
  }
}

void read_tile(Copy& copy, const Box& box, u32 from) {
  Cta& cta = *copy.cta;
  cta.shadow.fresh_view();
  copy.data.resize(box.bytes());
  const Accessor reader = copy.reader();
  for (u32 r = 0; r < box.rows; r++)
    for (u32 i = 0; i < box.row_bytes; i += 16) {
      const u32 place = swizzled(from + r * box.pitch + i, box.map.swizzle) - kSmemWindow;
      cta.shadow.read(reader, place, 16);
      std::memcpy(&copy.data[r * box.row_bytes + i], cta.smem.get() + place, 16);
    }
}

void write_tile(Copy& copy, const Box& box, bool reduce) {
  GlobalMemory& memory = copy.cta->cluster.worker->grid.device.memory;
  for (u32 r = 0; r < box.rows; r++) {
    const Box::Row row = box.row(r);
    if (row.from >= row.to) continue;
    void* to = reinterpret_cast<void*>(row.address + row.from);
    memory.write(copy.global(true, reduce), to, row.to - row.from);
    const u8* from = &copy.data[u64{r} * box.row_bytes + row.from];
    if (reduce)
      reduce_add(static_cast<u8*>(to), from, row.to - row.from, scalar_of(box.map.type));
    else
      std::memcpy(to, from, row.to - row.from);
  }
}

}  // namespace
}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

void prefetch_tensor_map(const TensorMap&, Where where) { enter("prefetch_tensor_map", where); }

void tma_prefetch(const TensorMap& map, const i32* coordinate, u32 rank, Where where) {
  make_box(enter("tma_prefetch", where), "tma_prefetch", map, coordinate, rank, where);
}

void tma_load(u32 to, const TensorMap& map, u32 bar, const i32* coordinate, u32 rank, u16 multicast,
              Where where) {
  const char* op = multicast != 0 ? "tma_load_multicast" : "tma_load";
  Thread& thread = enter(op, where);
  const Box box = make_box(thread, op, map, coordinate, rank, where);
  const auto copy = Copy::issue(thread, op, where);
  Cluster& cluster = thread.cta->cluster;
  Worker& worker = *cluster.worker;
  if (multicast >> cluster.ctas.size() != 0)
    fail(*thread.cta, Rule::kCluster, "",
         fmt::format("{} to CTAs {:#x} of a cluster of {}", op, multicast, cluster.ctas.size()),
         "a mask of CTAs that exist", {access_of(thread, op, where)});
  constexpr u32 kWindowMask = (1u << kRankShift) - 1;
  for (u32 rank_to = 0; rank_to < cluster.ctas.size(); rank_to++) {
    u32 place = to, barrier = bar;
    if (multicast == 0) {
      if (rank_to != 0) break;
    } else {
      if (!(multicast >> rank_to & 1)) continue;
      place = (to & kWindowMask) | (rank_to + 1) << kRankShift;
      barrier = (bar & kWindowMask) | (rank_to + 1) << kRankShift;
    }
    Cta& cta = cta_of(thread, place, op, where);
    if (&cta_of(thread, barrier, op, where) != &cta)
      fail(cta, Rule::kTma, "", fmt::format("{} completes on an mbarrier of another CTA", op),
           "the mbarrier of the CTA that receives the data", {access_of(thread, op, where)});
    check_smem_range(cta, thread, op, place, box.extent(), alignment_of(box), where);
    Mbarrier& mbar = find_mbarrier(cta, thread, op, barrier, true, where);
    // The box may land in pieces, in any order.
    const u32 pieces = std::min(box.rows, 1u << worker.random.below(3));
    const auto to_land = std::make_shared<u32>(pieces);
    for (u32 p = 0; p < pieces; p++) {
      const u32 first = box.rows * p / pieces, last = box.rows * (p + 1) / pieces;
      const u32 bytes = (last - first) * box.row_bytes;
      const auto land = [=, &cta, &mbar] {
        load_rows(*copy, box, cta, place, first, last);
        if (--*to_land == 0) copy->log(cta, place - kSmemWindow);
        complete_tx(cta, mbar, bytes, copy->writer().epoch, op, where);
      };
      worker.later(cluster, land, kCopyLatency + copy_clocks(cta, bytes));
    }
  }
}

void tma_store(const TensorMap& map, u32 from, const i32* coordinate, u32 rank, bool reduce_add,
               Where where) {
  const char* op = reduce_add ? "tma_reduce_add" : "tma_store";
  Thread& thread = enter(op, where);
  const Box box = make_box(thread, op, map, coordinate, rank, where);
  for (u32 d = 0; d < rank; d++)
    if (coordinate[d] < 0)
      fail(*thread.cta, Rule::kTma, "",
           fmt::format("{} with coordinate {} = {}", op, d, coordinate[d]),
           "coordinates of at least 0: only loads may start outside the tensor",
           {access_of(thread, op, where)});
  check_smem_range(*thread.cta, thread, op, from, box.extent(), alignment_of(box), where);
  if (reduce_add) check_atomics_allowed(thread, op, where);
  const auto copy = Copy::issue(thread, op, where);
  copy->join_group();
  Cluster& cluster = thread.cta->cluster;
  const auto read = [=, &cluster] {
    read_tile(*copy, box, from);
    copy->read_done();
    cluster.worker->later(cluster, [=] {
      write_tile(*copy, box, reduce_add);
      copy->log(*copy->cta, from - kSmemWindow);
      copy->write_done();
    });
  };
  cluster.worker->later(cluster, read, copy_clocks(*thread.cta, box.bytes()));
}

}  // namespace fa3::twin
