// SPDX-License-Identifier: BSD-3-Clause
// writer.cpp — writing a safetensors file as a whole or not at all.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tensor_file/tensor_file.h"

namespace fa3::tools {
namespace {

using Kind = TensorFileError::Kind;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

}  // namespace

std::string make_header(std::string_view file, std::vector<TensorInfo>& tensors,
                        const Metadata& metadata) {
  const auto bad = [&](const std::string& what) {
    return TensorFileError(Kind::kArgument, fmt::format("{}: {}", file, what));
  };
  // Widest first: every tensor then begins at a multiple of its element, and there is no hole.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::make_tuple(-dtype_bits(a.dtype), std::string_view(a.name)) <
           std::make_tuple(-dtype_bits(b.dtype), std::string_view(b.name));
  });
  std::vector<std::string_view> names;
  uint64_t end = 0;
  std::string text = "{";
  try {
    if (!metadata.empty()) text += fmt::format("\"{}\":{},", kMetadataKey, json(metadata).dump());
    for (TensorInfo& tensor : tensors) {
      const std::optional<uint64_t> bytes = dense_bytes(tensor.dtype, tensor.shape);
      if (!bytes || tensor.shape.size() > kMaxRank ||
          *bytes > static_cast<uint64_t>(INT64_MAX) - end)
        throw bad(fmt::format(
            "tensor {}: shape [{}], need extents >= 0, rank <= {} and fewer than 2^63 bits",
            printable(tensor.name), fmt::join(tensor.shape, ", "), kMaxRank));
      if (tensor.name == kMetadataKey)
        throw bad(fmt::format("tensor {}: the name is reserved", kMetadataKey));
      tensor.begin = end;
      end = tensor.end = end + *bytes;
      text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                          json(tensor.name).dump(), dtype_name(tensor.dtype),
                          fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
      names.push_back(tensor.name);
    }
  } catch (const json::exception&) {
    throw bad("a name or the metadata is not valid UTF-8; rename it");
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    throw bad(fmt::format("two tensors named {}; rename one", printable(*twice)));
  if (metadata.size() > kMaxMetadataEntries)
    throw bad(
        fmt::format("{} metadata entries, need at most {}", metadata.size(), kMaxMetadataEntries));
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    throw bad(
        fmt::format("a header of {} bytes, need at most {}; write fewer tensors or less metadata",
                    text.size(), kMaxHeaderBytes));
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

void write_tensors(int fd, const std::string& name, const std::vector<Tensor>& tensors,
                   const Metadata& metadata) {
  std::map<std::string_view, const void*> data;
  std::vector<TensorInfo> infos;
  for (const Tensor& tensor : tensors) {
    data[tensor.name] = tensor.data;
    infos.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  const std::string header = make_header(name, infos, metadata);
  for (const TensorInfo& info : infos)
    if (info.bytes() > 0 && data[info.name] == nullptr)
      throw TensorFileError(Kind::kArgument,
                            fmt::format("{}: tensor {} has no data", name, printable(info.name)));
  write_all(fd, name, header.data(), header.size());
  for (const TensorInfo& info : infos) write_all(fd, name, data[info.name], info.bytes());
}

void TensorFileWriter::commit(const std::vector<Tensor>& tensors, const Metadata& metadata) {
  write_tensors(file_.descriptor(), file_.name(), tensors, metadata);
  file_.commit();
}

}  // namespace fa3::tools
