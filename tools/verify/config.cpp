// SPDX-License-Identifier: BSD-3-Clause
// config.cpp — what a Config means, whether it contradicts itself, and the command that repeats it.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "tools/verify/append.h"
#include "tools/verify/axis.h"
#include "tools/verify/cache.h"
#include "tools/verify/fields.h"
#include "tools/verify/problem.h"

namespace fa3::verify {

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
  flag(c.v_dtype != d.v_dtype, fmt::format("--v-dtype {}", dtype_text(c.v_dtype)));
  flag(c.kv_dtype != d.kv_dtype, fmt::format("--kv-dtype {}", dtype_text(c.kv_dtype)));
  flag(c.out_dtype != d.out_dtype, fmt::format("--out-dtype {}", dtype_text(c.out_dtype)));
  flag(c.q_scale != d.q_scale, "--q-scale " + scales_text(c.q_scale));
  flag(c.k_scale != d.k_scale, "--k-scale " + scales_text(c.k_scale));
  flag(c.v_scale != d.v_scale, "--v-scale " + scales_text(c.v_scale));
  flag(c.k_offset, "--k-offset");
  flag(c.v_offset, "--v-offset");
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
  const bool by_name = c.attn_mask == FA3_BOOL || c.attn_mask == FA3_F32;  // else it is that of q
  flag(c.attn_mask != 0,
       fmt::format("--attn-mask {}", by_name ? dtype_text(c.attn_mask) : "input"));
  flag(c.mask_dims != d.mask_dims, fmt::format("--mask-dims '{}'", c.mask_dims));
  flag(c.dattn_mask, "--dattn-mask");
  for (const std::string& name : c.with) flag(true, "--with " + name);
  number("--page-size", c.page_size, d.page_size);
  number("--kv-slots", c.kv_slots, d.kv_slots);
  flag(c.kv_begin, "--kv-begin");
  flag(c.packed_kv, "--packed-kv");
  flag(c.own_pages, "--own-pages");
  list("--append", c.append);
  flag(c.packed_new, "--packed-new");
  number("--rotary-dim", c.rotary_dim, d.rotary_dim);
  for (const fa3_field& f : numbers())
    if (const auto set = c.numbers.find(f.name); set != c.numbers.end())
      number(option_of(f).c_str(), set->second, 0);
  flag(c.top_left, "--top-left");
  flag(!c.lse && !c.backward, "--no-lse");
  flag(c.dlse, "--dlse");
  flag(c.deterministic, "--deterministic");
  number("--magnitude", c.magnitude, d.magnitude);
  flag(c.layout != d.layout, fmt::format("--layout {}", layout_name(c.layout)));
  number("--alignment", c.alignment, d.alignment);
  number("--seed", c.seed, d.seed);
  flag(!backend.empty(), "--backend " + backend);
  return text;
}

namespace {

std::string contradiction_of_types(const Config& c) {
  if (c.dtype != FA3_F32 && c.dtype != FA3_F16 && c.dtype != FA3_BF16 && !is_8_bit(c.dtype))
    return "dtype must be f32, f16, bf16, f8_e4m3 or i8";
  if (is_8_bit(c.dtype)) {
    if (c.out_dtype != 0 && c.out_dtype != FA3_F32 && c.out_dtype != FA3_F16 &&
        c.out_dtype != FA3_BF16)
      return "out-dtype must be f32, f16 or bf16";
  } else if (c.out_dtype != 0 && c.out_dtype != c.dtype && c.out_dtype != FA3_F32) {
    return "out-dtype must be the dtype or f32";
  }
  if (c.v_dtype != 0 && c.v_dtype != c.dtype && c.dtype != FA3_I8) return "v-dtype is for dtype i8";
  if (c.dtype == FA3_I8 && dtype_of_v(c) != FA3_F8_E4M3 && dtype_of_v(c) != FA3_F16 &&
      dtype_of_v(c) != FA3_BF16)
    return "v-dtype must be f8_e4m3, f16 or bf16";
  if (c.layout == Layout::kInterleaved && dtype_of_v(c) != c.dtype)
    return "layout interleaved needs q, k and v of one type";
  if (c.kv_dtype != 0 && (c.kv_dtype != FA3_F8_E4M3 || is_8_bit(c.dtype) || c.v_dtype != 0))
    return "kv-dtype must be f8_e4m3, for dtype f32, f16 or bf16, without v-dtype";
  if (c.kv_dtype != 0 && c.backward) return "backward has no kv-dtype";
  constexpr Scales kDefault;
  const std::pair<const char*, const Scales*> scales[] = {
      {"q", &c.q_scale}, {"k", &c.k_scale}, {"v", &c.v_scale}};
  for (const auto& [name, s] : scales) {
    const Operand x = s == &c.q_scale ? Operand::kQ : s == &c.k_scale ? Operand::kK : Operand::kV;
    if (*s != kDefault && !is_8_bit(dtype_of(c, x)))
      return fmt::format("{}-scale needs {} of 8 bits", name, name);
    if (s != &c.q_scale && s->of == Scales::Of::kGroups)
      return fmt::format("{}-scale group is for q; need head", name);
    if (s->of == Scales::Of::kPages && (x == Operand::kQ || c.page_size == 0 || c.kv_begin))
      return fmt::format("{}-scale page is for k and v in pages, without kv-begin", name);
    if (s->rows < 0 || s->cols < 0) return fmt::format("{}-scale has a negative block", name);
  }
  if (c.k_offset && !is_8_bit(dtype_of_k(c))) return "k-offset needs k of 8 bits";
  if (c.v_offset && !is_8_bit(dtype_of_v(c))) return "v-offset needs v of 8 bits";
  return "";
}

}  // namespace

