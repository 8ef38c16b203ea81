// SPDX-License-Identifier: BSD-3-Clause
// info.cpp — `fa3 info`: version, build, device, backends, environment.
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"
#include "json_text.h"
#include "output.h"
#include "session.h"
#include "tools/verify/problem.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

Json collect() {
  const Session session("auto", 0, false);
  const fa3_device_info device = session.device();
  Json j;
  j["version"] = fa3_version();
  j["build"] = Json::parse(fa3_build_info());
  j["device"] = {{"name", device.name},
                 {"type", device.device_type == FA3_DEVICE_CUDA ? "cuda" : "cpu"},
                 {"id", device.device_id},
                 {"backend", verify::backend_name(device.backend)},
                 {"instruction_set", device.instruction_set},
                 {"threads", device.num_threads},
                 {"l1_bytes", device.l1_bytes},
                 {"l2_bytes", device.l2_bytes},
                 {"memory_bytes", device.memory_bytes}};
  j["environment"] = Json::parse(fa3_environment());
  return j;
}

// The table of backends: can each be used, and why or why not.
std::string backends_text(const Json& backends) {
  std::string text = "backends\n";
  for (const Json& b : backends)
    text +=
        fmt::format("  {:<10} {:<14} {}\n", b.value("name", "?"),
                    b.value("usable", false) ? "available" : "not available", b.value("why", ""));
  return text;
}

std::string environment_text(const Json& variables) {
  std::string text = "environment variables\n";
  for (const Json& v : variables) {
    const std::string value = v["value"].is_null() ? "not set" : v["value"].get<std::string>();
    text += fmt::format("  {:<16} {} [default: {}]\n  {:<16} {}\n", v.value("name", "?"), value,
                        v.value("default", ""), "", v.value("meaning", ""));
  }
  return text;
}

std::string to_text(const Json& j) {
  const Json& d = j["device"];
  Json build = j["build"];
  const Json backends = build["backends"];
  build.erase("backends");
  build.erase("version");
  std::string text =
      fmt::format("fa3 {}\n\nbuild\n{}\ndevice\n", fa3_version(), json_text(build, 2));
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<16} {}\n", name, value);
  };
  const auto size = [&](const char* key) {
    const int64_t bytes = d[key];
    return bytes > 0 ? size_text(bytes) : "unknown";
  };
  line("name", d["name"]);
  line("type", fmt::format("{} {}", d["type"].get<std::string>(), d["id"].get<int>()));
  line("instruction set", d["instruction_set"]);
  line("threads", std::to_string(d["threads"].get<int>()));
  line("L1 data cache", size("l1_bytes") + " per core");
  line("L2 cache", size("l2_bytes") + " per core");
  line("memory", size("memory_bytes"));
  line("default backend", d["backend"]);
  return text + "\n" + backends_text(backends) + "\n" + environment_text(j["environment"]);
}

}  // namespace

Action add_info(Parser& parser) {
  auto json = std::make_shared<bool>(false);
  parser.flag("--json", *json, "Print one JSON object instead of text");
  return [json]() -> int {
    const Json j = collect();
    if (*json)
      print(dump(j, 2) + "\n");
    else
      print_text(to_text(j));
    return kDone;
  };
}

}  // namespace fa3::cli
