// SPDX-License-Identifier: BSD-3-Clause
// capi_test.cpp — the library as a program uses it: through fa3.h and fa3.hpp, linked with
// libfa3.so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <fa3/fa3.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

using testing::Each;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> ramp(size_t n, float step) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = std::sin(step * static_cast<float>(i + 1));
  return values;
}

fa3::Context open_context(fa3_backend backend, int threads = 2) {
  fa3_context_options options = fa3::context_options();
  options.backend = backend;
  options.num_threads = threads;
  return fa3::Context(options);
}

// A dense problem with its memory: batch 2, heads 4 over 2, head dims 8 and 6; outputs start as
// NaN.
struct Dense {
  static constexpr int64_t kBatch = 2, kHeadsQ = 4, kHeadsKv = 2, kDimQk = 8, kDimV = 6;
  int64_t len_q, len_kv;
  std::vector<float> q, k, v, o, lse, dout, dlse, dq, dk, dv;

  explicit Dense(int64_t len_q = 5, int64_t len_kv = 7) : len_q(len_q), len_kv(len_kv) {
    const auto size = [](int64_t rows, int64_t heads, int64_t dim) {
      return static_cast<size_t>(kBatch * rows * heads * dim);
    };
    q = ramp(size(len_q, kHeadsQ, kDimQk), 0.37f);
    k = ramp(size(len_kv, kHeadsKv, kDimQk), 0.73f);
    v = ramp(size(len_kv, kHeadsKv, kDimV), 0.91f);
    dout = ramp(size(len_q, kHeadsQ, kDimV), 0.11f);
    dlse = ramp(size(len_q, kHeadsQ, 1), 0.19f);
    o.assign(dout.size(), kNan);
    lse.assign(dlse.size(), kNan);
    dq.assign(q.size(), kNan);
    dk.assign(k.size(), kNan);
    dv.assign(v.size(), kNan);
  }

  template <class Args>
  void fill(Args& args) {
    args.q = fa3::tensor(q.data(), {kBatch, len_q, kHeadsQ, kDimQk});
    args.k = fa3::tensor(k.data(), {kBatch, len_kv, kHeadsKv, kDimQk});
    args.v = fa3::tensor(v.data(), {kBatch, len_kv, kHeadsKv, kDimV});
    args.o = fa3::tensor(o.data(), {kBatch, len_q, kHeadsQ, kDimV});
    args.lse = fa3::tensor(lse.data(), {kBatch, kHeadsQ, len_q});
    args.mask = FA3_MASK_CAUSAL;
  }
  fa3_forward_args forward() {
    fa3_forward_args args = fa3::forward_args();
    fill(args);
    return args;
  }
  fa3_backward_args backward() {
    fa3_backward_args args = fa3::backward_args();
    fill(args);
    args.dout = fa3::tensor(dout.data(), {kBatch, len_q, kHeadsQ, kDimV});
    args.dlse = fa3::tensor(dlse.data(), {kBatch, kHeadsQ, len_q});
    args.dq = fa3::tensor(dq.data(), {kBatch, len_q, kHeadsQ, kDimQk});
    args.dk = fa3::tensor(dk.data(), {kBatch, len_kv, kHeadsKv, kDimQk});
    args.dv = fa3::tensor(dv.data(), {kBatch, len_kv, kHeadsKv, kDimV});
    return args;
  }
};

void expect_near(const std::vector<float>& got, const std::vector<float>& want, float tolerance,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i])) {
      ASSERT_EQ(got[i], want[i]) << what << " at " << i;
    } else {
      ASSERT_TRUE(std::fabs(got[i] - want[i]) <= tolerance)
          << what << " at " << i << ": " << got[i] << ", need " << want[i];
    }
  }
}

