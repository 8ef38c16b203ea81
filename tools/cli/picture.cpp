// SPDX-License-Identifier: BSD-3-Clause
// picture.cpp — draws a heat map with libgd: cells, ticks, labels, colour bar, title, notes.
#include "picture.h"

#include <gd.h>
#include <gdfontg.h>
#include <gdfonts.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "colour.h"
#include "error.h"

namespace fa3::cli {
namespace {

constexpr int kSmallSide = 560;  // grids with fewer cells than this are scaled up to about it, px
constexpr int kLargestCell = 48;
constexpr int kLeft = 92, kTop = 52, kBarGap = 28, kBarWidth = 22, kBarLabels = 84;
constexpr int kTick = 6, kShortestBar = 160;
constexpr int kRampSteps = 256;
constexpr Rgb kHidden{222, 226, 230}, kNan{0, 190, 90};  // light grey; green, which the ramp lacks

// Colour position of a probability: logarithmic, since attention spans decades, and the same in
// every picture, so that pictures compare. What is smaller than the last decade has the colour of
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

class Canvas {
 public:
  Canvas(int width, int height) : image_(gdImageCreateTrueColor(width, height), &gdImageDestroy) {
    if (!image_) fail(kFailed, "--map: not enough memory for a picture of {} x {}", width, height);
    fill(0, 0, width, height, {255, 255, 255});
  }

  void fill(int x, int y, int width, int height, Rgb c) {
    gdImageFilledRectangle(image_.get(), x, y, x + width - 1, y + height - 1, colour(c));
  }
  void frame(int x, int y, int width, int height) {
    gdImageRectangle(image_.get(), x, y, x + width - 1, y + height - 1, colour(kInk));
  }
  void line(int x1, int y1, int x2, int y2) {
    gdImageLine(image_.get(), x1, y1, x2, y2, colour(kInk));
  }
  void text(gdFontPtr font, int x, int y, const std::string& s) {
    gdImageString(image_.get(), font, x, y, bytes(s), colour(kInk));
  }
  void text_up(gdFontPtr font, int x, int y, const std::string& s) {
    gdImageStringUp(image_.get(), font, x, y, bytes(s), colour(kInk));
  }
  std::string png() const {
    int size = 0;
    const std::unique_ptr<void, void (*)(void*)> data(gdImagePngPtr(image_.get(), &size), &gdFree);
    if (!data) fail(kFailed, "--map: not enough memory to encode the picture");
    return std::string(static_cast<const char*>(data.get()), size);
  }

 private:
  static constexpr Rgb kInk{32, 32, 32};
  static int colour(Rgb c) { return gdTrueColor(c.red, c.green, c.blue); }
  static unsigned char* bytes(const std::string& s) {  // gd only reads it
    return reinterpret_cast<unsigned char*>(const_cast<char*>(s.c_str()));
  }
  std::unique_ptr<gdImage, void (*)(gdImagePtr)> image_;
};

int text_width(gdFontPtr font, const std::string& s) {
  return font->w * static_cast<int>(s.size());
}

// Whole pixels per cell, so that every cell has the same size.
int cell_size(int cells) { return std::clamp((kSmallSide + cells / 2) / cells, 1, kLargestCell); }

// Where things stand, in pixels.
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
    width = std::max(width, 2 * 16 + text_width(gdFontGetGiant(), m.title));
    for (const std::string& note : m.notes)
      width = std::max(width, 2 * 16 + text_width(gdFontGetSmall(), note));
    height = kTop + bar_height + 72 + 16 * static_cast<int>(m.notes.size()) + 8;
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

// The long name of an axis where there is room for it.
std::string axis_label(const std::string& what, gdFontPtr font, int room) {
  const std::string full = what + " position (token)";
  return text_width(font, full) <= room ? full : what;
}

void draw_axes(Canvas& canvas, const HeatMap& m, const Geometry& g) {
  const gdFontPtr small = gdFontGetSmall(), giant = gdFontGetGiant();
  const int bottom = kTop + g.plot_height;
  // At least 64 px a tick on x, 28 px on y, so that labels do not touch.
  const int64_t x_step = tick_step(m.keys, std::max(1, g.plot_width / 64));
  for (int64_t i = 0; i < m.keys; i += x_step) {
    const int x = kLeft + static_cast<int>((i + 0.5) / m.keys_per_column * g.cell_width);
    const std::string label = std::to_string(i);
    canvas.line(x, bottom + 1, x, bottom + kTick);
    canvas.text(small, x - text_width(small, label) / 2, bottom + kTick + 2, label);
  }
  const int64_t y_step = tick_step(m.queries, std::max(1, g.plot_height / 28));
  for (int64_t i = 0; i < m.queries; i += y_step) {
    const int y = kTop + static_cast<int>((i + 0.5) / m.queries_per_row * g.cell_height);
    const std::string label = std::to_string(i);
    canvas.line(kLeft - kTick - 1, y, kLeft - 2, y);
    canvas.text(small, kLeft - kTick - 4 - text_width(small, label), y - small->h / 2, label);
  }
  const std::string x_label = axis_label("key", giant, g.plot_width);
  const std::string y_label = axis_label("query", giant, g.plot_height);
  canvas.text(giant, kLeft + (g.plot_width - text_width(giant, x_label)) / 2, bottom + kTick + 22,
              x_label);
  canvas.text_up(giant, 14, kTop + (g.plot_height + text_width(giant, y_label)) / 2, y_label);
}

void draw_bar(Canvas& canvas, const Geometry& g) {
  const gdFontPtr small = gdFontGetSmall();
  const int x = kLeft + g.plot_width + kBarGap;
  for (int y = 0; y < g.bar_height; ++y)
    canvas.fill(x, kTop + y, kBarWidth, 1, ramp(1 - y / std::max(1.0, g.bar_height - 1.0)));
  canvas.frame(x - 1, kTop - 1, kBarWidth + 2, g.bar_height + 2);
  for (int decade = 0; decade <= kDecades; ++decade) {
    const int y = kTop + decade * (g.bar_height - 1) / kDecades;
    const std::string below = decade == kDecades ? "<= " : "";
    canvas.line(x + kBarWidth + 1, y, x + kBarWidth + kTick - 1, y);
    canvas.text(small, x + kBarWidth + kTick + 3, y - small->h / 2,
                below + fmt::format("{:.5g}", std::pow(10.0, -decade)));
  }
}

}  // namespace

std::string draw_png(const HeatMap& m) {
  const Geometry g(m);
  Canvas canvas(g.width, g.height);
  canvas.text(gdFontGetGiant(), 16, 18, m.title);
  draw_cells(canvas, m, g);
  draw_axes(canvas, m, g);
  draw_bar(canvas, g);
  int y = kTop + g.bar_height + 60;
  for (const std::string& note : m.notes) {
    canvas.text(gdFontGetSmall(), 16, y, note);
    y += 16;
  }
  return canvas.png();
}

}  // namespace fa3::cli
