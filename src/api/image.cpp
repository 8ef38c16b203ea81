// SPDX-License-Identifier: BSD-3-Clause
// image.cpp — which tiles an image of V may have. Its bytes are on the device, where nobody looks:
// all that can be checked stands in the arguments.
#include "api/image.h"

#include <algorithm>

#include "api/tensor.h"
#include "core/dtype.h"

namespace fa3 {
namespace {

constexpr int64_t kUnit = 32, kMost = 256;  // keys and columns of a tile

bool is_tile_extent(int64_t n) { return n >= kUnit && n <= kMost && n % kUnit == 0; }

}  // namespace

Result<ImageTile> read_image(const Args& args, const Problem& p) {
  const bool quantizes = args.op == FA3_OP_QUANTIZE;
  const TensorId id = quantizes ? kImage : kVImage, of = quantizes ? kCodes : kV;
  const fa3_tensor& image = args.tensor[id];
  const char* const op = op_name(args.op);
  if (image.rank == 0) {
    if (args.v_image_layout == FA3_V_IMAGE_NONE) return ImageTile{};
    return invalid("{}: v_image_layout={}, but v_image is absent; need 0, or the image too", op,
                   args.v_image_layout);
  }
  if (args.v_image_layout != FA3_V_IMAGE_SM90)
    return invalid(
        "{}: v_image_layout={}, need FA3_V_IMAGE_SM90 (1), the only order that this release knows; "
        "pass on what fa3_plan_v_image says, and quantise again what another release has made",
        op, args.v_image_layout);
  const int32_t dtype = args.tensor[of].dtype;
  if (dtype != FA3_F8_E4M3)
    return invalid("{}: v_image is given, but {}.dtype={}, need f8_e4m3 there; leave v_image out",
                   op, tensor_name(of), dtype_name(dtype));
  const int keys = image.rank - 2, columns = image.rank - 1;
  if (!is_tile_extent(image.shape[keys]))
    return invalid(
        "{}: v_image.shape[{}]={} keys of a tile, need a multiple of {} up to {}; take the shape "
        "from fa3_plan_v_image",
        op, keys, image.shape[keys], kUnit, kMost);
  if (!is_tile_extent(image.shape[columns]) || image.shape[columns] < p.head_dim_v)
    return invalid(
        "{}: v_image.shape[{}]={} columns of a tile, need a multiple of {} of at least "
        "head_dim{}={} up to {}; take the shape from fa3_plan_v_image",
        op, columns, image.shape[columns], kUnit, quantizes ? "" : "_v", p.head_dim_v, kMost);
  const fa3_tensor dense = fa3_dense(nullptr, FA3_F8_E4M3, image.rank, image.shape);
  for (int d = 0; d < image.rank; ++d)
    if (image.shape[d] > 1 && image.stride[d] != dense.stride[d])
      return invalid(
          "{}: v_image.stride[{}]={}, need {}: an image is dense; take it from fa3_plan_v_image",
          op, d, image.stride[d], dense.stride[d]);
  return ImageTile{image.shape[keys], image.shape[columns]};
}

}  // namespace fa3