// Expects the call to be refused with a message of these parts, and leaves no output written.
template <class Call>
void expect_error(fa3_status status, const std::vector<std::string>& parts, const Call& call) {
  try {
    call();
    FAIL() << "accepted; expected " << fa3_status_name(status);
  } catch (const fa3::Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

// ---- Results -----------------------------------------------------------------------------------

// O and LSE of one head by the formula in fa3.h, causal, in double.
TEST(Forward, DenseCausal_AsTheFormula) {
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    for (const auto& [len_q, len_kv] :
         {std::pair(5, 7), std::pair(7, 5), std::pair(1, 1), std::pair(70, 300)}) {
      Dense x(len_q, len_kv);
      open_context(backend).forward(x.forward());
      for (int64_t b = 0; b < x.kBatch; ++b) {
        for (int64_t i = 0; i < len_q; ++i) {
          for (int64_t h = 0; h < x.kHeadsQ; ++h) {
            double sum = 0, o[Dense::kDimV] = {};
            for (int64_t j = 0; j <= i + len_kv - len_q; ++j) {
              const int64_t key = (b * len_kv + j) * x.kHeadsKv + h / 2;
              double s = 0;
              for (int64_t c = 0; c < x.kDimQk; ++c)
                s += double(x.q[((b * len_q + i) * x.kHeadsQ + h) * x.kDimQk + c]) *
                     x.k[key * x.kDimQk + c];
              const double p = std::exp(s / std::sqrt(double(x.kDimQk)));
              sum += p;
              for (int64_t c = 0; c < x.kDimV; ++c) o[c] += p * x.v[key * x.kDimV + c];
            }
            const float lse = x.lse[(b * x.kHeadsQ + h) * len_q + i];
            const float* got = &x.o[((b * len_q + i) * x.kHeadsQ + h) * x.kDimV];
            if (sum == 0) {
              EXPECT_EQ(lse, -kInf);
              for (int64_t c = 0; c < x.kDimV; ++c) EXPECT_EQ(got[c], 0.0f);
            } else {
              EXPECT_NEAR(lse, std::log(sum), 1e-5);
              for (int64_t c = 0; c < x.kDimV; ++c) EXPECT_NEAR(got[c], o[c] / sum, 1e-5);
            }
          }
        }
      }
    }
  }
}

TEST(Backward, CpuAgreesWithReference) {
  Dense x, y;
  const fa3::Context reference = open_context(FA3_BACKEND_REFERENCE),
                     cpu = open_context(FA3_BACKEND_CPU);
  reference.forward(x.forward());
  reference.backward(x.backward());
  cpu.forward(y.forward());
  cpu.backward(y.backward());
  expect_near(y.dq, x.dq, 1e-5f, "dq");
  expect_near(y.dk, x.dk, 1e-5f, "dk");
  expect_near(y.dv, x.dv, 1e-5f, "dv");
}

TEST(Backward, AbsentGradients_LeaveTheOthersAsTheyAre) {
  const fa3::Context context = open_context(FA3_BACKEND_CPU);
  Dense all;
  context.forward(all.forward());
  context.backward(all.backward());
  for (int absent = 0; absent < 3; ++absent) {
    Dense x;
    context.forward(x.forward());
    fa3_backward_args args = x.backward();
    (absent == 0 ? args.dq : absent == 1 ? args.dk : args.dv).data = nullptr;
    context.backward(args);
    if (absent != 0) {
      EXPECT_EQ(x.dq, all.dq);
    }
    if (absent != 1) {
      EXPECT_EQ(x.dk, all.dk);
    }
    if (absent != 2) {
      EXPECT_EQ(x.dv, all.dv);
    }
  }
}

// 3 sequences in 12 rows of queries and 16 of keys; the last rows belong to none, and seqused cuts
// others off.
TEST(Packed, RowsOfNoSequence_AreWrittenAsEmptyRows) {
  const std::vector<int32_t> cu_q{0, 4, 4, 10}, cu_kv{0, 5, 9, 14}, used_q{3, 0, 6},
      used_kv{5, 2, 4};
  constexpr int64_t kRowsQ = 12, kRowsKv = 16, kHeads = 2, kDim = 8;
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    const std::vector<float> q = ramp(kRowsQ * kHeads * kDim, 0.3f),
                             k = ramp(kRowsKv * kHeads * kDim, 0.7f);
    std::vector<float> o(q.size(), kNan), lse(kHeads * kRowsQ, kNan), dq = o, dk(k.size(), kNan),
                                                                      dv = dk;
    fa3_forward_args forward = fa3::forward_args();
    fa3_backward_args backward = fa3::backward_args();
    const auto fill = [&](auto& args) {
      args.q = fa3::tensor(q.data(), {kRowsQ, kHeads, kDim});
      args.k = args.v = fa3::tensor(k.data(), {kRowsKv, kHeads, kDim});
      args.o = fa3::tensor(o.data(), {kRowsQ, kHeads, kDim});
      args.lse = fa3::tensor(lse.data(), {kHeads, kRowsQ});
      args.cu_seqlens_q = fa3::tensor(cu_q.data(), {4});
      args.cu_seqlens_kv = fa3::tensor(cu_kv.data(), {4});
      args.seqused_q = fa3::tensor(used_q.data(), {3});
      args.seqused_kv = fa3::tensor(used_kv.data(), {3});
      args.max_seqlen_q = 6;
      args.max_seqlen_kv = 5;
    };
    fill(forward);
    fill(backward);
    backward.dout = fa3::tensor(q.data(), {kRowsQ, kHeads, kDim});
    backward.dq = fa3::tensor(dq.data(), {kRowsQ, kHeads, kDim});
    backward.dk = fa3::tensor(dk.data(), {kRowsKv, kHeads, kDim});
    backward.dv = fa3::tensor(dv.data(), {kRowsKv, kHeads, kDim});
    const fa3::Context context = open_context(backend);
    context.forward(forward);
    context.backward(backward);

    const auto counts = [](const std::vector<int32_t>& cu, const std::vector<int32_t>& used,
                           int64_t row) {
      for (size_t b = 0; b < used.size(); ++b) {
        if (row >= cu[b] && row < cu[b] + used[b]) return true;
      }
      return false;
    };
    for (int64_t i = 0; i < kRowsQ; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const bool row = counts(cu_q, used_q, i);
        EXPECT_EQ(std::isinf(lse[h * kRowsQ + i]), !row) << "row " << i;
        for (int64_t c = 0; c < kDim; ++c) {
          const size_t at = static_cast<size_t>((i * kHeads + h) * kDim + c);
          EXPECT_TRUE(std::isfinite(o[at]) && (row || o[at] == 0)) << "row " << i << ": " << o[at];
          EXPECT_TRUE(std::isfinite(dq[at]) && (row || dq[at] == 0))
              << "row " << i << ": " << dq[at];
        }
      }
    }
    for (int64_t j = 0; j < kRowsKv; ++j) {
      const bool row = counts(cu_kv, used_kv, j) &&
                       !(j >= cu_kv[1] && j < cu_kv[2]);  // sequence 1 has no queries
      for (int64_t c = 0; c < kHeads * kDim; ++c) {
        const size_t at = static_cast<size_t>(j * kHeads * kDim + c);
        EXPECT_TRUE(std::isfinite(dk[at]) && (row || dk[at] == 0)) << "row " << j << ": " << dk[at];
        EXPECT_TRUE(std::isfinite(dv[at]) && (row || dv[at] == 0)) << "row " << j << ": " << dv[at];
      }
    }
  }
}

