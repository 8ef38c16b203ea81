// SPDX-License-Identifier: BSD-3-Clause
// header.cpp — the JSON header of a safetensors file: parsed as a stream of events, so that neither
// nesting nor duplicate keys nor a million tensors build anything but the list of tensors;
// checked; written.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <utility>

#include "tensor_file/tensor_file.h"

namespace fa3::tools {
namespace {

using nlohmann::json;
using Kind = TensorFileError::Kind;

struct DTypeRow {
  const char* name;
  int bits;
};
constexpr DTypeRow kDTypes[] = {
    // in the order of DType
    {"F64", 64},        {"F32", 32},        {"F16", 16}, {"BF16", 16},   {"I32", 32},
    {"I64", 64},        {"F8_E4M3", 8},     {"I8", 8},   {"BOOL", 8},    {"F4", 4},
    {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"U8", 8},   {"F8_E5M2", 8}, {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16},    {"U32", 32},
    {"C64", 64},        {"U64", 64},
};
static_assert(std::size(kDTypes) == static_cast<size_t>(DType::kU64) + 1);

// Takes the events of the JSON parser and builds the list. Depth 1 is the header, 2 a tensor or the
// metadata; arrays of whole numbers are the only thing below.
class HeaderReader final : public json::json_sax_t {
 public:
  HeaderReader(std::string_view file, uint64_t data_bytes) : file_(file), data_bytes_(data_bytes) {}

  TensorHeader finish() {
    auto& tensors = header_.tensors;
    const auto in_file = [](const TensorInfo& a, const TensorInfo& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    };
    if (!std::is_sorted(tensors.begin(), tensors.end(), in_file))
      std::sort(tensors.begin(), tensors.end(), in_file);
    uint64_t end = 0;
    for (const TensorInfo& tensor : tensors) {
      if (tensor.begin != end)
        bad("tensor {}: data_offsets begin at {}, which {}; need {}, the end of the tensor before",
            printable(tensor.name), tensor.begin, tensor.begin < end ? "overlaps" : "leaves a hole",
            end);
      end = tensor.end;
    }
    if (end != data_bytes_)
      bad("tensors end at byte {} of the data, need {}, all of it", end, data_bytes_);

    auto& by_name = header_.by_name;
    by_name.resize(tensors.size());
    std::iota(by_name.begin(), by_name.end(), 0u);
    std::sort(by_name.begin(), by_name.end(),
              [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
    const auto twice = std::adjacent_find(
        by_name.begin(), by_name.end(),
        [&](uint32_t a, uint32_t b) { return tensors[a].name == tensors[b].name; });
    if (twice != by_name.end())
      bad("duplicate key {}, need unique names", printable(tensors[*twice].name));
    return std::move(header_);
  }

  bool start_object(size_t) override {
    if (depth_ == 2) unexpected("an object");
    if (depth_ == 1 && !in_metadata_) header_.tensors.push_back({.name = std::move(name_)});
    ++depth_;
    fields_seen_ = 0;
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) check(header_.tensors.back());
    in_metadata_ = false;
    --depth_;
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 1) {
      name_ = std::move(text);
      in_metadata_ = name_ == kMetadataKey;
      if (in_metadata_ && std::exchange(metadata_seen_, true))
        bad("duplicate key {}", kMetadataKey);
    } else if (in_metadata_) {
      name_ = std::move(text);
    } else {
      field_ = text == "dtype"          ? Field::kDType
               : text == "shape"        ? Field::kShape
               : text == "data_offsets" ? Field::kOffsets
                                        : Field::kNone;
      if (field_ == Field::kNone)
        bad("{}: field {}, need dtype, shape, data_offsets", where(), printable(text));
      const unsigned bit = 1u << static_cast<unsigned>(field_);
      if (fields_seen_ & bit) bad("{}: duplicate key {}", where(), printable(text));
      fields_seen_ |= bit;
    }
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      if (header_.metadata.size() == kMaxMetadataEntries)
        bad("{}: more than {} entries, the limit of this reader", kMetadataKey,
            kMaxMetadataEntries);
      if (!header_.metadata.try_emplace(std::move(name_), std::move(text)).second)
        bad("{}: duplicate key {}", kMetadataKey, printable(name_));
    } else if (field_ == Field::kDType) {
      const auto* row = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                     [&](const DTypeRow& known) { return text == known.name; });
      if (row == std::end(kDTypes))
        bad("{}: dtype {}, need a name of the format, e.g. F32, F16, BF16", where(),
            printable(text));
      header_.tensors.back().dtype = static_cast<DType>(row - std::begin(kDTypes));
      field_ = Field::kNone;
    } else {
      unexpected("a string");
    }
    return true;
  }
  bool start_array(size_t) override {
    if (in_array_ || (field_ != Field::kShape && field_ != Field::kOffsets)) unexpected("an array");
    in_array_ = true;
    offsets_read_ = 0;
    return true;
  }
  bool end_array() override {
    if (field_ == Field::kOffsets && offsets_read_ != 2)
      bad("{}: data_offsets of {} numbers, need [begin, end]", where(), offsets_read_);
    in_array_ = false;
    field_ = Field::kNone;
    return true;
  }
  bool number_unsigned(uint64_t number) override {
    if (!in_array_) unexpected("a number");
    TensorInfo& tensor = header_.tensors.back();
    if (field_ == Field::kOffsets) {
      if (offsets_read_ < 2) (offsets_read_ == 0 ? tensor.begin : tensor.end) = number;
      ++offsets_read_;
    } else {
      if (tensor.shape.size() == kMaxRank)
        bad("{}: rank above {}, the limit of this reader", where(), kMaxRank);
      if (number > static_cast<uint64_t>(INT64_MAX))
        bad("{}: shape[{}]={}, need at most {}", where(), tensor.shape.size(), number, INT64_MAX);
      tensor.shape.push_back(static_cast<int64_t>(number));
    }
    return true;
  }
  bool number_integer(int64_t number) override { unexpected(fmt::format("{}", number)); }
  bool number_float(double, const std::string& text) override { unexpected(printable(text)); }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool binary(json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    bad("byte {} of the file is not valid JSON in UTF-8",
        7 + position);  // position counts from 1, after 8 bytes
  }

