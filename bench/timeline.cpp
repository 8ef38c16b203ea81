// SPDX-License-Identifier: BSD-3-Clause
// timeline.cpp — fa3_timeline: event logs of the forward kernel at head dim 128, one Q tile, in the
// simulator by the clock (sim/timing.h): FOLDER/two_stage.json and FOLDER/serial.json, which
// bench/timeline.py draws and Perfetto opens.
//     fa3_timeline FOLDER [KV_TILES]      default: 5
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/launch/launch.h"
#include "backend/sim/runtime.h"
#include "core/dtype.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kHeadDim = 128, kQueries = 128;

Problem problem_of(int64_t keys) {
  Problem p;
  p.batch = p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = kHeadDim;
  p.q.rows = p.q.max_seqlen = kQueries;
  p.kv.rows = p.kv.max_seqlen = keys;
  p.softmax_scale = 1 / std::sqrt(double{kHeadDim});
  for (const TensorId id : {kQ, kK, kV, kO}) p.layout[id] = {FA3_BF16, 0, kHeadDim, kHeadDim};
  p.layout[kLse] = {FA3_F32, 0, 1, kQueries};
  return p;
}

void check(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message);
}

void log(const std::string& path, FwdStep step, int64_t kv_tiles) {
  DeviceInfo device;
  device.backend = FA3_BACKEND_SIM;
  device.compiled_ahead = true;
  device.multiprocessors = 1;
  const int64_t tile_kv = make_fwd_plan(problem_of(1), device).value().config.tile_kv;
  const Problem p = problem_of(kv_tiles * tile_kv);
  FwdPlan plan = make_fwd_plan(p, device).value();
  FwdConfig config = plan.config;
  config.step = step;
  plan = with_config(plan, config, p, device.multiprocessors);
  auto opened = sim::SimRuntime::open({.sms = 1, .trace_path = path});
  check(opened.status());
  sim::SimRuntime& runtime = *opened.value();
  const auto tensor = [&](const char* name, int64_t rows) {
    std::vector<u16> values(static_cast<size_t>(rows * kHeadDim));
    for (size_t i = 0; i < values.size(); i++)
      values[i] = from_double<Bf16>(std::sin(static_cast<double>(i))).bits;
    void* const data = runtime.allocate(values.size() * sizeof(u16), name);
    runtime.upload(data, values.data(), values.size() * sizeof(u16));
    return data;
  };
  Buffers buffers;
  buffers.data[kQ] = tensor("q", kQueries);
  buffers.data[kK] = tensor("k", p.kv.rows);
  buffers.data[kV] = tensor("v", p.kv.rows);
  buffers.data[kO] = tensor("o", kQueries);
  buffers.data[kLse] = runtime.allocate(kQueries * sizeof(float), "lse");
  check(launch(plan_with(p, {step_of(plan, 0)}), runtime, {}, buffers, nullptr));
}

}  // namespace
}  // namespace fa3::sm90

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("no FOLDER given");
    const int64_t kv_tiles = argc > 2 ? std::atoll(argv[2]) : 5;
    if (kv_tiles < 1) throw std::runtime_error("KV_TILES is not a number above 0");
    const std::string folder = argv[1];
    fa3::sm90::log(folder + "/two_stage.json", fa3::sm90::FwdStep::kTwoStage, kv_tiles);
    fa3::sm90::log(folder + "/serial.json", fa3::sm90::FwdStep::kSerial, kv_tiles);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fa3_timeline: {}\n", error.what());
    return 1;
  }
}
