// SPDX-License-Identifier: BSD-3-Clause
// outliers.h — the numerical error experiment of the FlashAttention-3 paper (section 4.3): inputs
// with a few large values, and how far a method's output is from FP64; and two more kinds of
// inputs. FP64 sees
// the inputs as drawn, which counts the rounding of the inputs as an error, as the paper does, or
// as the method's type rounds them, which leaves what the method itself adds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {

// RMSE of O in FP16 against the inputs as drawn, at head dim 128 and 8192 keys, that the Hopper
// kernel may have (docs/guide/accuracy.md). The paper has 1.9e-4. Fewer keys give less, as their
// error is mostly that of the rounded inputs.
inline constexpr double kMostRmse = 2.2e-4;

// What Q, K and V are drawn from.
enum class Data {
  kOutliers,  // the paper's: N(0, 1) + N(0, 100)·Bernoulli(0.001); 100 is the variance
  kNormal,    // N(0, 1)
  // As layers of language models have them. Q: N(0, 1). K: a channel has a scale exp(N(0, 1/4)), 6
  // times that in one channel of 25, and a mean of 2·N(0, 1) scales. V: a mean of N(0, 1)/2.
  kChannels
};
const char* data_text(Data data);  // "outliers", "normal", "channels"

struct OutlierConfig {
  int64_t heads = 48;
  int64_t seqlen_q = 128;
  int64_t seqlen_kv = 8192;
  int64_t head_dim = 128;
  uint64_t seed = 0;
  Data data = Data::kOutliers;
};

// Full attention: tensors (1, seqlen, heads, head_dim), or varlen ones of queries and keys that
// cu_seqlens cuts alike.
struct Attention {
  Tensor q, k, v;
  Tensor cu_seqlens{};  // absent = dense

  fa3_forward_args args(const Tensor& o) const;  // into o, without LSE
};

// Heads [first, first + count) of the experiment in FP32, and the same rounded to another type.
// Each head of each tensor has a generator of its own, seeded by all that names it through
// std::seed_seq: streams of neighbours share nothing.
Attention draw_outliers(const OutlierConfig& config, int64_t first, int64_t count);
Attention rounded(const Attention& drawn, int32_t dtype);

// Attention in one type: O, of any type, from inputs of `dtype`.
struct Method {
  std::string name;
  int32_t dtype;
  std::function<Tensor(const Attention& inputs)> compute;
};

// A backend of fa3. The context outlives the method. Throws std::runtime_error with the library's
// message when it declines.
Method fa3_method(std::string name, int32_t dtype, fa3_context* context);
// Attention without fusion, S and P in `dtype` between the steps: naive_forward().
Method unfused_method(int32_t dtype);

class Error {
 public:
  void add(const fa3_tensor& o, const fa3_tensor& exact);
  double rmse() const;
  double greatest() const { return greatest_; }

 private:
  double squares_ = 0, greatest_ = 0;
  int64_t count_ = 0;
};

// Of O against FP64 on the inputs as drawn, and as rounded.
struct Errors {
  Error drawn, rounded;
};

// One per method: adds the errors on these inputs, in FP32, to errors. reference: a context of the
// FP64 backend.
void add_errors(const Attention& drawn, fa3_context* reference, const std::vector<Method>& methods,
                std::vector<Errors>& errors);
std::vector<Errors> outlier_errors(const OutlierConfig& config, fa3_context* reference,
                                   const std::vector<Method>& methods);

}  // namespace fa3::verify
