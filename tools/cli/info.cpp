// SPDX-License-Identifier: BSD-3-Clause
// info.cpp — `fa3 info`: version, build, device, backends, environment.
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"
#include "json_text.h"
#include "output.h"
#include "session.h"
#include "tools/verify/fields.h"
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

constexpr const char* kKinds[] = {"", "tensor", "i32", "i64", "u64", "f64", "block", "reserved"};
constexpr const char* kRoles[] = {"option", "input", "optional input", "output", "optional output"};

// The fields of the argument structs, by operation.
Json fields_json() {
  Json j;
  for (const auto& [name, op] :
       {std::pair("forward", FA3_OP_FORWARD), std::pair("backward", FA3_OP_BACKWARD),
        std::pair("quantize", FA3_OP_QUANTIZE), std::pair("combine", FA3_OP_COMBINE)}) {
    for (const fa3_field& f : verify::fields(op)) {
      Json field = {{"name", f.name}, {"offset", f.offset}, {"kind", kKinds[f.kind]}};
      if (verify::is_tensor(f)) {
        field["role"] = kRoles[f.role];
        field["types"] = f.types;
        field["shape"] = f.shape;
        if (f.varlen_shape != nullptr) field["varlen_shape"] = f.varlen_shape;
      }
      if (f.of != nullptr) field["of"] = f.of;
      field["help"] = f.help;
      j[name].push_back(std::move(field));
    }
  }
  return j;
}

std::string fields_text(const Json& operations) {
  std::string text;
  for (const auto& [name, fields] : operations.items()) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", name);
    for (const Json& f : fields) {
      const std::string kind = f["kind"], varlen = f.value("varlen_shape", "");
      text += fmt::format("  {:<24} {}\n", f.value("name", ""), f.value("help", ""));
      if (kind == "reserved") continue;
      text += fmt::format("  {:<24} {}", "", f.value("role", kind));
      if (kind == "tensor")
        text += fmt::format(", {}{}{}; {}", f.value("shape", ""), varlen.empty() ? "" : " or ",
                            varlen, f.value("types", ""));
      text += "\n";
    }
  }
  return text;
}

}  // namespace

Action add_info(Parser& parser) {
  auto json = std::make_shared<bool>(false);
  parser.flag("--json", *json, "Print one JSON object instead of text");
  auto fields = std::make_shared<bool>(false);
  parser.flag(
      "--fields", *fields,
      "Show the fields of the C interface's argument structs instead: shapes, types, roles");
  return [json, fields]() -> int {
    const Json j = *fields ? fields_json() : collect();
    if (*json)
      print(dump(j, 2) + "\n");
    else
      print_text(*fields ? fields_text(j) : to_text(j));
    return kDone;
  };
}

}  // namespace fa3::cli
