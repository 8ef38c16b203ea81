// SPDX-License-Identifier: BSD-3-Clause
// outliers.cpp — inputs with outliers, methods, and their errors.
#include "tools/verify/outliers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <random>
#include <stdexcept>

#include "tools/verify/naive.h"

namespace fa3::verify {
namespace {

constexpr double kOutlierChance = 0.001, kOutlierDeviation = 10;
constexpr int64_t kHeadsAtOnce = 8;  // bounds the memory; results do not depend on it
constexpr int64_t kAlignment = 16;   // TMA's

// Uniform deviates by the Mersenne Twister, normal ones by Box and Muller: the standard library's
// distributions differ from one to another.
class Stream {
 public:
  Stream(const OutlierConfig& c, int64_t head, int tensor) {
    const auto low = [](auto x) { return static_cast<uint32_t>(x); };
    std::seed_seq seed{low(c.seed),      low(c.seed >> 32), low(c.head_dim), low(c.seqlen_q),
                       low(c.seqlen_kv), low(head),         low(tensor)};
    engine_.seed(seed);
  }
  double outlier() {
    const double x = normal();
    return uniform() < kOutlierChance ? x + kOutlierDeviation * normal() : x;
  }
  double uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

// Scale and mean of each channel of a head.
struct Channels {
  std::vector<double> scale, mean;

  Channels(const OutlierConfig& c, int64_t head, int tensor)
      : scale(static_cast<size_t>(c.head_dim), 1), mean(scale.size(), 0) {
    if (c.data != Data::kChannels || tensor == 0) return;
    Stream stream(c, head, 3 + tensor);
    for (size_t i = 0; i < scale.size(); ++i) {
      if (tensor == 1) {
        scale[i] = std::exp(0.5 * stream.normal()) * (stream.uniform() < 0.04 ? 6 : 1);
        mean[i] = 2 * scale[i] * stream.normal();
      } else {
        mean[i] = 0.5 * stream.normal();
      }
    }
  }
};

Tensor make(int32_t dtype, const std::vector<int64_t>& shape) {
  return make_tensor(dtype, shape, {{}, 0, {}, kAlignment});
}
// Of the same shape.
Tensor make_like(const Tensor& like, int32_t dtype) {
  return make(dtype, {like.view.shape, like.view.shape + like.view.rank});
}

Tensor draw(const OutlierConfig& c, int64_t rows, int64_t first, int64_t count, int tensor) {
  const Tensor t = make(FA3_F32, {1, rows, count, c.head_dim});
  const int64_t* strides = t.view.stride;
  for (int64_t h = 0; h < count; ++h) {
    Stream stream(c, first + h, tensor);
    const Channels channels(c, first + h, tensor);
    for (int64_t row = 0; row < rows; ++row) {
      float* at = static_cast<float*>(t.view.data) + row * strides[1] + h * strides[2];
      for (int64_t i = 0; i < c.head_dim; ++i) {
        const double x = c.data == Data::kOutliers ? stream.outlier() : stream.normal();
        const auto channel = static_cast<size_t>(i);
        at[i] = static_cast<float>(x * channels.scale[channel] + channels.mean[channel]);
      }
    }
  }
  return t;
}

Tensor converted(const Tensor& from, int32_t dtype) {
  const Tensor to = make_like(from, dtype);
  const int last = from.view.rank - 1;
  for_each_row(from.view, [&](const Index& at, void* row) {
    Index i = at;
    for (; i[last] < from.view.shape[last]; ++i[last])
      set(to.view, i, static_cast<const float*>(row)[i[last]]);
  });
  return to;
}

Tensor forward(const Attention& inputs, int32_t dtype, fa3_context* context) {
  const Tensor o = make_like(inputs.q, dtype);
  const fa3_forward_args args = inputs.args(o);
  if (fa3_forward(context, &args, nullptr) != FA3_OK) throw std::runtime_error(fa3_last_error());
  return o;
}

}  // namespace

const char* data_text(Data data) {
  return data == Data::kOutliers ? "outliers" : data == Data::kNormal ? "normal" : "channels";
}

fa3_forward_args Attention::args(const Tensor& o) const {
  fa3_forward_args args{};
  args.struct_size = sizeof args;
  args.q = q.view;
  args.k = k.view;
  args.v = v.view;
  args.o = o.view;
  args.cu_seqlens_q = args.cu_seqlens_kv = cu_seqlens.view;
  return args;
}

Attention draw_outliers(const OutlierConfig& c, int64_t first, int64_t count) {
  return {draw(c, c.seqlen_q, first, count, 0),
          draw(c, c.seqlen_kv, first, count, 1),
          draw(c, c.seqlen_kv, first, count, 2),
          {}};
}

Attention rounded(const Attention& drawn, int32_t dtype) {
  return {converted(drawn.q, dtype), converted(drawn.k, dtype), converted(drawn.v, dtype),
          drawn.cu_seqlens};
}

Method fa3_method(std::string name, int32_t dtype, fa3_context* context) {
  return {std::move(name), dtype,
          [=](const Attention& inputs) { return forward(inputs, dtype, context); }};
}

Method unfused_method(int32_t dtype) {
  return {"unfused", dtype, [=](const Attention& inputs) {
            return naive_forward(inputs.args(make_like(inputs.q, dtype))).o.value;
          }};
}

void Error::add(const fa3_tensor& o, const fa3_tensor& exact) {
  for_each_row(o, [&](const Index& at, void*) {
    Index i = at;
    for (; i[o.rank - 1] < o.shape[o.rank - 1]; ++i[o.rank - 1], ++count_) {
      const double error = std::abs(get(o, i) - get(exact, i));
      squares_ += error * error;
      if (std::isnan(error) || error > greatest_) greatest_ = error;  // NaN stays
    }
  });
}

double Error::rmse() const { return std::sqrt(squares_ / static_cast<double>(count_)); }

void add_errors(const Attention& drawn, fa3_context* reference, const std::vector<Method>& methods,
                std::vector<Errors>& errors) {
  const Tensor exact = forward(drawn, FA3_F32, reference);
  struct Typed {
    Attention inputs;
    Tensor exact;
  };
  std::map<int32_t, Typed> of_type;
  for (size_t m = 0; m < methods.size(); ++m) {
    const int32_t dtype = methods[m].dtype;
    if (of_type.count(dtype) == 0) {
      const Attention inputs = rounded(drawn, dtype);
      of_type[dtype] = {inputs, forward(inputs, FA3_F32, reference)};
    }
    const Typed& typed = of_type[dtype];
    const Tensor o = methods[m].compute(typed.inputs);
    errors[m].drawn.add(o.view, exact.view);
    errors[m].rounded.add(o.view, typed.exact.view);
  }
}

std::vector<Errors> outlier_errors(const OutlierConfig& c, fa3_context* reference,
                                   const std::vector<Method>& methods) {
  std::vector<Errors> errors(methods.size());
  for (int64_t first = 0; first < c.heads; first += kHeadsAtOnce) {
    const int64_t count = std::min(kHeadsAtOnce, c.heads - first);
    add_errors(draw_outliers(c, first, count), reference, methods, errors);
  }
  return errors;
}

}  // namespace fa3::verify
