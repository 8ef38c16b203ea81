// SPDX-License-Identifier: BSD-3-Clause
// args_kit.h — small legal arguments for tests of the API layer to break one by one.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "api/args.h"
#include "api/problem.h"
#include "core/status.h"

namespace fa3::test {

inline fa3_tensor tensor(fa3_dtype dtype, std::initializer_list<int64_t> shape,
                         std::initializer_list<int64_t> stride = {}, void* data = nullptr) {
  fa3_tensor t = fa3_dense(data, dtype, static_cast<int32_t>(shape.size()), shape.begin());
  std::copy(stride.begin(), stride.end(), t.stride);
  return t;
}

// Another extent, dense again.
inline void resize(fa3_tensor& t, int dim, int64_t extent) {
  t.shape[dim] = extent;
  t = fa3_dense(t.data, fa3_dtype(t.dtype), t.rank, t.shape);
}

// batch 2, seqlen_q 5, seqlen_kv 7, heads 4 over 2, head dims 8 and 6; dense, no data.
inline Args dense_args(fa3_op op = FA3_OP_FORWARD, fa3_dtype dtype = FA3_F32) {
  Args args;
  args.op = op;
  args.tensor[kQ] = tensor(dtype, {2, 5, 4, 8});
  args.tensor[kK] = tensor(dtype, {2, 7, 2, 8});
  args.tensor[kV] = tensor(dtype, {2, 7, 2, 6});
  args.tensor[kO] = tensor(dtype, {2, 5, 4, 6});
  args.tensor[kLse] = tensor(FA3_F32, {2, 4, 5});
  if (op == FA3_OP_BACKWARD) {
    args.tensor[kDout] = args.tensor[kO];
    args.tensor[kDlse] = args.tensor[kLse];
    args.tensor[kDq] = args.tensor[kQ];
    args.tensor[kDk] = args.tensor[kK];
    args.tensor[kDv] = args.tensor[kV];
  }
  return args;
}

// The same heads; 3 sequences, 10 query rows and 14 key rows in all.
inline Args varlen_args() {
  Args args;
  args.tensor[kQ] = tensor(FA3_F32, {10, 4, 8});
  args.tensor[kK] = tensor(FA3_F32, {14, 2, 8});
  args.tensor[kV] = tensor(FA3_F32, {14, 2, 6});
  args.tensor[kO] = tensor(FA3_F32, {10, 4, 6});
  args.tensor[kLse] = tensor(FA3_F32, {4, 10});
  args.tensor[kCuSeqlensQ] = tensor(FA3_I32, {4});
  args.tensor[kCuSeqlensKv] = tensor(FA3_I32, {4});
  return args;
}

// The refusal has this code, and its message names every one of `parts` (argument, value, limit).
inline void expect_refusal(const Status& status, fa3_status code,
                           const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code, code) << status.message;
  for (const std::string& part : parts) EXPECT_THAT(status.message, testing::HasSubstr(part));
}

// Of legal arguments.
inline Problem problem_of(const Args& args) {
  Result<Problem> problem = make_problem(args);
  EXPECT_TRUE(problem.ok()) << problem.status().message;
  return problem.ok() ? problem.value() : Problem{};
}

}  // namespace fa3::test
