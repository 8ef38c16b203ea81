// SPDX-License-Identifier: BSD-3-Clause
// problem.cpp — from a Config to tensors and arguments, and to the command that repeats it.
#include "tools/verify/problem.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace fa3::verify {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_varlen_q(const Config& c) { return !c.varlen_q.empty(); }
bool is_varlen_kv(const Config& c) { return !c.varlen_kv.empty(); }

int64_t batch_of(const Config& c) {
  if (is_varlen_q(c)) return static_cast<int64_t>(c.varlen_q.size());
  if (is_varlen_kv(c)) return static_cast<int64_t>(c.varlen_kv.size());
  return c.batch;
}

int64_t sum(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

// One sequence axis of a Config.
struct Axis {
  const std::vector<int64_t>& varlen;
  const std::vector<int64_t>& seqused;
  int64_t seqlen;  // dense
  int64_t spare;   // varlen

  bool is_varlen() const { return !varlen.empty(); }
  int64_t rows() const { return is_varlen() ? sum(varlen) + spare : seqlen; }
};

Axis axis_q(const Config& c) { return {c.varlen_q, c.seqused_q, c.seqlen_q, c.spare_q}; }
Axis axis_kv(const Config& c) { return {c.varlen_kv, c.seqused_kv, c.seqlen_kv, c.spare_kv}; }

std::vector<int64_t> shape_of(const Config& c, const Axis& axis, int64_t heads, int64_t head_dim) {
  if (axis.is_varlen()) return {axis.rows(), heads, head_dim};
  return {batch_of(c), axis.rows(), heads, head_dim};
}

MemoryOrder order_of(const Config& c, bool is_varlen) {
  switch (c.layout) {
    case Layout::kHeadsFirst:
      return {is_varlen ? std::vector<int>{1, 0, 2} : std::vector<int>{0, 2, 1, 3}};
    case Layout::kSeqFirst:
      return {is_varlen ? std::vector<int>{} : std::vector<int>{1, 0, 2, 3}};
    case Layout::kPadded:
      return {{}, 3};
    default:
      return {};
  }
}

MemoryOrder memory_of(const Config& c, bool is_varlen) {
  MemoryOrder memory = order_of(c, is_varlen);
  memory.alignment = c.alignment;
  return memory;
}

Tensor vector_of(const std::vector<int64_t>& values) {
  Tensor t = make_tensor(FA3_I32, {static_cast<int64_t>(values.size())});
  size_t i = 0;
  generate(t.view, [&] { return static_cast<double>(values[i++]); });
  return t;
}

Tensor cu_seqlens(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> cu{0};
  for (const int64_t n : lengths) cu.push_back(cu.back() + n);
  return vector_of(cu);
}

// Slopes of the i-th query head from 1: 2^(-8i/heads_q) (Press et al., ALiBi).
Tensor alibi_slopes(const Config& c, int64_t padding) {
  const bool each = c.seed / 2 % 2 == 1;  // of each batch entry its own
  const int64_t batch = batch_of(c), heads = c.heads_q;
  Tensor t =
      make_tensor(FA3_F32, each ? std::vector<int64_t>{batch, heads} : std::vector<int64_t>{heads},
                  {{}, padding});
  int64_t i = 0;
  generate(t.view, [&] {
    const double slope = std::exp2(-8.0 * static_cast<double>(i % heads + 1) / double(heads));
    return slope / static_cast<double>(i++ / heads + 1);
  });
  return t;
}

// The documents of one sequence: where they end, as fractions of its rows.
struct Documents {
  std::vector<double> ends;

  Documents(int64_t count, Random& random) {
    for (int64_t i = 1; i < count; ++i) ends.push_back(random.uniform());
    std::sort(ends.begin(), ends.end());
  }
  // Of row i of len.
  int64_t at(int64_t i, int64_t len) const {
    const auto passed = [&](double end) {
      return static_cast<int64_t>(end * static_cast<double>(len)) <= i;
    };
    return std::partition_point(ends.begin(), ends.end(), passed) - ends.begin();
  }
};

// Ids of all rows of an axis.
Tensor sequence_ids(const Config& c, const Axis& axis, bool query, int64_t padding) {
  Random of_documents(c.seed * 8 + 6), of_rows(c.seed * 8 + (query ? 7 : 8));
  const int64_t batch = batch_of(c);
  std::vector<int64_t> ids(axis.is_varlen() ? axis.rows() : batch * axis.rows(), 0);
  int64_t begin = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const Documents documents(c.sequence_ids, of_documents);
    const int64_t capacity = axis.is_varlen() ? axis.varlen[b] : axis.seqlen;
    const int64_t used = axis.seqused.empty() ? capacity : axis.seqused[b];
    for (int64_t i = 0; i < used; ++i) {
      ids[begin + i] = c.scattered_ids ? of_rows.between(0, c.sequence_ids - (query ? 0 : 1))
                                       : documents.at(i, used);
    }
    begin += capacity;
  }
  Tensor t = make_tensor(FA3_I32,
                         axis.is_varlen() ? std::vector<int64_t>{axis.rows()}
                                          : std::vector<int64_t>{batch, axis.rows()},
                         {{}, padding});
  size_t i = 0;
  generate(t.view, [&] { return static_cast<double>(ids[i++]); });
  return t;
}

