// SPDX-License-Identifier: BSD-3-Clause
// wgmma.cpp — issue, groups and waits of wgmma. Lanes post and go on; an instruction starts when
// all
// 128 have posted it, in order within its warpgroup, at a moment the scheduler draws.
#include "sim/wgmma.h"

#include <fmt/core.h>

#include <algorithm>

namespace fa3::sim {
namespace {

using twin::RegisterState;

Warpgroup& warpgroup_of(Thread& thread, const char* op, Where where) {
  if (thread.ids.block_threads % kWarpgroup != 0)
    fail(*thread.cta, Rule::kWgmma, "",
         fmt::format("{} in a CTA of {} threads", op, thread.ids.block_threads),
         "whole warpgroups of 128 threads", {access_of(thread, op, where)});
  return thread.cta->warpgroups[thread.ids.thread / kWarpgroup];
}

void check_registers(Thread& thread, const RegisterState& state, const char* role, Where where) {
  if (state.fences != &thread.wgmma_fences)
    fail(*thread.cta, Rule::kWgmma, "",
         fmt::format("the {} of a wgmma belong to another thread", role),
         "registers of the executing thread", {access_of(thread, "wgmma", where)});
  if (state.touched >= thread.wgmma_fences)
    fail(*thread.cta, Rule::kWgmmaFence, "",
         fmt::format("the {} of a wgmma were accessed after the last wgmma_fence()", role),
         "wgmma_fence() between ordinary accesses of registers and the wgmma that uses them",
         {access_of(thread, "wgmma", where),
          access_of(thread, "register access", state.touched_at)});
}

void check_d(Thread& thread, const RegisterState& state, const WgmmaInstruction& instruction,
             bool accumulate, Where where) {
  check_registers(thread, state, "accumulators", where);
  if (state.last != nullptr && state.mma_fences == thread.wgmma_fences &&
      (state.last->n != instruction.n || state.last->k() != instruction.k()))
    fail(*thread.cta, Rule::kWgmmaFence, "",
         "wgmmas of different shapes use the same accumulators without wgmma_fence() between",
         "wgmma_fence() between wgmmas of different shapes on one accumulator",
         {access_of(thread, "wgmma", where), access_of(thread, "wgmma", state.mma_at)});
  if (accumulate && !state.defined)
    fail(*thread.cta, Rule::kUninitialized, "",
         "a wgmma accumulates into registers that hold nothing",
         "accumulate = false for the first wgmma of a sum", {access_of(thread, "wgmma", where)});
}

// Do all lanes of the warpgroup execute the same instruction?
void check_same(Thread& thread, const WgmmaOp& op, const WgmmaInstruction& instruction, u64 a_desc,
                u64 b_desc, bool accumulate, Where where) {
  const char* differ = op.instruction != &instruction    ? "different instructions"
                       : op.a_desc != a_desc             ? "different descriptors of A"
                       : op.b_desc != b_desc             ? "different descriptors of B"
                       : op.accumulate != accumulate     ? "different accumulate flags"
                       : op.where.line != where.line     ? "different instructions"
                       : op.group != thread.wgmma_groups ? "different commit groups"
                                                         : nullptr;
  if (differ == nullptr) return;
  fail(*thread.cta, Rule::kWgmma, "",
       fmt::format("lanes of warpgroup {} issue {} as their wgmma number {}",
                   thread.ids.thread / kWarpgroup, differ, thread.wgmma_posted),
       "the same wgmma, with equal descriptors, by all 128 threads of a warpgroup",
       {access_of(thread, "wgmma", where), {"wgmma", "another lane", text(op.where)}});
}

void execute_next(Warpgroup& group) {
  group.scheduled = false;
  WgmmaOp& op = group.ops[group.executed - group.first];
  execute(group, op, group.executed);
  group.executed++;
  Worker& worker = *group.cta->cluster.worker;
  worker.stats.wgmmas++;
  worker.wake_all(group.waiters);
  schedule(group);
}

}  // namespace

void schedule(Warpgroup& group) {
  if (group.scheduled || group.executed >= group.ready) return;
  group.scheduled = true;
  Cta& cta = *group.cta;
  Worker& worker = *cta.cluster.worker;
  WgmmaOp& op = group.ops[group.executed - group.first];
  const u64 clocks = wgmma_clocks(*op.instruction);
  op.started = worker.timed() ? cta.sm.tensor_core.take(worker.step, clocks) : worker.step;
  worker.later(
      cta.cluster, [&group] { execute_next(group); }, op.started + clocks - worker.step);
}

}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

void wgmma_fence(Where where) {
  if (omitted("wgmma_fence", where)) return;
  Thread& thread = enter("wgmma_fence", where, Yields::kNever);
  warpgroup_of(thread, "wgmma_fence", where);
  thread.wgmma_fences++;
}

void wgmma_commit(Where where) {
  if (omitted("wgmma_commit", where)) return;
  Thread& thread = enter("wgmma_commit", where, Yields::kNever);
  warpgroup_of(thread, "wgmma_commit", where);
  thread.wgmma_groups++;
}