TEST(ZeroSize, NothingToDo_Succeeds) {
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    const fa3::Context context = open_context(backend);
    Dense no_queries(0, 7), no_keys(5, 0);
    context.forward(no_queries.forward());
    context.backward(no_queries.backward());
    EXPECT_THAT(no_queries.dk, Each(0.0f));
    EXPECT_THAT(no_queries.dv, Each(0.0f));
    context.forward(no_keys.forward());
    EXPECT_THAT(no_keys.o, Each(0.0f));
    EXPECT_THAT(no_keys.lse, Each(-kInf));
    context.backward(no_keys.backward());
    EXPECT_THAT(no_keys.dq, Each(0.0f));

    fa3_forward_args nothing = fa3::forward_args();  // batch 0, without any memory
    nothing.q = nothing.k = nothing.v = nothing.o = fa3::tensor(nullptr, FA3_BF16, {0, 5, 4, 8});
    context.forward(nothing);
    nothing.q = nothing.k = nothing.v = nothing.o =
        fa3::tensor(nullptr, FA3_F16, {2, 5, 0, 8});  // no heads
    context.forward(nothing);
    // A great many sequences of nothing take no time.
    nothing.q = nothing.k = nothing.v = nothing.o =
        fa3::tensor(nullptr, FA3_F16, {1 << 30, 0, 1, 8});
    context.forward(nothing);
  }
}

