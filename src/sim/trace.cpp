// SPDX-License-Identifier: BSD-3-Clause
// trace.cpp — the event log as JSON.
#include "sim/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

namespace fa3::sim {

void Trace::name_row(u32 process, u32 row, std::string name) {
  rows_.emplace(std::pair{process, row}, std::move(name));
}

void Trace::add_of_lane(Event event) {
  const auto [latest, first] = latest_.try_emplace({event.process, event.row}, events_.size());
  if (!first) {
    Event& before = events_[latest->second];
    if (event.begin <= before.end && event.name == before.name) {
      before.end = std::max(before.end, event.end);
      return;
    }
    event.begin = std::max(event.begin, before.end);
    if (event.end <= event.begin) return;
    latest->second = events_.size();
  }
  add(std::move(event));
}

std::string Trace::json() const {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  u32 last = ~0u;
  const auto describe = [&](const char* what, u32 process, u32 row, const std::string& name) {
    events.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}});
  };
  for (const auto& [place, name] : rows_) {
    const auto [process, row] = place;
    if (process != last) describe("process_name", process, 0, fmt::format("CTA {}", process));
    last = process;
    describe("thread_name", process, row, name);
  }
  // Which of two threads ran first at the same time says nothing.
  std::vector<Event> sorted = events_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Event& a, const Event& b) {
    return std::tie(a.begin, a.process, a.row) < std::tie(b.begin, b.process, b.row);
  });
  for (const Event& event : sorted)
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
