// SPDX-License-Identifier: BSD-3-Clause
// registers.cpp — setmaxnreg: the CTA's pool of registers, and what wgmma's register arrays
// remember.
#include <fmt/core.h>

#include "sim/collective.h"

namespace fa3::sim {
namespace {

void check_count(Thread& thread, u32 count, bool increase, const char* op, Where where) {
  const Warp& warp = *thread.warp;
  const auto refuse = [&](std::string message, std::string missing) {
    fail(*thread.cta, Rule::kRegisters, "", std::move(message), std::move(missing),
         {access_of(thread, op, where)});
  };
  if (count % 8 != 0 || count < 24 || count > 256)
    refuse(fmt::format("{} to {} registers", op, count), "a multiple of 8 from 24 to 256");
  if (increase ? count < warp.registers : count > warp.registers)
    refuse(fmt::format("{} to {} registers in a warp that has {}", op, count, warp.registers),
           increase ? "at least as many as before" : "at most as many as before");
  if (thread.ids.block_threads % kWarpgroup != 0)
    refuse(fmt::format("{} in a CTA of {} threads", op, thread.ids.block_threads),
           "whole warpgroups of 128 threads");
  // All warps of a warpgroup execute the same sequence.
  const u32 nth = static_cast<u32>(warp.register_history.size());
  for (u32 w = warp.index / 4 * 4; w < warp.index / 4 * 4 + 4; w++) {
    const auto& history = thread.cta->warps[w].register_history;
    if (history.size() > nth && history[nth] != count)
      refuse(fmt::format("{} to {} registers in warp {}, {} in warp {} of its warpgroup", op, count,
                         warp.index, history[nth], w),
             "the same setmaxnreg in all four warps of a warpgroup");
  }
}

}  // namespace
}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

void setmaxnreg(u32 count, bool increase, Where where) {
  const char* op = increase ? "reg_increase" : "reg_decrease";
  Thread& thread = enter(op, where);
  Cta& cta = *thread.cta;
  Worker& worker = *cta.cluster.worker;
  Warp& warp = *thread.warp;
  check_count(thread, count, increase, op, where);
  gather(thread, {op, where, ~0u, true, count}, &thread, [&](void* const*) {
    warp.register_history.push_back(count);
    if (increase) return;
    cta.register_pool += warp.registers - count;
    warp.registers = count;
    worker.wake_all(cta.register_waiters);
  });
  if (!increase) return;
  const u32 warps = static_cast<u32>(cta.warps.size());
  const u32 total = warps * cta.entry_registers;
  if (4 * count + 24 * (warps - 4) > total)
    fail(cta, Rule::kRegisters, "",
         fmt::format("reg_increase to {} registers can never be satisfied: the CTA has {} per "
                     "thread for {} warpgroups, and the others keep at least 24",
                     count, total / 4, warps / 4),
         "a smaller count", {access_of(thread, op, where)});
  // The first lane to run takes the registers for its warp.
  while (warp.registers < count) {
    const u32 wanted = count - warp.registers;
    if (cta.register_pool >= wanted) {
      cta.register_pool -= wanted;
      warp.registers = count;
    } else {
      cta.register_waiters.push_back(&thread);
      worker.block(thread, {Waiting::On::kRegisters, 0, count});
    }
  }
}

RegisterState::RegisterState()
    : fences(&self().wgmma_fences), touched(*fences), touched_at(self().where) {}

RegisterState::RegisterState(const RegisterState& other)
    : fences(&self().wgmma_fences),
      touched(*fences),
      touched_at(self().where),
      defined(other.defined) {
  if (other.in_flight != 0) other.report_in_flight(touched_at);
}

RegisterState& RegisterState::operator=(const RegisterState& other) {
  if (other.in_flight != 0) other.report_in_flight(self().where);
  touch(self().where);
  defined = other.defined;
  return *this;
}

void RegisterState::report_in_flight(Where where) const {
  Thread& thread = self();
  fail(*thread.cta, Rule::kRegisterInFlight, "",
       "registers of a wgmma in flight are accessed before the wait that covers it",
       "wgmma_wait<N>() for the group of the wgmma, before its accumulator or A registers are "
       "touched",
       {access_of(thread, "register access", where), access_of(thread, "wgmma", mma_at)});
}

// In a destructor: the report waits for the thread's next primitive, or its end.
void RegisterState::report_lost() const noexcept {
  if (Thread* thread = running(); thread != nullptr) thread->lost_registers = mma_at;
}

}  // namespace fa3::twin
