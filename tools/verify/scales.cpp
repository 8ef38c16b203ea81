// SPDX-License-Identifier: BSD-3-Clause
// scales.cpp — names and shapes of scales, by section "8 bits" of fa3.h.
#include "tools/verify/scales.h"

#include <fmt/core.h>

#include <charconv>
#include <string_view>
#include <utility>

namespace fa3::verify {
namespace {

using Of = Scales::Of;

constexpr std::pair<const char*, Of> kNames[] = {
    {"none", Of::kNone},    {"tensor", Of::kTensor}, {"head", Of::kHeads},
    {"group", Of::kGroups}, {"1", Of::kTokens},      {"page", Of::kPages},
};

// A whole number at the start of *text, which it is cut from; −1 = none is there.
int32_t take_number(std::string_view* text) {
  int32_t value = -1;
  const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc()) return -1;
  text->remove_prefix(static_cast<size_t>(stop - text->data()));
  return value;
}

int64_t blocks(int64_t n, int32_t size) { return size == 0 ? 1 : (n + size - 1) / size; }

}  // namespace

std::optional<Scales> parse_scales(const std::string& text) {
  for (const auto& [name, of] : kNames)
    if (text == name) return Scales{of};
  std::string_view rest = text;
  Scales s{Of::kBlocks};
  s.rows = take_number(&rest);
  if (rest.starts_with('x')) {
    rest.remove_prefix(1);
    s.cols = take_number(&rest);
  }
  if (!rest.empty() || s.rows < 0 || s.cols < 0) return std::nullopt;
  return s;
}

std::string scales_text(const Scales& s) {
  for (const auto& [name, of] : kNames)
    if (s.of == of) return name;
  if (s.of == Of::kDefault) return "head";
  // "1" alone means tokens.
  return s.cols > 0 || s.rows == 1 ? fmt::format("{}x{}", s.rows, s.cols)
                                   : fmt::format("{}", s.rows);
}

std::vector<int64_t> scale_shape(const Scales& s, const Scaled& of) {
  switch (s.of) {
    case Of::kNone:
      return {};
    case Of::kTensor:
      return {1};
    case Of::kDefault:
    case Of::kHeads:
      return {of.batch, of.heads};
    case Of::kGroups:
      return {of.batch, of.heads_kv};
    case Of::kTokens:
      if (of.varlen) return {of.rows, of.heads};
      return {of.batch, of.heads, of.rows};
    case Of::kPages:  // before they lie in pages
    case Of::kBlocks:
      return {of.batch, of.heads, blocks(of.max_seqlen, s.rows), blocks(of.columns, s.cols)};
  }
  return {};
}

fa3_scale_block scale_block(const Scales& s) { return {s.of == Of::kTokens ? 1 : s.rows, s.cols}; }

Index scale_index(const fa3_tensor& scale, const fa3_scale_block& block, const ScaledRow& at) {
  if (scale.rank == 1) return {0};
  const bool by_token = scale.rank == 2 && block.rows == 1 && at.varlen;
  const int64_t scale_heads = scale.shape[1];
  const int64_t head = at.heads == 0 ? 0 : at.head * scale_heads / at.heads;
  if (by_token) return {at.token, head};
  return {at.batch, head, block.rows == 0 ? 0 : at.row / block.rows, 0};
}

}  // namespace fa3::verify