TEST(Threads, SameBitsForAnyNumber) {
  std::vector<float> o, lse, dq, dk, dv;
  for (const int threads : {1, 2, 3, 7}) {
    Dense x(70, 300);
    const fa3::Context context = open_context(FA3_BACKEND_CPU, threads);
    context.forward(x.forward());
    context.backward(x.backward());
    if (threads == 1) o = x.o, lse = x.lse, dq = x.dq, dk = x.dk, dv = x.dv;
    EXPECT_EQ(x.o, o);
    EXPECT_EQ(x.lse, lse);
    EXPECT_EQ(x.dq, dq);
    EXPECT_EQ(x.dk, dk);
    EXPECT_EQ(x.dv, dv);
  }
}

TEST(Threads, ManyCallsAtOnce_OnOneContextAndPlan) {
  const fa3::Context context = open_context(FA3_BACKEND_CPU);
  Dense expected;
  context.forward(expected.forward());
  Dense planned;
  const fa3_forward_args planned_args = planned.forward();
  const fa3::Plan plan = context.plan(planned_args);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back([&, i] {
      for (int n = 0; n < 20; ++n) {
        Dense x;
        std::vector<std::byte> workspace(plan.workspace_bytes());
        if (i % 2 == 0) {
          context.forward(x.forward());
        } else {
          plan.run(x.forward(), workspace.data(), workspace.size());
        }
        if (x.o != expected.o || x.lse != expected.lse) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// ---- Plans -------------------------------------------------------------------------------------

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

TEST(OneCall, OptionalTensorWithoutData_IsAbsent) {
  const fa3::Context context;
  Dense x;
  fa3_forward_args args = x.forward();
  args.lse.data = nullptr;
  context.forward(args);
  EXPECT_FALSE(std::isnan(x.o[0]));
  EXPECT_TRUE(std::isnan(x.lse[0]));
  args.k.data = nullptr;
  expect_error(FA3_INVALID_ARGUMENT, {"k.data is NULL"}, [&] { context.forward(args); });
}

TEST(OneCall, InPlaceIsRefused_AndNothingWritten) {
  const fa3::Context context;
  Dense x;
  fa3_forward_args args = x.forward();
  args.v = args.k;
  args.o = args.q;
  const std::vector<float> before = x.q;
  expect_error(FA3_INVALID_ARGUMENT, {"o (bytes", "q (bytes"}, [&] { context.forward(args); });
  EXPECT_EQ(x.q, before);
}

// ---- Contexts ----------------------------------------------------------------------------------

TEST(Context, OptionsRefused_ByNameAndValue) {
  const auto refuse = [](fa3_status status, const std::vector<std::string>& parts, auto change) {
    fa3_context_options options = fa3::context_options();
    change(options);
    expect_error(status, parts, [&] { fa3::Context context(options); });
  };
  refuse(FA3_INVALID_ARGUMENT, {"backend=9"}, [](auto& o) { o.backend = 9; });
  refuse(FA3_UNSUPPORTED, {"backend=3 (cuda)"}, [](auto& o) { o.backend = FA3_BACKEND_CUDA; });
  refuse(FA3_UNSUPPORTED, {"backend=4 (sim)"}, [](auto& o) { o.backend = FA3_BACKEND_SIM; });
  refuse(FA3_INVALID_ARGUMENT, {"device_type=7"}, [](auto& o) { o.device_type = 7; });
  refuse(FA3_UNSUPPORTED, {"FA3_DEVICE_CUDA"}, [](auto& o) { o.device_type = FA3_DEVICE_CUDA; });
  refuse(FA3_INVALID_ARGUMENT, {"device_id=1"}, [](auto& o) { o.device_id = 1; });
  refuse(FA3_INVALID_ARGUMENT, {"num_threads=-1"}, [](auto& o) { o.num_threads = -1; });
  refuse(FA3_INVALID_ARGUMENT, {"num_threads=1025", "1024"}, [](auto& o) { o.num_threads = 1025; });
  refuse(FA3_INVALID_ARGUMENT, {"log_level=5"}, [](auto& o) { o.log_level = 5; });
  refuse(FA3_INVALID_ARGUMENT, {"kernel_source=1"}, [](auto& o) { o.kernel_source = 1; });
  refuse(FA3_INVALID_ARGUMENT, {"struct_size=0"}, [](auto& o) { o.struct_size = 0; });
  refuse(FA3_INVALID_ARGUMENT, {"struct_size=87", "88"}, [](auto& o) { o.struct_size = 87; });
  EXPECT_EQ(fa3_context_create(nullptr, nullptr), FA3_INVALID_ARGUMENT);
}

TEST(Context, NoOptions_AllDefaults) {
  fa3_context* context = nullptr;
  ASSERT_EQ(fa3_context_create(nullptr, &context), FA3_OK);
  fa3_device_info info = {};
  info.struct_size = sizeof info;
  EXPECT_EQ(fa3_get_device_info(context, &info), FA3_OK);
  EXPECT_EQ(info.backend, FA3_BACKEND_CPU);
  EXPECT_EQ(info.device_type, FA3_DEVICE_CPU);
  EXPECT_GE(info.num_threads, 1);
  EXPECT_STRNE(info.name, "");
  EXPECT_STRNE(info.instruction_set, "");
  fa3_context_destroy(context);
}

TEST(Context, Environment_CapsAndIsChecked) {
  setenv("FA3_NUM_THREADS", "3", 1);
  setenv("FA3_SIMD", "scalar", 1);
  EXPECT_EQ(fa3::Context().device_info().num_threads, 3);
  EXPECT_STREQ(fa3::Context().device_info().instruction_set, "scalar");
  EXPECT_EQ(open_context(FA3_BACKEND_CPU, 2).device_info().num_threads, 2) << "options come first";
  setenv("FA3_NUM_THREADS", "many", 1);
  expect_error(FA3_INVALID_ARGUMENT, {"FA3_NUM_THREADS=many"}, [] { fa3::Context context; });
  EXPECT_EQ(Json::parse(fa3_environment())[0]["value"], "many");
  unsetenv("FA3_NUM_THREADS");
  unsetenv("FA3_SIMD");
  EXPECT_TRUE(Json::parse(fa3_environment())[0]["value"].is_null());
}

TEST(Context, ParallelForOfTheHost_DoesAllWork) {
  struct Pool {
    std::atomic<int64_t> calls{0};
    static void run(void* self, int64_t count, void (*body)(void*, int64_t), void* context) {
      static_cast<Pool*>(self)->calls += count;
      std::vector<std::thread> threads;
      for (int64_t i = 0; i < count; ++i) threads.emplace_back(body, context, i);
      for (std::thread& thread : threads) thread.join();
    }
  } pool;
  fa3_context_options options = fa3::context_options();
  options.num_threads = 3;
  options.parallel_for = Pool::run;
  options.parallel_for_user = &pool;
  Dense x(70, 300), expected(70, 300);
  fa3::Context(options).forward(x.forward());
  open_context(FA3_BACKEND_CPU).forward(expected.forward());
  EXPECT_GT(pool.calls, 0);
  EXPECT_EQ(x.o, expected.o);
}

TEST(Context, Progress_ReportsAndCancels) {
  struct Progress {
    int64_t last = 0, total = 0, stop_at = INT64_MAX;
    static int report(void* self, int64_t done, int64_t total) {
      auto& progress = *static_cast<Progress*>(self);
      EXPECT_GT(done, progress.last);
      EXPECT_LE(done, total);
      progress.last = done;
      progress.total = total;
      return done >= progress.stop_at;
    }
  };
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    Progress progress;
    fa3_context_options options = fa3::context_options();
    options.backend = backend;
    options.progress = Progress::report;
    options.progress_user = &progress;
    const fa3::Context context(options);
    Dense x;
    context.forward(x.forward());
    EXPECT_GT(progress.total, 0);
    EXPECT_EQ(progress.last, progress.total) << "ends at the total";
    progress = {};
    context.backward(x.backward());
    EXPECT_EQ(progress.last, progress.total);
    progress = {};
    progress.stop_at = 1;
    expect_error(FA3_CANCELLED, {"progress callback"}, [&] { context.forward(x.forward()); });
    progress = {};
    context.forward(x.forward());
    EXPECT_EQ(progress.last, progress.total) << "a cancelled run leaves nothing behind";
  }
}

TEST(Context, Log_LinesUpToItsLevel) {
  std::vector<std::string> lines;
  fa3_context_options options = fa3::context_options();
  options.log = [](void* user, fa3_log_level, const char* line) {
    static_cast<std::vector<std::string>*>(user)->push_back(line);
  };
  options.log_user = &lines;
  fa3::Context quiet(options);
  EXPECT_TRUE(lines.empty()) << "warnings only by default";
  options.log_level = FA3_LOG_DEBUG;
  const fa3::Context context(options);
  Dense x;
  const fa3::Plan plan = context.plan(x.forward());
  EXPECT_THAT(lines, testing::Contains(HasSubstr("backend cpu")));
  EXPECT_THAT(lines, Each(testing::Not(HasSubstr("\n"))));
}

// ---- Explanations ------------------------------------------------------------------------------

TEST(Supported, ReasonEitherWay) {
  const fa3::Context context;
  Dense x;
  std::string reason;
  EXPECT_TRUE(context.supported(x.forward(), &reason));
  EXPECT_THAT(reason, HasSubstr("backend cpu"));
  EXPECT_TRUE(open_context(FA3_BACKEND_REFERENCE).supported(x.backward(), &reason));
  EXPECT_THAT(reason, HasSubstr("backend reference"));
  fa3_forward_args args = x.forward();
  args.q.dtype = FA3_F8_E4M3;
  EXPECT_EQ(fa3_supported(context.get(), FA3_OP_FORWARD, &args, nullptr), FA3_UNSUPPORTED);
  EXPECT_FALSE(context.supported(args, &reason));
  EXPECT_THAT(reason, HasSubstr("q.dtype=f8_e4m3"));
  EXPECT_EQ(fa3_supported(context.get(), static_cast<fa3_op>(3), &args, nullptr),
            FA3_INVALID_ARGUMENT);
}

TEST(Explain, Json_WithTheDocumentedKeys) {
  Dense x(70, 300);
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    const fa3::Context context = open_context(backend);
    for (const std::string& text : {context.explain(x.forward()), context.explain(x.backward())}) {
      const Json json = Json::parse(text);
      for (const char* key : {"backend", "why", "problem", "threads", "workspace_bytes", "flops"}) {
        EXPECT_TRUE(json.contains(key)) << key;
      }
      EXPECT_EQ(json["problem"]["seqlen_kv"], 300);
      if (backend == FA3_BACKEND_CPU) {
        for (const char* key : {"tile_q", "tile_kv", "tasks", "tiles_visited", "tiles_skipped"}) {
          EXPECT_TRUE(json["cpu"].contains(key)) << key;
        }
      }
    }
  }
  const Json json = Json::parse(open_context(FA3_BACKEND_CPU).explain(x.forward()));
  int64_t pairs = 0;
  for (int64_t i = 0; i < 70; ++i) pairs += i + 300 - 70 + 1;
  EXPECT_EQ(json["flops"], 2 * pairs * x.kBatch * x.kHeadsQ * (x.kDimQk + x.kDimV));
}

TEST(Explain, Capacity) {
  const fa3::Context context;
  Dense x;
  const fa3_forward_args args = x.forward();
  size_t needed = 0;
  ASSERT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &args, nullptr, 0, &needed), FA3_OK);
  std::vector<char> text(needed, 'x');
  EXPECT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &args, text.data(), needed - 1, nullptr),
            FA3_INVALID_ARGUMENT);
  EXPECT_STREQ(text.data(), "");
  EXPECT_EQ(text[1], 'x');
  EXPECT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &args, text.data(), needed, nullptr),
            FA3_OK);
  EXPECT_EQ(std::strlen(text.data()) + 1, needed);
  EXPECT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &args, nullptr, 5, nullptr),
            FA3_INVALID_ARGUMENT);
}

