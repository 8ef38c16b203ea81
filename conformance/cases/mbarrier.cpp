// SPDX-License-Identifier: BSD-3-Clause
// mbarrier.cpp — mbarriers: random and fixed scripts against a model of the specification.
#include "device/selftest/mbarrier.cuh"

#include <fmt/core.h>

#include "conformance/cases/cases.h"

namespace fa3::selftest {
namespace {

using Step = MbarStep;

// PTX ISA 9.7.13.15: what a barrier counts.
struct Model {
  uint32_t phase = 0;
  uint32_t expected = 0, pending = 0;
  int64_t bytes = 0;

  void check() {
    if (pending != 0 || bytes != 0) return;
    ++phase;
    pending = expected;
  }
  void arrive(uint32_t count) {
    pending -= count;
    check();
  }
  bool test(uint32_t parity) const { return phase % 2 != parity; }
};

struct Script {
  const char* name;
  std::vector<std::pair<Step, u32>> steps;
};

// A copy completes at some time after it was issued: scripts wait for it at once, and no result is
// asked for between.
uint32_t result_after(Model& model, Step step, u32 operand) {
  switch (step) {
    case Step::kInit:
      model = {0, operand, operand, 0};
      break;
    case Step::kArrive:
      model.arrive(operand);
      break;
    case Step::kArriveIf:
      if (operand != 0) model.arrive(1);
      break;
    case Step::kArriveDrop:
      --model.expected;
      model.arrive(1);
      break;
    case Step::kExpectTx:
      model.bytes += operand;
      break;
    case Step::kArriveExpectTx:
      model.bytes += operand;
      model.arrive(1);
      break;
    case Step::kLoadAndWait:
      model.bytes -= operand;
      model.check();
      break;
    case Step::kInval:
      return 0;
  }
  return (model.test(0) ? 1u : 0u) | (model.test(1) ? 2u : 0u);
}

const std::vector<Script>& scripts() {
  static const std::vector<Script> kScripts = {
      {"count-1", {{Step::kInit, 1}, {Step::kArrive, 1}, {Step::kArrive, 1}, {Step::kArrive, 1}}},
      {"count-5",
       {{Step::kInit, 5},
        {Step::kArrive, 2},
        {Step::kArrive, 1},
        {Step::kArrive, 2},
        {Step::kArrive, 5},
        {Step::kArrive, 4},
        {Step::kArrive, 1}}},
      {"largest-count",
       {{Step::kInit, (1 << 20) - 1}, {Step::kArrive, (1 << 20) - 2}, {Step::kArrive, 1}}},
      {"arrive-if",
       {{Step::kInit, 2}, {Step::kArriveIf, 0}, {Step::kArriveIf, 1}, {Step::kArriveIf, 7}}},
      {"arrive-drop",
       {{Step::kInit, 3},
        {Step::kArriveDrop, 0},
        {Step::kArrive, 2},
        {Step::kArrive, 1},
        {Step::kArrive, 1},
        {Step::kArriveDrop, 0},
        {Step::kArrive, 1},
        {Step::kArrive, 1},
        {Step::kArrive, 1}}},
      {"bytes",
       {{Step::kInit, 1},
        {Step::kArriveExpectTx, 4096},
        {Step::kLoadAndWait, 4096},
        {Step::kArriveExpectTx, 16},
        {Step::kLoadAndWait, 16},
        {Step::kArriveExpectTx, 0},
        {Step::kArrive, 1}}},
      {"expect-then-arrive",
       {{Step::kInit, 2},
        {Step::kExpectTx, 512},
        {Step::kArrive, 1},
        {Step::kArriveExpectTx, 256},
        {Step::kLoadAndWait, 768},
        {Step::kArrive, 2}}},
      {"init-after-inval",
       {{Step::kInit, 4},
        {Step::kArrive, 4},
        {Step::kInval, 0},
        {Step::kInit, 2},
        {Step::kArrive, 1},
        {Step::kArrive, 1}}},
  };
  return kScripts;
}

// Arrivals and bytes in a random order, phase after phase.
Script random_script(Random& random) {
  Script script{"random", {}};
  const auto count = static_cast<u32>(random.integer(1, 9));
  script.steps.emplace_back(Step::kInit, count);
  for (int phase = 0; phase < 12; ++phase) {
    u32 pending = count;
    u32 bytes = 0;
    while (pending > 1) {
      const auto some = static_cast<u32>(random.integer(1, static_cast<int>(pending) - 1));
      if (random.integer(0, 2) == 0 && bytes < kMbarMaxLoad / 2) {
        const u32 more = 16 * static_cast<u32>(random.integer(1, 8));
        script.steps.emplace_back(Step::kArriveExpectTx, more);
        bytes += more;
        --pending;
      } else {
        script.steps.emplace_back(Step::kArrive, some);
        pending -= some;
      }
    }
    script.steps.emplace_back(Step::kArrive, 1);
    if (bytes != 0) script.steps.emplace_back(Step::kLoadAndWait, bytes);
  }
  return script;
}

Experiment make_script(const Script& script, Random& random) {
  std::vector<u32> steps, results;
  Model model;
  for (const auto& [step, operand] : script.steps) {
    steps.push_back(static_cast<u32>(step));
    steps.push_back(operand);
    results.push_back(result_after(model, step, operand));
  }
  std::vector<u32> source(kMbarMaxLoad / 4);
  for (u32& word : source) word = random.word();
  Experiment experiment;
  experiment.shape.threads = 32;
  experiment.shape.smem_bytes = sizeof(MbarScriptSmem);
  experiment.buffers = {{"steps", to_bytes(steps), {}},
                        {"source", to_bytes(source), {}},
                        {"results", Bytes(4 * results.size()), Expected{4, to_bytes(results), {}}}};
  const auto count = static_cast<u32>(results.size());
  experiment.args = [count](const Placed& placed) {
    return bytes_of(MbarScriptArgs{placed.at<u32>(0), count, placed.at<u8>(1), placed.at<u32>(2)});
  };
  return experiment;
}

Experiment make_ring(Random& random) {
  std::vector<u32> in(kRingItems * 32), out(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    in[i] = random.word();
    out[i] = in[i] + (i < 32 ? 0 : out[i - 32]);
  }
  Experiment experiment;
  experiment.shape.threads = 64;
  experiment.shape.smem_bytes = sizeof(MbarRingSmem);
  experiment.buffers = {{"in", to_bytes(in), {}},
                        {"out", Bytes(4 * out.size()), Expected{4, to_bytes(out), {}}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(MbarRingArgs{placed.at<u32>(0), placed.at<u32>(1)});
  };
  return experiment;
}

}  // namespace

void add_mbarrier_cases(std::vector<Case>& cases) {
  const Program program =
      device_program("device/selftest/mbarrier.cuh", "fa3::selftest::mbar_script");
  for (const Script& script : scripts()) {
    cases.push_back({fmt::format("mbarrier/script/{}", script.name), program,
                     [&script](Random& random) { return make_script(script, random); }});
  }
  for (int i = 0; i < 4; ++i) {
    cases.push_back({fmt::format("mbarrier/script/random-{}", i), program, [](Random& random) {
                       const Script script = random_script(random);
                       return make_script(script, random);
                     }});
  }
  cases.push_back({"mbarrier/ring",
                   device_program("device/selftest/mbarrier.cuh", "fa3::selftest::mbar_ring"),
                   [](Random& random) { return make_ring(random); }});
}

}  // namespace fa3::selftest
