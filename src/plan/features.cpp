// SPDX-License-Identifier: BSD-3-Clause
// features.cpp — words of features, their differences, and their table.
#include "plan/features.h"

#include <algorithm>

#include "core/dtype.h"

namespace fa3 {
namespace {

struct Words {
  Feature feature;
  const char* argument;  // in a refusal
  const char* row;       // of the table
  const char* remedy;    // beside another backend; "" = none
};

constexpr Words kWords[] = {
    {Feature::kF32, "f32", "Q of F32", ""},
    {Feature::kF16, "f16", "Q of F16", ""},
    {Feature::kBf16, "bf16", "Q of BF16", ""},
    {Feature::kE4m3, "f8_e4m3", "Q of FP8 (E4M3)", ""},
    {Feature::kI8, "i8", "Q of INT8", ""},
    {Feature::kCausal, "mask causal", "causal mask", ""},
    {Feature::kWindow, "mask window", "sliding window", ""},
    {Feature::kTopLeft,
     "mask_alignment of top left with lengths that differ, or seqused or cu_seqlens",
     "masks aligned at the top left, with lengths that differ",
     "leave out the keys that no query sees"},
    {Feature::kVarlen, "cu_seqlens", "packed sequences, `cu_seqlens`", ""},
    {Feature::kSeqused, "seqused", "padded sequences, `seqused`", ""},
    {Feature::kGroups, "heads_q > heads_kv", "grouped and multi-query heads", ""},
    {Feature::kSoftcap, "softcap", "softcap", ""},
    {Feature::kNegativeScale, "a negative softmax_scale", "negative `softmax_scale`", ""},
    {Feature::kAlibi, "alibi_slopes", "ALiBi slopes", ""},
    {Feature::kSequenceIds, "sequence_ids", "sequence ids", ""},
    {Feature::kBoolMask, "attn_mask", "boolean `attn_mask`",
     "leave the tensors in 16 bits, use sequence_ids or alibi_slopes where they say the same"},
    {Feature::kAddedMask, "attn_mask", "added `attn_mask`",
     "leave the tensors in 16 bits, use sequence_ids or alibi_slopes where they say the same"},
    {Feature::kLse, "lse", "LSE", ""},
    {Feature::kF32Outputs, "outputs of f32", "outputs of F32", ""},
    {Feature::kMaskGradient, "dattn_mask", "gradient of `attn_mask`", ""},
    {Feature::kDeterministic, "deterministic", "deterministic", ""},
    {Feature::kPages, "page_table", "paged keys, `page_table`",
     "copy the pages into dense k and v"},
    {Feature::kKvSlots, "kv_batch_idx", "slots of a cache, `kv_batch_idx`",
     "copy the slots into the order of the batch"},
    {Feature::kKvBegin, "kv_begin", "keys that begin at any row, `kv_begin`",
     "copy the keys to the first rows"},
};
static_assert(std::size(kWords) == kFeatureCount);

const Words& words_of(Feature f) { return kWords[static_cast<int>(f)]; }

std::string joined(const std::vector<std::string>& names, const char* last) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? last : ", ") + names[i];
  return text;
}

std::string arguments(Features features, const char* last) {
  std::vector<std::string> names;
  for (const Feature f : features.list()) names.emplace_back(words_of(f).argument);
  return joined(names, last);
}

// The types of all entries that take the features.
Features types_with(Features features, fa3_op op, std::span<const KernelFeatures> kernels) {
  Features types;
  for (const KernelFeatures& k : kernels)
    if (k.op == op && (features - k.takes).empty()) types = types | (k.takes & kTypeFeatures);
  return types;
}

bool is_f32(const Problem& p, TensorId id) {
  return p.layout[id].present() && p.layout[id].dtype == FA3_F32;
}

}  // namespace

std::vector<Feature> Features::list() const {
  std::vector<Feature> all;
  for (const Words& words : kWords)
    if (has(words.feature)) all.push_back(words.feature);
  return all;
}

