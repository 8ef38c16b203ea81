// SPDX-License-Identifier: BSD-3-Clause
// picture.cpp — draws a heat map into memory: cells, ticks, labels, colour bar, title, notes.
#include "picture.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "colour.h"
#include "error.h"
#include "font.h"

namespace fa3::cli {
namespace {

constexpr int kSmallSide = 560;  // grids with fewer cells than this are scaled up to about it, px
constexpr int kLargestCell = 48;
constexpr int kLeft = 104, kTop = 52, kBarGap = 28, kBarWidth = 22, kBarLabels = 104;
constexpr int kMargin = 16, kLine = 19, kBelow = 66;  // px; of text below the plot
constexpr int kTick = 6, kShortestBar = 160;
constexpr int kRampSteps = 256;
constexpr Rgb kHidden{222, 226, 230}, kNan{0, 190, 90};  // light grey; green, which the ramp lacks

// Colour position of a probability: logarithmic, since attention spans decades, and the same in
// every picture, so that pictures compare. Anything below the last decade has the colour of
// its end.
constexpr int kDecades = 4;
double ramp_position(double probability) {
  return std::clamp(1 + std::log10(probability) / kDecades, 0.0, 1.0);
}

// 1, 2 or 5 × 10^k such that `items` take at most `most` steps.
int64_t tick_step(int64_t items, int64_t most) {
  for (int64_t unit = 1;; unit *= 10)
    for (const int64_t step : {unit, 2 * unit, 5 * unit})
      if (items / step <= most) return step;
}

// Pixels in memory. Everything drawn must lie inside.
class Canvas {
 public:
  Canvas(int width, int height)
      : width_(width),
        height_(height),
        bytes_(static_cast<size_t>(width) * height * kChannels, kPaper) {}

  void fill(int x, int y, int width, int height, Rgb c) {
    for (int row = y; row < y + height; ++row)
      for (int column = x; column < x + width; ++column) set(column, row, c);
  }
  void frame(int x, int y, int width, int height) {
    fill(x, y, width, 1, kInk);
    fill(x, y + height - 1, width, 1, kInk);
    fill(x, y, 1, height, kInk);
    fill(x + width - 1, y, 1, height, kInk);
  }
  void tick_right(int x, int y) { fill(x, y, kTick, 1, kInk); }
  void tick_down(int x, int y) { fill(x, y, 1, kTick, kInk); }

  // From the upper left corner of the first character.
  void text(Weight weight, int x, int y, const std::string& s) {
    draw(weight, s, [&](int along, int down) { set(x + along, y + down, kInk); });
  }
  // The same turned by a quarter, to be read from below: (x, y) is the lower left corner.
  void text_up(Weight weight, int x, int y, const std::string& s) {
    draw(weight, s, [&](int along, int down) { set(x + down, y - along, kInk); });
  }

  std::string png() const {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = width_;
    image.height = height_;
    image.format = PNG_FORMAT_RGB;
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    std::string file(size, '\0');
    if (!png_image_write_to_memory(&image, file.data(), &size, 0, bytes_.data(), 0, nullptr))
      fail(kFailed, "--map: the picture of {} x {} could not be encoded: {}", width_, height_,
           image.message);
    file.resize(size);
    return file;
  }

 private:
  static constexpr int kChannels = 3;
  static constexpr unsigned char kPaper = 255;
  static constexpr Rgb kInk{32, 32, 32};

  void set(int x, int y, Rgb c) {
    unsigned char* at = &bytes_[(static_cast<size_t>(y) * width_ + x) * kChannels];
    at[0] = static_cast<unsigned char>(c.red);
    at[1] = static_cast<unsigned char>(c.green);
    at[2] = static_cast<unsigned char>(c.blue);
  }
  template <class Set>
  static void draw(Weight weight, const std::string& s, Set set) {
    for (int i = 0; i < static_cast<int>(s.size()); ++i)
      for (int row = 0; row < kGlyphHeight; ++row)
        for (int column = 0; column < kGlyphWidth; ++column)
          if (has_ink(weight, s[i], column, row)) set(i * kGlyphWidth + column, row);
  }

  int width_, height_;
  std::vector<unsigned char> bytes_;
};

int text_width(const std::string& s) { return kGlyphWidth * static_cast<int>(s.size()); }

// Whole pixels per cell, so that every cell has the same size.
int cell_size(int cells) { return std::clamp((kSmallSide + cells / 2) / cells, 1, kLargestCell); }

// Where things are drawn, in pixels.
struct Geometry {
  int cell_width, cell_height;
  int plot_width, plot_height;
  int bar_height;
  int width, height;

