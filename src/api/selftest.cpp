// SPDX-License-Identifier: BSD-3-Clause
// selftest.cpp — fa3_selftest: opens what the cases run on, runs them, reports.
#include <memory>

#include "api/args.h"
#include "api/boundary.h"
#include "api/context.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/machine.h"
#include "backend/cuda/readiness.h"
#include "backend/sim/machine.h"
#include "core/json.h"
#include "plan/explain.h"
#include "selftest/cases.h"
#include "selftest/measure.h"
#include "selftest/suite.h"

namespace fa3 {
namespace {

using selftest::Case;
using selftest::Target;
using selftest::Verdict;

constexpr size_t kSelftestArgsFirstSize = 48;  // in the first release; never changes
static_assert(sizeof(fa3_selftest_args) >= kSelftestArgsFirstSize, "fields are only ever appended");

Status check_args(const fa3_selftest_args& args) {
  if (args.backend != FA3_BACKEND_AUTO && args.backend != FA3_BACKEND_SIM &&
      args.backend != FA3_BACKEND_CUDA) {
    return invalid(
        "selftest: backend={} runs no cases; need FA3_BACKEND_SIM (4), FA3_BACKEND_CUDA (3), or "
        "FA3_BACKEND_AUTO (0) for both",
        args.backend);
  }
  if (args.list != 0 && args.list != 1) {
    return invalid("selftest: list={}, need 1 to list the cases or 0 to run them", args.list);
  }
  if (args.measure != 0 && args.measure != 1) {
    return invalid("selftest: measure={}, need 1 to measure after the cases or 0", args.measure);
  }
  if (args.measure == 1 && (args.list == 1 || args.backend == FA3_BACKEND_SIM)) {
    return invalid(
        "selftest: measure=1 runs programs on a GPU, got list={}, backend={}; need list=0 and "
        "FA3_BACKEND_CUDA (3) or FA3_BACKEND_AUTO (0)",
        args.list, args.backend);
  }
  return {};
}

// ---- Machines -----------------------------------------------------------------------------------

Result<std::unique_ptr<Machine>> open_simulator(uint64_t seed) {
  sim::SimMachine::Settings settings;
  settings.seed = seed;
  settings.exact_sums = true;
  FA3_TRY(std::unique_ptr<Machine> machine, sim::SimMachine::open(settings));
  return machine;
}

// The first Hopper GPU; `row` takes what it runs with.
Result<std::unique_ptr<Machine>> open_gpu(cuda::Jit& jit, Json& row) {
  FA3_TRY(const cuda::Driver* const driver, cuda::Driver::system());
  FA3_TRY(const cuda::GpuInfo gpu, cuda::first_hopper(*driver));
  row["driver"] = cuda::version_text(driver->version());
  if (jit.nvrtc().ok()) {
    row["nvrtc"] = cuda::version_text(jit.nvrtc().value().version());
  } else if (!jit.pack().ok()) {
    return jit.nvrtc().status();
  }
  FA3_TRY(std::unique_ptr<Machine> machine, cuda::CudaMachine::open(*driver, jit, gpu.ordinal));
  return machine;
}

struct Machines {
  std::vector<std::unique_ptr<Machine>> open;
  Json described = Json::array();  // those that are not open too
  std::string reasons;             // why those are not
  bool has_gpu = false;            // opened last

