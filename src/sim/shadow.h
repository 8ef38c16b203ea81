// SPDX-License-Identifier: BSD-3-Clause
// shadow.h — what the simulator knows of each 16 bytes of a CTA's shared memory: the last accesses,
// by which proxy, and which bytes hold a value. A cell splits when narrower accesses meet.
#pragma once

#include <vector>

#include "device/tensor_map.h"
#include "sim/clock.h"

namespace fa3::sim {

struct Cta;

// The agent that makes an access, and its clock.
struct Accessor {
  const Tick* view;  // its clock: earlier accesses are ordered if they happened before this
  Epoch epoch;       // how the access is remembered
  u16 site;
  bool async;                   // through the async proxy
  const Tick* warps = nullptr;  // where four warps read together: their clocks, one after another
};

class Shadow {
 public:
  static constexpr u32 kGranule = 16;

  explicit Shadow(Cta& cta) : cta_(cta) {}
  void reset(u32 bytes);
  // Call before an access with a view at an address that another view had.
  void fresh_view() { ordered_view_ = nullptr; }

  // Members that the kernel named, and mbarriers among them, may be touched; the rest may not.
  void declare(u32 offset, u32 bytes);
  void set_barrier(u32 offset, bool live);

  // `offset` from the start of shared memory; bytes of one access of one agent, at most 16 and
  // within one granule, or a multiple of 16. Each throws a Violation.
  void read(const Accessor& by, u32 offset, u32 bytes);
  void write(const Accessor& by, u32 offset, u32 bytes);
  // Are all bytes of the range initialised?
  bool initialised(u32 offset, u32 bytes) const;

  // A granule written by TMA remembers the swizzle of its map, for the wgmma that reads it.
  void set_format(u32 offset, Swizzle swizzle) {
    format_[offset / kGranule] = static_cast<u8>(static_cast<u8>(swizzle) + 1);
  }
  // The swizzle + 1 of the copy that wrote it; 0 = written otherwise.
  u8 format(u32 offset) const { return format_[offset / kGranule]; }

  // cp.async: writes that are ordered before nothing until their thread completes them.
  void begin_copy(const Accessor& by, u32 offset, u32 bytes);
  void end_copy(const Accessor& by, u32 offset, u32 bytes);

 private:
  enum Flag : u16 {
    kUndeclared = 1,
    kBarrier = 2,  // an mbarrier lives here
    kSplit = 4,    // parts_[split_[granule]] hold the epochs
    kCrowded = 8,  // more than two readers: crowds_[read[0].agent]
    kGenericWrite = 16,
    kGenericRead0 = 32,
    kGenericRead1 = 64,
    kCopying = 128,  // the target of a cp.async not yet waited for
  };
  static constexpr u16 kSpecial = kUndeclared | kBarrier | kSplit | kCrowded | kCopying;

  struct Cell {
    Epoch write;
    Epoch read[2];
    u16 write_site;
    u16 read_site[2];
    u16 flags;
  };
  static_assert(sizeof(Cell) == 32);
  struct Reader {
    Epoch epoch;
    u16 site;
    bool generic;
  };
  struct Part {
    u32 step = 0;  // bytes per cell: 4 or 1
    std::vector<Cell> cells;
  };

  void read_special(const Accessor& by, u32 offset, u32 bytes);
  void write_special(const Accessor& by, u32 offset, u32 bytes);
  void check_place(const Cell& cell, const Accessor& by, u32 offset) const;
  Cell* first_part(u32 offset, u32 bytes, u32& count);
  void read_cell(Cell& cell, const Accessor& by, u32 offset);
  void write_cell(Cell& cell, const Accessor& by, u32 offset);
  void add_reader(Cell& cell, const Accessor& by);
  void check_write_before(const Cell& cell, const Accessor& by, u32 offset, bool reads);
  void check_reader(const Reader& reader, const Accessor& by, u32 offset);
  bool fenced(Epoch epoch, const Accessor& by) const;
  bool fenced_on_the_way(Epoch epoch, const Tick* view) const;

