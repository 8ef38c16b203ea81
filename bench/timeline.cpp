// SPDX-License-Identifier: BSD-3-Clause
// timeline.cpp — fa3_timeline: event logs of the forward kernel at head dim 128, one Q tile, and of
// the backward's main kernel, one KV tile, in the simulator by the clock (sim/timing.h):
// FOLDER/two_stage.json, FOLDER/serial.json and FOLDER/backward.json, which bench/timeline.py draws
// and Perfetto opens.
//     fa3_timeline FOLDER [TILES]      of the other operand; default: 5
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/launch/launch.h"
#include "backend/sim/runtime.h"
#include "core/dtype.h"
#include "plan/sm90/ahead.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kHeadDim = 128, kQueries = 128;

Problem problem_of(int64_t queries, int64_t keys) {
  Problem p;
  p.batch = p.heads_q = p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = kHeadDim;
  p.q.rows = p.q.max_seqlen = queries;
  p.kv.rows = p.kv.max_seqlen = keys;
  p.softmax_scale = 1 / std::sqrt(double{kHeadDim});
  for (const TensorId id : {kQ, kK, kV, kO}) p.layout[id] = {FA3_BF16, 0, kHeadDim, kHeadDim};
  p.layout[kLse] = {FA3_F32, 0, 1, queries};
  return p;
}

void check(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message);
}

DeviceInfo device_of_one_sm() {
  DeviceInfo device;
  device.backend = FA3_BACKEND_SIM;
  device.sm = 90;
  device.multiprocessors = 1;
  return device;
}

// A runtime that logs its latest launch, with the problem's tensors.
class Logged {
 public:
  Logged(const std::string& path, const Problem& problem) : problem_(problem) {
    auto opened = sim::SimRuntime::open({.sms = 1, .trace_path = path});
    check(opened.status());
    runtime_ = std::move(opened).value();
    for (const TensorRow& row : kTensors) {
      if (!has_layout(row.id) || !problem.layout[row.id].present()) continue;
      const auto elements =
          static_cast<size_t>(problem.rows_of(row.id) * problem.columns_of(row.id));
      buffers_.data[row.id] = problem.layout[row.id].dtype == FA3_F32
                                  ? upload(std::vector<float>(elements, 1), row.name)
                                  : upload(waves(elements), row.name);
    }
  }

  void run(const std::vector<Kernel>& kernels) {
    const Plan plan = plan_with(problem_, kernels);
    if (workspace_ == nullptr && plan.workspace_bytes > 0)
      workspace_ = static_cast<std::byte*>(runtime_->allocate(plan.workspace_bytes, "workspace"));
    check(launch(plan, *runtime_, {}, buffers_, workspace_));
  }

 private:
  static std::vector<u16> waves(size_t elements) {
    std::vector<u16> values(elements);
    for (size_t i = 0; i < elements; i++)
      values[i] = from_double<Bf16>(std::sin(static_cast<double>(i))).bits;
    return values;
  }
  template <class T>
  void* upload(const std::vector<T>& values, const char* name) {
    void* const data = runtime_->allocate(values.size() * sizeof(T), name);
    runtime_->upload(data, values.data(), values.size() * sizeof(T));
    return data;
  }

  Problem problem_;
  std::unique_ptr<sim::SimRuntime> runtime_;
  Buffers buffers_;
  std::byte* workspace_ = nullptr;
};

void log_forward(const std::string& path, FwdStep step, int64_t kv_tiles) {
  const DeviceInfo device = device_of_one_sm();
  const int64_t tile_kv = ahead_fwd_plan(problem_of(kQueries, 1), device).value().config.tile.kv;
  const Problem p = problem_of(kQueries, kv_tiles * tile_kv);
  FwdPlan plan = ahead_fwd_plan(p, device).value();
  FwdConfig config = plan.config;
  config.overlap.step = step;
  plan = with_config(plan, config, p, device.multiprocessors);
  Logged(path, p).run({plan});
}

// The main kernel's launch has to be the latest, so dQ stays sums.
void log_backward(const std::string& path, int64_t q_tiles) {
  constexpr int64_t kTileQ = 64, kTileKv = 128;
  Problem p = problem_of(q_tiles * kTileQ, kTileKv);
  p.op = FA3_OP_BACKWARD;
  for (const TensorId id : {kDout, kDq, kDk, kDv}) p.layout[id] = p.layout[kQ];
  std::vector<Kernel> kernels;
  auto plans = ahead_bwd_plans(p, device_of_one_sm());
  check(plans.status());
  for (const BwdPlan& plan : plans.value()) {
    if (plan.pass == BwdPass::kMain &&
        (plan.config.tile_q != kTileQ || plan.config.tile_kv() != kTileKv))
      throw std::runtime_error("the backward's tiles are others than those that this log is of");
    if (plan.pass != BwdPass::kDq) kernels.push_back(plan);
  }
  Logged(path, p).run(kernels);
}

}  // namespace
}  // namespace fa3::sm90

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("no FOLDER given");
    const int64_t tiles = argc > 2 ? std::atoll(argv[2]) : 5;
    if (tiles < 1) throw std::runtime_error("TILES is not a number above 0");
    const std::string folder = argv[1];
    fa3::sm90::log_forward(folder + "/two_stage.json", fa3::sm90::FwdStep::kTwoStage, tiles);
    fa3::sm90::log_forward(folder + "/serial.json", fa3::sm90::FwdStep::kSerial, tiles);
    fa3::sm90::log_backward(folder + "/backward.json", tiles);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fa3_timeline: {}\n", error.what());
    return 1;
  }
}
