// SPDX-License-Identifier: BSD-3-Clause
// capi_run_test.cpp — fa3_forward and fa3_backward: results, empty rows, threads.
#include <atomic>
#include <thread>

#include "capi_kit.h"

namespace fa3_test {
namespace {

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
TEST(Varlen, RowsOfNoSequence_AreWrittenAsEmptyRows) {
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

// The gradient of a sum, as PyTorch expands it from one number: not to be read as a dense tensor.
TEST(OneCall, ExpandedGradient_IsRefusedAndNotReadOn) {
  for (const fa3_backend backend : {FA3_BACKEND_REFERENCE, FA3_BACKEND_CPU}) {
    const fa3::Context context = open_context(backend);
    Dense x;
    const float one = 1;
    fa3_backward_args args = x.backward();
    args.dout.data = const_cast<float*>(&one);
    std::fill_n(args.dout.stride, args.dout.rank, 0);
    expect_error(FA3_INVALID_ARGUMENT, {"backward: dout", "stride (0, 0, 0, 0)", "fa3_dense"},
                 [&] { context.backward(args); });
    EXPECT_THAT(x.dq, Each(testing::Truly([](float f) { return std::isnan(f); })));
  }
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

}  // namespace
}  // namespace fa3_test
