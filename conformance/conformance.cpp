// SPDX-License-Identifier: BSD-3-Clause
// conformance.cpp — fa3_conformance_run: opens what the cases run on, runs them, reports.
#include "fa3/conformance.h"

#include <fmt/core.h>

#include <memory>

#include "api/conformance.h"
#include "conformance/cases/cases.h"
#include "conformance/cases/suite.h"
#include "conformance/measure/measure.h"
#include "core/json.h"

namespace fa3 {
namespace {

using selftest::Case;
using selftest::Target;
using selftest::Verdict;

constexpr size_t kArgsFirstSize = 56;  // in the first release; never changes
static_assert(sizeof(fa3_conformance_args) >= kArgsFirstSize, "fields are only ever appended");

Status check_args(const fa3_conformance_args& args) {
  if (args.backend != FA3_BACKEND_AUTO && args.backend != FA3_BACKEND_SIM &&
      args.backend != FA3_BACKEND_CUDA) {
    return invalid(
        "conformance: backend={} runs no cases; need FA3_BACKEND_SIM (4), FA3_BACKEND_CUDA (3), or "
        "FA3_BACKEND_AUTO (0) for both",
        args.backend);
  }
  if (args.list != 0 && args.list != 1) {
    return invalid("conformance: list={}, need 1 to list the cases or 0 to run them", args.list);
  }
  if (args.measure != 0 && args.measure != 1) {
    return invalid("conformance: measure={}, need 1 to measure after the cases or 0", args.measure);
  }
  if (args.measure == 1 && (args.list == 1 || args.backend == FA3_BACKEND_SIM)) {
    return invalid(
        "conformance: measure=1 runs programs on a GPU, got list={}, backend={}; need list=0 and "
        "FA3_BACKEND_CUDA (3) or FA3_BACKEND_AUTO (0)",
        args.list, args.backend);
  }
  return {};
}

// ---- Runtimes -----------------------------------------------------------------------------------

struct Runtimes {
  std::vector<std::unique_ptr<GpuRuntime>> open;
  Json described = Json::array();  // includes those that are not open
  std::string reasons;             // why those are not open
  bool has_gpu = false;            // opened last

