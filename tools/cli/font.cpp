// SPDX-License-Identifier: BSD-3-Clause
// font.cpp — reads the pixels of data/fixed_font.inc, which names the font's origin.
#include "font.h"

#include <iterator>

namespace fa3::cli {
namespace {

constexpr int kBits = 4;                                    // of a hexadecimal digit
constexpr int kDigits = (kGlyphWidth + kBits - 1) / kBits;  // of a row
struct Glyph {
  char medium[kGlyphHeight * kDigits + 1];
  char bold[kGlyphHeight * kDigits + 1];
};

constexpr Glyph kGlyphs[] = {
#include "data/fixed_font.inc"
};
constexpr char kFirst = ' ', kLast = '~';
static_assert(std::size(kGlyphs) == kLast - kFirst + 1, "fixed_font.inc: need printable ASCII");

}  // namespace

bool has_ink(Weight weight, char character, int column, int row) {
  const bool known = character >= kFirst && character <= kLast;
  const Glyph& glyph = kGlyphs[(known ? character : '?') - kFirst];
  const char* digits = weight == Weight::kBold ? glyph.bold : glyph.medium;
  const char digit = digits[row * kDigits + column / kBits];
  const int value = digit <= '9' ? digit - '0' : digit - 'A' + 10;
  return (value >> (kBits - 1 - column % kBits)) & 1;
}

}  // namespace fa3::cli