// NaN in the rows that belong to no sequence or lie beyond seqused: nothing may read them.
void poison_unowned_rows(const Config& c, const Axis& axis, const Tensor& t) {
  const int64_t batch = batch_of(c);
  // owned[b · rows + i] of dense and owned[i] of varlen tensors.
  std::vector<bool> owned(axis.is_varlen() ? axis.rows() : batch * axis.rows(), false);
  int64_t begin = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t capacity = axis.is_varlen() ? axis.varlen[b] : axis.seqlen;
    const int64_t used = axis.seqused.empty() ? capacity : axis.seqused[b];
    std::fill_n(owned.begin() + begin, used, true);
    begin += capacity;
  }
  const int64_t n = t.view.shape[t.view.rank - 1], size = element_bytes(t.view.dtype);
  for_each_row(t.view, [&](const Index& at, void* row) {
    if (owned[axis.is_varlen() ? at[0] : at[0] * axis.rows() + at[1]]) return;
    for (int64_t e = 0; e < n; ++e)
      encode(t.view.dtype, kNan, static_cast<std::byte*>(row) + e * size);
  });
}

}  // namespace

const char* layout_name(Layout layout) {
  switch (layout) {
    case Layout::kDense:
      return "dense";
    case Layout::kHeadsFirst:
      return "heads_first";
    case Layout::kSeqFirst:
      return "seq_first";
    case Layout::kPadded:
      return "padded";
    case Layout::kInterleaved:
      return "interleaved";
    case Layout::kBroadcast:
      return "broadcast";
  }
  return "?";
}

const char* backend_name(int32_t backend) {
  switch (backend) {
    case FA3_BACKEND_AUTO:
      return "auto";
    case FA3_BACKEND_CPU:
      return "cpu";
    case FA3_BACKEND_REFERENCE:
      return "reference";
    case FA3_BACKEND_CUDA:
      return "cuda";
    case FA3_BACKEND_SIM:
      return "sim";
    default:
      return "unknown";
  }
}

std::string replay_command(const Config& c, const std::string& backend) {
  const Config d;  // the defaults
  std::string text = "fa3 check";
  const auto flag = [&](bool differs, const std::string& part) {
    if (differs) text += " " + part;
  };
  const auto number = [&](const char* name, auto value, auto usual) {
    flag(value != usual, fmt::format("{} {}", name, value));
  };
  const auto list = [&](const char* name, const std::vector<int64_t>& values) {
    flag(!values.empty(), fmt::format("{} {}", name, fmt::join(values, ",")));
  };
  flag(c.backward, "--backward");
  flag(c.dtype != d.dtype, fmt::format("--dtype {}", dtype_text(c.dtype)));
  flag(c.out_dtype != d.out_dtype, fmt::format("--out-dtype {}", dtype_text(c.out_dtype)));
  // Sizes always: the command's own defaults are larger than those of Config.
  const auto size = [&](bool applies, const char* name, int64_t value) {
    flag(applies, fmt::format("{} {}", name, value));
  };
  size(!is_varlen_q(c) && !is_varlen_kv(c), "--batch", c.batch);
  size(true, "--heads-q", c.heads_q);
  size(true, "--heads-kv", c.heads_kv);
  size(!is_varlen_q(c), "--seqlen-q", c.seqlen_q);
  size(!is_varlen_kv(c), "--seqlen-kv", c.seqlen_kv);
  size(true, "--head-dim", c.head_dim_qk);
  size(true, "--head-dim-v", c.head_dim_v);
  list("--varlen-q", c.varlen_q);
  list("--varlen-kv", c.varlen_kv);
  number("--spare-q", c.spare_q, d.spare_q);
  number("--spare-kv", c.spare_kv, d.spare_kv);
  list("--seqused-q", c.seqused_q);
  list("--seqused-kv", c.seqused_kv);
  flag(c.mask == FA3_MASK_CAUSAL, "--causal");
  flag(c.mask == FA3_MASK_WINDOW, fmt::format("--window {},{}", c.left, c.right));
  number("--softmax-scale", c.softmax_scale, d.softmax_scale);
  number("--softcap", c.softcap, d.softcap);
  flag(c.alibi, "--alibi");
  number("--sequence-ids", c.sequence_ids, d.sequence_ids);
  flag(c.scattered_ids, "--scattered-ids");
  flag(!c.lse && !c.backward, "--no-lse");
  flag(c.dlse, "--dlse");
  number("--magnitude", c.magnitude, d.magnitude);
  flag(c.layout != d.layout, fmt::format("--layout {}", layout_name(c.layout)));
  number("--alignment", c.alignment, d.alignment);
  number("--seed", c.seed, d.seed);
  flag(!backend.empty(), "--backend " + backend);
  return text;
}

