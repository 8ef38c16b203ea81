// SPDX-License-Identifier: BSD-3-Clause
// selftest.cpp — `fa3 selftest`: single instructions of the GPU, in the simulator and on a GPU.
// They run in a child process: a case may stop the GPU for its process, end the process or hang.
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "child_process.h"
#include "commands.h"
#include "error.h"
#include "json_text.h"
#include "output.h"
#include "session.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SelftestOptions {
  std::string backend = "all";
  std::string filter;
  int64_t seed = 0;
  int64_t case_seconds = 60;
  bool list = false;
  bool measure = false;
  bool json = false;
};

// Of the child: opening the devices and compiling, and the measurements.
constexpr int kLongSeconds = 600;

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
    // JSON has no infinity: null means that the value is not a number.
    print_text(
        fmt::format("{:<52} {}\n", name,
                    value.is_number() ? fmt::format("{:.6g}", value.get<double>()) : "none"));
  }
  if (measurements.contains("why")) {
    print_text(fmt::format("{} measured: {}\n",
                           measurements["values"].empty() ? "nothing" : "no more",
                           measurements.value("why", "")));
  }
}

void print_report(const SelftestOptions& o, const Json& document) {
  if (o.list) {
    for (const Json& row : document["cases"]) print(row["name"].get<std::string>() + "\n");
    return;
  }
  for (const Json& device : document["devices"]) print_text(device_text(device));
  for (const Json& row : document["cases"]) {
    if (row["status"] == "passed") continue;
    print_text(fmt::format("{} {}: {}\n", row["name"].get<std::string>(),
                           row["status"].get<std::string>(), row["message"].get<std::string>()));
  }
  const Json& summary = document["summary"];
  print_text(fmt::format("{} cases: {} passed, {} failed, {} skipped\n",
                         summary["cases"].get<int>(), summary["passed"].get<int>(),
                         summary["failed"].get<int>(), summary["skipped"].get<int>()));
  if (o.measure) print_measurements(document["measurements"]);
}

// Measurements that a GPU broke off are a failure; having no GPU is not.
bool succeeded(const Json& document) {
  const Json& summary = document["summary"];
  if (summary["passed"] != summary["cases"]) return false;
  if (!document.contains("measurements") || !document["measurements"].contains("why")) return true;
  return !document["devices"].back()["usable"].get<bool>();
}

// ---- The call, in a child or, to list, here -----------------------------------------------------

fa3_selftest_args args_of(const SelftestOptions& o) {
  fa3_selftest_args args = {};
  args.struct_size = sizeof args;
  args.filter = o.filter.c_str();
  args.seed = static_cast<uint64_t>(o.seed);
  args.backend = o.backend == "all" ? FA3_BACKEND_AUTO : backend_value(o.backend);
  return args;
}

Json list_cases(const SelftestOptions& o) {
  const Session session("auto", 0, false);
  fa3_selftest_args args = args_of(o);
  args.list = 1;
  args.measure = o.list && o.measure ? 1 : 0;  // refused
  const char* report = nullptr;
  check_status(fa3_selftest(session.context(), &args, &report));
  return Json::parse(report);
}

// The result of a call as one line: {report} or {error, message}. Nothing when the GPU was lost.
void call(fa3_selftest_args args, const Send& send) {
  args.on_case_user = const_cast<Send*>(&send);
  args.on_case = [](void* user, const fa3_case_result* result) {
    const Json message{{"status", result->status == FA3_CASE_PASSED ? "passed" : "failed"},
                       {"message", result->message},
                       {"lost", result->device_lost != 0}};
    (*static_cast<const Send*>(user))(dump(message));
    return result->device_lost;
  };
  try {
    const Session session("auto", 0, false);
    const char* report = nullptr;
    const fa3_status status = fa3_selftest(session.context(), &args, &report);
    if (status == FA3_CANCELLED) return;
    check_status(status);
    send(dump({{"report", Json::parse(report)}}));
  } catch (const CliError& error) {
    send(dump({{"error", error.code()}, {"message", error.what()}}));
  }
}