TEST(Info, DeviceInfo_OfOtherSizes) {
  const fa3::Context context;
  struct {
    fa3_device_info known;
    unsigned char added[16];
  } newer;
  std::memset(&newer, 0x5a, sizeof newer);
  newer.known.struct_size = sizeof newer;
  ASSERT_EQ(fa3_get_device_info(context.get(), &newer.known), FA3_OK);
  EXPECT_EQ(newer.known.struct_size, sizeof newer);
  EXPECT_THAT(newer.added, Each(0x5a));
  newer.known.struct_size = 100;
  EXPECT_EQ(fa3_get_device_info(context.get(), &newer.known), FA3_INVALID_ARGUMENT);
  EXPECT_THAT(fa3_last_error(), HasSubstr("struct_size=100"));
  EXPECT_EQ(fa3_get_device_info(context.get(), nullptr), FA3_INVALID_ARGUMENT);
  EXPECT_EQ(fa3_get_device_info(nullptr, &newer.known), FA3_INVALID_ARGUMENT);
}

TEST(Info, BuildAndVersion) {
  EXPECT_STREQ(fa3_version(),
               (std::to_string(FA3_VERSION_MAJOR) + "." + std::to_string(FA3_VERSION_MINOR) + "." +
                std::to_string(FA3_VERSION_PATCH))
                   .c_str());
  const Json build = Json::parse(fa3_build_info());
  EXPECT_EQ(build["version"], fa3_version());
  EXPECT_EQ(build["backends"].size(), 4u);
  for (const Json& backend : build["backends"]) EXPECT_FALSE(backend["why"].empty());
  EXPECT_STREQ(fa3_status_name(FA3_CANCELLED), "CANCELLED");
  EXPECT_STREQ(fa3_status_name(static_cast<fa3_status>(15)), "UNKNOWN");
}

