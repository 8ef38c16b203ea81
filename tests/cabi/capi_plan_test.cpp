// SPDX-License-Identifier: BSD-3-Clause
// capi_plan_test.cpp — fa3_plan_*: plans, workspaces, arguments that differ, handles.
#include <cstddef>
#include <cstring>

#include "capi_kit.h"

namespace fa3_test {
namespace {

TEST(Plan, RunsWithoutDataWhenPlanned_AnyAlignmentOfWorkspace) {
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    const fa3::Context context = open_context(backend);
    Dense expected, x;
    context.forward(expected.forward());
    fa3_forward_args args = x.forward();
    for (fa3_tensor* t : {&args.q, &args.k, &args.v, &args.o, &args.lse}) t->data = nullptr;
    const fa3::Plan plan = context.plan(args);
    for (size_t offset : {0, 1, 7}) {
      Dense y;
      std::vector<std::byte> workspace(plan.workspace_bytes() + offset);
      plan.run(y.forward(), workspace.data() + offset, plan.workspace_bytes());
      EXPECT_EQ(y.o, expected.o);
      EXPECT_EQ(y.lse, expected.lse);
    }
  }
}

TEST(Plan, RunRefuses_WhatDiffersFromIt) {
  const fa3::Context context = open_context(FA3_BACKEND_CPU);
  Dense x;
  const fa3::Plan plan = context.plan(x.forward());
  std::vector<std::byte> workspace(plan.workspace_bytes());
  const auto run = [&](const fa3_forward_args& args) {
    plan.run(args, workspace.data(), workspace.size());
  };
  fa3_forward_args args = x.forward();
  args.mask = FA3_MASK_FULL;
  expect_error(FA3_INVALID_ARGUMENT, {"mask=\"full\"", "the plan's \"causal\""},
               [&] { run(args); });
  args = x.forward();
  args.softmax_scale = 0.25;
  expect_error(FA3_INVALID_ARGUMENT, {"softmax_scale=0.25", "0.353553"}, [&] { run(args); });
  args = x.forward();
  args.lse = fa3_tensor{};
  expect_error(FA3_INVALID_ARGUMENT, {"lse", "the plan's"}, [&] { run(args); });
  args = x.forward();
  args.lse.data = nullptr;
  expect_error(FA3_INVALID_ARGUMENT, {"lse.data is NULL"}, [&] { run(args); });
  Dense longer(6, 7);
  expect_error(FA3_INVALID_ARGUMENT, {"seqlen_q=6", "the plan's 5"},
               [&] { run(longer.forward()); });
  expect_error(FA3_INVALID_ARGUMENT, {"struct_size"}, [&] {
    args = x.forward();
    args.struct_size = 100;
    run(args);
  });
  EXPECT_THAT(x.o, Each(testing::Truly([](float f) { return std::isnan(f); })))
      << "nothing written";
}

// A program built before the last fields: bytes after its struct are not read, and a plan of
// today's struct without them is the same problem.
TEST(Plan, StructOfTheFirstRelease_HasNoSlopesOrIds) {
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    const fa3::Context context = open_context(backend);
    Dense expected, x;
    context.forward(expected.forward());
    context.backward(expected.backward());
    fa3_forward_args forward = x.forward();
    const fa3::Plan plan = context.plan(forward);
    std::vector<std::byte> workspace(plan.workspace_bytes());
    std::memset(&forward.alibi_slopes, 0x55,
                sizeof forward - offsetof(fa3_forward_args, alibi_slopes));
    EXPECT_THROW(context.forward(forward), fa3::Error);
    forward.struct_size = offsetof(fa3_forward_args, alibi_slopes);
    context.forward(forward);
    EXPECT_EQ(x.o, expected.o);
    x.o.assign(x.o.size(), kNan);
    plan.run(forward, workspace.data(), workspace.size());
    EXPECT_EQ(x.o, expected.o);
    fa3_backward_args backward = x.backward();
    std::memset(&backward.alibi_slopes, 0x55,
                sizeof backward - offsetof(fa3_backward_args, alibi_slopes));
    backward.struct_size = offsetof(fa3_backward_args, alibi_slopes);
    context.backward(backward);
    EXPECT_EQ(x.dq, expected.dq);
    EXPECT_EQ(x.dk, expected.dk);
    EXPECT_EQ(x.dv, expected.dv);
  }
}

TEST(Plan, RunRefuses_SlopesThatThePlanHasNot) {
  const fa3::Context context = open_context(FA3_BACKEND_CPU);
  Dense x;
  const fa3::Plan plan = context.plan(x.forward());
  std::vector<std::byte> workspace(plan.workspace_bytes());
  const float slopes[Dense::kHeadsQ] = {};
  fa3_forward_args args = x.forward();
  args.alibi_slopes = fa3::tensor(slopes, {Dense::kHeadsQ});
  expect_error(FA3_INVALID_ARGUMENT, {"alibi_slopes", "the plan's"},
               [&] { plan.run(args, workspace.data(), workspace.size()); });
}

TEST(Plan, Workspace_TooSmallOrInTheWay) {
  const fa3::Context context = open_context(FA3_BACKEND_CPU);
  Dense x;
  const fa3::Plan plan = context.plan(x.forward());
  const size_t bytes = plan.workspace_bytes();
  ASSERT_GT(bytes, 0u);
  std::vector<std::byte> workspace(bytes);
  expect_error(FA3_WORKSPACE_TOO_SMALL, {std::to_string(bytes - 1), std::to_string(bytes)},
               [&] { plan.run(x.forward(), workspace.data(), bytes - 1); });
  expect_error(FA3_WORKSPACE_TOO_SMALL, {"NULL"}, [&] { plan.run(x.forward(), nullptr, bytes); });
  expect_error(FA3_INVALID_ARGUMENT, {"workspace", "q (bytes"},
               [&] { plan.run(x.forward(), x.q.data(), bytes); });
}

TEST(Plan, NullHandles) {
  EXPECT_EQ(fa3_plan_run(nullptr, nullptr, nullptr, 0, nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("plan is NULL"));
  EXPECT_EQ(fa3_plan_workspace_bytes(nullptr), 0u);
  fa3_plan_destroy(nullptr);
  fa3_context_destroy(nullptr);
  Dense x;
  const fa3_forward_args args = x.forward();
  fa3_plan* plan = reinterpret_cast<fa3_plan*>(1);
  EXPECT_EQ(fa3_plan_forward(nullptr, &args, &plan), FA3_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr) << "a handle is NULL after a failure";
  const fa3::Context context;
  EXPECT_EQ(fa3_plan_forward(context.get(), &args, nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_EQ(fa3_forward(nullptr, &args, nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("context is NULL"));
  EXPECT_EQ(fa3_forward(context.get(), nullptr, nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("struct is NULL"));
  EXPECT_EQ(fa3_forward(context.get(), &args, &plan), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("stream"));
}

}  // namespace
}  // namespace fa3_test
