// SPDX-License-Identifier: BSD-3-Clause
// site.cpp — the table of sites: a small cache per OS thread before one locked map.
#include "sim/site.h"

#include <fmt/core.h>

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

namespace fa3::sim {
namespace {

struct Table {
  std::mutex mutex;
  std::deque<Site> sites{{"?", "?", 0}};  // a deque: references stay valid
  std::map<std::tuple<const char*, const char*, int>, u16> ids;
};

Table& table() {
  static Table instance;
  return instance;
}

}  // namespace

u16 intern(const char* op, Where where) {
  struct Entry {
    Site site{};
    u16 id = 0;
  };
  thread_local Entry cache[256];
  const u64 hash = (reinterpret_cast<u64>(op) >> 3) + static_cast<u64>(where.line) * 7;
  Entry& entry = cache[hash % 256];
  if (entry.site.op == op && entry.site.line == where.line && entry.site.file == where.file)
    return entry.id;
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  const auto key = std::make_tuple(op, where.file, where.line);
  auto found = all.ids.find(key);
  if (found == all.ids.end()) {
    if (all.sites.size() > 0xFFFF) return 0;
    found = all.ids.emplace(key, static_cast<u16>(all.sites.size())).first;
    all.sites.push_back({op, where.file, where.line});
  }
  entry = {{op, where.file, where.line}, found->second};
  return found->second;
}

const Site& site(u16 id) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  return all.sites[id];
}

std::string text(Where where) {
  if (where.file == nullptr) return "?";
  const char* slash = std::strrchr(where.file, '/');
  return fmt::format("{}:{}", slash != nullptr ? slash + 1 : where.file, where.line);
}

}  // namespace fa3::sim
