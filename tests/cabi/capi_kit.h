// SPDX-License-Identifier: BSD-3-Clause
// capi_kit.h — a small problem with its memory, and expectations on errors.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fa3/fa3.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fa3_test {

using testing::Each;
using testing::HasSubstr;
using Json = nlohmann::json;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline std::vector<float> ramp(size_t n, float step) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = std::sin(step * static_cast<float>(i + 1));
  return values;
}

inline fa3::Context open_context(fa3_backend backend, int threads = 2) {
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

inline void expect_near(const std::vector<float>& got, const std::vector<float>& want,
                        float tolerance, const char* what) {
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

// Expects the call to be refused with a message that has all of these parts.
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

}  // namespace fa3_test
