// SPDX-License-Identifier: BSD-3-Clause
// fake_sim.cpp — a simulator whose every launch breaks a rule: how libfa3 and the command pass on
// the report, and the seed.
#include <new>
#include <string>

#include "runtime/sim_api.h"
#include "sim/violation.h"

namespace fa3::sim {
namespace {

thread_local std::string message;

void* create(const SimSettings* settings) { return new (std::nothrow) SimSettings(*settings); }
void destroy(void* device) { delete static_cast<SimSettings*>(device); }
void set_seed(void* device, u64 seed) { static_cast<SimSettings*>(device)->seed = seed; }
const char* add(void*, void*, size_t, const char*, bool, fa3_status*) { return nullptr; }
const char* remove(void*, void*) { return nullptr; }
void settle(void*) {}
const char* encode(const TensorMapSpec*, TensorMap* map) {
  *map = {};
  return nullptr;
}
const char* has_program(const char*, bool* has, fa3_status*) {
  *has = true;
  return nullptr;
}
const char* program(size_t) { return nullptr; }

const char* launch(void* device, const char*, const LaunchShape*, const void*, fa3_status* code) {
  Violation violation(Rule::kRace, "k[0]",
                      "tma_load writes k[0] and nothing orders it: that is bad",
                      "wgmma_wait() by the warpgroup that reads",
                      {{"tma_load", "the copy engine", "attention.cuh:74"},
                       {"wgmma", "wgmma of warpgroup 1", "attention.cuh:181"}});
  violation.block[1] = 2;
  violation.seed = static_cast<SimSettings*>(device)->seed;
  violation.finish();
  *code = FA3_INTERNAL;
  message = violation.what();
  return message.c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const SimApi* fa3_sim_api(void) {
  static const SimApi api{FA3_BUILD_VERSION, &create, &destroy,     &set_seed, &add,   &remove,
                          &settle,           &encode, &has_program, &program,  &launch};
  return &api;
}

}  // namespace fa3::sim