int32_t dtype_of_k(const Config& c) { return c.kv_dtype != 0 ? c.kv_dtype : c.dtype; }

int32_t dtype_of_v(const Config& c) {
  if (c.v_dtype != 0) return c.v_dtype;
  if (c.kv_dtype != 0) return c.kv_dtype;
  return c.dtype == FA3_I8 ? int32_t{FA3_F8_E4M3} : c.dtype;
}

int32_t dtype_of_out(const Config& c) {
  if (c.out_dtype != 0) return c.out_dtype;
  return is_8_bit(c.dtype) ? int32_t{FA3_BF16} : c.dtype;
}

Scales scales_of(const Config& c, Operand x) {
  if (!is_8_bit(dtype_of(c, x))) return {Scales::Of::kNone};
  const Scales& s = x == Operand::kQ ? c.q_scale : x == Operand::kK ? c.k_scale : c.v_scale;
  if (s.of == Scales::Of::kPages) return {s.of, static_cast<int32_t>(c.page_size)};
  return s.of == Scales::Of::kDefault ? Scales{Scales::Of::kHeads} : s;
}

bool has_offset(const Config& c, Operand x) {
  return x == Operand::kK ? c.k_offset : x == Operand::kV && c.v_offset;
}

std::vector<int64_t> scale_shape(const Config& c, Operand x, int64_t max_seqlen) {
  const Axis axis = axis_of(c, x);
  const bool bounded = axis.is_varlen() && max_seqlen > 0;
  const int64_t rows = axis.rows();
  return scale_shape(scales_of(c, x), {batch_of(c), heads_of(c, x), c.heads_kv, rows,
                                       bounded ? std::min(max_seqlen, rows) : rows,
                                       columns_of(c, x), axis.is_varlen()});
}

std::vector<int64_t> offset_shape(const Config& c, Operand x) {
  if (!has_offset(c, x)) return {};
  return {batch_of(c), heads_of(c, x), columns_of(c, x)};
}

std::vector<int64_t> mask_shape(const Config& c, int64_t max_seqlen_kv) {
  if (c.attn_mask == 0) return {};
  const Axis keys = axis_kv(c);
  const int64_t columns = has_cache(c) ? cache_mask_columns(c)
                          : keys.is_varlen() && max_seqlen_kv > 0
                              ? std::min(max_seqlen_kv, keys.rows())
                              : keys.rows();
  const std::vector<int64_t> all{batch_of(c), c.heads_q, c.seqlen_q, columns};
  std::vector<int64_t> shape;
  for (size_t d = 0; d < all.size(); ++d)
    shape.push_back(c.mask_dims.find("bhqk"[d]) == std::string::npos ? 1 : all[d]);
  return shape;
}

namespace {

// A size of the problem by its name in a shape; −1 = it is none.
int64_t extent_of(const Config& c, const std::string& dim) {
  const std::pair<const char*, int64_t> extents[] = {
      {"batch", batch_of(c)},          {"heads_q", c.heads_q},
      {"heads_kv", c.heads_kv},        {"head_dim_qk", c.head_dim_qk},
      {"head_dim_v", c.head_dim_v},    {"seqlen_q", axis_q(c).rows()},
      {"total_q", axis_q(c).rows()},   {"seqlen_kv", axis_kv(c).rows()},
      {"total_kv", axis_kv(c).rows()}, {"words", 2},
  };
  for (const auto& [name, extent] : extents)
    if (dim == name) return extent;
  return -1;
}

// Inputs of any values, and outputs that are no gradients of such.
bool may_be_with(const Config& c, const fa3_field& f) {
  if (!is_tensor(f) || f.of != nullptr || shape_of_field(c, f).empty()) return false;
  const std::string_view name = f.name, types = f.types;
  if (f.role == FA3_FIELD_OPTIONAL_OUTPUT) return !c.backward && name != "lse";
  return f.role == FA3_FIELD_OPTIONAL_INPUT && (types.starts_with("f32") || name == "tree_mask");
}

std::string contradiction_of_with(const Config& c) {
  if (c.with.empty()) return "";
  std::vector<std::string> names;
  for (const fa3_field& f : fields(c.backward ? FA3_OP_BACKWARD : FA3_OP_FORWARD))
    if (may_be_with(c, f)) names.push_back(f.name);
  for (const std::string& name : c.with)
    if (std::find(names.begin(), names.end(), name) == names.end())
      return fmt::format("with has {}, need some of {}", name, fmt::join(names, ", "));
  return "";
}

std::string contradiction_of_mask(const Config& c) {
  if (c.attn_mask != 0 && c.attn_mask != FA3_BOOL && c.attn_mask != FA3_F32 &&
      (c.attn_mask != c.dtype || is_8_bit(c.dtype)))
    return "attn-mask must be bool, f32 or the dtype";
  if (c.attn_mask != 0 && is_varlen_q(c)) return "attn-mask needs dense queries";
  if (c.mask_dims.find_first_not_of("bhqk") != std::string::npos)
    return "mask-dims must be some of the letters b, h, q and k";
  if (c.dattn_mask && (c.attn_mask == 0 || c.attn_mask == FA3_BOOL || !c.backward))
    return "dattn-mask needs backward and an attn-mask that is added";
  return "";
}

}  // namespace

