// SPDX-License-Identifier: BSD-3-Clause
// sim_api.cpp — the simulator behind plain functions; nothing is thrown across them.
#include "runtime/sim_api.h"

#include <fstream>
#include <string>

#include "sim/program.h"
#include "sim/tensor_map.h"

namespace fa3::sim {
namespace {

thread_local std::string message;

struct Opened {
  Device device;
  Trace trace;
  std::string trace_path;
};

Opened& opened(void* device) { return *static_cast<Opened*>(device); }

const char* keep(std::string text) {
  message = std::move(text);
  return message.c_str();
}

// Runs act; what it throws becomes a message and a code.
template <class Act>
const char* guarded(fa3_status* code, const Act& act) {
  fa3_status ignored;
  fa3_status& to = code != nullptr ? *code : ignored;
  try {
    act();
    to = FA3_OK;
    return nullptr;
  } catch (const Violation& violation) {
    to = FA3_INTERNAL;
    return keep(violation.what());
  } catch (const Error& error) {
    to = error.status().code;
    return keep(error.what());
  } catch (const std::bad_alloc&) {
    to = FA3_OUT_OF_MEMORY;
    return keep("simulator: out of memory");
  } catch (const std::exception& error) {
    to = FA3_INTERNAL;
    return keep(error.what());
  }
}

bool write_log(const Opened& of) {
  if (of.trace_path.empty()) return true;
  std::ofstream file(of.trace_path, std::ios::trunc);
  file << of.trace.json();
  return static_cast<bool>(file.flush());
}

void* create(const SimSettings* settings) {
  auto* made = new (std::nothrow) Opened;
  if (made == nullptr) return nullptr;
  made->device.options.seed = settings->seed;
  made->device.options.workers = settings->workers;
  made->device.options.sms = settings->sms;
  made->device.options.exact_sums = settings->exact_sums;
  if (settings->trace_path != nullptr) {
    made->trace_path = settings->trace_path;
    made->device.options.trace = &made->trace;
    made->device.options.timed = true;
  }
  return made;
}

void destroy(void* device) { delete static_cast<Opened*>(device); }

void set_seed(void* device, u64 seed) { opened(device).device.options.seed = seed; }

const char* add(void* device, void* base, size_t bytes, const char* name, bool read_only,
                fa3_status* code) {
  return guarded(code, [&] { opened(device).device.memory.add(name, base, bytes, read_only); });
}

const char* remove(void* device, void* base) {
  return guarded(nullptr, [&] { opened(device).device.memory.remove(base); });
}

void settle(void* device) { opened(device).device.synchronize(); }

const char* encode(const TensorMapSpec* spec, TensorMap* map) {
  return guarded(nullptr, [&] {
    auto made = encode_tensor_map(*spec);
    if (!made.ok()) throw Error(made.status().code, made.status().message);
    *map = made.value();
  });
}

const char* has_program(const char* expression, bool* has, fa3_status* code) {
  return guarded(code, [&] { *has = find_program(expression) != nullptr; });
}

const char* program(size_t i) {
  static const std::vector<std::string> expressions = program_expressions();
  return i < expressions.size() ? expressions[i].c_str() : nullptr;
}

const char* launch(void* device, const char* expression, const LaunchShape* shape, const void* args,
                   fa3_status* code) {
  return guarded(code, [&] {
    const Kernel* kernel = find_program(expression);
    if (kernel == nullptr)
      throw Error(FA3_UNSUPPORTED, std::string("simulator: ") + expression +
                                       " was not compiled into libfa3_sim.so; add it with "
                                       "FA3_SIM_PROGRAM");
    Opened& to = opened(device);
    to.trace.clear();
    try {
      to.device.launch(*kernel, *shape, args);
    } catch (const Violation&) {
      write_log(to);  // of use until there; the report matters more than whether this succeeds
      throw;
    }
    if (!write_log(to))
      throw Error(FA3_IO_ERROR, "simulator: could not write the event log " + to.trace_path +
                                    "; make room there, or name another file in FA3_SIM_TRACE");
  });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const SimApi* fa3_sim_api(void) {
  static const SimApi api{FA3_BUILD_VERSION, &create, &destroy,     &set_seed, &add,   &remove,
                          &settle,           &encode, &has_program, &program,  &launch};
  return &api;
}

}  // namespace fa3::sim
