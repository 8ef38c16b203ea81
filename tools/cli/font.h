// SPDX-License-Identifier: BSD-3-Clause
// font.h — a bitmap font of fixed width for the labels of pictures.
#pragma once

namespace fa3::cli {

enum class Weight { kMedium, kBold };

constexpr int kGlyphWidth = 9, kGlyphHeight = 15;  // px of every character

// Is this pixel of a character black? Columns count from the left, rows from the top; characters
// other than printable ASCII look like a question mark.
bool has_ink(Weight weight, char character, int column, int row);

}  // namespace fa3::cli
