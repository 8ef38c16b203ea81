// SPDX-License-Identifier: BSD-3-Clause
// kernels.cpp — a name's words, and the rows and variants that have them.
#include "plan/sm90/fwd/kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/names.h"

namespace fa3::sm90 {
namespace {

struct HeadDims {
  int qk = 0, v = 0;
  bool operator==(const HeadDims&) const = default;
};

// What the words of a name select; nothing = any.
struct Words {
  std::optional<HeadDims> dims;
  std::optional<MmaType> dtype;
  std::optional<MaskKind> mask;
  std::optional<bool> ragged;
  KvSource kv = KvSource::kTensor;

  bool cached() const { return kv != KvSource::kTensor; }
  std::optional<ScoreKind> score;
  std::optional<int> queries;
  std::optional<Operands> operands;
  bool few_tiles = false;  // where there are two: the kernel for fewer Q tiles
  std::optional<Sums> sums;
  bool o_f32 = false;
  bool by_parts = false, max_logit = false;
  std::optional<KvScales> kv_scales;
  std::optional<int> scale_columns;
  FwdFunctors functors;

  Operands operands_or_16() const { return operands.value_or(Operands::k16); }
};

const char* ragged_word(bool ragged) { return ragged ? "ragged" : "dense"; }

constexpr int64_t kManyQueries = std::numeric_limits<int64_t>::max();
constexpr const char* kFewTilesWord = "few_tiles";
constexpr const char* kOF32Word = "o_f32";
constexpr const char* kPartsWord = "parts";
constexpr const char* kMaxLogitWord = "max_logit";
constexpr std::string_view kColumnsWord = "columns";
constexpr const char* kAlibiWord = "alibi";
constexpr const char* kSequenceIdsWord = "sequence_ids";

std::string text_of(HeadDims dims, const FwdVariant& variant, const FwdRow& row, bool few_tiles) {
  std::string name = fmt::format("fwd/d{}", dims.qk);
  if (dims.v != dims.qk) name += fmt::format("-{}", dims.v);
  if (variant.operands != Operands::k16) name += fmt::format("/{}", word(variant.operands));
  name +=
      fmt::format("/{}/{}/{}", word(variant.dtype), word(variant.mask),
                  variant.kv != KvSource::kTensor ? word(variant.kv) : ragged_word(variant.ragged));
  if (row.max_seqlen_q != 0) name += fmt::format("/q{}", row.max_seqlen_q);
  if (row.sums() != Sums::kShort) name += fmt::format("/{}", word(row.sums()));
  if (few_tiles) name += fmt::format("/{}", kFewTilesWord);
  if (variant.score != ScoreKind::kPlain) name += fmt::format("/{}", word(variant.score));
  if (variant.kv_scales != KvScales::kHead) name += fmt::format("/{}", word(variant.kv_scales));
  if (variant.scale_columns > 0) name += fmt::format("/{}{}", kColumnsWord, variant.scale_columns);
  if (variant.o_f32) name += fmt::format("/{}", kOF32Word);
  if (variant.by_parts) name += fmt::format("/{}", kPartsWord);
  if (variant.max_logit) name += fmt::format("/{}", kMaxLogitWord);
  if (variant.functors.alibi) name += fmt::format("/{}", kAlibiWord);
  if (variant.functors.sequence_ids) name += fmt::format("/{}", kSequenceIdsWord);
  if (variant.functors.has_mask()) name += fmt::format("/{}", word(variant.functors.attn_mask));
  return name;
}

// ---- Words --------------------------------------------------------------------------------------

// Digits only, as a head dim or a number of queries; 0 = malformed.
int number_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 ? number : 0;
}

// "d128", "d192-128".
std::optional<HeadDims> dims_of(std::string_view word) {
  if (word.empty() || word[0] != 'd') return std::nullopt;
  const size_t dash = std::min(word.find('-'), word.size());
  const int qk = number_of(word.substr(1, dash - 1));
  const int v = dash == word.size() ? qk : number_of(word.substr(dash + 1));
  const auto fits = [](int dim) { return dim > 0 && dim <= 256 && dim % 16 == 0; };
  if (!fits(qk) || !fits(v)) return std::nullopt;
  return HeadDims{qk, v};
}

// Notes that the words name this value; false when they have named another of its kind.
template <class T>
bool set(std::optional<T>& place, T value) {
  if (place) return *place == value;
  place = value;
  return true;
}

bool read_word(std::string_view text, Words& words) {
  if (const std::optional<HeadDims> dims = dims_of(text)) return set(words.dims, *dims);
  if (!text.empty() && text[0] == 'q' && number_of(text.substr(1)) > 0)
    return set(words.queries, number_of(text.substr(1)));
  for (const MmaType dtype : kFwdTypes)
    if (text == word(dtype)) return set(words.dtype, dtype);
  for (const MaskKind mask : kAllMasks)
    if (text == word(mask)) return set(words.mask, mask);
  for (const bool ragged : {false, true})
    if (text == ragged_word(ragged)) return set(words.ragged, ragged);
  for (const KvSource kv : {KvSource::kRuns, KvSource::kRows}) {  // in place of ragged
    if (text != word(kv)) continue;
    words.kv = kv;
    return set(words.ragged, true);
  }
  for (const ScoreKind score : kScores)
    if (text == word(score)) return set(words.score, score);
  for (const Operands operands : kOperands)
    if (text == word(operands)) return set(words.operands, operands);
  if (text == kFewTilesWord) return words.few_tiles = true;
  for (const Sums sums : {Sums::kLong, Sums::kBlocks})
    if (text == word(sums)) return set(words.sums, sums);
  for (const KvScales scales : kKvScales)
    if (text == word(scales)) return set(words.kv_scales, scales);
  if (text.substr(0, kColumnsWord.size()) == kColumnsWord) {
    const int columns = number_of(text.substr(kColumnsWord.size()));
    return (columns == 32 || columns == 64 || columns == 128) && set(words.scale_columns, columns);
  }
  if (text == kOF32Word) return words.o_f32 = true;
  if (text == kPartsWord) return words.by_parts = true;
  if (text == kMaxLogitWord) return words.max_logit = true;
  if (text == kAlibiWord) return words.functors.alibi = true;
  if (text == kSequenceIdsWord) return words.functors.sequence_ids = true;
  for (const MaskTensor mask : kMaskTensors) {
    if (text != word(mask)) continue;
    const bool first = !words.functors.has_mask();
    words.functors.attn_mask = mask;
    return first;
  }
  return false;
}

// ---- Kernels ------------------------------------------------------------------------------------

// Head dims of the table, each pair once.
std::vector<HeadDims> table_dims(Operands operands) {
  std::vector<HeadDims> all;
  for (const FwdRow& row : kFwdRows) {
    if (!row.takes(operands)) continue;
    const HeadDims dims{row.config.tile.head_dim_qk, row.config.tile.head_dim_v};
    if (std::find(all.begin(), all.end(), dims) == all.end()) all.push_back(dims);
  }
  return all;
}

// The rows that problems of these head dims and such a variant get, by how many queries they have.
std::vector<const FwdRow*> rows_of(HeadDims dims, const FwdVariant& variant, bool three_consumers) {
  std::vector<int64_t> lengths = {std::numeric_limits<int64_t>::max()};
  for (const FwdRow& row : kFwdRows)
    if (row.max_seqlen_q != 0) lengths.push_back(row.max_seqlen_q);
  std::sort(lengths.begin(), lengths.end());
  std::vector<const FwdRow*> rows;
  for (const Sums sums : {Sums::kShort, Sums::kLong, Sums::kBlocks}) {
    for (const int64_t length : lengths) {
      const FwdRow* const row = choose_row({.head_dim_qk = dims.qk,
                                            .head_dim_v = dims.v,
                                            .mask = variant.mask,
                                            .seqlen_q = length,
                                            .three_consumers = three_consumers,
                                            .operands = variant.operands,
                                            .sums = sums,
                                            .plain = variant.plain()});
      if (row != nullptr && std::find(rows.begin(), rows.end(), row) == rows.end())
        rows.push_back(row);
    }
  }
  return rows;
}

struct NamedRow {
  const FwdRow* row;
  bool few_tiles;  // another row takes problems with more Q tiles
};

std::vector<NamedRow> rows_of(HeadDims dims, const FwdVariant& variant) {
  const FwdFunctors& functors = variant.functors;
  std::vector<NamedRow> all;
  const bool three = !functors.any() && variant.kv != KvSource::kRows;
  if (three)
    for (const FwdRow* const row : rows_of(dims, variant, true)) all.push_back({row, false});
  for (const FwdRow* const row : rows_of(dims, variant, false)) {
    const auto same = [&](const NamedRow& other) { return other.row == row; };
    if (std::none_of(all.begin(), all.end(), same)) all.push_back({row, three});
  }
  return all;
}

void add_variants(HeadDims dims, const Words& words, std::vector<FwdKernel>& kernels) {
  const auto wanted = [](const auto& word, const auto& value) { return !word || *word == value; };
  if (words.cached() && (dims.qk % 64 != 0 || dims.v % 64 != 0)) return;
  for (const MmaType dtype : kFwdTypes) {
    if (!wanted(words.dtype, dtype)) continue;
    for (const MaskKind mask : kAllMasks) {
      if (!wanted(words.mask, mask) || (mask == MaskKind::kChunk && !words.mask)) continue;
      for (const bool ragged : {false, true}) {
        if (!wanted(words.ragged, ragged)) continue;
        // ALiBi is added to scaled scores, and scales of blocks are part of them.
        const int scale_columns = words.scale_columns.value_or(0);
        const KvScales kv_scales =
            words.kv_scales.value_or(scale_columns > 0 ? KvScales::kTiles : KvScales::kHead);
        const bool adds = words.functors.alibi || adds_to_scores(words.functors.attn_mask);
        const bool scaled = adds || kv_scales != KvScales::kHead;
        const ScoreKind score =
            words.score.value_or(scaled ? ScoreKind::kScaled : ScoreKind::kPlain);
        const FwdVariant variant{.dtype = dtype,
                                 .mask = mask,
                                 .score = score,
                                 .ragged = ragged,
                                 .functors = words.functors,
                                 .operands = words.operands_or_16(),
                                 .kv_scales = kv_scales,
                                 .o_f32 = words.o_f32,
                                 .scale_columns = scale_columns,
                                 .kv = words.kv,
                                 .by_parts = words.by_parts,
                                 .max_logit = words.max_logit};
        for (const auto& [row, few_tiles] : rows_of(dims, variant)) {
          if (!wanted(words.queries, row->max_seqlen_q)) continue;
          if ((words.by_parts || words.max_logit) && !row->takes(Operands::k16)) continue;
          if (words.few_tiles && !few_tiles) continue;
          if (!wanted(words.sums, row->sums())) continue;
          const FwdConfig config = fitted(config_of(*row, variant), dims.qk, dims.v);
          if (config.scores.block_scales() && why_illegal(config) != nullptr) continue;
          const auto same = [&](const FwdKernel& kernel) { return kernel.config == config; };
          std::erase_if(kernels, same);  // rows may share one, which has the name for more queries
          kernels.push_back({text_of(dims, variant, *row, few_tiles), config, words.functors});
        }
      }
    }
  }
}

Status refuse(std::string_view name, std::string_view why) {
  return invalid(
      "jit: kernels '{}': {}; need fwd, then any of d<head dim> or d<of q and k>-<of v> (multiples "
      "of 16 up to 256), e4m3, i8_e4m3, i8_16_bits, bf16 or f16, full, causal, window or chunk, "
      "dense, ragged, cached_runs or cached_rows, q<most queries>, long or flushed, few_tiles, "
      "softcap or scaled, tile_scales or key_scales, columns32, columns64 or columns128, o_f32, "
      "parts, max_logit, alibi, sequence_ids, bool_mask, f32_mask or 16_bit_mask, each behind a "
      "'/'",
      name, why);
}

}  // namespace

