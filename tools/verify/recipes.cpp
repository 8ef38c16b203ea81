// SPDX-License-Identifier: BSD-3-Clause
// recipes.cpp — quantised copies of Q, K and V, and attention on them.
#include "tools/verify/recipes.h"

#include <algorithm>
#include <stdexcept>

namespace fa3::verify {
namespace {

constexpr int64_t kAlignment = 16;  // TMA's
constexpr uint64_t kSeed = 42;      // of the signs

void check(fa3_status status) {
  if (status != FA3_OK) throw std::runtime_error(fa3_last_error());
}

Tensor made(int32_t dtype, const std::vector<int64_t>& shape) {
  return make_tensor(dtype, shape, {{}, 0, {}, kAlignment});
}

Tensor made_like(const fa3_tensor& x, int32_t dtype) {
  return made(dtype, {x.shape, x.shape + x.rank});
}

// The codes of x, and what they mean.
struct Coded {
  Tensor codes, scale, offset;
  fa3_scale_block block{};

  Coded(const fa3_tensor& x, const fa3_tensor& cu_seqlens, int32_t dtype, int64_t rows, bool turned,
        bool mean, fa3_context* quantizer) {
    const int64_t* const shape = x.shape + x.rank - 3;  // rows, heads, columns
    const int64_t batch = cu_seqlens.rank > 0 ? cu_seqlens.shape[0] - 1 : x.shape[0];
    codes = made_like(x, dtype);
    if (rows == kOfTensor) scale = made(FA3_F32, {1});
    if (rows == kOfHead) scale = made(FA3_F32, {batch, shape[1]});
    if (rows > 0) scale = made(FA3_F32, {batch, shape[1], (shape[0] + rows - 1) / rows, 1});
    if (mean) offset = made(FA3_F32, {batch, shape[1], shape[2]});
    block.rows = static_cast<int32_t>(std::max<int64_t>(rows, 0));
    fa3_quantize_args args{};
    args.struct_size = sizeof args;
    args.x = x;
    args.codes = codes.view;
    args.scale = scale.view;
    args.offset = offset.view;
    args.cu_seqlens = cu_seqlens;
    args.block = block;
    args.hadamard = turned ? static_cast<int32_t>(shape[2] & -shape[2]) : 0;
    args.seed = kSeed;
    check(fa3_quantize(quantizer, &args, nullptr));
  }
};

Tensor attend(const Attention& inputs, int32_t dtype, const Coding& coding, fa3_context* quantizer,
              fa3_context* attention) {
  const Tensor o = made_like(inputs.q.view, dtype);
  fa3_forward_args args = inputs.args(o);
  const fa3_tensor& cu = args.cu_seqlens_q;
  const Coded cq(args.q, cu, coding.qk, coding.rows_q, coding.turned, false, quantizer);
  const Coded ck(args.k, cu, coding.qk, coding.rows_kv, coding.turned, coding.means, quantizer);
  args.q = cq.codes.view, args.q_scale = cq.scale.view, args.q_block = cq.block;
  args.k = ck.codes.view, args.k_scale = ck.scale.view, args.k_block = ck.block;
  args.k_offset = ck.offset.view;
  if (coding.v == FA3_DTYPE_NONE) {
    check(fa3_forward(attention, &args, nullptr));
    return o;
  }
  const Coded cv(args.v, cu, coding.v, coding.rows_kv, false, coding.means, quantizer);
  args.v = cv.codes.view, args.v_scale = cv.scale.view, args.v_block = cv.block;
  args.v_offset = cv.offset.view;
  check(fa3_forward(attention, &args, nullptr));
  return o;
}

}  // namespace

Method coded_method(std::string name, int32_t dtype, const Coding& coding, fa3_context* quantizer,
                    fa3_context* attention) {
  return {std::move(name), dtype, [=](const Attention& inputs) {
            return attend(inputs, dtype, coding, quantizer, attention);
          }};
}

Method precision_method(std::string name, int32_t dtype, fa3_precision precision,
                        fa3_context* context) {
  return {std::move(name), dtype, [=](const Attention& inputs) {
            const Tensor o = made_like(inputs.q.view, dtype);
            fa3_forward_args args = inputs.args(o);
            args.precision = precision;
            args.precision_seed = kSeed;
            check(fa3_forward(context, &args, nullptr));
            return o;
          }};
}

}  // namespace fa3::verify
