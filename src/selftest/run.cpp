// SPDX-License-Identifier: BSD-3-Clause
// run.cpp — one case: compile, place, launch, compare.
#include "selftest/run.h"

#include <fmt/core.h>

#include <bit>
#include <chrono>
#include <cmath>

namespace fa3::selftest {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The buffers of an experiment on a machine.
class Placement {
 public:
  Placement(Machine& machine, const Experiment& experiment) : machine_(machine) {
    for (const Buffer& buffer : experiment.buffers) {
      placed_.buffers.push_back(nullptr);
      placed_.buffers.back() = machine.allocate(buffer.before.size(), buffer.name);
      machine.upload(placed_.buffers.back(), buffer.before.data(), buffer.before.size());
    }
  }
  ~Placement() {
    for (void* buffer : placed_.buffers) {
      if (buffer != nullptr) machine_.release(buffer);
    }
  }
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  Status encode(const Experiment& experiment) {
    for (const Map& map : experiment.maps) {
      TensorMapSpec spec = map.spec;
      spec.base = placed_.buffers[map.buffer];
      FA3_TRY(const TensorMap encoded, machine_.encode(spec));
      placed_.maps.push_back(encoded);
    }
    return {};
  }

  const Placed& placed() const { return placed_; }

 private:
  Machine& machine_;
  Placed placed_;
};

uint32_t element_at(const Bytes& bytes, int element_bytes, size_t i) {
  uint32_t element = 0;
  std::memcpy(&element, bytes.data() + i * static_cast<size_t>(element_bytes),
              static_cast<size_t>(element_bytes));
  return element;
}

// |got − want| as a fraction of the bound; 0 for equal Infs and for two NaNs.
double error_ratio(uint32_t got_bits, uint32_t want_bits, float bound) {
  const double got = std::bit_cast<float>(got_bits);
  const double want = std::bit_cast<float>(want_bits);
  if ((std::isnan(got) && std::isnan(want)) || got == want) return 0;
  const double error = std::fabs(got - want);
  return error <= bound ? error / bound : INFINITY;
}

// "" when the buffer holds what it must.
std::string compare(const char* name, const Bytes& got, const Expected& want, double& max_ratio) {
  if (got.size() != want.bytes.size()) {
    return fmt::format("{}: case expects {} bytes of a buffer of {}; correct the case", name,
                       want.bytes.size(), got.size());
  }
  const size_t count = got.size() / static_cast<size_t>(want.element_bytes);
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t a = element_at(got, want.element_bytes, i);
    const uint32_t b = element_at(want.bytes, want.element_bytes, i);
    bool holds = a == b;
    if (!want.bound.empty()) {
      const double ratio = error_ratio(a, b, want.bound[i]);
      holds = ratio <= 1;
      if (ratio > max_ratio) max_ratio = ratio;
    }
    if (!holds && wrong++ == 0) first = i;
  }
  if (wrong == 0) return "";
  const uint32_t a = element_at(got, want.element_bytes, first);
  const uint32_t b = element_at(want.bytes, want.element_bytes, first);
  std::string text =
      fmt::format("{}: {} of {} elements differ; first [{}]: got 0x{:0{}x}, need 0x{:0{}x}", name,
                  wrong, count, first, a, 2 * want.element_bytes, b, 2 * want.element_bytes);
  if (want.element_bytes == 4) {
    text += fmt::format(" (as f32 {} and {}", std::bit_cast<float>(a), std::bit_cast<float>(b));
    if (!want.bound.empty()) text += fmt::format(", bound {}", want.bound[first]);
    text += ")";
  }
  return text;
}

Status launch(Machine& machine, const Case& test, const Experiment& experiment,
              Placement& placement) {
  FA3_RETURN_IF_ERROR(placement.encode(experiment));
  const Bytes args = experiment.args(placement.placed());
  FA3_RETURN_IF_ERROR(machine.launch(test.program, experiment.shape, args.data(), args.size()));
  return machine.synchronize();
}

}  // namespace

Outcome run_case(Machine& machine, const Case& test, uint64_t seed) {
  Outcome outcome;
  auto start = std::chrono::steady_clock::now();
  if (const Status status = machine.prepare(test.program); !status.ok()) {
    outcome.message = status.message;
    return outcome;
  }
  outcome.compile_seconds = seconds_since(start);

  start = std::chrono::steady_clock::now();
  Random random(seed, test.name);
  const Experiment experiment = test.make(random);
  Placement placement(machine, experiment);
  if (const Status status = launch(machine, test, experiment, placement); !status.ok()) {
    outcome.message = status.message;
    outcome.device_lost = status.code == FA3_CUDA_ERROR;
    return outcome;
  }
  for (size_t i = 0; i < experiment.buffers.size(); ++i) {
    const Buffer& buffer = experiment.buffers[i];
    if (!buffer.after) continue;
    Bytes got(buffer.before.size());
    machine.download(got.data(), placement.placed().buffers[i], got.size());
    const std::string difference =
        compare(buffer.name, got, *buffer.after, outcome.max_error_ratio);
    if (!difference.empty()) {
      outcome.message += (outcome.message.empty() ? "" : "; ") + difference;
    }
  }
  outcome.run_seconds = seconds_since(start);
  outcome.passed = outcome.message.empty();
  return outcome;
}

}  // namespace fa3::selftest