void wgmma(const WgmmaInstruction& instruction, RegisterState& d_state, void* d,
           RegisterState* a_state, const u32* a, u64 a_desc, u64 b_desc, bool accumulate,
           Where where) {
  Thread& thread = enter("wgmma", where, Yields::kNever);
  Cta& cta = *thread.cta;
  Warpgroup& group = warpgroup_of(thread, "wgmma", where);
  check_d(thread, d_state, instruction, accumulate, where);
  if (a_state != nullptr) {
    check_registers(thread, *a_state, "A registers", where);
    if (!a_state->defined)
      fail(cta, Rule::kUninitialized, "", "a wgmma reads A registers that hold nothing",
           "values in all four registers of A", {access_of(thread, "wgmma", where)});
    a_desc = 0;
  }
  const u64 number = thread.wgmma_posted;
  if (number - group.first == group.ops.size()) {
    group.ops.emplace_back();
    WgmmaOp& fresh = group.ops.back();
    fresh.instruction = &instruction;
    fresh.a_desc = a_desc;
    fresh.b_desc = b_desc;
    fresh.accumulate = accumulate;
    fresh.where = where;
    fresh.group = thread.wgmma_groups;
  }
  WgmmaOp& op = group.ops[number - group.first];
  check_same(thread, op, instruction, a_desc, b_desc, accumulate, where);
  const u32 lane = thread.ids.thread % kWarpgroup;
  op.d[lane] = d;
  op.d_state[lane] = &d_state;
  op.a_state[lane] = a_state;
  if (a_state != nullptr) std::copy_n(a, 4, op.a[lane]);
  d_state.defined = true;
  for (RegisterState* state : {&d_state, a_state}) {
    if (state == nullptr) continue;
    state->in_flight++;
    state->last = &instruction;
    state->mma_fences = thread.wgmma_fences;
    state->mma_at = where;
  }
  // What the warp knows when it issues; its own later accesses are not in it.
  const u32 width = cta.cluster.width;
  Tick* row = group.joined.data() + size_t{lane / kWarp} * width;
  if (thread.wgmma_joined != thread.version) {
    join(row, thread.clock, width);
    thread.wgmma_joined = thread.version;
    group.joined_version++;
  } else if (row[thread.agent] != thread.tick()) {
    row[thread.agent] = thread.tick();
    group.joined_version++;
  }
  thread.tick()++;  // later accesses of the thread come after the issue
  thread.wgmma_posted++;
  if (++op.posted < kWarpgroup) return;
  if (group.known == nullptr || group.known_version != group.joined_version) {
    // Rows 0…3: what each warp knew. Row 4: what all of them knew. Row 5: what any of them knew.
    auto known = std::make_shared<std::vector<Tick>>(group.joined);
    known->resize(6 * size_t{width});
    Tick* all = known->data() + 4 * size_t{width};
    for (u32 i = 0; i < width; i++) {
      const auto [least, most] =
          std::minmax({group.joined[i], group.joined[i + width], group.joined[i + 2 * width],
                       group.joined[i + 3 * width]});
      all[i] = least;
      all[i + width] = most;
    }
    group.known = std::move(known);
    group.known_version = group.joined_version;
  }
  op.known = group.known;
  group.ready = number + 1;
  schedule(group);
}

void wgmma_wait(u32 pending, Where where) {
  if (omitted("wgmma_wait", where)) return;
  Thread& thread = enter("wgmma_wait", where);
  Cta& cta = *thread.cta;
  Warpgroup& group = warpgroup_of(thread, "wgmma_wait", where);
  const auto op_at = [&](u64 number) -> WgmmaOp& { return group.ops[number - group.first]; };
  if (pending == 0 && thread.wgmma_posted > thread.wgmma_waited &&
      op_at(thread.wgmma_posted - 1).group == thread.wgmma_groups)
    fail(cta, Rule::kWgmma, "", "wgmma_wait<0>() while a wgmma has not been committed",
         "wgmma_commit() before the wait",
         {access_of(thread, "wgmma_wait", where),
          access_of(thread, "wgmma", op_at(thread.wgmma_posted - 1).where)});
  const u64 groups = thread.wgmma_groups > pending ? thread.wgmma_groups - pending : 0;
  u64 end = thread.wgmma_waited;
  while (end < thread.wgmma_posted && op_at(end).group < groups) end++;
  while (group.executed < end) {
    group.waiters.push_back(&thread);
    cta.cluster.worker->block(thread, {Waiting::On::kWgmma, static_cast<u32>(end), 0});
  }
  if (end == thread.wgmma_waited) return;
  // It started after all four warps issued it, so whoever sees it complete is after them.
  join(thread.clock, op_at(end - 1).known->data() + 5 * size_t{cta.cluster.width},
       cta.cluster.width);
  thread.clock[group.agent] = std::max(thread.clock[group.agent], static_cast<Tick>(end));
  thread.version++;
  const u32 lane = thread.ids.thread % kWarpgroup;
  for (; thread.wgmma_waited < end; thread.wgmma_waited++) {
    WgmmaOp& op = op_at(thread.wgmma_waited);
    op.d_state[lane]->in_flight--;
    if (op.a_state[lane] != nullptr) op.a_state[lane]->in_flight--;
    op.waited++;
  }
  while (!group.ops.empty() && group.ops.front().waited == kWarpgroup) {
    group.ops.pop_front();
    group.first++;
  }
}

}  // namespace fa3::twin
