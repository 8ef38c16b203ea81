// SPDX-License-Identifier: BSD-3-Clause
// jit.cpp — kernels ahead of time: fa3_jit_warm_kernels, fa3_jit_pack_kernels and their forms that
// take JSON, fa3_jit_list, fa3_jit_clear.
#include "backend/cuda/jit.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/boundary.h"
#include "api/conformance.h"
#include "api/context.h"
#include "backend/cuda/driver.h"
#include "backend/programs.h"
#include "core/function_ref.h"
#include "core/json.h"

namespace fa3 {
namespace {

struct Made {
  cuda::Kernel kernel;
  double ms = 0;
};

Status check_context(const char* where, const fa3_context* context) {
  if (context != nullptr) return {};
  return invalid("{}: context is NULL; open one with fa3_context_create", where);
}

// The member's text; nullptr where there is none.
const std::string* text_of(const Json& item, const char* member) {
  const Json* const found = item.find(member);
  return found == nullptr ? nullptr : found->text();
}

// The samples of libfa3_conformance.so; none where it is not installed.
std::span<const NamedProgram> samples() {
  const Result<const ConformanceLibrary*> library = load_conformance();
  if (!library.ok()) return {};
  return library.value()->samples();
}

bool has_header(const HeaderSet& set, const std::string& path) {
  return std::any_of(set.headers.begin(), set.headers.end(),
                     [&](const DeviceHeader& header) { return path == header.path; });
}

// A program of this library's device code, or of libfa3_conformance.so's.
Program program_of(const std::string& header, const std::string& expression) {
  Program program{header, expression, kHopperArch};
  if (has_header(cuda::device_headers(), header)) return program;
  const Result<const ConformanceLibrary*> library = load_conformance();
  if (!library.ok()) return program;
  const HeaderSet& more = library.value()->device_headers();
  if (has_header(more, header)) program.headers = &more;
  return program;
}

Result<std::vector<NamedProgram>> named(const std::string& name) {
  const std::string_view word = std::string_view(name).substr(0, name.find('/'));
  if (word == "samples") FA3_RETURN_IF_ERROR(load_conformance().status());
  return programs_named(name, word == "fwd" ? std::span<const NamedProgram>{} : samples());
}

// Each kernel once, in the order in which they are added.
class ProgramList {
 public:
  void add(std::vector<NamedProgram> more) {
    for (NamedProgram& program : more) {
      if (listed_.insert(program.program.header + '\n' + program.program.expression).second)
        programs_.push_back(std::move(program));
    }
  }
  std::vector<NamedProgram> take() { return std::move(programs_); }

