// SPDX-License-Identifier: BSD-3-Clause
// fwd_timeline_test.cpp — event logs of the forward kernel by the clock: the units they show, what
// waits are for, and the overlap that tells the two-stage step from the serial one.
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "backend/launch/launch.h"
#include "backend/sim/runtime.h"
#include "core/dtype.h"
#include "plan/sm90/ahead.h"
#include "sim/kit.h"

namespace fa3::sim {
namespace {

using namespace sm90;

constexpr int64_t kD = 128, kQueries = 128, kTiles = 4;

struct Interval {
  std::string name;
  u64 begin, end;
};
using Rows = std::map<std::string, std::vector<Interval>>;  // by name, in order of time

struct Outcome {
  Status status;
  std::string log;
  std::vector<u16> o;
};

// One Q tile of the row for head dim 128 with this step; trace = false: without a log. stray_lse:
// LSE is to go where the simulator knows of no memory.
Outcome run(FwdStep step, u64 seed, bool trace, bool stray_lse = false) {
  DeviceInfo device;
  device.backend = FA3_BACKEND_SIM;
  device.multiprocessors = 1;
  Problem p;
  p.batch = p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = kD;
  p.q.rows = p.q.max_seqlen = kQueries;
  p.kv.rows = p.kv.max_seqlen = kTiles * 128;
  p.softmax_scale = 1 / std::sqrt(double{kD});
  for (const TensorId id : {kQ, kK, kV, kO}) p.layout[id] = {FA3_BF16, 0, kD, kD};
  p.layout[kLse] = {FA3_F32, 0, 1, kQueries};
  FwdPlan plan = ahead_fwd_plan(p, device).value();
  EXPECT_EQ(plan.config.tile.kv, 128);
  FwdConfig config = plan.config;
  config.overlap.step = step;
  plan = with_config(plan, config, p, device.multiprocessors);

  const std::string path =
      testing::TempDir() + "fa3_timeline_" + std::to_string(getpid()) + ".json";
  auto opened = SimRuntime::open({.seed = seed, .trace_path = trace ? path : ""});
  EXPECT_TRUE(opened.ok()) << opened.status().message;
  SimRuntime& runtime = *opened.value();
  Buffers buffers;
  const auto tensor = [&](TensorId id, const char* name, int64_t rows) {
    std::vector<u16> values(static_cast<size_t>(rows * kD));
    for (size_t i = 0; i < values.size(); i++)
      values[i] = from_double<Bf16>(std::sin(static_cast<double>(i * (id + 1)))).bits;
    buffers.data[id] = runtime.allocate(values.size() * sizeof(u16), name);
    runtime.upload(buffers.data[id], values.data(), values.size() * sizeof(u16));
  };
  tensor(kQ, "q", kQueries), tensor(kK, "k", p.kv.rows), tensor(kV, "v", p.kv.rows);
  tensor(kO, "o", kQueries);
  std::vector<float> stray(kQueries);
  buffers.data[kLse] = stray_lse ? stray.data() : runtime.allocate(kQueries * sizeof(float), "lse");
  Outcome out{launch(plan_with(p, {plan}), runtime, {}, buffers, nullptr), "",
              std::vector<u16>(kQueries * kD)};
  EXPECT_EQ(out.status.ok(), !stray_lse) << out.status.message;
  runtime.download(out.o.data(), buffers.data[kO], out.o.size() * sizeof(u16));
  if (trace) {
    std::ifstream file(path);
    out.log.assign(std::istreambuf_iterator<char>(file), {});
    std::remove(path.c_str());
  }
  return out;
}

Rows rows_of(const std::string& log) {
  const auto json = nlohmann::json::parse(log);
  std::map<u32, std::string> names;
  for (const auto& event : json.at("traceEvents"))
    if (event.at("name") == "thread_name") names[event.at("tid")] = event.at("args").at("name");
  Rows rows;
  for (const auto& [row, name] : names) rows[name];
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const u64 begin = event.at("ts"), clocks = event.at("dur");
    rows.at(names.at(event.at("tid"))).push_back({event.at("name"), begin, begin + clocks});
  }
  for (auto& [name, row] : rows)
    std::sort(row.begin(), row.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return rows;
}

size_t count(const std::vector<Interval>& row, const std::string& pattern) {
  const std::regex expression(pattern);
  return static_cast<size_t>(std::count_if(row.begin(), row.end(), [&](const Interval& i) {
    return std::regex_match(i.name, expression);
  }));
}

// Clocks in which a consumer's exponentials overlap its own GEMMs.
u64 overlap(const Rows& rows, const std::string& warp, const std::string& products) {
  u64 sum = 0;
  for (const Interval& a : rows.at(warp)) {
    if (a.name.find("exponentials") == std::string::npos) continue;
    for (const Interval& b : rows.at(products))
      sum +=
          std::max(a.begin, std::min(a.end, b.end)) - std::min(a.end, std::max(a.begin, b.begin));
  }
  return sum;
}

TEST(SimFwdTimeline, Log_HasEveryPart) {
  const Rows rows = rows_of(run(FwdStep::kTwoStage, 0, true).log);
  for (const char* consumer : {"1", "2"}) {
    const auto& products = rows.at(std::string("wgmma of warpgroup ") + consumer);
    EXPECT_EQ(count(products, R"(wgmma k\[[01]\])"), kTiles * kD / 16);
    EXPECT_EQ(count(products, R"(wgmma v\[[01]\])"), kTiles * 128 / 16);
    EXPECT_EQ(products.size(), 2u * kTiles * 8);
  }
  for (const char* warp : {"warp 4", "warp 8"})
    EXPECT_EQ(count(rows.at(warp), R"(6[46] exponentials)"), size_t{kTiles}) << warp;
  for (const char* place : {"k[0]", "k[1]", "v[0]", "v[1]"})
    EXPECT_EQ(count(rows.at(std::string("copies of ") + place), "tma_load .*"), kTiles / 2u);
  EXPECT_EQ(count(rows.at("copies of q[1]"), "tma_load .*"), 1u);
  EXPECT_EQ(count(rows.at("copies of o[1]"), "tma_store .*"), 1u);
  EXPECT_GT(count(rows.at("warp 0"), R"(wait [kv]_empty\[[01]\])"), 0u);  // the producer's
}

TEST(SimFwdTimeline, Waits_NameTheirBarrier) {
  const std::regex barrier(R"(wait ((q|k|v|work)_(full|empty)\[\d\]|claim|named barrier \d+))");
  size_t waits = 0;
  for (const auto& [name, row] : rows_of(run(FwdStep::kTwoStage, 0, true).log))
    for (const Interval& i : row) {
      if (i.name.rfind("wait", 0) != 0) continue;
      EXPECT_TRUE(std::regex_match(i.name, barrier)) << name << ": " << i.name;
      waits++;
    }
  EXPECT_GT(waits, 20u);
}

TEST(SimFwdTimeline, Rows_DoNotOverlapThemselves) {
  for (const FwdStep step : {FwdStep::kTwoStage, FwdStep::kSerial})
    for (const auto& [name, row] : rows_of(run(step, 0, true).log))
      for (size_t i = 1; i < row.size(); i++)
        EXPECT_LE(row[i - 1].end, row[i].begin) << name << ": " << row[i].name;
}

TEST(SimFwdTimeline, Steps_DifferInWhatOverlaps) {
  const Rows two_stage = rows_of(run(FwdStep::kTwoStage, 0, true).log),
             serial = rows_of(run(FwdStep::kSerial, 0, true).log);
  const std::pair<const char*, const char*> consumers[] = {{"warp 4", "wgmma of warpgroup 1"},
                                                           {"warp 8", "wgmma of warpgroup 2"}};
  for (const auto& [warp, products] : consumers) {
    // All tiles but the first have a PV to overlap with, and half of the tensor cores for it.
    EXPECT_GT(overlap(two_stage, warp, products), (kTiles - 1) * 64u * 8 / 3);
    EXPECT_EQ(overlap(serial, warp, products), 0u);
  }
}

TEST(SimFwdTimeline, RuleBroken_LoggedUntilThere) {
  const Outcome broken = run(FwdStep::kTwoStage, 0, true, true);
  EXPECT_EQ(broken.status.code, FA3_INTERNAL);
  EXPECT_THAT(broken.status.message, testing::StartsWith("out-of-bounds: st_global"));
  const Rows rows = rows_of(broken.log);
  EXPECT_EQ(rows.at("wgmma of warpgroup 1").size(), 2u * kTiles * 8);
}

// What ran before does not matter either.
TEST(SimFwdTimeline, ByTheClock_SeedsDoNotMatterAndBitsAreTheSame) {
  for (const FwdStep step : {FwdStep::kTwoStage, FwdStep::kSerial}) {
    const Outcome logged = run(step, 0, true);
    for (u64 seed = 0; seed < some_of(8); seed++)
      EXPECT_EQ(logged.o, run(step, seed, false).o) << "seed " << seed;
    EXPECT_EQ(logged.log, run(step, 5, true).log);
  }
}

}  // namespace
}  // namespace fa3::sim
