// SPDX-License-Identifier: BSD-3-Clause
// options.cpp — shared options: names, units, defaults, checks.
#include "options.h"

#include <algorithm>

#include "error.h"

namespace fa3::cli {

std::vector<int64_t> parse_integers(const char* option, const std::string& text) {
  std::vector<int64_t> values;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<int64_t> value = parse_integer(text.substr(begin, end - begin));
    if (!value)
      fail(kUsage,
           "{}: got '{}', need whole numbers of at most 2^63 - 1 separated by commas, e.g. 128,64",
           option, text);
    values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

void add_session_options(Parser& parser, SessionOptions& o) {
  parser.group("Execution");
  parser.text(
      "--backend", o.backend, "NAME",
      "Who computes: auto (a Hopper GPU where it can, else cpu), cpu, reference (FP64), sim, cuda",
      {"auto", "cpu", "reference", "sim", "cuda"});
  parser.whole("--threads", o.threads,
               "Most threads to use; 0 = FA3_NUM_THREADS if set, else every core allowed", 0, 1024);
  parser.flag("--json", o.json, "Print JSON on stdout instead of text");
  parser.flag("--quiet", o.quiet, "Print nothing but errors; no progress bar");
}

void add_score_options(Parser& parser, ScoreOptions& o) {
  parser.flag("--causal", o.causal,
              "Hide later keys; bottom-right aligned: the last query sees the last key");
  parser.text("--window", o.window, "L,R",
              "Keys visible before and after the (bottom-right aligned) diagonal, in tokens, both "
              "ends included; -1 = unbounded [no window]");
  parser.flag("--top-left", o.top_left,
              "Align --causal, --window and ALiBi at the top left: the first query is at the first "
              "key");
  parser.real("--softmax-scale", o.softmax_scale,
              "Factor of the scores before the softmax; 0 = 1/sqrt(head_dim)");
  parser.real("--softcap", o.softcap, "c in c*tanh(score/c), in units of scaled scores; 0 = off");
}

void add_gradient_options(Parser& parser, GradientOptions& o) {
  parser.flag("--deterministic", o.deterministic, "Gradients of the same bits in every run");
  parser.flag("--dattn-mask", o.dattn_mask,
              "With --backward: the gradient of an attn_mask that is added, too");
}

void check_gradients(const GradientOptions& o, bool backward) {
  if (o.deterministic && !backward)
    fail(kUsage, "--deterministic: a forward always is; add --backward or leave it out");
  if (o.dattn_mask && !backward)
    fail(kUsage, "--dattn-mask: a forward has no gradients; add --backward or leave it out");
}

Mask parse_mask(const ScoreOptions& o) {
  if (o.causal && !o.window.empty())
    fail(kUsage, "--window: got {} beside --causal, need one of them; causal is --window -1,0",
         o.window);
  if (o.causal) return {FA3_MASK_CAUSAL, 0, 0};
  if (o.window.empty()) return {};
  const std::vector<int64_t> sides = parse_integers("--window", o.window);
  if (sides.size() != 2)
    fail(kUsage, "--window: got '{}', need two whole numbers L,R, e.g. 128,0", o.window);
  return {FA3_MASK_WINDOW, sides[0], sides[1]};
}

std::string mask_text(const Mask& mask) {
  if (mask.kind == FA3_MASK_FULL) return "full";
  if (mask.kind == FA3_MASK_CAUSAL) return "causal";
  return fmt::format("window {},{}", mask.left, mask.right);
}

fa3_dtype dtype_value(const std::string& name) {
  if (name == "f32") return FA3_F32;
  if (name == "f16") return FA3_F16;
  if (name == "bf16") return FA3_BF16;
  if (name == "f8_e4m3") return FA3_F8_E4M3;
  if (name == "i8") return FA3_I8;
  fail(kUsage, "dtype: got '{}', need f32, f16, bf16, f8_e4m3 or i8", name);
}

void add_precision_options(Parser& parser, PrecisionOptions& o) {
  parser.text("--precision", o.name, "NAME",
              "Compute 16-bit tensors by way of 8 bits: fp8 (FlashAttention-3's recipe), eight_bit "
              "(q and k in i8), eight_bit_accurate (that, v as it is); default (as they are)",
              {"default", "fp8", "eight_bit", "eight_bit_accurate"});
  parser.whole("--precision-seed", o.seed, "Of the signs that --precision turns q and k by");
}

fa3_precision precision_value(const std::string& name) {
  if (name == "fp8") return FA3_PRECISION_FP8;
  if (name == "eight_bit") return FA3_PRECISION_EIGHT_BIT;
  if (name == "eight_bit_accurate") return FA3_PRECISION_EIGHT_BIT_ACCURATE;
  return FA3_PRECISION_DEFAULT;
}

void add_scale_options(Parser& parser, ScaleOptions& o, const char* without) {
  const std::string help = fmt::format(
      "Elements of 8-bit q that share a scale: none, tensor, head, group (all query heads of a KV "
      "head), R or RxC: blocks of R rows (tokens of a sequence; 0 = all) and C columns, e.g. 64, "
      "64x32; 1 = each token {}",
      without);
  parser.text("--q-scale", o.q, "SPEC", help.c_str());
  parser.text("--k-scale", o.k, "SPEC", "The same for k, without group; in pages also page");
  parser.text("--v-scale", o.v, "SPEC", "The same for v");
}

verify::Scales scales_value(const char* option, const std::string& text) {
  if (text.empty()) return {};
  if (const auto scales = verify::parse_scales(text)) return *scales;
  const bool of_q = std::string_view(option).find('q') != std::string_view::npos;
  fail(kUsage, "{}: got '{}', need none, tensor, head{} or a block, e.g. 1, 64, 64x32", option,
       text, of_q ? ", group" : "");
}

}  // namespace fa3::cli