Features features_of(const Problem& p) {
  Features asked;
  const fa3_dtype q = p.layout[kQ].dtype;
  asked.add(Feature::kF32, q == FA3_F32);
  asked.add(Feature::kF16, q == FA3_F16);
  asked.add(Feature::kBf16, q == FA3_BF16);
  asked.add(Feature::kE4m3, q == FA3_F8_E4M3);
  asked.add(Feature::kI8, q == FA3_I8);
  asked.add(Feature::kCausal, p.mask == FA3_MASK_CAUSAL);
  asked.add(Feature::kWindow, p.mask == FA3_MASK_WINDOW);
  asked.add(Feature::kTopLeft, p.top_left);
  asked.add(Feature::kVarlen, p.q.varlen || p.kv.varlen);
  asked.add(Feature::kSeqused, p.q.seqused || p.kv.seqused);
  asked.add(Feature::kGroups, p.heads_q != p.heads_kv);
  asked.add(Feature::kSoftcap, p.softcap > 0);
  asked.add(Feature::kNegativeScale, p.softmax_scale < 0);
  asked.add(Feature::kAlibi, p.has_alibi());
  asked.add(Feature::kSequenceIds, p.has_sequence_ids());
  const bool is_bool = p.has_mask() && p.layout[kAttnMask].dtype == FA3_BOOL;
  asked.add(Feature::kBoolMask, is_bool);
  asked.add(Feature::kAddedMask, p.has_mask() && !is_bool);
  asked.add(Feature::kLse, p.op == FA3_OP_FORWARD && p.layout[kLse].present());
  for (const TensorId id : {kO, kDq, kDk, kDv})
    asked.add(Feature::kF32Outputs, q != FA3_F32 && is_f32(p, id));
  asked.add(Feature::kMaskGradient, p.layout[kDattnMask].present());
  asked.add(Feature::kDeterministic, p.op == FA3_OP_BACKWARD && p.deterministic);
  asked.add(Feature::kPages, p.cache.paged());
  asked.add(Feature::kKvSlots, p.cache.slots);
  asked.add(Feature::kKvBegin, p.cache.begins);
  return asked;
}

Status check_features(const Problem& p, std::span<const KernelFeatures> kernels, const char* arch) {
  const Features asked = features_of(p), type = asked & kTypeFeatures;
  Features missing = asked - type;  // from all kernels, whatever the type
  const KernelFeatures* nearest = nullptr;
  size_t least = kFeatureCount + 1;
  for (const KernelFeatures& k : kernels) {
    if (k.op != p.op) continue;
    missing = missing - k.takes;
    const size_t lacks = (asked - k.takes).list().size();
    if (lacks == 0 && !type.empty()) return {};
    if ((type & k.takes).empty() || lacks >= least) continue;
    least = lacks, nearest = &k;
  }
  const char* const dtype = dtype_name(p.layout[kQ].dtype);
  if (missing.empty() && nearest == nullptr)
    return unsupported(
        "{}: dtype {} on {} (backends cuda and sim), need {}; convert, or use backend cpu",
        op_name(p.op), dtype, arch, arguments(types_with({}, p.op, kernels), " or "));
  if (nearest != nullptr) missing = asked - nearest->takes;
  std::string remedies;
  for (const Feature f : missing.list())
    if (remedies.empty() && *words_of(f).remedy != 0)
      remedies = std::string(words_of(f).remedy) + ", or ";
  const Features types = types_with(missing, p.op, kernels);
  const std::string need =
      types.empty() ? "which no kernel takes" : "need " + arguments(types, " or ");
  return unsupported("{}: {} with q of {} on {} (backends cuda and sim), {}; {}use backend cpu",
                     op_name(p.op), arguments(missing, " and "), dtype, arch, need, remedies);
}

std::vector<std::string> support_table(std::span<const KernelFeatures> kernels) {
  std::string head = "| |", rule = "|---|";
  for (const KernelFeatures& k : kernels) head += fmt::format(" {} |", k.name), rule += "---|";
  std::vector<std::string> lines = {head, rule};
  for (const Words& words : kWords) {
    std::string line = fmt::format("| {} |", words.row);
    for (const KernelFeatures& k : kernels) line += k.takes.has(words.feature) ? " yes |" : " – |";
    lines.push_back(line);
  }
  return lines;
}

}  // namespace fa3