// ---- Child after child --------------------------------------------------------------------------

class Run {
 public:
  explicit Run(const SelftestOptions& o)
      : options_(o), document_(list_cases(o)), measure_(o.measure), progress_(!o.json) {
    progress_.start("selftest");
  }

  Json finish() {
    while (!ended_ && fruitless_ < kMostFruitless) run_child();
    progress_.finish();
    if (!ended_)
      not_run_ = fmt::format("{} processes in a row ended in their first case", fruitless_);
    for (size_t i = done_; i < rows().size(); ++i) rows()[i]["message"] = not_run_;
    if (options_.measure && !document_.contains("measurements")) {
      document_["measurements"] = {{"values", Json::object()}, {"why", not_run_}};
    }
    std::map<std::string, int> count;
    for (const Json& row : rows()) ++count[row["status"].get<std::string>()];
    document_["summary"] = {{"cases", rows().size()},
                            {"passed", count["passed"]},
                            {"failed", count["failed"]},
                            {"skipped", count["skipped"]}};
    return std::move(document_);
  }

 private:
  // Children in a row that end in their first case: then the cases are not the cause.
  static constexpr int kMostFruitless = 3;

  Json& rows() { return document_["cases"]; }

  void run_child() {
    fa3_selftest_args args = args_of(options_);
    args.first = static_cast<int32_t>(done_);
    args.measure = measure_ ? 1 : 0;
    const size_t first = done_;
    lost_ = false;
    const auto seconds = [&] {
      return done_ == first || done_ == rows().size() ? kLongSeconds
                                                      : static_cast<int>(options_.case_seconds);
    };
    const std::string fate =
        run_in_child({[&](const Send& send) { call(args, send); },
                      [&](const std::string& line) { receive(Json::parse(line)); }, seconds});
    fruitless_ = done_ == first ? fruitless_ + 1 : 0;
    if (!ended_ && !lost_) blame(fate);
  }

  void receive(const Json& message) {
    if (message.contains("report")) {
      document_["devices"] = message["report"]["devices"];
      if (measure_) document_["measurements"] = message["report"]["measurements"];
      ended_ = true;
    } else if (message.contains("error")) {
      if (done_ == 0) throw CliError(message["error"].get<ExitCode>(), message["message"]);
      not_run_ = message["message"];
      ended_ = true;
    } else {
      lost_ = message["lost"];
      set(message["status"], message["message"]);
      progress_.report(static_cast<int64_t>(done_), static_cast<int64_t>(rows().size()));
    }
  }

  // The case that ran, or the measurements, ended the child.
  void blame(const std::string& fate) {
    const std::string what = "the process " + (fate.empty() ? "ended" : fate);
    if (done_ < rows().size()) {
      set("failed", what);
    } else if (measure_) {
      document_["measurements"] = {{"values", Json::object()}, {"why", what}};
      measure_ = false;
    }
  }

  void set(const std::string& status, const std::string& message) {
    Json& row = rows()[done_++];
    row["status"] = status;
    row["message"] = message;
  }

  const SelftestOptions& options_;
  Json document_;
  size_t done_ = 0;  // cases
  bool measure_;
  bool lost_ = false;    // the child has lost its GPU
  bool ended_ = false;   // no further child is needed
  std::string not_run_;  // why the remaining cases did not run
  int fruitless_ = 0;
  Progress progress_;
};

int selftest(const SelftestOptions& o) {
  const Json document = o.list ? list_cases(o) : Run(o).finish();
  if (o.json) {
    print(dump(document, 2) + "\n");
  } else {
    print_report(o, document);
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
  parser.whole("--case-seconds", o->case_seconds,
               "Seconds after which a case counts as hung; the rest runs without it", 1, 3600);
  parser.flag("--list", o->list, "Print the names of the cases and run none");
  parser.flag("--measure", o->measure,
              "After the cases, measure on the GPU what its specification leaves open");
  parser.flag("--json", o->json, "Print one JSON object instead of text");
  return [o] { return selftest(*o); };
}

}  // namespace fa3::cli
