// SPDX-License-Identifier: BSD-3-Clause
// problem.cpp — options that give sizes, and what follows from them.
#include "problem.h"

#include <algorithm>

#include "error.h"
#include "json_text.h"
#include "tools/verify/cache.h"
#include "tools/verify/fields.h"

namespace fa3::cli {
namespace {

std::vector<int64_t> parse_lengths(const char* option, const std::string& text) {
  if (text.empty()) return {};
  std::vector<int64_t> lengths = parse_integers(option, text);
  for (const int64_t n : lengths)
    if (n < 0) fail(kUsage, "{}: got {}, need lengths from 0", option, n);
  return lengths;
}

int64_t resolve_batch(const ProblemOptions& o, const verify::Config& c) {
  const int64_t count_q = std::ssize(c.varlen_q), count_kv = std::ssize(c.varlen_kv);
  if (count_q > 0 && count_kv > 0 && count_q != count_kv)
    fail(kUsage, "--varlen-kv: got {} lengths, need as many as --varlen-q has ({})", count_kv,
         count_q);
  const int64_t count = std::max(count_q, count_kv);
  if (count == 0) return o.batch.value_or(2);
  if (o.batch.value_or(count) != count)
    fail(kUsage, "--batch: got {}, need the number of --varlen-* lengths ({}); leave --batch out",
         *o.batch, count);
  return count;
}

// Rows of a varlen tensor.
int64_t total(const std::vector<int64_t>& lengths, int64_t spare) {
  int64_t sum = spare;
  for (const int64_t n : lengths)
    if (__builtin_add_overflow(sum, n, &sum))
      fail(kBadInput, "--varlen-*: the lengths overflow 63 bits");
  return sum;
}

// A tensor of the problem without data: (batch, seqlen, heads, dim), or varlen (tokens, heads,
// dim).
fa3_tensor shape_of(const verify::Config& c, bool of_q, int64_t heads, int64_t dim, int32_t dtype) {
  const std::vector<int64_t>& varlen = of_q ? c.varlen_q : c.varlen_kv;
  const bool is_varlen = !varlen.empty();
  const int64_t rows =
      is_varlen ? total(varlen, of_q ? c.spare_q : c.spare_kv) : (of_q ? c.seqlen_q : c.seqlen_kv);
  const int64_t shape[] = {c.batch, rows, heads, dim};
  return fa3_dense(nullptr, static_cast<fa3_dtype>(dtype), is_varlen ? 3 : 4, shape + is_varlen);
}

// Sequence ids of the rows of q or k: (batch, seqlen) or (tokens).
fa3_tensor ids_of(const fa3_tensor& rows) {
  return fa3_dense(nullptr, FA3_I32, rows.rank - 2, rows.shape);
}

template <class Args>
Args common_shapes(const verify::Config& c) {
  Args a = {};
  a.struct_size = sizeof a;
  a.q = shape_of(c, true, c.heads_q, c.head_dim_qk, c.dtype);
  a.k = shape_of(c, false, c.heads_kv, c.head_dim_qk, verify::dtype_of_k(c));
  a.v = shape_of(c, false, c.heads_kv, c.head_dim_v, verify::dtype_of_v(c));
  a.o = shape_of(c, true, c.heads_q, c.head_dim_v, verify::dtype_of_out(c));
  const bool is_varlen_q = !c.varlen_q.empty();
  const int64_t lse[] = {c.batch, c.heads_q, a.q.shape[a.q.rank - 3]};
  a.lse = fa3_dense(nullptr, FA3_F32, a.q.rank - 1, lse + is_varlen_q);
  if (c.alibi) a.alibi_slopes = fa3_dense(nullptr, FA3_F32, 1, &c.heads_q);
  if (c.sequence_ids > 0) {
    a.sequence_ids_q = ids_of(a.q);
    a.sequence_ids_kv = ids_of(a.k);
  }
  const auto of_mask = [&](const std::vector<int64_t>& shape) {
    return fa3_dense(nullptr, static_cast<fa3_dtype>(c.attn_mask),
                     static_cast<int32_t>(shape.size()), shape.data());
  };
  if (c.attn_mask != 0)
    a.attn_mask = of_mask(verify::mask_shape(
        c, c.varlen_kv.empty() ? 0 : *std::max_element(c.varlen_kv.begin(), c.varlen_kv.end())));
  for (const std::string& name : c.with) {
    const bool backward = verify::op_of<Args>() == FA3_OP_BACKWARD;
    for (const fa3_field* const field : {verify::find_field(verify::op_of<Args>(), name),
                                         backward ? verify::gradient_of(name) : nullptr}) {
      if (field == nullptr) continue;  // of the backward only, or without a gradient
      const std::vector<int64_t> shape = verify::shape_of_field(c, *field);
      verify::member<fa3_tensor>(a, *field) = fa3_dense(
          nullptr,
          static_cast<fa3_dtype>(verify::dtype_of_field(c, *field, verify::is_output(*field))),
          static_cast<int32_t>(shape.size()), shape.data());
    }
  }
  const int64_t cuts[] = {c.batch + 1};
  const fa3_tensor cu_seqlens = fa3_dense(nullptr, FA3_I32, 1, cuts);
  if (!c.varlen_q.empty()) a.cu_seqlens_q = cu_seqlens;
  if (!c.varlen_kv.empty()) a.cu_seqlens_kv = cu_seqlens;
  if (!c.varlen_q.empty()) a.max_seqlen_q = *std::max_element(c.varlen_q.begin(), c.varlen_q.end());
  if (!c.varlen_kv.empty())
    a.max_seqlen_kv = *std::max_element(c.varlen_kv.begin(), c.varlen_kv.end());
  verify::set_scalars(c, a);
  return a;
}

// k and v as a cache, and what finds keys there.
void add_cache_shapes(const verify::Config& c, fa3_forward_args& a) {
  std::vector<int64_t> shape = verify::cache_rows(c);
  const auto rank = static_cast<int32_t>(shape.size()) + 2;
  for (fa3_tensor* const t : {&a.k, &a.v}) {
    std::vector<int64_t> all = shape;
    all.insert(all.end(), {c.heads_kv, t == &a.k ? c.head_dim_qk : c.head_dim_v});
    *t = fa3_dense(nullptr, static_cast<fa3_dtype>(t->dtype), rank, all.data());
  }
  const int64_t table[] = {c.batch, c.page_size > 0 ? verify::max_pages_of(c) : 0};
  if (c.page_size > 0) a.page_table = fa3_dense(nullptr, FA3_I32, 2, table);
  if (c.kv_slots > 0) a.kv_batch_idx = fa3_dense(nullptr, FA3_I32, 1, table);
  if (c.kv_begin) a.kv_begin = fa3_dense(nullptr, FA3_I32, 1, table);
  if (c.page_size > 0 || c.kv_begin) a.seqused_kv = fa3_dense(nullptr, FA3_I32, 1, table);
  a.max_seqlen_kv = verify::cache_max_seqlen(c);
}

// What is appended, and the tables.
void add_append_shapes(const verify::Config& c, fa3_forward_args& a) {
  const int64_t rows = total(c.append, 0), each = c.append.empty() ? 0 : c.append[0];
  const int64_t batch[] = {c.batch}, cuts[] = {c.batch + 1};
  for (fa3_tensor* const t : {&a.k_new, &a.v_new}) {
    const int64_t columns = t == &a.k_new ? c.head_dim_qk : c.head_dim_v;
    const int64_t dense[] = {c.batch, each, c.heads_kv, columns};
    const int64_t packed[] = {rows, c.heads_kv, columns};
    *t = fa3_dense(nullptr, static_cast<fa3_dtype>(c.dtype), c.packed_new ? 3 : 4,
                   c.packed_new ? packed : dense);
  }
  if (c.packed_new) a.cu_seqlens_new = fa3_dense(nullptr, FA3_I32, 1, cuts);
  a.seqused_kv = fa3_dense(nullptr, FA3_I32, 1, batch);
  if (c.rotary_dim == 0) return;
  const int64_t table[] = {c.seqlen_kv + c.seqlen_q, c.rotary_dim / 2};
  a.rotary_cos = a.rotary_sin = fa3_dense(nullptr, FA3_F32, 2, table);
}

double bytes_of(const fa3_tensor& t) {
  double bytes = static_cast<double>(verify::element_bytes(t.dtype));
  for (int d = 0; d < t.rank; ++d) bytes *= static_cast<double>(t.shape[d]);
  return bytes;
}

std::string pair_text(const std::vector<int64_t>& varlen, int64_t seqlen) {
  if (varlen.empty()) return std::to_string(seqlen);
  return fmt::format("{} tokens of varlen sequences", total(varlen, 0));
}

// "scales of q head, k 64 (offset), v head"
std::string scales_line(const verify::Config& c) {
  using verify::Operand;
  const auto of = [&](const char* name, Operand x) {
    return fmt::format("{} {}{}", name, verify::scales_text(verify::scales_of(c, x)),
                       verify::has_offset(c, x) ? " (offset)" : "");
  };
  std::string text = fmt::format("scales of {}, {}", of("q", Operand::kQ), of("k", Operand::kK));
  if (verify::is_8_bit(verify::dtype_of_v(c))) text += ", " + of("v", Operand::kV);
  return text;
}

}  // namespace

void add_problem_options(Parser& parser, ProblemOptions& o) {
  parser.group(kAttentionGroup);
  parser.text("--dtype", o.dtype, "TYPE",
              "Element type of q, k, v: f32, f16, bf16; forward also f8_e4m3, i8 [f32]",
              {"f32", "f16", "bf16", "f8_e4m3", "i8"});
  parser.text("--v-dtype", o.v_dtype, "TYPE",
              "Element type of v beside i8: f8_e4m3, f16, bf16 [f8_e4m3]",
              {"f8_e4m3", "f16", "bf16"});
  parser.text("--kv-dtype", o.kv_dtype, "TYPE",
              "Element type of k and v where it is another than that of q: f8_e4m3", {"f8_e4m3"});
  parser.text("--out-dtype", o.out_dtype, "TYPE",
              "Element type of o and the gradients: input (that of q; bf16 for 8 bits), f32; for 8 "
              "bits also f16",
              {"input", "f32", "f16", "bf16"});
  add_scale_options(parser, o.scales, "[head]");
  parser.flag("--backward", o.backward, "The gradients of q, k, v too");
  add_gradient_options(parser, o.gradients);
  add_score_options(parser, o.score);
  parser.group(kSizeGroup);
  parser.whole("--batch", o.batch, "Sequences [2; with --varlen-* their number]");
  parser.whole("--heads-q", o.heads_q, "Query heads, a multiple of --heads-kv");
  parser.whole("--heads-kv", o.heads_kv, "Key and value heads [that of --heads-q]");
  parser.whole("--seqlen-q", o.seqlen_q, "Queries per sequence, in tokens");
  parser.whole("--seqlen-kv", o.seqlen_kv, "Keys per sequence, in tokens [that of --seqlen-q]");
  parser.whole("--head-dim", o.head_dim, "Elements per head of q and k, 1 to 512");
  parser.whole("--head-dim-v", o.head_dim_v,
               "Elements per head of v and o, 1 to 512 [that of --head-dim]");
  parser.text("--varlen-q", o.varlen_q, "N,N,...",
              "Varlen queries: the length of each sequence, in tokens");
  parser.text("--varlen-kv", o.varlen_kv, "N,N,...",
              "Varlen keys: the length of each sequence, in tokens");
  parser.flag("--k-offset", o.k_offset, "8-bit k with an offset of each column");
  parser.flag("--v-offset", o.v_offset, "The same for v");
  parser.flag("--alibi", o.alibi, "ALiBi: slopes 2^(-8i/heads_q) for query heads i from 1");
  parser.whole("--sequence-ids", o.sequence_ids,
               "Documents in each sequence, of random lengths, that do not see each other; 0 = "
               "without sequence ids",
               0, 1 << 20);
  parser.text("--attn-mask", o.attn_mask, "TYPE",
              "A mask tensor of random values that hides some keys, blocks of keys and rows: none, "
              "bool, f32, input (the type of q)",
              {"none", "bool", "f32", "input"});
  parser.text(
      "--mask-dims", o.mask_dims, "DIMS",
      "Where the values of --attn-mask differ: some of b (batch), h (heads), q (queries), k "
      "(keys)");
  parser.texts("--with", o.with, "NAME",
               "With this optional input, by the name of its field in the C interface, of normal "
               "values: alibi_slopes (of any sign), dlse, sinks; of any bits: tree_mask; or with "
               "this output: max_logit; may be repeated");
  for (const fa3_field& f : verify::numbers()) {
    const std::string name = verify::option_of(f);
    if (f.kind == FA3_FIELD_F64)
      parser.real(name.c_str(), o.real_numbers[f.name], f.help);
    else
      parser.whole(name.c_str(), o.whole_numbers[f.name], f.help, 0,
                   f.kind == FA3_FIELD_I32 ? INT32_MAX : INT64_MAX);
  }
}

void add_cache_options(Parser& parser, CacheOptions& o) {
  parser.group(kSizeGroup);
  parser.whole("--page-size", o.page_size,
               "Keys in pages of this many rows, in random order; 0 = no pages", 0, INT32_MAX);
  parser.whole("--kv-slots", o.kv_slots,
               "Keys in random ones of this many slots of a cache; 0 = none", 0, INT32_MAX);
  parser.flag("--kv-begin", o.kv_begin, "Keys begin at random rows of slots or pages");
  parser.flag("--packed-kv", o.packed_kv,
              "With --kv-begin: all keys in one tensor of rank 3, of which sequences share rows");
  parser.text("--append", o.append, "N,N,...",
              "Of the keys of each sequence the last N are new, and appended by the call; one "
              "number: of each");
  parser.flag("--packed-new", o.packed_new, "With --append: the new keys packed, not dense");
  parser.whole("--rotary-dim", o.rotary_dim,
               "With --append: columns of new keys and of queries that are rotated, by random "
               "angles; 0 = none",
               0, INT32_MAX);
}

int32_t mask_dtype(const std::string& name, int32_t dtype) {
  return name == "none"   ? 0
         : name == "bool" ? int32_t{FA3_BOOL}
         : name == "f32"  ? int32_t{FA3_F32}
                          : dtype;
}

void refuse_beside_cases(const Parser& parser) {
  for (const char* group : {kAttentionGroup, kSizeGroup})
    if (const std::string name = parser.given(group); !name.empty())
      fail(kUsage, "{}: describes a problem, and so does --cases; leave one of the two out", name);
}

verify::Config make_config(const ProblemOptions& o) {
  const Mask mask = parse_mask(o.score);
  verify::Config c;
  c.backward = o.backward;
  check_gradients(o.gradients, o.backward);
  c.deterministic = o.gradients.deterministic;
  c.dtype = dtype_value(o.dtype.value_or("f32"));
  c.v_dtype = o.v_dtype ? dtype_value(*o.v_dtype) : 0;
  c.kv_dtype = o.kv_dtype ? dtype_value(*o.kv_dtype) : 0;
  c.q_scale = scales_value("--q-scale", o.scales.q);
  c.k_scale = scales_value("--k-scale", o.scales.k);
  c.v_scale = scales_value("--v-scale", o.scales.v);
  c.k_offset = o.k_offset;
  c.v_offset = o.v_offset;
  c.out_dtype = o.out_dtype == "input" ? 0 : dtype_value(o.out_dtype);
  c.heads_q = o.heads_q;
  c.heads_kv = o.heads_kv.value_or(o.heads_q);
  c.seqlen_q = o.seqlen_q;
  c.seqlen_kv = o.seqlen_kv.value_or(o.seqlen_q);
  c.head_dim_qk = o.head_dim;
  c.head_dim_v = o.head_dim_v.value_or(o.head_dim);
  c.varlen_q = parse_lengths("--varlen-q", o.varlen_q);
  c.varlen_kv = parse_lengths("--varlen-kv", o.varlen_kv);
  c.batch = resolve_batch(o, c);
  c.mask = mask.kind;
  c.left = mask.left;
  c.right = mask.right;
  c.softmax_scale = o.score.softmax_scale;
  c.softcap = o.score.softcap;
  c.alibi = o.alibi;
  c.sequence_ids = o.sequence_ids;
  c.attn_mask = mask_dtype(o.attn_mask, c.dtype);
  c.mask_dims = o.mask_dims;
  c.with = o.with;
  c.dattn_mask = o.gradients.dattn_mask;
  c.top_left = o.score.top_left;
  c.page_size = o.cache.page_size;
  c.kv_slots = o.cache.kv_slots;
  c.kv_begin = o.cache.kv_begin;
  c.packed_kv = o.cache.packed_kv;
  if (!o.cache.append.empty()) c.append = parse_integers("--append", o.cache.append);
  if (c.append.size() == 1) c.append.resize(static_cast<size_t>(c.batch), c.append[0]);
  c.packed_new = o.cache.packed_new;
  c.rotary_dim = o.cache.rotary_dim;
  for (const auto& [name, value] : o.whole_numbers)
    if (value != 0) c.numbers[name] = static_cast<double>(value);
  for (const auto& [name, value] : o.real_numbers)
    if (value != 0) c.numbers[name] = value;
  return c;
}

fa3_forward_args shapes_forward(const verify::Config& c) {
  using verify::Operand;
  auto a = common_shapes<fa3_forward_args>(c);
  if (verify::has_cache(c)) add_cache_shapes(c, a);
  if (!c.append.empty()) add_append_shapes(c, a);
  const auto f32 = [](const std::vector<int64_t>& shape) {
    return shape.empty()
               ? fa3_tensor{}
               : fa3_dense(nullptr, FA3_F32, static_cast<int32_t>(shape.size()), shape.data());
  };
  const auto block = [&](Operand x, const fa3_tensor& scale) {
    return scale.rank == 0 ? fa3_scale_block{} : verify::scale_block(verify::scales_of(c, x));
  };
  a.q_scale = f32(verify::scale_shape(c, Operand::kQ, a.max_seqlen_q));
  const auto of_keys = [&](Operand x) {
    if (verify::scales_of(c, x).of == verify::Scales::Of::kPages)
      return f32({verify::cache_rows(c)[0], c.heads_kv});
    return f32(verify::scale_shape(c, x, a.max_seqlen_kv));
  };
  a.k_scale = of_keys(Operand::kK), a.v_scale = of_keys(Operand::kV);
  a.k_offset = f32(verify::offset_shape(c, Operand::kK));
  a.v_offset = f32(verify::offset_shape(c, Operand::kV));
  a.q_block = block(Operand::kQ, a.q_scale);
  a.k_block = block(Operand::kK, a.k_scale);
  a.v_block = block(Operand::kV, a.v_scale);
  return a;
}

fa3_backward_args shapes_backward(const verify::Config& c) {
  auto a = common_shapes<fa3_backward_args>(c);
  a.dout = a.o;
  a.dq = a.q;
  a.dk = a.k;
  a.dv = a.v;
  a.deterministic = c.deterministic;
  if (c.dattn_mask) a.dattn_mask = a.attn_mask;
  a.dq.dtype = a.dk.dtype = a.dv.dtype = a.o.dtype;
  return a;
}

void require_memory(const verify::Config& c, int64_t memory_bytes) {
  double bytes = 0;
  const auto count = [&](const auto& args) {
    verify::for_each_tensor(args, [&](const fa3_field&, const fa3_tensor& t) {
      if (t.rank != 0) bytes += bytes_of(t);
    });
  };
  c.backward ? count(shapes_backward(c)) : count(shapes_forward(c));
  if (memory_bytes <= 0 || bytes <= static_cast<double>(memory_bytes)) return;
  fail(kFailed,
       "the tensors of this problem take {:.3g} GiB, the machine has {}; make the problem smaller",
       bytes / (1 << 30), size_text(memory_bytes));
}

std::string problem_text(const verify::Config& c) {
  std::string text = verify::dtype_text(c.dtype);
  if (const int32_t v = verify::dtype_of_v(c); v != c.dtype)
    text += fmt::format(" ({} {})", c.kv_dtype != 0 ? "k, v" : "v", verify::dtype_text(v));
  text += fmt::format(", batch {}, heads {}", c.batch, c.heads_q);
  if (c.heads_kv != c.heads_q) text += fmt::format(" (kv {})", c.heads_kv);
  text += fmt::format(", seqlen {} x {}", pair_text(c.varlen_q, c.seqlen_q),
                      pair_text(c.varlen_kv, c.seqlen_kv));
  text += fmt::format(", head_dim {}", c.head_dim_qk);
  if (c.head_dim_v != c.head_dim_qk) text += fmt::format(" (v {})", c.head_dim_v);
  text += ", " + mask_text({c.mask, c.left, c.right});
  if (c.top_left) text += " from the top left";
  if (c.softcap != 0) text += fmt::format(", softcap {}", c.softcap);
  if (c.deterministic) text += ", deterministic";
  if (c.alibi) text += ", alibi";
  if (c.attn_mask != 0)
    text += fmt::format(", attn_mask {} ({})", verify::dtype_text(c.attn_mask), c.mask_dims);
  for (const std::string& name : c.with) text += ", " + name;
  if (c.sequence_ids > 0) text += fmt::format(", {} documents", c.sequence_ids);
  if (c.page_size > 0) text += fmt::format(", pages of {}", c.page_size);
  if (c.kv_slots > 0) text += fmt::format(", {} slots", c.kv_slots);
  for (const auto& [name, value] : c.numbers) text += fmt::format(", {} {}", name, value);
  if (c.kv_begin) text += c.packed_kv ? ", shared keys" : ", keys that begin anywhere";
  if (verify::is_8_bit(verify::dtype_of_k(c))) text += ", " + scales_line(c);
  return text;
}

}  // namespace fa3::cli
