// SPDX-License-Identifier: BSD-3-Clause
// info.cpp — `fa3 info`: version, build, device, backends, environment.
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"
#include "output.h"
#include "session.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InfoOptions {
  bool json = false;
};

Json collect() {
  const Session session("auto", 0, false);
  const fa3_device_info device = session.device();
  Json j;
  j["version"] = fa3_version();
  j["build"] = Json::parse(fa3_build_info());
  j["device"] = {{"name", device.name},
                 {"type", device.device_type == FA3_DEVICE_CUDA ? "cuda" : "cpu"},
                 {"id", device.device_id},
                 {"backend", backend_name(device.backend)},
                 {"instruction_set", device.instruction_set},
                 {"threads", device.num_threads},
                 {"l1_bytes", device.l1_bytes},
                 {"l2_bytes", device.l2_bytes},
                 {"memory_bytes", device.memory_bytes}};
  j["environment"] = Json::parse(fa3_environment());
  return j;
}

std::string size_text(int64_t bytes) {
  if (bytes <= 0) return "unknown";
  if (bytes < (int64_t{1} << 20)) return fmt::format("{:.0f} KiB", bytes / 1024.0);
  if (bytes < (int64_t{1} << 30)) return fmt::format("{:.4g} MiB", bytes / 1048576.0);
  return fmt::format("{:.1f} GiB", bytes / 1073741824.0);
}

}  // namespace

Action add_info(CLI::App& app) {
  auto options = std::make_shared<InfoOptions>();
  app.add_flag("--json", options->json, "Print one JSON object instead of text");
  return [options]() -> int {
    const Json j = collect();
    print(options->json ? j.dump(2) + "\n" : "");
    return kDone;
  };
}

}  // namespace fa3::cli
