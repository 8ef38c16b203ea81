// SPDX-License-Identifier: BSD-3-Clause
// accuracy.cpp — fa3_accuracy: the error experiment of the FlashAttention-3 paper
// (tools/verify/outliers.h) for the Hopper kernel in the simulator, the cpu backend and unfused
// attention, all in FP16. Prints a table; with FILE also one JSON object a line there. Exit status
// 1 where the kernel's error is above what docs/guide/accuracy.md promises.
//     fa3_accuracy [FILE [HEADS [SEED]]]      default: no file (""), 48 heads, seed 0
#include <fmt/core.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tools/verify/outliers.h"

namespace {

using namespace fa3;
using Json = nlohmann::ordered_json;

constexpr int64_t kHeadDims[] = {64, 128}, kSeqlens[] = {512, 2048, 8192};

struct Destroy {
  void operator()(fa3_context* context) const { fa3_context_destroy(context); }
};
using Context = std::unique_ptr<fa3_context, Destroy>;

Context open(fa3_backend backend) {
  fa3_context_options options{};
  options.struct_size = sizeof options;
  options.backend = backend;
  fa3_context* context = nullptr;
  if (fa3_context_create(&options, &context) != FA3_OK) throw std::runtime_error(fa3_last_error());
  return Context(context);
}

Json meta(fa3_context* cpu) {
  fa3_device_info device{};
  device.struct_size = sizeof device;
  if (fa3_get_device_info(cpu, &device) != FA3_OK) throw std::runtime_error(fa3_last_error());
  char now[32];
  const time_t seconds = time(nullptr);
  std::strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
  return {{"kind", "meta"},
          {"suite", "accuracy"},
          {"started", now},
          {"device_name", device.name},
          {"instruction_set", device.instruction_set},
          {"fa3", fa3_version()}};
}

Json to_json(const verify::OutlierConfig& c, const verify::Method& m, const verify::Errors& e) {
  return {{"kind", "accuracy"},
          {"method", m.name},
          {"dtype", verify::dtype_text(m.dtype)},
          {"head_dim", c.head_dim},
          {"seqlen_kv", c.seqlen_kv},
          {"seqlen_q", c.seqlen_q},
          {"heads", c.heads},
          {"seed", c.seed},
          {"drawn", {{"rmse", e.drawn.rmse()}, {"max", e.drawn.greatest()}}},
          {"rounded", {{"rmse", e.rounded.rmse()}, {"max", e.rounded.greatest()}}}};
}

// The promised error of the kernel, and the yardstick to compare with.
bool keeps(const verify::OutlierConfig& c, const verify::Errors& kernel,
           const verify::Errors& unfused) {
  const bool promised = c.head_dim == 128 && c.seqlen_kv == 8192;
  if (promised && !(kernel.drawn.rmse() <= verify::kMostRmse)) return false;
  return kernel.rounded.rmse() <= unfused.rounded.rmse();
}

int run(const char* path, int64_t heads, uint64_t seed) {
  const Context reference = open(FA3_BACKEND_REFERENCE), sim = open(FA3_BACKEND_SIM),
                cpu = open(FA3_BACKEND_CPU);
  // The first is the kernel that is judged, the second its yardstick.
  const std::vector<verify::Method> methods = {verify::fa3_method("sim", FA3_F16, sim.get()),
                                               verify::unfused_method(FA3_F16),
                                               verify::fa3_method("cpu", FA3_F16, cpu.get())};
  std::ofstream file;
  if (path != nullptr) {
    file.open(path, std::ios::trunc);
    file << meta(cpu.get()).dump() << std::endl;
    if (!file) throw std::runtime_error(fmt::format("{}: cannot be written", path));
  }
  fmt::print(
      "{} heads of 128 queries; error of O against FP64 on the inputs as drawn, as rounded\n\n"
      "| head dim | seqlen | method | type | RMSE, drawn | max, drawn | RMSE, rounded | max, "
      "rounded |\n|---|---|---|---|---|---|---|---|\n",
      heads);
  bool kept = true;
  for (const int64_t head_dim : kHeadDims)
    for (const int64_t seqlen : kSeqlens) {
      const verify::OutlierConfig config{
          .heads = heads, .seqlen_kv = seqlen, .head_dim = head_dim, .seed = seed};
      const auto errors = verify::outlier_errors(config, reference.get(), methods);
      for (size_t m = 0; m < methods.size(); ++m) {
        const auto& [drawn, rounded] = errors[m];
        fmt::print("| {} | {} | {} | {} | {:.2e} | {:.2e} | {:.2e} | {:.2e} |\n", head_dim, seqlen,
                   methods[m].name, verify::dtype_text(methods[m].dtype), drawn.rmse(),
                   drawn.greatest(), rounded.rmse(), rounded.greatest());
        if (file.is_open()) file << to_json(config, methods[m], errors[m]).dump() << std::endl;
      }
      std::fflush(stdout);
      kept = kept && keeps(config, errors[0], errors[1]);
    }
  if (file.is_open() && !file) throw std::runtime_error(fmt::format("{}: cannot be written", path));
  fmt::print("\n{}\n", kept ? "within the bounds" : "ABOVE THE BOUNDS");
  return kept ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int64_t heads = argc > 2 ? std::atoll(argv[2]) : 48;
    if (heads < 1) throw std::runtime_error("HEADS is not a number above 0");
    return run(argc > 1 && *argv[1] != '\0' ? argv[1] : nullptr, heads,
               argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fa3_accuracy: {}\n", error.what());
    return 1;
  }
}