 private:
  std::vector<NamedProgram> programs_;
  std::set<std::string> listed_;
};

Result<std::vector<NamedProgram>> read_names(const char* const* names, size_t count) {
  if (names == nullptr && count == 0) return known_programs(samples());
  if (names == nullptr) {
    return invalid("jit: names is NULL with count={}; pass their addresses, or 0 for all kernels",
                   count);
  }
  ProgramList programs;
  for (size_t i = 0; i < count; ++i) {
    if (names[i] == nullptr) return invalid("jit: names[{}] is NULL; need a kernel's name", i);
    FA3_TRY(std::vector<NamedProgram> meant, named(names[i]));
    programs.add(std::move(meant));
  }
  return programs.take();
}

Result<std::vector<NamedProgram>> read_json(const char* text) {
  if (text == nullptr) return known_programs(samples());
  const std::optional<Json> array = Json::parse(text);
  if (!array || !array->is_array()) {
    return invalid(
        "jit: programs is not a JSON array; need [\"fwd/d128\", {{\"header\": …, \"expression\": "
        "…}}, …]");
  }
  ProgramList programs;
  for (size_t i = 0; i < array->items().size(); ++i) {
    const Json& item = array->items()[i];
    std::vector<NamedProgram> meant;
    const std::string* const header = text_of(item, "header");
    const std::string* const expression = text_of(item, "expression");
    if (item.text() != nullptr) {
      FA3_TRY(meant, named(*item.text()));
    } else if (header != nullptr && expression != nullptr) {
      meant.push_back({"", program_of(*header, *expression)});
    } else {
      return invalid(
          "jit: programs[{}] is neither a name nor has it the texts \"header\" and "
          "\"expression\"; add them",
          i);
    }
    programs.add(std::move(meant));
  }
  return programs.take();
}

Json describe(const NamedProgram& program) {
  Json row;
  if (!program.name.empty()) row["name"] = program.name;
  row["header"] = program.program.header;
  row["expression"] = program.program.expression;
  return row;
}

// Compiles kernels in parallel: NVRTC takes seconds for each.
Result<std::vector<Made>> make(fa3_context* context, const std::vector<NamedProgram>& programs,
                               FunctionRef<Result<cuda::Kernel>(const Program&)> get) {
  std::vector<Made> made(programs.size());
  context->executor.run(std::ssize(programs), [&](const TaskContext& task) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    Result<cuda::Kernel> kernel = get(programs[static_cast<size_t>(task.index)].program);
    if (!kernel.ok()) throw Error(kernel.status().code, kernel.status().message);
    made[static_cast<size_t>(task.index)] = {
        std::move(kernel.value()),
        std::chrono::duration<double, std::milli>(Clock::now() - start).count()};
  });
  return made;
}

// Makes sure that a compiled kernel is in the cache, or returns the reason why not.
Status keep(cuda::Jit& jit, const Program& program, const cuda::Kernel& kernel) {
  const cuda::Key key = jit.key(program, jit.nvrtc().value().version());
  const cuda::DiskCache& disk = jit.disk().value();
  return disk.has(key) ? Status{} : disk.store(key, *kernel.cubin);
}

// Where a new process would find the kernel; null = nowhere.
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

// Reads the caller's list once the other arguments are known to be sound.
using ReadList = FunctionRef<Result<std::vector<NamedProgram>>()>;

Status warm(fa3_context* context, ReadList read_list, const char** report) {
  FA3_RETURN_IF_ERROR(check_context("jit_warm", context));
  FA3_TRY(const std::vector<NamedProgram> programs, read_list());
  cuda::Jit& jit = context->jit();
  if (!jit.bundled_only()) FA3_RETURN_IF_ERROR(jit.disk().status());
  const auto get = [&jit](const Program& program) -> Result<cuda::Kernel> {
    FA3_TRY(cuda::Kernel kernel, jit.get(program));
    // In memory it may be by another context's compiler, cache or bundle.
    if (kernel.source == cuda::KernelSource::kMemory && jit.nvrtc().ok() &&
        kept(jit, program).is_null()) {
      FA3_TRY(kernel, jit.get_compiled(program));
    }
    if (kernel.source == cuda::KernelSource::kCompiled)
      FA3_RETURN_IF_ERROR(keep(jit, program, kernel));
    return kernel;
  };
  FA3_TRY(const std::vector<Made> made, make(context, programs, get));
  Json rows = Json::array();
  for (size_t i = 0; i < programs.size(); ++i) {
    Json row = describe(programs[i]);
    row["source"] = cuda::source_name(made[i].kernel.source);
    row["ms"] = made[i].ms;
    row["bytes"] = made[i].kernel.cubin->image.size();
    rows.push_back(std::move(row));
  }
  if (report != nullptr) *report = keep_text(Text::kJitReport, rows.dump());
  return {};
}

Status pack(fa3_context* context, ReadList read_list, const char* path) {
  FA3_RETURN_IF_ERROR(check_context("jit_pack", context));
  if (path == nullptr || *path == '\0') {
    return invalid("jit_pack: path is {}; name the file to write",
                   path == nullptr ? "NULL" : "empty");
  }
  FA3_TRY(const std::vector<NamedProgram> programs, read_list());
  cuda::Jit& jit = context->jit();
  if (!jit.nvrtc().ok()) return {FA3_JIT_FAILED, jit.nvrtc().status().message};
  FA3_RETURN_IF_ERROR(cuda::check_pack_place(path));
  const int version = jit.nvrtc().value().version();
  const auto get = [&jit](const Program& program) { return jit.get_compiled(program); };
  FA3_TRY(const std::vector<Made> made, make(context, programs, get));
  std::vector<std::pair<cuda::Key, cuda::Cubin>> kernels;
  for (size_t i = 0; i < programs.size(); ++i)
    kernels.emplace_back(jit.key(programs[i].program, version), *made[i].kernel.cubin);
  return cuda::write_pack(path, version, kernels);
}

// {"usable": true, …} of a Result's value, or false and why.
template <class T, class Describe>
Json usable(const Result<T>& result, const Describe& describe_value) {
  Json row;
  row["usable"] = result.ok();
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

Status list(fa3_context* context, const char** report) {
  FA3_RETURN_IF_ERROR(check_context("jit_list", context));
  if (report == nullptr) return invalid("jit_list: report is NULL; pass its address");
  cuda::Jit& jit = context->jit();
  Json programs = Json::array();
  for (const NamedProgram& program : known_programs(samples())) {
    Json row = describe(program);
    row["kept"] = kept(jit, program.program);
    programs.push_back(std::move(row));
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
  document["programs"] = std::move(programs);
  *report = keep_text(Text::kJitReport, document.dump());
  return {};
}

}  // namespace
}  // namespace fa3

fa3_status fa3_jit_warm_kernels(fa3_context* context, const char* const* names, size_t count,
                                const char** report) {
  const auto read = [&] { return fa3::read_names(names, count); };
  return FA3_BOUNDARY({ return fa3::warm(context, read, report); });
}

fa3_status fa3_jit_pack_kernels(fa3_context* context, const char* const* names, size_t count,
                                const char* path) {
  const auto read = [&] { return fa3::read_names(names, count); };
  return FA3_BOUNDARY({ return fa3::pack(context, read, path); });
}

fa3_status fa3_jit_warm(fa3_context* context, const char* programs, const char** report) {
  const auto read = [&] { return fa3::read_json(programs); };
  return FA3_BOUNDARY({ return fa3::warm(context, read, report); });
}

fa3_status fa3_jit_pack(fa3_context* context, const char* programs, const char* path) {
  const auto read = [&] { return fa3::read_json(programs); };
  return FA3_BOUNDARY({ return fa3::pack(context, read, path); });
}

fa3_status fa3_jit_list(fa3_context* context, const char** report) {
  return FA3_BOUNDARY({ return fa3::list(context, report); });
}

fa3_status fa3_jit_clear(fa3_context* context) {
  return FA3_BOUNDARY({
    FA3_RETURN_IF_ERROR(fa3::check_context("jit_clear", context));
    return context->jit().clear();
  });
}
