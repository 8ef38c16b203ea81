// SPDX-License-Identifier: BSD-3-Clause
// attention.cpp — forward and backward from C++17: three sentences of different lengths in one
// call, without padding, and two checks of what comes out.
//
// Build, once fa3 is installed:  c++ -std=c++17 attention.cpp $(pkg-config --cflags --libs fa3)
// or with CMake:                 CMakeLists.txt beside this file
#include <cmath>
#include <cstdio>
#include <fa3/fa3.hpp>
#include <random>
#include <vector>

namespace {

constexpr int64_t kHeads = 4;     // of queries, keys and values alike
constexpr int64_t kHeadDim = 32;  // numbers per head
constexpr int64_t kRow = kHeads * kHeadDim;

// Where each sentence begins in the varlen tensors, and one past the last: lengths 5, 1 and 30.
const std::vector<int32_t> kStarts = {0, 5, 6, 36};
const int64_t kTokens = kStarts.back();
const int64_t kSentences = static_cast<int64_t>(kStarts.size()) - 1;

std::vector<float> random_tensor(unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(kTokens * kRow));
  for (float& value : values) value = normal(generator);
  return values;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

// A varlen tensor has no batch dimension: (all tokens, heads, head_dim).
fa3_tensor varlen(const std::vector<float>& values) {
  return fa3::tensor(values.data(), {kTokens, kHeads, kHeadDim});
}

// The cuts between sentences are themselves a tensor, of int32.
fa3_tensor starts() { return fa3::tensor(kStarts.data(), {kSentences + 1}); }

// Causal attention of all sentences. Tokens of one sentence do not see those of another.
// Writes o, and lse (heads, tokens): the logarithm of each row's sum of exponentials, which the
// backward needs.
void forward(const fa3::Context& context, const std::vector<float>& q, const std::vector<float>& k,
             const std::vector<float>& v, std::vector<float>& o, std::vector<float>& lse) {
  fa3_forward_args args = fa3::forward_args();  // everything off
  args.q = varlen(q);
  args.k = varlen(k);
  args.v = varlen(v);
  args.o = varlen(o);
  args.lse = fa3::tensor(lse.data(), {kHeads, kTokens});
  args.cu_seqlens_q = starts();   // queries and keys are cut alike here; they need not be,
  args.cu_seqlens_kv = starts();  // for instance when keys come from a cache
  args.mask = FA3_MASK_CAUSAL;
  context.forward(args);  // throws fa3::Error with a message that says what to do
}

// The first check: the last sentence by itself, as an ordinary batch of one, gives what it gave
// within the pack. Returns the distance between the two; NaN anywhere makes it NaN.
double compare_with_one_sentence(const fa3::Context& context, const std::vector<float>& q,
                                 const std::vector<float>& k, const std::vector<float>& v,
                                 const std::vector<float>& o) {
  const int64_t begin = kStarts[kStarts.size() - 2];
  const int64_t length = kTokens - begin;
  std::vector<float> alone(static_cast<size_t>(length * kRow));
  const auto sentence = [&](const std::vector<float>& values) {  // a view: nothing is copied
    return fa3::tensor(values.data() + begin * kRow, {1, length, kHeads, kHeadDim});
  };
  fa3_forward_args args = fa3::forward_args();
  args.q = sentence(q);
  args.k = sentence(k);
  args.v = sentence(v);
  args.o = fa3::tensor(alone.data(), {1, length, kHeads, kHeadDim});
  args.mask = FA3_MASK_CAUSAL;
  context.forward(args);
  double sum = 0;
  for (size_t i = 0; i < alone.size(); ++i) {
    const double difference = double{alone[i]} - double{o[static_cast<size_t>(begin * kRow) + i]};
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

// The second check: dq is the derivative of the loss Σ dout·o. A small step of q along `step`
// changes the loss as dq says. Returns the relative difference between the two.
double compare_with_finite_difference(const fa3::Context& context, const std::vector<float>& q,
                                      const std::vector<float>& k, const std::vector<float>& v,
                                      const std::vector<float>& dout,
                                      const std::vector<float>& dq) {
  const std::vector<float> step = random_tensor(6);
  const float size = 1e-2f;
  std::vector<float> o(q.size()), lse(static_cast<size_t>(kHeads * kTokens)), moved(q.size());
  double loss[2] = {};
  for (int side = 0; side < 2; ++side) {
    for (size_t i = 0; i < q.size(); ++i) moved[i] = q[i] + (side == 0 ? -size : size) * step[i];
    forward(context, moved, k, v, o, lse);
    loss[side] = dot(dout, o);
  }
  const double measured = (loss[1] - loss[0]) / (2 * double{size});
  const double claimed = dot(dq, step);
  return std::fabs(measured - claimed) / std::fabs(claimed);
}

int run() {
  const fa3::Context context;  // this machine's CPU, all cores; destroyed by itself
  std::printf("fa3 %s on %s\n", fa3_version(), context.device_info().name);

  const std::vector<float> q = random_tensor(1), k = random_tensor(2), v = random_tensor(3);
  std::vector<float> o(q.size()), lse(static_cast<size_t>(kHeads * kTokens));
  forward(context, q, k, v, o, lse);

  // Backward: from the gradient of o to those of q, k and v. It takes what the forward took and
  // made.
  const std::vector<float> dout = random_tensor(4);
  std::vector<float> dq(q.size()), dk(k.size()), dv(v.size());
  fa3_backward_args args = fa3::backward_args();
  args.q = varlen(q);
  args.k = varlen(k);
  args.v = varlen(v);
  args.o = varlen(o);
  args.lse = fa3::tensor(lse.data(), {kHeads, kTokens});
  args.dout = varlen(dout);
  args.dq = varlen(dq);
  args.dk = varlen(dk);
  args.dv = varlen(dv);
  args.cu_seqlens_q = starts();
  args.cu_seqlens_kv = starts();
  args.mask = FA3_MASK_CAUSAL;  // the same mask as in the forward
  context.backward(args);

  const double alone = compare_with_one_sentence(context, q, k, v, o);
  const double slope = compare_with_finite_difference(context, q, k, v, dout, dq);
  std::printf("a sentence alone and in the pack differ by %.1e\n", alone);
  std::printf("dq and a finite difference differ by %.1e of their size\n", slope);
  return alone <= 1e-5 && slope <= 1e-2 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const fa3::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