  explicit Geometry(const HeatMap& m) {
    cell_width = cell_size(m.columns);
    cell_height = cell_size(m.rows);
    plot_width = m.columns * cell_width;
    plot_height = m.rows * cell_height;
    bar_height = std::max(plot_height, kShortestBar);
    width = kLeft + plot_width + kBarGap + kBarWidth + kBarLabels;
    width = std::max(width, 2 * kMargin + text_width(m.title));
    for (const std::string& note : m.notes) width = std::max(width, 2 * kMargin + text_width(note));
    height = kTop + bar_height + kBelow + kLine * static_cast<int>(m.notes.size()) + kMargin;
  }
};

void draw_cells(Canvas& canvas, const HeatMap& m, const Geometry& g) {
  std::array<Rgb, kRampSteps> colours;
  for (int i = 0; i < kRampSteps; ++i) colours[i] = ramp(i / (kRampSteps - 1.0));
  for (int r = 0; r < m.rows; ++r)
    for (int c = 0; c < m.columns; ++c) {
      const float value = m.value[static_cast<size_t>(r) * m.columns + c];
      Rgb colour = std::isnan(value) ? kNan : kHidden;
      if (value >= 0) {
        colour = colours[std::lround(ramp_position(value) * (kRampSteps - 1))];
      }
      canvas.fill(kLeft + c * g.cell_width, kTop + r * g.cell_height, g.cell_width, g.cell_height,
                  colour);
    }
  canvas.frame(kLeft - 1, kTop - 1, g.plot_width + 2, g.plot_height + 2);
}

// The long name of an axis where there is space for it.
std::string axis_label(const std::string& what, int room) {
  const std::string full = what + " position (token)";
  return text_width(full) <= room ? full : what;
}

void draw_axes(Canvas& canvas, const HeatMap& m, const Geometry& g) {
  const int bottom = kTop + g.plot_height;
  // At least 72 px a tick on x, 28 px on y, so that labels do not touch.
  const int64_t x_step = tick_step(m.keys, std::max(1, g.plot_width / 72));
  for (int64_t i = 0; i < m.keys; i += x_step) {
    const int x = kLeft + static_cast<int>((i + 0.5) / m.keys_per_column * g.cell_width);
    const std::string label = std::to_string(i);
    canvas.tick_down(x, bottom + 1);
    canvas.text(Weight::kMedium, x - text_width(label) / 2, bottom + kTick + 2, label);
  }
  const int64_t y_step = tick_step(m.queries, std::max(1, g.plot_height / 28));
  for (int64_t i = 0; i < m.queries; i += y_step) {
    const int y = kTop + static_cast<int>((i + 0.5) / m.queries_per_row * g.cell_height);
    const std::string label = std::to_string(i);
    canvas.tick_right(kLeft - kTick - 1, y);
    canvas.text(Weight::kMedium, kLeft - kTick - 4 - text_width(label), y - kGlyphHeight / 2,
                label);
  }
  const std::string x_label = axis_label("key", g.plot_width);
  const std::string y_label = axis_label("query", g.plot_height);
  canvas.text(Weight::kBold, kLeft + (g.plot_width - text_width(x_label)) / 2, bottom + kTick + 22,
              x_label);
  canvas.text_up(Weight::kBold, kMargin, kTop + (g.plot_height + text_width(y_label)) / 2, y_label);
}

void draw_bar(Canvas& canvas, const Geometry& g) {
  const int x = kLeft + g.plot_width + kBarGap;
  for (int y = 0; y < g.bar_height; ++y)
    canvas.fill(x, kTop + y, kBarWidth, 1, ramp(1 - y / std::max(1.0, g.bar_height - 1.0)));
  canvas.frame(x - 1, kTop - 1, kBarWidth + 2, g.bar_height + 2);
  for (int decade = 0; decade <= kDecades; ++decade) {
    const int y = kTop + decade * (g.bar_height - 1) / kDecades;
    const std::string below = decade == kDecades ? "<= " : "";
    canvas.tick_right(x + kBarWidth + 1, y);
    canvas.text(Weight::kMedium, x + kBarWidth + kTick + 3, y - kGlyphHeight / 2,
                below + fmt::format("{:.5g}", std::pow(10.0, -decade)));
  }
}

}  // namespace

std::string draw_png(const HeatMap& m) {
  const Geometry g(m);
  Canvas canvas(g.width, g.height);
  canvas.text(Weight::kBold, kMargin, 18, m.title);
  draw_cells(canvas, m, g);
  draw_axes(canvas, m, g);
  draw_bar(canvas, g);
  int y = kTop + g.bar_height + kBelow;
  for (const std::string& note : m.notes) {
    canvas.text(Weight::kMedium, kMargin, y, note);
    y += kLine;
  }
  return canvas.png();
}

}  // namespace fa3::cli
