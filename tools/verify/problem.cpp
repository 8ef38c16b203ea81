// SPDX-License-Identifier: BSD-3-Clause
// problem.cpp — from a Config to tensors and arguments.
#include "tools/verify/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "tools/verify/append.h"
#include "tools/verify/axis.h"
#include "tools/verify/cache.h"
#include "tools/verify/coded.h"
#include "tools/verify/fields.h"

namespace fa3::verify {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

// Of Config::with. Sinks weigh about as much as the keys of some hundreds, and some are none. Of a
// tree's words one of 4 has no bits, and others half of them.
double drawn_of(const fa3_field& field, Random& random) {
  if (std::string_view(field.name) == "tree_mask") {
    const uint64_t bits = random.bits();
    return bits >> 62 == 0 ? 0.0 : static_cast<double>(static_cast<int32_t>(bits));
  }
  const double normal = random.normal();
  if (std::string_view(field.name) != "sinks") return normal;
  return random.uniform() < 0.125 ? -std::numeric_limits<double>::infinity() : 5 + 3 * normal;
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

// attn_mask: see Config. Which elements it hides depends on their place alone.
Tensor attn_mask(const Config& c, const std::vector<int64_t>& shape, int64_t padding) {
  constexpr int64_t kBlockRows = 48, kBlockColumns = 80;
  Tensor t = make_tensor(c.attn_mask, shape, {{}, padding, {}, c.alignment});
  const auto chance = [&](int64_t plane, int64_t i, int64_t j) {
    return Random(c.seed * 31 + static_cast<uint64_t>((plane * 8191 + i) * 131071 + j)).uniform();
  };
  Random values(~(c.seed * 8 + 4));
  const bool hides = c.attn_mask == FA3_BOOL || c.seed % 3 != 2;
  int64_t index = 0;
  generate(t.view, [&] {
    const int64_t j = index % shape[3], row = index / shape[3], i = row % shape[2];
    const int64_t plane = row / shape[2];
    ++index;
    const double block = chance(plane, i / kBlockRows, j / kBlockColumns);
    bool hidden = block < 0.3 || (block < 0.6 && chance(plane + 1, i, j) < 0.4);
    if (shape[2] > 1 && shape[3] > 1) hidden = hidden || chance(plane + 2, i, -1) < 0.1;
    if (c.attn_mask == FA3_BOOL) return hidden ? 0.0 : static_cast<double>(1 + index % 255);
    const double value = 2 * values.normal();
    return hides && hidden ? -std::numeric_limits<double>::infinity() : value;
  });
  return t;
}

// The same values in the shape of the scores, but for one element, which has no strides to expand.
void expand(const Config& c, int64_t columns, fa3_tensor* t) {
  const int64_t all[] = {batch_of(c), c.heads_q, c.seqlen_q, columns};
  if (element_count(*t) <= 1) return;
  for (int d = 0; d < t->rank; ++d) {
    if (t->shape[d] == all[d]) continue;
    t->shape[d] = all[d];
    t->stride[d] = 0;
  }
}

// NaN in the rows that belong to no sequence or lie beyond seqused: nothing may read them.
void poison_unowned_rows(const Places& places, const Tensor& t) {
  for_each_row(t.view, [&](const Index& at, void* row) {
    if (places.of(at).sequence < 0) fill_row(t.view, row, kNan);
  });
}

// The bound that the arguments give: odd seeds leave it out.
int64_t max_seqlen(const Config& c, const Axis& axis) {
  if (!axis.is_varlen() || c.seed % 2 != 0) return 0;
  return *std::max_element(axis.varlen.begin(), axis.varlen.end());
}

// Each tensor from a stream of its own: values do not depend on layout or on other tensors.
Random stream_of(const Config& c, uint64_t stream) { return Random(c.seed * 8 + stream); }

void draw(const Config& c, const Tensor& tensor, uint64_t stream, double deviation) {
  Random random = stream_of(c, stream);
  generate(tensor.view, [&] { return deviation * random.normal(); });
}

// q, k or v, and what belongs to it where it has 8 bits.
struct Input {
  const Tensor& values;
  Tensor *scale, *offset;
};

void draw_input(const Config& c, Operand x, const Places& places, const Input& input) {
  const uint64_t stream = x == Operand::kQ ? 1 : x == Operand::kK ? 2 : 3;
  const double deviation = x == Operand::kQ ? c.magnitude : 1;
  if (!is_8_bit(input.values.view.dtype)) {
    draw(c, input.values, stream, deviation);
    poison_unowned_rows(places, input.values);
    return;
  }
  const int64_t padding = order_of(c, places.varlen()).padding;
  const std::vector<int64_t> of_scale = scale_shape(c, x, max_seqlen(c, axis_of(c, x)));
  if (!of_scale.empty()) *input.scale = make_tensor(FA3_F32, of_scale, {{}, padding});
  Random random(~(c.seed * 8 + stream));  // far from the streams of values
  Tensor offset;
  if (has_offset(c, x)) {
    offset = make_tensor(FA3_F32, offset_shape(c, x), {{}, padding});
    generate(offset.view, [&] { return 0.5 * random.normal(); });
    *input.offset = offset;
  }
  draw_coded({input.values, *input.scale, offset, scale_block(scales_of(c, x)), places},
             stream_of(c, stream), random, deviation);
}

}  // namespace

Tensors make_tensors(const Config& c) {
  if (const std::string why = contradiction(c); !why.empty()) throw std::invalid_argument(why);
  const int32_t out = dtype_of_out(c);
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
    t.k = make_tensor(dtype_of_k(c), k, shared);
    t.v = make_tensor(dtype_of_v(c), v, shared);
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

  const Places queries(c, axis_q(c)), keys(c, axis_kv(c));
  draw_input(c, Operand::kQ, queries, {t.q, &t.q_scale, nullptr});
  draw_input(c, Operand::kK, keys, {t.k, &t.k_scale, &t.k_offset});
  draw_input(c, Operand::kV, keys, {t.v, &t.v_scale, &t.v_offset});
  draw(c, t.dout, 4, 1);
  draw(c, t.dlse, 5, 1);
  if (c.backward) poison_unowned_rows(queries, t.dout);
  if (is_varlen_q(c)) t.cu_seqlens_q = cu_seqlens(c.varlen_q);
  if (is_varlen_kv(c)) t.cu_seqlens_kv = cu_seqlens(c.varlen_kv);
  if (!c.seqused_q.empty()) t.seqused_q = vector_of(c.seqused_q);
  if (!c.seqused_kv.empty()) t.seqused_kv = vector_of(c.seqused_kv);
  if (c.alibi) t.alibi_slopes = alibi_slopes(c, padding);
  if (c.sequence_ids > 0) {
    t.sequence_ids_q = sequence_ids(c, axis_q(c), true, padding);
    t.sequence_ids_kv = sequence_ids(c, axis_kv(c), false, padding);
  }
  if (has_cache(c)) move_to_cache(c, memory_of(c, c.packed_kv), &t);
  if (!c.append.empty()) {
    MemoryOrder of_new = memory_of(c, c.packed_new);
    if (c.seed % 4 == 3) of_new.alignment = 0;
    take_new_keys(c, memory_q, of_new, &t);
  }
  const std::vector<int64_t> mask = mask_shape(c, max_seqlen(c, axis_kv(c)));
  if (!mask.empty()) {
    t.attn_mask = attn_mask(c, mask, padding);
    if (c.dattn_mask)
      t.dattn_mask = make_tensor(c.out_dtype != 0 ? c.out_dtype : c.attn_mask, mask,
                                 {{}, padding, {}, c.alignment});
    Config full = c;
    full.mask_dims = "bhqk";
    if (c.seed % 2 == 1)
      expand(c, mask_shape(full, max_seqlen(c, axis_kv(c)))[3], &t.attn_mask.view);
  }
  for (const std::string& name : c.with) {
    const auto& all = fields(c.backward ? FA3_OP_BACKWARD : FA3_OP_FORWARD);
    const fa3_field* const field = find_field(c.backward ? FA3_OP_BACKWARD : FA3_OP_FORWARD, name);
    const auto make = [&](const fa3_field& f, bool gradient) {
      return make_tensor(dtype_of_field(c, f, gradient), shape_of_field(c, f), {{}, padding});
    };
    Tensor& tensor = t.with[name] = make(*field, false);
    Random random(~(c.seed * 64 + static_cast<uint64_t>(field - all.data())));
    if (!is_output(*field)) generate(tensor.view, [&] { return drawn_of(*field, random); });
    const fa3_field* const gradient = c.backward ? gradient_of(name) : nullptr;
    if (gradient != nullptr) t.with[gradient->name] = make(*gradient, true);
  }
  return t;
}

const Tensor* Tensors::find(const std::string& name) const {
  if (const auto drawn = with.find(name); drawn != with.end()) return &drawn->second;
  constexpr std::pair<const char*, Tensor Tensors::*> kMembers[] = {
      {"q", &Tensors::q},
      {"k", &Tensors::k},
      {"v", &Tensors::v},
      {"o", &Tensors::o},
      {"lse", &Tensors::lse},
      {"dout", &Tensors::dout},
      {"dlse", &Tensors::dlse},
      {"dq", &Tensors::dq},
      {"dk", &Tensors::dk},
      {"dv", &Tensors::dv},
      {"q_scale", &Tensors::q_scale},
      {"k_scale", &Tensors::k_scale},
      {"v_scale", &Tensors::v_scale},
      {"k_offset", &Tensors::k_offset},
      {"v_offset", &Tensors::v_offset},
      {"cu_seqlens_q", &Tensors::cu_seqlens_q},
      {"cu_seqlens_kv", &Tensors::cu_seqlens_kv},
      {"seqused_q", &Tensors::seqused_q},
      {"seqused_kv", &Tensors::seqused_kv},
      {"alibi_slopes", &Tensors::alibi_slopes},
      {"sequence_ids_q", &Tensors::sequence_ids_q},
      {"sequence_ids_kv", &Tensors::sequence_ids_kv},
      {"attn_mask", &Tensors::attn_mask},
      {"dattn_mask", &Tensors::dattn_mask},
      {"page_table", &Tensors::page_table},
      {"kv_batch_idx", &Tensors::kv_batch_idx},
      {"kv_begin", &Tensors::kv_begin},
      {"k_new", &Tensors::k_new},
      {"v_new", &Tensors::v_new},
      {"cu_seqlens_new", &Tensors::cu_seqlens_new},
      {"rotary_cos", &Tensors::rotary_cos},
      {"rotary_sin", &Tensors::rotary_sin},
      {"rotary_position", &Tensors::rotary_position},
  };
  for (const auto& [member, tensor] : kMembers)
    if (name == member) return &(this->*tensor);
  return nullptr;
}

namespace {

// The fields that both argument structs have, and every tensor.
template <class Args>
Args common_args(const Config& c, const Tensors& t) {
  Args args{};
  args.struct_size = sizeof(Args);
  for_each_tensor(args, [&](const fa3_field& f, fa3_tensor& view) {
    if (const Tensor* const tensor = t.find(f.name)) view = tensor->view;
  });
  args.max_seqlen_q = max_seqlen(c, axis_q(c));
  args.max_seqlen_kv = has_cache(c) ? cache_max_seqlen(c) : max_seqlen(c, axis_kv(c));
  set_scalars(c, args);
  return args;
}

}  // namespace

fa3_forward_args forward_args(const Config& c, const Tensors& t) {
  auto args = common_args<fa3_forward_args>(c, t);
  if (t.q_scale.storage) args.q_block = scale_block(scales_of(c, Operand::kQ));
  if (t.k_scale.storage) args.k_block = scale_block(scales_of(c, Operand::kK));
  if (t.v_scale.storage) args.v_block = scale_block(scales_of(c, Operand::kV));
  return args;
}

fa3_backward_args backward_args(const Config& c, const Tensors& t) {
  auto args = common_args<fa3_backward_args>(c, t);
  args.deterministic = c.deterministic;
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
