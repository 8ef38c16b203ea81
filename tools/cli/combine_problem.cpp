// SPDX-License-Identifier: BSD-3-Clause
// combine_problem.cpp — parts of O and LSE to be merged.
#include "combine_problem.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "error.h"
#include "tools/verify/problem.h"

namespace fa3::cli {
namespace {

constexpr int64_t kMostParts = 1 << 20, kMostOfSeed = 40;
constexpr int64_t kPadding = 8;  // elements behind a row

int64_t parts_of(const CombineOptions& o) {
  if (o.parts == "any")
    return verify::Random(static_cast<uint64_t>(o.seed)).between(0, kMostOfSeed);
  const std::optional<int64_t> parts = parse_integer(o.parts);
  if (parts && *parts >= 0 && *parts <= kMostParts) return *parts;
  fail(kUsage, "--combine: got '{}', need a whole number from 0 to {}, or any", o.parts,
       kMostParts);
}

int32_t type_value(const char* option, const std::string& name) {
  const int32_t dtype = dtype_value(name);
  if (verify::is_8_bit(dtype))
    fail(kUsage, "{}: got {} with --combine, need f32, f16 or bf16", option, name);
  return dtype;
}

void set_layout(const std::string& name, verify::CombineProblem& p) {
  if (name.empty() || name == "dense") return;
  if (name == "heads_first") {
    p.order = p.packed ? std::vector<int>{1, 0, 2} : std::vector<int>{0, 2, 1, 3};
  } else if (name == "seq_first") {
    if (!p.packed) p.order = {1, 0, 2, 3};
  } else if (name == "padded") {
    p.padding = kPadding;
  } else {
    fail(kUsage, "--layout: got '{}' with --combine, need dense, heads_first, seq_first or padded",
         name);
  }
}

}  // namespace

void check_combine_usage(const Parser& parser) {
  const std::string name = parser.given_beside(
      {"--combine", "--dtype", "--out-dtype", "--batch", "--heads-q", "--seqlen-q", "--head-dim",
       "--varlen-q", "--layout", "--no-lse", "--magnitude", "--alignment", "--seed", "--backend",
       "--threads", "--json", "--quiet", "--schedule-seed", "--with"});
  if (!name.empty())
    fail(kUsage, "{}: means nothing for parts that are merged; leave it or --combine out", name);
}

verify::CombineProblem make_combine_problem(const ProblemOptions& sizes, const CombineOptions& o) {
  verify::CombineProblem p;
  p.parts = parts_of(o);
  p.batch = sizes.batch.value_or(2);
  p.seqlen = sizes.seqlen_q;
  p.heads = sizes.heads_q;
  p.dim = sizes.head_dim;
  if (!sizes.varlen_q.empty()) {
    const std::vector<int64_t> lengths = parse_integers("--varlen-q", sizes.varlen_q);
    p.packed = true;
    p.seqlen = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    p.batch = 1;
  }
  p.in = type_value("--dtype", sizes.dtype.value_or("f32"));
  p.out = sizes.out_dtype == "input" ? p.in : type_value("--out-dtype", sizes.out_dtype);
  p.wants_lse = o.lse;
  set_layout(o.layout, p);
  if (o.alignment < 0 || (o.alignment & (o.alignment - 1)) != 0 || o.alignment > 1 << 20)
    fail(kUsage, "--alignment: got {}, need 0 or a power of two up to 2^20", o.alignment);
  p.alignment = o.alignment;
  if (!(std::isfinite(o.magnitude) && o.magnitude >= 0))
    fail(kUsage, "--magnitude: got {}, need a finite number from 0", o.magnitude);
  p.spread = o.magnitude;
  p.seed = static_cast<uint64_t>(o.seed);
  for (const std::string& name : sizes.with) {
    if (name != "sinks") fail(kUsage, "--with: got {} with --combine, need sinks", name);
    p.sink_dtype = o.seed % 2 != 0 ? p.in : FA3_F32;
  }
  p.by_rows = o.seed % 2 != 0;
  return p;
}

fa3_combine_args shapes_combine(const verify::CombineProblem& p) {
  const int first = p.packed ? 1 : 0;  // without a batch
  const auto shape = [&](int32_t dtype, std::vector<int64_t> all, bool of_parts) {
    all.erase(all.begin() + 1, all.begin() + 1 + first);
    if (!of_parts) all.erase(all.begin());
    return fa3_dense(nullptr, static_cast<fa3_dtype>(dtype), static_cast<int>(all.size()),
                     all.data());
  };
  const std::vector<int64_t> o{p.parts, p.batch, p.seqlen, p.heads, p.dim},
      lse{p.parts, p.batch, p.heads, p.seqlen};
  fa3_combine_args a{};
  a.struct_size = sizeof a;
  a.o_parts = shape(p.in, o, true), a.lse_parts = shape(FA3_F32, lse, true);
  a.o = shape(p.out, o, false);
  if (p.wants_lse) a.lse = shape(FA3_F32, lse, false);
  if (p.sink_dtype != 0)
    a.sinks = fa3_dense(nullptr, static_cast<fa3_dtype>(p.sink_dtype), 1, &p.heads);
  return a;
}

std::string problem_text(const verify::CombineProblem& p) {
  const std::string batch = p.packed ? "" : fmt::format("batch {}, ", p.batch);
  return fmt::format("merge of {} parts, {} to {}, {}heads {}, seqlen {}, head_dim {}", p.parts,
                     verify::dtype_text(p.in), verify::dtype_text(p.out), batch, p.heads, p.seqlen,
                     p.dim);
}

std::string replay_command(const verify::CombineProblem& p, const std::string& layout,
                           const std::string& backend) {
  const verify::CombineProblem d;  // the defaults
  std::string text = fmt::format("fa3 check --combine {}", p.parts);
  const auto flag = [&](bool differs, const std::string& part) {
    if (differs) text += " " + part;
  };
  flag(!p.packed, fmt::format("--batch {} --seqlen-q {}", p.batch, p.seqlen));
  flag(p.packed, fmt::format("--varlen-q {}", p.seqlen));
  flag(true, fmt::format("--heads-q {} --head-dim {}", p.heads, p.dim));
  flag(p.in != d.in, fmt::format("--dtype {}", verify::dtype_text(p.in)));
  flag(p.out != p.in, fmt::format("--out-dtype {}", verify::dtype_text(p.out)));
  flag(!layout.empty(), "--layout " + layout);
  flag(!p.wants_lse, "--no-lse");
  flag(p.spread != CombineOptions{}.magnitude, fmt::format("--magnitude {}", p.spread));
  flag(p.sink_dtype != 0, "--with sinks");
  flag(p.alignment != 0, fmt::format("--alignment {}", p.alignment));
  flag(p.seed != 0, fmt::format("--seed {}", p.seed));
  flag(!backend.empty(), "--backend " + backend);
  return text;
}

}  // namespace fa3::cli