int32_t dtype_of_field(const Config& c, const fa3_field& field, bool gradient) {
  if (field.dtype == FA3_I32) return FA3_I32;
  const bool several = field.dtype == FA3_DTYPE_NONE && !is_8_bit(c.dtype);
  return several && c.seed % 2 == 1 && (!gradient || c.seed / 2 % 2 == 1) ? c.dtype : FA3_F32;
}

std::vector<int64_t> shape_of_field(const Config& c, const fa3_field& field) {
  const std::string varlen = field.varlen_shape == nullptr ? "" : field.varlen_shape;
  const bool of_keys = varlen.find("total_kv") != std::string::npos;
  std::vector<int64_t> shape;
  for (const std::string& dim : dims_of(field, of_keys ? is_varlen_kv(c) : is_varlen_q(c))) {
    shape.push_back(extent_of(c, dim));
    if (shape.back() < 0) return {};
  }
  return shape;
}

std::string contradiction(const Config& c) {
  const int64_t batch = batch_of(c);
  const auto wrong_count = [&](const std::vector<int64_t>& values) {
    return !values.empty() && static_cast<int64_t>(values.size()) != batch;
  };
  if (const std::string why = contradiction_of_types(c); !why.empty()) return why;
  if (const std::string why = contradiction_of_mask(c); !why.empty()) return why;
  if (const std::string why = contradiction_of_with(c); !why.empty()) return why;
  if (const std::string why = contradiction_of_cache(c); !why.empty()) return why;
  for (const auto& [name, values] :
       {std::pair("varlen-kv", &c.varlen_kv), std::pair("seqused-q", &c.seqused_q),
        std::pair("seqused-kv", &c.seqused_kv)})
    if (wrong_count(*values))
      return fmt::format("{} has {} numbers, need {}: one for each sequence", name, values->size(),
                         batch);
  for (const auto& [name, size] :
       {std::pair("batch", c.batch), std::pair("heads-q", c.heads_q),
        std::pair("heads-kv", c.heads_kv), std::pair("seqlen-q", c.seqlen_q),
        std::pair("seqlen-kv", c.seqlen_kv), std::pair("head-dim", c.head_dim_qk),
        std::pair("head-dim-v", c.head_dim_v), std::pair("spare-q", c.spare_q),
        std::pair("spare-kv", c.spare_kv)})
    if (size < 0) return fmt::format("{} is {}, need at least 0", name, size);
  constexpr int64_t kMostDocuments = 1 << 20;
  if (c.sequence_ids < 0 || c.sequence_ids > kMostDocuments)
    return fmt::format("sequence-ids is {}, need 0 to {} documents", c.sequence_ids,
                       kMostDocuments);
  if (c.scattered_ids && c.sequence_ids == 0) return "scattered-ids needs sequence-ids";
  constexpr int64_t kMostAlignment = 1 << 20;
  if (c.alignment < 0 || c.alignment > kMostAlignment || (c.alignment & (c.alignment - 1)) != 0)
    return fmt::format("alignment is {}, need a power of two up to {}, or 0 for that of an element",
                       c.alignment, kMostAlignment);
  for (const auto& [name, axis] : {std::pair("q", axis_q(c)), std::pair("kv", axis_kv(c))}) {
    for (const int64_t length : axis.varlen)
      if (length < 0) return fmt::format("varlen-{} has {}, need at least 0", name, length);
    for (size_t b = 0; b < axis.seqused.size(); ++b) {
      const int64_t most = axis.is_varlen() ? axis.varlen[b] : axis.seqlen;
      if (axis.seqused[b] < 0 || axis.seqused[b] > most)
        return fmt::format("seqused-{} has {} for sequence {}, need 0 to {}, its length", name,
                           axis.seqused[b], b, most);
    }
  }
  if (const std::string why = contradiction_of_append(c); !why.empty()) return why;
  if (c.layout == Layout::kInterleaved &&
      (c.head_dim_qk != c.head_dim_v || is_varlen_q(c) != is_varlen_kv(c) ||
       axis_q(c).rows() != axis_kv(c).rows()))
    return "layout interleaved needs queries and keys of the same lengths and head_dim";
  if (c.layout == Layout::kBroadcast && (is_varlen_kv(c) || !c.seqused_kv.empty()))
    return "layout broadcast needs dense keys without seqused";
  return "";
}

}  // namespace fa3::verify