Result<std::vector<FwdKernel>> fwd_kernels(std::string_view name) {
  Words words;
  std::string_view rest = name;
  for (bool first = true; !rest.empty() || first; first = false) {
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (first ? word != "fwd" : !read_word(word, words))
      return refuse(name, fmt::format("'{}' says nothing here", word));
  }
  std::vector<FwdKernel> kernels;
  for (const HeadDims dims :
       words.dims ? std::vector{*words.dims} : table_dims(words.operands_or_16()))
    add_variants(dims, words, kernels);
  if (kernels.empty()) return refuse(name, "no kernel has this name");
  return kernels;
}

std::string name_of(const FwdPlan& plan) {
  const FwdConfig& c = plan.config;
  const HeadDims dims{static_cast<int>(round_up(plan.need.head_dim_qk, 16)),
                      static_cast<int>(round_up(plan.need.head_dim_v, 16))};
  const FwdRow* const row = row_named(plan.row);
  RowNeed more_tiles = plan.need;
  const bool three = !plan.functors.any() && c.load.kv != KvSource::kRows;
  more_tiles.three_consumers = three;
  if (plan.need.v_image)  // by whose tiles the row was chosen, not by queries
    more_tiles.v_image = false, more_tiles.image_keys = 0, more_tiles.seqlen_q = kManyQueries;
  const FwdVariant variant{.dtype = c.types.o,
                           .mask = c.mask.kind,
                           .score = c.scores.kind,
                           .ragged = c.load.ragged,
                           .functors = plan.functors,
                           .operands = plan.need.operands,
                           .kv_scales = c.scores.kv_scales,
                           .o_f32 = c.output.f32,
                           .scale_columns = c.scores.scale_columns,
                           .kv = c.load.kv,
                           .by_parts = c.accumulate.part_tiles > 0,
                           .max_logit = c.output.max_logit};
  return text_of(dims, variant, *row, choose_row(more_tiles) != row && three);
}

std::string head_dims_text(const FwdPlan& plan) {
  return fmt::format("{} and {}", plan.config.tile.head_dim_qk, plan.config.tile.head_dim_v);
}

}  // namespace fa3::sm90
