// SPDX-License-Identifier: BSD-3-Clause
// jit.cpp — kernels ahead of time: fa3_jit_warm, fa3_jit_pack, fa3_jit_list, fa3_jit_clear.
#include "backend/cuda/jit.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "api/boundary.h"
#include "api/context.h"
#include "backend/cuda/driver.h"
#include "backend/programs.h"

namespace fa3 {
namespace {

using Json = nlohmann::ordered_json;

thread_local std::string last_report;

Status check_context(const char* where, const fa3_context* context) {
  if (context != nullptr) return {};
  return invalid("{}: context is NULL; open one with fa3_context_create", where);
}

bool names_program(const Json& item) {
  return item.is_object() && item.contains("header") && item["header"].is_string() &&
         item.contains("expression") && item["expression"].is_string();
}

Result<std::vector<Program>> read_programs(const char* text) {
  if (text == nullptr) return known_programs();
  const Json array = Json::parse(text, nullptr, false);
  if (!array.is_array()) {
    return invalid(
        "jit: programs is not a JSON array; need [{{\"header\": …, \"expression\": …}}, …]");
  }
  std::vector<Program> programs;
  for (const Json& item : array) {
    if (!names_program(item)) {
      return invalid("jit: programs[{}] lacks the texts \"header\" and \"expression\"; add them",
                     programs.size());
    }
    programs.push_back({item["header"], item["expression"]});
  }
  return programs;
}

Json describe(const Program& program) {
  return {{"header", program.header}, {"expression", program.expression}};
}

// A kernel that was compiled lies in the cache, or the reason why not.
Status keep(cuda::Jit& jit, const Program& program, const cuda::Kernel& kernel) {
  const cuda::Key key = jit.key(program, jit.nvrtc().value().version());
  const cuda::DiskCache& disk = jit.disk().value();
  return disk.has(key) ? Status{} : disk.store(key, *kernel.cubin);
}

Status warm(fa3_context* context, const char* text, const char** report) {
  FA3_RETURN_IF_ERROR(check_context("jit_warm", context));
  FA3_TRY(const std::vector<Program> programs, read_programs(text));
  cuda::Jit& jit = context->jit();
  if (!jit.packed_only()) FA3_RETURN_IF_ERROR(jit.disk().status());
  Json rows = Json::array();
  for (const Program& program : programs) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    FA3_TRY(const cuda::Kernel kernel, jit.get(program));
    if (kernel.source == cuda::KernelSource::kCompiled) {
      FA3_RETURN_IF_ERROR(keep(jit, program, kernel));
    }
    Json row = describe(program);
    row["source"] = cuda::source_name(kernel.source);
    row["ms"] = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    row["bytes"] = kernel.cubin->image.size();
    rows.push_back(row);
  }
  if (report != nullptr) {
    last_report = rows.dump(2);
    *report = last_report.c_str();
  }
  return {};
}

Status pack(fa3_context* context, const char* text, const char* path) {
  FA3_RETURN_IF_ERROR(check_context("jit_pack", context));
  if (path == nullptr || *path == '\0') {
    return invalid("jit_pack: path is {}; name the file to write",
                   path == nullptr ? "NULL" : "empty");
  }
  FA3_TRY(const std::vector<Program> programs, read_programs(text));
  cuda::Jit& jit = context->jit();
  if (!jit.nvrtc().ok()) return {FA3_JIT_FAILED, jit.nvrtc().status().message};
  const int version = jit.nvrtc().value().version();
  std::vector<std::pair<cuda::Key, cuda::Cubin>> kernels;
  std::set<cuda::Key> packed;
  for (const Program& program : programs) {
    const cuda::Key key = jit.key(program, version);
    if (!packed.insert(key).second) continue;
    FA3_TRY(const cuda::Kernel kernel, jit.get_compiled(program));
    kernels.emplace_back(key, *kernel.cubin);
  }
  return cuda::write_pack(path, version, kernels);
}

// {"usable": true, …} of a Result's value, or false and why.
template <class T, class Describe>
Json usable(const Result<T>& result, const Describe& describe_value) {
  Json row = {{"usable", result.ok()}};
  if (result.ok()) {
    describe_value(row, result.value());
  } else {
    row["why"] = result.status().message;
  }
  return row;
}

void describe_cache(Json& row, const cuda::DiskCache& disk) {
  const std::vector<cuda::DiskCache::Entry> entries = disk.list();
  uint64_t bytes = 0;
  for (const cuda::DiskCache::Entry& entry : entries) bytes += entry.bytes;
  row["folder"] = disk.folder();
  row["entries"] = entries.size();
  row["bytes"] = bytes;
  row["limit_bytes"] = disk.limit_bytes();
}

Json kept(cuda::Jit& jit, const Program& program) {
  if (jit.disk().ok() && jit.nvrtc().ok() &&
      jit.disk().value().has(jit.key(program, jit.nvrtc().value().version()))) {
    return cuda::source_name(cuda::KernelSource::kDisk);
  }
  if (jit.pack().ok() &&
      jit.pack().value().has(jit.key(program, jit.pack().value().nvrtc_version()))) {
    return cuda::source_name(cuda::KernelSource::kPack);
  }
  return nullptr;
}

Status list(fa3_context* context, const char** report) {
  FA3_RETURN_IF_ERROR(check_context("jit_list", context));
  if (report == nullptr) return invalid("jit_list: report is NULL; pass its address");
  cuda::Jit& jit = context->jit();
  Json programs = Json::array();
  for (const Program& program : known_programs()) {
    Json row = describe(program);
    row["kept"] = kept(jit, program);
    programs.push_back(row);
  }
  Json document;
  document["driver"] = usable(cuda::Driver::system(), [](Json& row, const cuda::Driver* driver) {
    row["cuda"] = cuda::version_text(driver->version());
    row["library"] = driver->path();
  });
  document["nvrtc"] = usable(jit.nvrtc(), [](Json& row, const cuda::Nvrtc& nvrtc) {
    row["version"] = cuda::version_text(nvrtc.version());
    row["library"] = nvrtc.path();
  });
  document["cache"] = usable(jit.disk(), describe_cache);
  document["pack"] = usable(jit.pack(), [](Json& row, const cuda::Pack& kernels) {
    row["file"] = kernels.path();
    row["nvrtc"] = cuda::version_text(kernels.nvrtc_version());
    row["kernels"] = kernels.size();
  });
  document["programs"] = programs;
  last_report = document.dump(2, ' ', false, Json::error_handler_t::replace);
  *report = last_report.c_str();
  return {};
}

}  // namespace
}  // namespace fa3

fa3_status fa3_jit_warm(fa3_context* context, const char* programs, const char** report) {
  return FA3_BOUNDARY({ return fa3::warm(context, programs, report); });
}

fa3_status fa3_jit_pack(fa3_context* context, const char* programs, const char* path) {
  return FA3_BOUNDARY({ return fa3::pack(context, programs, path); });
}

fa3_status fa3_jit_list(fa3_context* context, const char** report) {
  return FA3_BOUNDARY({ return fa3::list(context, report); });
}

fa3_status fa3_jit_clear(fa3_context* context) {
  return FA3_BOUNDARY({
    FA3_RETURN_IF_ERROR(fa3::check_context("jit_clear", context));
    FA3_RETURN_IF_ERROR(context->jit().disk().status());
    return context->jit().disk().value().clear();
  });
}