TEST(LastError, IsOfThisThread_AndStaysUntilTheNext) {
  std::thread([] {
    EXPECT_STREQ(fa3_last_error(), "");
    EXPECT_EQ(fa3_context_create(nullptr, nullptr), FA3_INVALID_ARGUMENT);
    EXPECT_STRNE(fa3_last_error(), "");
    const std::string message = fa3_last_error();
    fa3::Context context;
    EXPECT_EQ(message, fa3_last_error()) << "a call that succeeds leaves it";
    std::thread([] { EXPECT_STREQ(fa3_last_error(), ""); }).join();
  }).join();
}

TEST(Hpp, Tensor_ChecksItsLists) {
  float x = 0;
  expect_error(FA3_INVALID_ARGUMENT, {"6 extents"}, [&] {
    (void)fa3::tensor(&x, {1, 1, 1, 1, 1, 1});
  });
  expect_error(FA3_INVALID_ARGUMENT, {"2 extents and 1 strides"}, [&] {
    (void)fa3::tensor(&x, {1, 1}, {1});
  });
  const int32_t n = 0;
  EXPECT_EQ(fa3::tensor(&n, {1}).dtype, FA3_I32);
  EXPECT_EQ(fa3::tensor(&x, {1}).dtype, FA3_F32);
}

}  // namespace