  [[noreturn]] void fail_order(const Accessor& by, bool writes, Epoch earlier, u16 site,
                               bool earlier_writes, u32 offset, bool copying);
  [[noreturn]] void fail_proxy(const Accessor& by, bool writes, Epoch earlier, u16 site,
                               bool earlier_writes, u32 offset);
  [[noreturn]] void fail_uninitialised(const Accessor& by, u32 offset);

  Cta& cta_;
  u32 granules_ = 0;
  std::vector<Cell> cells_;
  std::vector<u16> valid_;  // one bit per byte that holds a value
  std::vector<u8> format_;
  std::vector<u16> split_;  // of a split cell: its index in parts_
  std::vector<Part> parts_;
  std::vector<u16> free_parts_;
  std::vector<std::vector<Reader>> crowds_;
  std::vector<u32> free_crowds_;
  Epoch ordered_{};  // the last write found in order, and its reader's view: tiles repeat them
  const Tick* ordered_view_ = nullptr;
};

inline void Shadow::read(const Accessor& by, u32 offset, u32 bytes) {
  if (bytes < kGranule) return read_special(by, offset, bytes);
  for (u32 end = offset + bytes; offset < end; offset += kGranule) {
    Cell& cell = cells_[offset / kGranule];
    if (cell.flags & kSpecial) {
      read_special(by, offset, kGranule);
      continue;
    }
    check_write_before(cell, by, offset, true);
    if (valid_[offset / kGranule] != 0xFFFF) fail_uninitialised(by, offset);
    add_reader(cell, by);
  }
}

inline void Shadow::write(const Accessor& by, u32 offset, u32 bytes) {
  if (bytes < kGranule) return write_special(by, offset, bytes);
  for (u32 end = offset + bytes; offset < end; offset += kGranule) {
    Cell& cell = cells_[offset / kGranule];
    if (cell.flags & kSpecial)
      write_special(by, offset, kGranule);
    else
      write_cell(cell, by, offset);
    valid_[offset / kGranule] = 0xFFFF;
    format_[offset / kGranule] = 0;
  }
}

inline void Shadow::check_write_before(const Cell& cell, const Accessor& by, u32 offset,
                                       bool reads) {
  if (!cell.write) return;
  const bool generic = by.async && (cell.flags & kGenericWrite) != 0;
  if (!generic && cell.write == ordered_ && by.view == ordered_view_) return;
  if (!cell.write.before(by.view))
    fail_order(by, !reads, cell.write, cell.write_site, true, offset, false);
  if (generic && !fenced(cell.write, by))
    fail_proxy(by, !reads, cell.write, cell.write_site, true, offset);
}

inline void Shadow::add_reader(Cell& cell, const Accessor& by) {
  for (int i = 0; i < 2; i++) {
    const u16 flag = i == 0 ? kGenericRead0 : kGenericRead1;
    if (cell.read[i] && cell.read[i].agent != by.epoch.agent) continue;
    cell.read[i] = by.epoch;
    cell.read_site[i] = by.site;
    cell.flags = static_cast<u16>(by.async ? cell.flags & ~flag : cell.flags | flag);
    return;
  }
  // A third reader: the three move to a list.
  u32 crowd = static_cast<u32>(crowds_.size());
  if (free_crowds_.empty()) {
    crowds_.emplace_back();
  } else {
    crowd = free_crowds_.back();
    free_crowds_.pop_back();
  }
  crowds_[crowd] = {{cell.read[0], cell.read_site[0], (cell.flags & kGenericRead0) != 0},
                    {cell.read[1], cell.read_site[1], (cell.flags & kGenericRead1) != 0},
                    {by.epoch, by.site, !by.async}};
  cell.read[0] = {crowd, 1};
  cell.read[1] = {};
  cell.flags |= kCrowded;
}

inline void Shadow::write_cell(Cell& cell, const Accessor& by, u32 offset) {
  check_write_before(cell, by, offset, false);
  for (int i = 0; i < 2; i++)
    if (cell.read[i])
      check_reader({cell.read[i], cell.read_site[i],
                    (cell.flags & (i == 0 ? kGenericRead0 : kGenericRead1)) != 0},
                   by, offset);
  cell.write = by.epoch;
  cell.write_site = by.site;
  cell.read[0] = cell.read[1] = {};
  cell.flags = by.async ? 0 : kGenericWrite;
}

}  // namespace fa3::sim
