// SPDX-License-Identifier: BSD-3-Clause
// trace.cpp — the event log as JSON.
#include "sim/trace.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace fa3::sim {

void Trace::name_row(u32 process, u32 row, std::string name) {
  rows_.push_back({process, row, std::move(name)});
}

std::string Trace::json() const {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  for (const Row& row : rows_) {
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", row.process},
                      {"args", {{"name", fmt::format("CTA {}", row.process)}}}});
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", row.process},
                      {"tid", row.row},
                      {"args", {{"name", row.name}}}});
  }
  for (const Event& event : events_)
    events.push_back({{"ph", "X"},
                      {"name", event.name},
                      {"pid", event.process},
                      {"tid", event.row},
                      {"ts", event.begin},
                      {"dur", event.end - event.begin},
                      {"args", {{"at", event.detail}}}});
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump();
}

}  // namespace fa3::sim