 private:
  enum class Field { kNone, kDType, kShape, kOffsets };

  void check(const TensorInfo& tensor) {
    constexpr unsigned kAll = 1u << 1 | 1u << 2 | 1u << 3;
    if (fields_seen_ != kAll)
      bad("{}: a field is missing, need dtype, shape, data_offsets", where());
    if (tensor.begin > tensor.end || tensor.end > data_bytes_)
      bad("{}: data_offsets [{}, {}], need begin <= end <= {}, the bytes of data in the file",
          where(), tensor.begin, tensor.end, data_bytes_);
    const std::optional<uint64_t> bytes = dense_bytes(tensor.dtype, tensor.shape);
    if (!bytes)
      bad("{}: shape [{}] of {}, need whole bytes and fewer than 2^63 bits", where(),
          fmt::join(tensor.shape, ", "), dtype_name(tensor.dtype));
    if (*bytes != tensor.bytes())
      bad("{}: data_offsets span {} bytes, need {} for shape [{}] of {}", where(), tensor.bytes(),
          *bytes, fmt::join(tensor.shape, ", "), dtype_name(tensor.dtype));
  }

  std::string where() const {
    if (in_metadata_) return kMetadataKey;
    return fmt::format("tensor {}", printable(depth_ == 1 ? name_ : header_.tensors.back().name));
  }
  [[noreturn]] void unexpected(std::string_view got) const {
    const char* need = depth_ == 1                 ? "an object of tensor fields or metadata"
                       : in_metadata_              ? "a string"
                       : field_ == Field::kDType   ? "a string in dtype"
                       : field_ == Field::kShape   ? "an array of whole numbers in shape"
                       : field_ == Field::kOffsets ? "an array of two whole numbers in data_offsets"
                                                   : "dtype, shape, data_offsets";
    bad("{}: {}, need {}", where(), got, need);
  }
  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    throw TensorFileError(
        Kind::kContent,
        fmt::format(
            "{}: header: {}; the file is damaged or not safetensors: write or copy it again", file_,
            fmt::format(format, std::forward<Args>(args)...)));
  }

  std::string_view file_;
  uint64_t data_bytes_;
  TensorHeader header_;
  std::string name_;  // the key last read at depth 1, or in the metadata
  int depth_ = 0;
  Field field_ = Field::kNone;
  unsigned fields_seen_ = 0;  // bits by Field, of the current tensor
  size_t offsets_read_ = 0;
  bool in_metadata_ = false, metadata_seen_ = false, in_array_ = false;
};

}  // namespace

std::string printable(std::string_view text) {
  constexpr size_t kShown = 64;
  json safe = std::string(text.substr(0, kShown));
  if (text.size() > kShown) safe = safe.get<std::string>() + "...";
  return safe.dump(-1, ' ', true, json::error_handler_t::replace);
}

const char* dtype_name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
int dtype_bits(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bits; }
bool dtype_readable(DType dtype) { return dtype <= DType::kBool; }

std::optional<uint64_t> dense_bytes(DType dtype, const std::vector<int64_t>& shape) {
  int64_t bits = dtype_bits(dtype);
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return {};
    empty |= extent == 0;
    if (extent > 0 && __builtin_mul_overflow(bits, extent, &bits)) return {};
  }
  if (empty) return 0;
  if (bits % 8 != 0) return {};
  return static_cast<uint64_t>(bits / 8);
}

int64_t element_count(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

TensorHeader parse_header(std::string_view file, std::string_view text, uint64_t data_bytes) {
  // The parser would skip a byte-order mark and mistake a NUL for the end; the format has neither.
  const bool begins = !text.empty() && text.front() == '{';
  if (!begins || text.find('\0') != std::string_view::npos)
    throw TensorFileError(
        Kind::kContent,
        fmt::format("{}: header: {}, need a JSON object; this is not a safetensors file", file,
                    begins ? "holds a NUL byte" : "does not begin with '{'"));
  HeaderReader reader(file, data_bytes);
  json::sax_parse(text.begin(), text.end(), &reader);
  return reader.finish();
}

}  // namespace fa3::tools