  // Opens a machine unless it cannot be, or another backend is asked for.
  template <class Open>
  void add(int32_t asked, fa3_backend backend, const Open& open_machine) {
    if (asked != FA3_BACKEND_AUTO && asked != backend) return;
    Json row;
    row["backend"] = backend_name(backend);
    row["usable"] = false;
    std::string why;
    try {
      Result<std::unique_ptr<Machine>> machine = open_machine(row);
      if (machine.ok()) {
        row["usable"] = true;
        has_gpu = backend == FA3_BACKEND_CUDA;
        row["name"] = machine.value()->name();
        open.push_back(std::move(machine).value());
      } else {
        why = machine.status().message;
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

Machines open_machines(fa3_context& context, const fa3_selftest_args& args) {
  Machines machines;
  machines.add(args.backend, FA3_BACKEND_SIM, [&](Json&) { return open_simulator(args.seed); });
  machines.add(args.backend, FA3_BACKEND_CUDA,
               [&](Json& row) { return open_gpu(context.jit(), row); });
  return machines;
}

// ---- Cases --------------------------------------------------------------------------------------

const char* status_name(int32_t status) {
  if (status == FA3_CASE_PASSED) return "passed";
  return status == FA3_CASE_FAILED ? "failed" : "skipped";
}

// Compiles on all threads what would be compiled one by one. What cannot be compiled says so where
// it is used.
void compile(fa3_context& context, const std::vector<Program>& programs) {
  const Executor executor(context.executor.threads());
  executor.run(static_cast<int64_t>(programs.size()), [&](const TaskContext& task) {
    static_cast<void>(context.jit().get(programs[static_cast<size_t>(task.index)]).ok());
  });
}

Status run_cases(const fa3_selftest_args& args, const std::vector<Case>& cases,
                 std::vector<Target>& targets, Json& document) {
  Json rows = Json::array();
  size_t count[FA3_CASE_SKIPPED + 1] = {};
  for (const Case& test : cases) {
    const Verdict verdict = args.list == 1 ? Verdict{} : selftest::judge(targets, test, args.seed);
    Json row;
    row["name"] = test.name;
    row["status"] = status_name(verdict.status);
    row["message"] = verdict.message;
    rows.push_back(std::move(row));
    ++count[verdict.status];
    if (args.on_case == nullptr) continue;
    const fa3_case_result result{sizeof(fa3_case_result),
                                 test.name.c_str(),
                                 verdict.status,
                                 static_cast<int32_t>(rows.items().size()),
                                 static_cast<int32_t>(cases.size()),
                                 verdict.device_lost ? 1 : 0,
                                 verdict.message.c_str()};
    if (args.on_case(args.on_case_user, &result) != 0) {
      return {FA3_CANCELLED, fmt::format("selftest: on_case asked to stop after case {} of {}",
                                         rows.items().size(), cases.size())};
    }
  }
  document["cases"] = std::move(rows);
  Json& summary = document["summary"];
  summary["cases"] = cases.size();
  summary["passed"] = count[FA3_CASE_PASSED];
  summary["failed"] = count[FA3_CASE_FAILED];
  summary["skipped"] = count[FA3_CASE_SKIPPED];
  return {};
}

// ---- Measurements -------------------------------------------------------------------------------

Status measure(fa3_context& context, const Machines& machines, const std::vector<Target>& targets,
               std::vector<selftest::Measurement>& results) {
  if (!machines.has_gpu) return unsupported("{}", machines.reasons);
  const Target& gpu = targets.back();
  if (!gpu.lost_in.empty()) {
    return {FA3_CUDA_ERROR, fmt::format("selftest: {} runs nothing any more since {}; measure in "
                                        "another process",
                                        gpu.machine->name(), gpu.lost_in)};
  }
  compile(context, selftest::measuring_programs());
  return selftest::measure(*gpu.machine, results);
}

Json measurements(fa3_context& context, const Machines& machines,
                  const std::vector<Target>& targets) {
  std::vector<selftest::Measurement> results;
  const Status status = measure(context, machines, targets, results);
  Json values = Json::object();
  for (const selftest::Measurement& result : results) values[result.name] = result.value;
  Json document;
  document["values"] = std::move(values);
  if (!status.ok()) document["why"] = status.message;
  return document;
}

// ---- The call -----------------------------------------------------------------------------------

Result<fa3_selftest_args> read_selftest_args(const fa3_selftest_args* given) {
  fa3_selftest_args args{};
  if (given != nullptr) {
    FA3_RETURN_IF_ERROR(
        read_struct("selftest: args", given, kSelftestArgsFirstSize, &args, sizeof args));
  }
  FA3_RETURN_IF_ERROR(check_args(args));
  return args;
}

Result<std::vector<Case>> cases_of(const fa3_selftest_args& args) {
  FA3_TRY(std::vector<Case> cases,
          selftest::chosen_cases(args.filter == nullptr ? "" : args.filter));
  if (args.first < 0 || static_cast<size_t>(args.first) > cases.size()) {
    return invalid("selftest: first={}, need 0 to {}, the number of cases that the filter chooses",
                   args.first, cases.size());
  }
  cases.erase(cases.begin(), cases.begin() + args.first);
  return cases;
}

Status run_selftest(fa3_context* context, const fa3_selftest_args* given, const char** report) {
  if (report != nullptr) *report = nullptr;
  if (context == nullptr) {
    return invalid("selftest: context is NULL; open one with fa3_context_create");
  }
  FA3_TRY(const fa3_selftest_args args, read_selftest_args(given));
  FA3_TRY(const std::vector<Case> cases, cases_of(args));
  Machines machines;
  std::vector<Target> targets;
  if (args.list == 0) {
    machines = open_machines(*context, args);
    if (machines.open.empty()) {
      return unsupported("selftest: nothing to run the cases on: {}", machines.reasons);
    }
    for (const auto& machine : machines.open) targets.push_back({machine.get(), ""});
    if (machines.has_gpu) compile(*context, selftest::programs_of(cases));
  }
  Json document;
  document["seed"] = args.seed;
  document["devices"] = std::move(machines.described);
  FA3_RETURN_IF_ERROR(run_cases(args, cases, targets, document));
  if (args.measure == 1) document["measurements"] = measurements(*context, machines, targets);
  if (report != nullptr) *report = keep_text(Text::kSelftestReport, document.dump());
  return {};
}

}  // namespace
}  // namespace fa3

fa3_status fa3_selftest(fa3_context* context, const fa3_selftest_args* args, const char** report) {
  return FA3_BOUNDARY({ return fa3::run_selftest(context, args, report); });
}