std::string contradiction(const Config& c) {
  const int64_t batch = batch_of(c);
  const auto wrong_count = [&](const std::vector<int64_t>& values) {
    return !values.empty() && static_cast<int64_t>(values.size()) != batch;
  };
  if (c.dtype != FA3_F32 && c.dtype != FA3_F16 && c.dtype != FA3_BF16)
    return "dtype must be f32, f16 or bf16";
  if (c.out_dtype != 0 && c.out_dtype != c.dtype && c.out_dtype != FA3_F32)
    return "out-dtype must be the dtype or f32";
  if (wrong_count(c.varlen_kv)) return "varlen-q and varlen-kv differ in their number of sequences";
  if (wrong_count(c.seqused_q)) return "seqused-q needs one number per batch entry";
  if (wrong_count(c.seqused_kv)) return "seqused-kv needs one number per batch entry";
  const int64_t least = std::min({c.batch, c.heads_q, c.heads_kv, c.seqlen_q, c.seqlen_kv,
                                  c.head_dim_qk, c.head_dim_v, c.spare_q, c.spare_kv});
  if (least < 0) return "a size is negative";
  constexpr int64_t kMostDocuments = 1 << 20;
  if (c.sequence_ids < 0 || c.sequence_ids > kMostDocuments)
    return "sequence-ids must be a number of documents up to 1048576";
  if (c.scattered_ids && c.sequence_ids == 0) return "scattered-ids needs sequence-ids";
  constexpr int64_t kMostAlignment = 1 << 20;
  if (c.alignment < 0 || c.alignment > kMostAlignment || (c.alignment & (c.alignment - 1)) != 0)
    return "alignment must be a power of two up to 1048576, or 0 for that of an element";
  for (const Axis& axis : {axis_q(c), axis_kv(c)}) {
    for (size_t b = 0; b < axis.varlen.size(); ++b)
      if (axis.varlen[b] < 0) return "a varlen length is negative";
    for (size_t b = 0; b < axis.seqused.size(); ++b)
      if (axis.seqused[b] < 0 ||
          axis.seqused[b] > (axis.is_varlen() ? axis.varlen[b] : axis.seqlen))
        return "a seqused number is negative or beyond its sequence";
  }
  if (c.layout == Layout::kInterleaved &&
      (c.head_dim_qk != c.head_dim_v || is_varlen_q(c) != is_varlen_kv(c) ||
       axis_q(c).rows() != axis_kv(c).rows()))
    return "layout interleaved needs queries and keys of the same lengths and head_dim";
  if (c.layout == Layout::kBroadcast && (is_varlen_kv(c) || !c.seqused_kv.empty()))
    return "layout broadcast needs dense keys without seqused";
  return "";
}

