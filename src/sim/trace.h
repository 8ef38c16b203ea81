// SPDX-License-Identifier: BSD-3-Clause
// trace.h — an event log of a launch in Chrome's trace format (open it in Perfetto): a row per
// warp, per warpgroup's wgmma, and per place in shared memory that copies write or read. Time
// is in scheduling steps, or in clocks where Options::timed counts them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "device/types.h"

namespace fa3::sim {

class Trace {
 public:
  // Rows of a CTA: its warps by number, then these.
  static constexpr u32 kWgmmaRow = 500;  // + warpgroup
  static constexpr u32 kCopyRow = 1000;  // + offset in shared memory

  struct Event {
    std::string name;
    u64 begin, end;      // steps or clocks
    u32 process;         // CTA in the grid
    u32 row;             // see row names
    std::string detail;  // line in the kernel
  };

  void add(Event event) { events_.push_back(std::move(event)); }
  // Into its warp's row, where events do not overlap: what several lanes do, or one does several
  // times in a row, is one event.
  void add_of_lane(Event event);
  void name_row(u32 process, u32 row, std::string name);  // the first name stays
  void clear() { *this = {}; }
  const std::vector<Event>& events() const { return events_; }
  // {"traceEvents": […]}
  std::string json() const;

 private:
  std::vector<Event> events_;
  using Row = std::pair<u32, u32>;  // process, row
  std::map<Row, std::string> rows_;
  std::map<Row, size_t> latest_;  // events by add_of_lane
};

}  // namespace fa3::sim
