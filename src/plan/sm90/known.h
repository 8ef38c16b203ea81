// SPDX-License-Identifier: BSD-3-Clause
// known.h — the kernels of Hopper by name, from the tables of their configurations: those worth
// compiling before a problem asks for them.
#pragma once

#include <string_view>
#include <vector>

#include "core/status.h"
#include "plan/named_program.h"

namespace fa3::sm90 {

// The forward's kernels of that name (fwd/kernels.h), each behind the one that makes its V image.
Result<std::vector<NamedProgram>> known_forward(std::string_view name);

// The kernels that `precision` puts before a forward, V images apart.
std::vector<NamedProgram> known_quantizing();

// V images for the rows of the forward's table, also with fewer columns.
std::vector<NamedProgram> known_v_images();

// The kernels that read attn_mask before a forward or backward.
std::vector<NamedProgram> known_mask_readers();

// Decode and what merges its parts; with_terms: also with softcap, ALiBi, scores of any sign and O
// in FP32. All that `name` may mean, and perhaps more; "" = all.
std::vector<NamedProgram> known_decode(bool with_terms, std::string_view name = "");

// The kernels that append to a cache before attention.
std::vector<NamedProgram> known_appends();

// The kernels of fa3_combine, of all types.
std::vector<NamedProgram> known_merges();

// The backward; with_terms: also with softcap, functors and attn_mask.
std::vector<NamedProgram> known_backward(bool with_terms);

// Those of a bundle of all kernels: the forward with the table's head dims and ScoreKind::kPlain,
// the kernels that `precision` puts before it, the backward without terms of scores, the kernels of
// fa3_combine and those that append.
std::vector<NamedProgram> known_programs();

// Those that a name or a prefix of it selects, perhaps none. INVALID_ARGUMENT for a word of "fwd…"
// that is none.
Result<std::vector<NamedProgram>> programs_named(std::string_view name);

}  // namespace fa3::sm90
