// SPDX-License-Identifier: BSD-3-Clause
// features.cpp — who asks for a feature and its words, differences of sets, and their table.
#include "plan/features.h"

#include <algorithm>

#include "core/dtype.h"

namespace fa3 {
namespace {

struct Words {
  Feature feature;
  bool (*asked)(const Problem&);
  const char* argument;  // in a refusal
  const char* row;       // of the table
  const char* remedy;    // beside another backend; "" = none
};

bool has_mask_of(const Problem& p, bool of_bool) {
  return p.has_mask() && (p.layout[kAttnMask].dtype == FA3_BOOL) == of_bool;
}

template <fa3_dtype kType>
bool is_of(const Problem& p) {
  return p.layout[kQ].dtype == kType;
}

bool has_f32_outputs(const Problem& p) {
  const auto is_f32 = [&](TensorId id) { return p.layout[id].dtype == FA3_F32; };
  return !is_f32(kQ) && (is_f32(kO) || is_f32(kDq) || is_f32(kDk) || is_f32(kDv));
}

constexpr const char* kInsteadOfMask =
    "leave the tensors in 16 bits, use sequence_ids or alibi_slopes where they say the same";

constexpr Words kWords[] = {
    {Feature::kF32, is_of<FA3_F32>, "f32", "Q of F32", ""},
    {Feature::kF16, is_of<FA3_F16>, "f16", "Q of F16", ""},
    {Feature::kBf16, is_of<FA3_BF16>, "bf16", "Q of BF16", ""},
    {Feature::kE4m3, is_of<FA3_F8_E4M3>, "f8_e4m3", "Q of FP8 (E4M3)", ""},
    {Feature::kI8, is_of<FA3_I8>, "i8", "Q of INT8", ""},
    {Feature::kCausal, [](const Problem& p) { return p.mask == FA3_MASK_CAUSAL; }, "mask causal",
     "causal mask", ""},
    {Feature::kWindow, [](const Problem& p) { return p.mask == FA3_MASK_WINDOW; }, "mask window",
     "sliding window", ""},
    {Feature::kTopLeft, [](const Problem& p) { return p.top_left; },
     "mask_alignment of top left with lengths that differ, or seqused or cu_seqlens",
     "masks aligned at the top left, with lengths that differ",
     "leave out the keys that no query sees"},
    {Feature::kVarlen, [](const Problem& p) { return p.q.varlen || p.kv.varlen; }, "cu_seqlens",
     "packed sequences, `cu_seqlens`", ""},
    {Feature::kSeqused, [](const Problem& p) { return p.q.seqused || p.kv.seqused; }, "seqused",
     "padded sequences, `seqused`", ""},
    {Feature::kGroups, [](const Problem& p) { return p.heads_q != p.heads_kv; },
     "heads_q > heads_kv", "grouped and multi-query heads", ""},
    {Feature::kSoftcap, [](const Problem& p) { return p.softcap > 0; }, "softcap", "softcap", ""},
    {Feature::kNegativeScale, [](const Problem& p) { return p.softmax_scale < 0; },
     "a negative softmax_scale", "negative `softmax_scale`", ""},
    {Feature::kAlibi, [](const Problem& p) { return p.has_alibi(); }, "alibi_slopes",
     "ALiBi slopes", ""},
    {Feature::kSequenceIds, [](const Problem& p) { return p.has_sequence_ids(); }, "sequence_ids",
     "sequence ids", ""},
    {Feature::kBoolMask, [](const Problem& p) { return has_mask_of(p, true); }, "attn_mask",
     "boolean `attn_mask`", kInsteadOfMask},
    {Feature::kAddedMask, [](const Problem& p) { return has_mask_of(p, false); }, "attn_mask",
     "added `attn_mask`", kInsteadOfMask},
    {Feature::kSinks, [](const Problem& p) { return p.has_sinks(); }, "sinks", "attention sinks",
     ""},
    {Feature::kLse,
     [](const Problem& p) { return p.op == FA3_OP_FORWARD && p.layout[kLse].present(); }, "lse",
     "LSE", ""},
    {Feature::kF32Outputs, has_f32_outputs, "outputs of f32", "outputs of F32", ""},
    {Feature::kMaskGradient, [](const Problem& p) { return p.layout[kDattnMask].present(); },
     "dattn_mask", "gradient of `attn_mask`", ""},
    {Feature::kSinkGradient, [](const Problem& p) { return p.layout[kDsinks].present(); }, "dsinks",
     "gradient of sinks", ""},
    {Feature::kDeterministic,
     [](const Problem& p) { return p.op == FA3_OP_BACKWARD && p.deterministic; }, "deterministic",
     "deterministic", ""},
    {Feature::kPages, [](const Problem& p) { return p.cache.paged(); }, "page_table",
     "paged keys, `page_table`", "copy the pages into dense k and v"},
    {Feature::kKvSlots, [](const Problem& p) { return p.cache.slots; }, "kv_batch_idx",
     "slots of a cache, `kv_batch_idx`", "copy the slots into the order of the batch"},
    {Feature::kKvBegin, [](const Problem& p) { return p.cache.begins; }, "kv_begin",
     "keys that begin at any row, `kv_begin`", "copy the keys to the first rows"},
    {Feature::kBatchInvariant, [](const Problem& p) { return p.batch_invariant != 0; },
     "batch_invariant", "bits of the sequence alone, `batch_invariant`", "leave it out"},
    {Feature::kAppend, [](const Problem& p) { return p.appends(); }, "k_new",
     "appending, `k_new` and `v_new`", "write the keys into k and v before the call"},
    {Feature::kRotary, [](const Problem& p) { return p.rotation.rotary_dim > 0; }, "rotary_cos",
     "rotary embedding of what is appended", "rotate q and k_new before the call"},
    {Feature::kChunk, [](const Problem& p) { return p.attention_chunk > 0; }, "attention_chunk",
     "chunks of keys, `attention_chunk`", ""},
    {Feature::kTree, [](const Problem& p) { return p.has_tree(); }, "tree_mask",
     "trees of new keys, `tree_mask`", ""},
    {Feature::kMaxLogit, [](const Problem& p) { return p.has_max_logit(); }, "max_logit",
     "greatest score of each head, `max_logit`", "leave it out"},
    {Feature::kE4m3Keys, [](const Problem& p) { return p.has_8_bit_keys() && !p.is_8_bit(); },
     "k and v of f8_e4m3", "K and V of FP8 (E4M3) beside Q of more bits", "convert them"},
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

}  // namespace

std::vector<Feature> Features::list() const {
  std::vector<Feature> all;
  for (const Words& words : kWords)
    if (has(words.feature)) all.push_back(words.feature);
  return all;
}

Features features_of(const Problem& p) {
  Features asked;
  for (const Words& words : kWords) asked.add(words.feature, words.asked(p));
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
  // What of the rest no kernel of the type takes together with these, each of which one does.
  const auto taken = [&](Features all) { return !(types_with(all, p.op, kernels) & type).empty(); };
  Features beside;
  for (const Feature f : (asked - missing - type).list())
    beside.add(f, taken(missing) && !taken(missing | Features{f}));
  const Features types = types_with(missing | beside, p.op, kernels);
  const std::string with = beside.empty()
                               ? std::string(dtype)
                               : fmt::format("{} and {}", dtype, arguments(beside, " and "));
  const std::string need =
      types.empty() ? "which no kernel takes" : "need " + arguments(types, " or ");
  return unsupported("{}: {} with q of {} on {} (backends cuda and sim), {}; {}use backend cpu",
                     op_name(p.op), arguments(missing, " and "), with, arch, need, remedies);
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
