// SPDX-License-Identifier: BSD-3-Clause
// selftest.cpp — `fa3 selftest`: single instructions of the GPU, in the simulator and on a GPU.
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"
#include "output.h"
#include "session.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SelftestOptions {
  std::string backend = "all";
  std::string filter;
  int64_t seed = 0;
  bool list = false;
  bool measure = false;
  bool json = false;
};

int show_progress(void* progress, const fa3_case_result* result) {
  return static_cast<Progress*>(progress)->report(result->done, result->total) ? 0 : 1;
}

std::string device_text(const Json& device) {
  const std::string backend = device["backend"];
  if (!device["usable"].get<bool>()) {
    return fmt::format("{:<5} not available: {}\n", backend, device.value("why", ""));
  }
  std::string text = fmt::format("{:<5} {}", backend, device.value("name", ""));
  if (device.contains("driver"))
    text += fmt::format(", driver with CUDA {}", device.value("driver", ""));
  if (device.contains("nvrtc")) text += fmt::format(", NVRTC {}", device.value("nvrtc", ""));
  return text + "\n";
}

void print_measurements(const Json& measurements) {
  for (const auto& [name, value] : measurements["values"].items()) {
    // JSON has no infinity: null stands for what is no number.
    print(fmt::format("{:<52} {}\n", name,
                      value.is_number() ? fmt::format("{:.6g}", value.get<double>()) : "none"));
  }
  if (measurements.contains("why")) {
    print(fmt::format("{} measured: {}\n", measurements["values"].empty() ? "nothing" : "no more",
                      measurements.value("why", "")));
  }
}

void print_text(const SelftestOptions& o, const Json& document) {
  if (o.list) {
    for (const Json& row : document["cases"]) print(row["name"].get<std::string>() + "\n");
    return;
  }
  for (const Json& device : document["devices"]) print(device_text(device));
  for (const Json& row : document["cases"]) {
    if (row["status"] == "passed") continue;
    print(fmt::format("{} {}: {}\n", row["name"].get<std::string>(),
                      row["status"].get<std::string>(), row["message"].get<std::string>()));
  }
  const Json& summary = document["summary"];
  print(fmt::format("{} cases: {} passed, {} failed, {} skipped\n", summary["cases"].get<int>(),
                    summary["passed"].get<int>(), summary["failed"].get<int>(),
                    summary["skipped"].get<int>()));
  if (o.measure) print_measurements(document["measurements"]);
}

// A GPU that was asked to measure and broke off is a failure; that there is none is not.
bool succeeded(const Json& document) {
  const Json& summary = document["summary"];
  if (summary["passed"] != summary["cases"]) return false;
  if (!document.contains("measurements") || !document["measurements"].contains("why")) return true;
  return !document["devices"].back()["usable"].get<bool>();
}

int selftest(const SelftestOptions& o) {
  Session session("auto", 0, !o.json);
  fa3_selftest_args args = {};
  args.struct_size = sizeof args;
  args.filter = o.filter.c_str();
  args.seed = static_cast<uint64_t>(o.seed);
  args.on_case = &show_progress;
  args.on_case_user = &session.progress();
  args.backend = o.backend == "all" ? FA3_BACKEND_AUTO : backend_value(o.backend);
  args.list = o.list ? 1 : 0;
  args.measure = o.measure ? 1 : 0;
  const char* report = nullptr;
  session.progress().start("selftest");
  const fa3_status status = fa3_selftest(session.context(), &args, &report);
  session.progress().finish();
  check_status(status);
  const Json document = Json::parse(report);
  if (o.json) {
    print(document.dump(2) + "\n");
  } else {
    print_text(o, document);
  }
  return o.list || succeeded(document) ? kDone : kCheckFailed;
}

}  // namespace

Action add_selftest(Parser& parser) {
  auto o = std::make_shared<SelftestOptions>();
  parser.text("--backend", o->backend, "NAME",
              "Where: sim, cuda, or all that is here, compared with each other",
              {"sim", "cuda", "all"});
  parser.text("--filter", o->filter, "REGEX",
              "Only cases in whose name this regular expression is found");
  parser.whole("--seed", o->seed, "Seed of the inputs and of what the simulator may choose");
  parser.flag("--list", o->list, "Print the names of the cases and run none");
  parser.flag("--measure", o->measure,
              "After the cases, measure on the GPU what its specification leaves open");
  parser.flag("--json", o->json, "Print one JSON object instead of text");
  return [o] { return selftest(*o); };
}

}  // namespace fa3::cli