  // Opens a runtime if possible, unless another backend is asked for.
  template <class Open>
  void add(int32_t asked, fa3_backend backend, const char* name, const Open& open_runtime) {
    if (asked != FA3_BACKEND_AUTO && asked != backend) return;
    Json row;
    row["backend"] = name;
    row["usable"] = false;
    std::string why;
    try {
      Result<std::unique_ptr<GpuRuntime>> runtime = open_runtime(row);
      if (runtime.ok()) {
        row["usable"] = true;
        has_gpu = backend == FA3_BACKEND_CUDA;
        row["name"] = runtime.value()->name();
        open.push_back(std::move(runtime).value());
      } else {
        why = runtime.status().message;
      }
    } catch (const Error& error) {  // a driver that fails when it is asked
      why = error.what();
    }
    if (!why.empty()) {
      row["why"] = why;
      reasons += (reasons.empty() ? "" : "; ") + why;
    }
    described.push_back(std::move(row));
  }
};

Runtimes open_runtimes(const ConformanceApi& api, fa3_context& context,
                       const fa3_conformance_args& args) {
  Runtimes runtimes;
  runtimes.add(args.backend, FA3_BACKEND_SIM, "sim",
               [&](Json&) { return api.open_simulator(args.seed); });
  runtimes.add(args.backend, FA3_BACKEND_CUDA, "cuda", [&](Json& row) {
    GpuVersions versions;
    Result<std::unique_ptr<GpuRuntime>> runtime = api.open_gpu(context, versions);
    if (!versions.driver.empty()) row["driver"] = versions.driver;
    if (!versions.nvrtc.empty()) row["nvrtc"] = versions.nvrtc;
    return runtime;
  });
  return runtimes;
}

// ---- Cases --------------------------------------------------------------------------------------

const char* status_name(int32_t status) {
  if (status == FA3_CONFORMANCE_PASSED) return "passed";
  return status == FA3_CONFORMANCE_FAILED ? "failed" : "skipped";
}

Status run_cases(const fa3_conformance_args& args, const std::vector<Case>& cases,
                 std::vector<Target>& targets, Json& document) {
  Json rows = Json::array();
  size_t count[FA3_CONFORMANCE_SKIPPED + 1] = {};
  for (const Case& test : cases) {
    const Verdict verdict = args.list == 1 ? Verdict{} : selftest::judge(targets, test, args.seed);
    Json row;
    row["name"] = test.name;
    row["status"] = status_name(verdict.status);
    row["message"] = verdict.message;
    rows.push_back(std::move(row));
    ++count[verdict.status];
    if (args.on_case == nullptr) continue;
    const fa3_conformance_result result{sizeof(fa3_conformance_result),
                                        test.name.c_str(),
                                        verdict.status,
                                        static_cast<int32_t>(rows.items().size()),
                                        static_cast<int32_t>(cases.size()),
                                        verdict.device_lost ? 1 : 0,
                                        verdict.message.c_str()};
    if (args.on_case(args.on_case_user, &result) != 0) {
      return {FA3_CANCELLED, fmt::format("conformance: on_case asked to stop after case {} of {}",
                                         rows.items().size(), cases.size())};
    }
  }
  document["cases"] = std::move(rows);
  Json& summary = document["summary"];
  summary["cases"] = cases.size();
  summary["passed"] = count[FA3_CONFORMANCE_PASSED];
  summary["failed"] = count[FA3_CONFORMANCE_FAILED];
  summary["skipped"] = count[FA3_CONFORMANCE_SKIPPED];
  return {};
}

// ---- Measurements -------------------------------------------------------------------------------

Status measure(const ConformanceApi& api, fa3_context& context, const Runtimes& runtimes,
               const std::vector<Target>& targets, std::vector<selftest::Measurement>& results) {
  if (!runtimes.has_gpu) return unsupported("{}", runtimes.reasons);
  const Target& gpu = targets.back();
  if (!gpu.lost_in.empty()) {
    return {FA3_CUDA_ERROR,
            fmt::format("conformance: {} runs nothing any more since {}; measure in "
                        "another process",
                        gpu.runtime->name(), gpu.lost_in)};
  }
  api.compile(context, selftest::measuring_programs());
  return selftest::measure(*gpu.runtime, results);
}

Json measurements(const ConformanceApi& api, fa3_context& context, const Runtimes& runtimes,
                  const std::vector<Target>& targets) {
  std::vector<selftest::Measurement> results;
  const Status status = measure(api, context, runtimes, targets, results);
  Json values = Json::object();
  for (const selftest::Measurement& result : results) values[result.name] = result.value;
  Json document;
  document["values"] = std::move(values);
  if (!status.ok()) document["why"] = status.message;
  return document;
}

// ---- The call -----------------------------------------------------------------------------------

Result<fa3_conformance_args> read_args(const ConformanceApi& api,
                                       const fa3_conformance_args* given) {
  fa3_conformance_args args{};
  if (given != nullptr) {
    FA3_RETURN_IF_ERROR(
        api.read_struct("conformance: args", given, kArgsFirstSize, &args, sizeof args));
  }
  FA3_RETURN_IF_ERROR(check_args(args));
  return args;
}

Result<std::vector<Case>> cases_of(const fa3_conformance_args& args) {
  FA3_TRY(std::vector<Case> cases,
          selftest::chosen_cases(args.filter == nullptr ? "" : args.filter));
  if (args.first < 0 || static_cast<size_t>(args.first) > cases.size()) {
    return invalid(
        "conformance: first={}, need 0 to {}, the number of cases that the filter chooses",
        args.first, cases.size());
  }
  cases.erase(cases.begin(), cases.begin() + args.first);
  return cases;
}

Status run(const ConformanceApi& api, fa3_context* context, const fa3_conformance_args* given,
           const char** report) {
  if (report != nullptr) *report = nullptr;
  if (context == nullptr) {
    return invalid("conformance: context is NULL; open one with fa3_context_create");
  }
  FA3_TRY(const fa3_conformance_args args, read_args(api, given));
  FA3_TRY(const std::vector<Case> cases, cases_of(args));
  Runtimes runtimes;
  std::vector<Target> targets;
  if (args.list == 0) {
    runtimes = open_runtimes(api, *context, args);
    if (runtimes.open.empty()) {
      return unsupported("conformance: nothing to run the cases on: {}", runtimes.reasons);
    }
    for (const auto& runtime : runtimes.open) targets.push_back({runtime.get(), ""});
    if (runtimes.has_gpu) api.compile(*context, selftest::programs_of(cases));
  }
  Json document;
  document["seed"] = args.seed;
  document["devices"] = std::move(runtimes.described);
  FA3_RETURN_IF_ERROR(run_cases(args, cases, targets, document));
  if (args.measure == 1) document["measurements"] = measurements(api, *context, runtimes, targets);
  if (report != nullptr) *report = api.keep_report(document.dump());
  return {};
}

// As FA3_BOUNDARY in libfa3, which keeps the message.
fa3_status run_at_boundary(const ConformanceApi& api, fa3_context* context,
                           const fa3_conformance_args* args, const char** report) noexcept {
  try {
    return api.record(run(api, context, args, report));
  } catch (...) {
    return api.record_exception();
  }
}

constexpr ConformanceLibrary kLibrary{FA3_BUILD_VERSION, &run_at_boundary,
                                      &selftest::device_headers, &selftest::samples};

}  // namespace
}  // namespace fa3

const fa3::ConformanceLibrary* fa3_private_conformance_library(void) { return &fa3::kLibrary; }

fa3_status fa3_conformance_run(fa3_context* context, const fa3_conformance_args* args,
                               const char** report) {
  if (report != nullptr) *report = nullptr;
  const fa3::ConformanceApi* const api = fa3_private_conformance_api(FA3_BUILD_VERSION);
  if (api == nullptr) return FA3_UNSUPPORTED;
  return fa3::run_at_boundary(*api, context, args, report);
}
