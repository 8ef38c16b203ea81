// SPDX-License-Identifier: BSD-3-Clause
// run.cpp — one case: compile, place, launch, compare.
#include "conformance/cases/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace fa3::selftest {
namespace {

// The buffers of an experiment in a runtime's memory.
class Placement {
 public:
  Placement(GpuRuntime& runtime, const Experiment& experiment) : runtime_(runtime) {
    for (const Buffer& buffer : experiment.buffers) {
      placed_.buffers.push_back(nullptr);
      placed_.buffers.back() = runtime.allocate(buffer.before.size(), buffer.name);
      runtime.upload(placed_.buffers.back(), buffer.before.data(), buffer.before.size());
    }
  }
  // A GPU stopped by a kernel's error refuses this too; that error has already been reported.
  ~Placement() {
    for (void* buffer : placed_.buffers) {
      try {
        if (buffer != nullptr) runtime_.release(buffer);
      } catch (const Error&) {
        return;
      }
    }
  }
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  Status encode(const Experiment& experiment) {
    for (const Map& map : experiment.maps) {
      TensorMapSpec spec = map.spec;
      spec.base = placed_.buffers[map.buffer];
      FA3_TRY(const TensorMap encoded, runtime_.encode(spec));
      placed_.maps.push_back(encoded);
    }
    return {};
  }

  const Placed& placed() const { return placed_; }

 private:
  GpuRuntime& runtime_;
  Placed placed_;
};

uint32_t element_at(const Bytes& bytes, int element_bytes, size_t i) {
  uint32_t element = 0;
  std::memcpy(&element, bytes.data() + i * static_cast<size_t>(element_bytes),
              static_cast<size_t>(element_bytes));
  return element;
}

// The bits of an f32, or of a bf16 where they have 2 bytes.
double float_of(uint32_t bits, int element_bytes) {
  return std::bit_cast<float>(element_bytes == 2 ? bits << 16 : bits);
}

// |got − want| as a fraction of the bound; 0 for equal Infs and for two NaNs.
double error_ratio(double got, double want, float bound) {
  if ((std::isnan(got) && std::isnan(want)) || got == want) return 0;
  const double error = std::fabs(got - want);
  return error <= bound ? error / bound : INFINITY;
}

// How elements are shown.
std::string text_of(uint32_t bits, int bytes) {
  const std::string hex = fmt::format("0x{:0{}x}", bits, 2 * bytes);
  return bytes == 4 ? fmt::format("{} (as f32 {})", hex, std::bit_cast<float>(bits)) : hex;
}

// "" when the buffer holds what it must.
std::string compare(const char* name, const Bytes& got, const Expected& want, Outcome& outcome) {
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
      const double ratio = error_ratio(float_of(a, want.element_bytes),
                                       float_of(b, want.element_bytes), want.bound[i]);
      holds = ratio <= 1;
      outcome.max_error_ratio = std::max(outcome.max_error_ratio, ratio);
    }
    if (!holds && wrong++ == 0) first = i;
  }
  if (wrong == 0) return "";
  return fmt::format("{}: {} of {} elements differ; first [{}]: got {}, need {}{}", name, wrong,
                     count, first,
                     text_of(element_at(got, want.element_bytes, first), want.element_bytes),
                     text_of(element_at(want.bytes, want.element_bytes, first), want.element_bytes),
                     want.bound.empty() ? "" : fmt::format(" within {}", want.bound[first]));
}

void append(std::string& to, const std::string& text) {
  if (!text.empty()) to += (to.empty() ? "" : "; ") + text;
}

}  // namespace

Status execute(GpuRuntime& runtime, const Program& program, const Experiment& experiment,
               std::vector<Bytes>& after) {
  try {
    FA3_RETURN_IF_ERROR(runtime.prepare(program));
    Placement placement(runtime, experiment);
    FA3_RETURN_IF_ERROR(placement.encode(experiment));
    const Bytes args = experiment.args(placement.placed());
    for (int i = 0; i < experiment.launches; ++i) {
      FA3_RETURN_IF_ERROR(runtime.launch(program, experiment.shape, args.data(), args.size()));
    }
    FA3_RETURN_IF_ERROR(runtime.synchronize());
    after.clear();
    for (size_t i = 0; i < experiment.buffers.size(); ++i) {
      after.emplace_back(experiment.buffers[i].before.size());
      runtime.download(after.back().data(), placement.placed().buffers[i], after.back().size());
    }
  } catch (const Error& e) {
    return e.status();
  }
  return {};
}

Outcome run_case(GpuRuntime& runtime, const Case& test, uint64_t seed) {
  Outcome outcome;
  Random random(seed, test.name);
  const Experiment experiment = test.make(random);
  if (const Status status = execute(runtime, test.program, experiment, outcome.after);
      !status.ok()) {
    outcome.message = status.message;
    outcome.device_lost = status.code == FA3_CUDA_ERROR;
    return outcome;
  }
  for (size_t i = 0; i < experiment.buffers.size(); ++i) {
    const Buffer& buffer = experiment.buffers[i];
    if (!buffer.after) continue;
    append(outcome.message, compare(buffer.name, outcome.after[i], *buffer.after, outcome));
  }
  outcome.passed = outcome.message.empty();
  return outcome;
}

std::string compare_runs(const Case& test, uint64_t seed, const std::vector<Bytes>& a,
                         const std::vector<Bytes>& b) {
  Random random(seed, test.name);
  const Experiment experiment = test.make(random);
  std::string differences;
  for (size_t i = 0; i < experiment.buffers.size(); ++i) {
    const Buffer& buffer = experiment.buffers[i];
    if (buffer.after && !buffer.after->bound.empty()) continue;
    const auto first = std::mismatch(a[i].begin(), a[i].end(), b[i].begin(), b[i].end());
    if (first.first == a[i].end()) continue;
    append(differences,
           fmt::format("{}: differs from byte {} on", buffer.name, first.first - a[i].begin()));
  }
  return differences;
}

}  // namespace fa3::selftest