Tensors make_tensors(const Config& c) {
  if (const std::string why = contradiction(c); !why.empty()) throw std::invalid_argument(why);
  const int32_t out = c.out_dtype != 0 ? c.out_dtype : c.dtype;
  const std::vector<int64_t> q = shape_of(c, axis_q(c), c.heads_q, c.head_dim_qk);
  const std::vector<int64_t> k = shape_of(c, axis_kv(c), c.heads_kv, c.head_dim_qk);
  const std::vector<int64_t> v = shape_of(c, axis_kv(c), c.heads_kv, c.head_dim_v);
  const std::vector<int64_t> o = shape_of(c, axis_q(c), c.heads_q, c.head_dim_v);
  const MemoryOrder memory_q = memory_of(c, is_varlen_q(c)),
                    memory_kv = memory_of(c, is_varlen_kv(c));
  const int64_t padding = memory_q.padding;
  Tensors t;
  if (c.layout == Layout::kInterleaved) {
    const int heads_dim = static_cast<int>(q.size()) - 2;
    const std::vector<int64_t> heads{c.heads_q, c.heads_kv, c.heads_kv};
    const std::vector<Tensor> in = make_interleaved(c.dtype, q, heads_dim, heads, c.alignment);
    t.q = in[0], t.k = in[1], t.v = in[2];
    if (c.backward) {
      const std::vector<Tensor> gradients = make_interleaved(out, q, heads_dim, heads);
      t.dq = gradients[0], t.dk = gradients[1], t.dv = gradients[2];
    }
  } else {
    MemoryOrder shared = memory_kv;
    if (c.layout == Layout::kBroadcast) shared.broadcast = {0};
    t.q = make_tensor(c.dtype, q, memory_q);
    t.k = make_tensor(c.dtype, k, shared);
    t.v = make_tensor(c.dtype, v, shared);
    if (c.backward) {
      t.dq = make_tensor(out, q, memory_q);
      t.dk = make_tensor(out, k, memory_kv);
      t.dv = make_tensor(out, v, memory_kv);
    }
  }
  t.o = make_tensor(out, o, memory_q);
  const std::vector<int64_t> lse = is_varlen_q(c) ? std::vector<int64_t>{c.heads_q, o[0]}
                                                  : std::vector<int64_t>{o[0], c.heads_q, o[1]};
  if (c.lse || c.backward) t.lse = make_tensor(FA3_F32, lse, {{}, padding});
  if (c.backward) t.dout = make_tensor(out, o, memory_q);
  if (c.backward && c.dlse) t.dlse = make_tensor(FA3_F32, lse, {{}, padding});

  // Each tensor from a stream of its own: values do not depend on layout or on other tensors.
  const auto draw = [&](const Tensor& tensor, uint64_t stream, double deviation) {
    Random random(c.seed * 8 + stream);
    generate(tensor.view, [&] { return deviation * random.normal(); });
  };
  draw(t.q, 1, c.magnitude);
  draw(t.k, 2, 1);
  draw(t.v, 3, 1);
  draw(t.dout, 4, 1);
  draw(t.dlse, 5, 1);
  poison_unowned_rows(c, axis_q(c), t.q);
  poison_unowned_rows(c, axis_kv(c), t.k);
  poison_unowned_rows(c, axis_kv(c), t.v);
  if (c.backward) poison_unowned_rows(c, axis_q(c), t.dout);
  if (is_varlen_q(c)) t.cu_seqlens_q = cu_seqlens(c.varlen_q);
  if (is_varlen_kv(c)) t.cu_seqlens_kv = cu_seqlens(c.varlen_kv);
  if (!c.seqused_q.empty()) t.seqused_q = vector_of(c.seqused_q);
  if (!c.seqused_kv.empty()) t.seqused_kv = vector_of(c.seqused_kv);
  if (c.alibi) t.alibi_slopes = alibi_slopes(c, padding);
  if (c.sequence_ids > 0) {
    t.sequence_ids_q = sequence_ids(c, axis_q(c), true, padding);
    t.sequence_ids_kv = sequence_ids(c, axis_kv(c), false, padding);
  }
  return t;
}

namespace {

// The fields that both argument structs have.
template <class Args>
Args common_args(const Config& c, const Tensors& t) {
  Args args{};
  args.struct_size = sizeof(Args);
  args.q = t.q.view;
  args.k = t.k.view;
  args.v = t.v.view;
  args.o = t.o.view;
  args.lse = t.lse.view;
  args.cu_seqlens_q = t.cu_seqlens_q.view;
  args.cu_seqlens_kv = t.cu_seqlens_kv.view;
  args.seqused_q = t.seqused_q.view;
  args.seqused_kv = t.seqused_kv.view;
  args.alibi_slopes = t.alibi_slopes.view;
  args.sequence_ids_q = t.sequence_ids_q.view;
  args.sequence_ids_kv = t.sequence_ids_kv.view;
  // Odd seeds leave the bounds out.
  if (is_varlen_q(c) && c.seed % 2 == 0)
    args.max_seqlen_q = *std::max_element(c.varlen_q.begin(), c.varlen_q.end());
  if (is_varlen_kv(c) && c.seed % 2 == 0)
    args.max_seqlen_kv = *std::max_element(c.varlen_kv.begin(), c.varlen_kv.end());
  args.mask = c.mask;
  args.left = c.left;
  args.right = c.right;
  args.softmax_scale = c.softmax_scale;
  args.softcap = c.softcap;
  return args;
}

}  // namespace

fa3_forward_args forward_args(const Config& c, const Tensors& t) {
  return common_args<fa3_forward_args>(c, t);
}

fa3_backward_args backward_args(const Config& c, const Tensors& t) {
  auto args = common_args<fa3_backward_args>(c, t);
  args.dout = t.dout.view;
  args.dlse = t.dlse.view;
  args.dq = t.dq.view;
  args.dk = t.dk.view;
  args.dv = t.dv.view;
  return args;
}

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Random::bits() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

double Random::uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }

// Sum of uniforms (Irwin–Hall): only additions, so the same bits with every compiler and libm.
double Random::normal() {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

int64_t Random::between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
}

}  // namespace fa3::verify
