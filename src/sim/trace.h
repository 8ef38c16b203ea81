// SPDX-License-Identifier: BSD-3-Clause
// trace.h — an event log of a launch in Chrome's trace format (open it in Perfetto): one row per
// warp, wgmma agent and TMA, time in scheduling steps.
#pragma once

#include <string>
#include <vector>

#include "device/types.h"

namespace fa3::sim {

class Trace {
 public:
  // Rows of a CTA: its warps by number, then these.
  static constexpr u32 kWgmmaRow = 500;
  static constexpr u32 kCopyRow = 1000;

  struct Event {
    std::string name;
    u64 begin, end;      // steps
    u32 process;         // CTA in the grid
    u32 row;             // see row names
    std::string detail;  // line in the kernel
  };

  void add(Event event) { events_.push_back(std::move(event)); }
  void name_row(u32 process, u32 row, std::string name);
  const std::vector<Event>& events() const { return events_; }
  // {"traceEvents": […]}
  std::string json() const;

 private:
  struct Row {
    u32 process, row;
    std::string name;
  };
  std::vector<Event> events_;
  std::vector<Row> rows_;
};

}  // namespace fa3::sim
