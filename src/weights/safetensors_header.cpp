// The strict rules for a safetensors header, checked while it is parsed so that a hostile one ends early.
//   as the reference: first byte '{', only spaces after the last '}', offsets without holes or overlaps from
//   0 to the
//     end of the file, byte size = product of dimensions * element size, "__metadata__" maps strings to
//     strings;
//   stricter: no duplicate keys, no unknown fields, no NUL, integers only, at most 1 M tensors, 8 dimensions
//   of at most
//     2^40 each, names of at most 1,024 bytes without control bytes.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/checked.hpp"

#include "base/utf8.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kMaxTensors = 1'000'000;
constexpr size_t kMaxNameBytes = 1024;
constexpr uint64_t kMaxDim = uint64_t{1} << 40;

// Bits of every type that the format knows but we do not hold.
uint64_t foreign_dtype_bits(std::string_view name) {
  struct Row {
    std::string_view name;
    uint64_t bits;
  };
  constexpr Row kRows[] = {{"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E8M0", 8},
                           {"U16", 16}, {"U32", 32},    {"U64", 64},    {"C64", 64}};
  for (const Row& row : kRows)
    if (row.name == name) return row.bits;
  return 0;
}

// Receives nlohmann's parser events. Levels: 0 outside, 1 the header object, 2 one tensor or the metadata, 3
// an array.
class HeaderHandler {
 public:
  using json = nlohmann::json;
  HeaderHandler(SafetensorsHeader& header, std::string_view what) : header_(header), what_(what) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(json::number_integer_t value) {
    return unexpected(concat("the negative number ", value));
  }
  bool number_float(json::number_float_t, const json::string_t& text) {
    return unexpected(concat("the number ", printable(text, 40), ", which is no integer"));
  }
  bool binary(json::binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(json::number_unsigned_t value) {
    if (level_ != 3) return unexpected("a number");
    if (field_ == Field::kShape) {
      check(dims_.size() < Shape::kMaxRank, "more than ", Shape::kMaxRank, " dimensions");
      check(value <= kMaxDim, "dimension ", value, " is above 2^40");
      dims_.push_back(static_cast<int64_t>(value));
    } else {
      check(offsets_.size() < 2, "data_offsets has more than two numbers");
      offsets_.push_back(value);
    }
    return true;
  }

  bool string(json::string_t& value) {
    if (level_ != 2) return unexpected("a string");
    if (in_metadata_) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (field_ != Field::kDtype) return unexpected("a string");
    dtype_ = std::move(value);
    return true;
  }

  bool start_object(size_t) {
    if (level_ == 0) {
      level_ = 1;
      return true;
    }
    if (level_ != 1) return unexpected("an object");
    level_ = 2;
    in_metadata_ = name_ == "__metadata__";
    seen_ = 0;
    dims_.clear();
    offsets_.clear();
    return true;
  }
  bool end_object() {
    if (level_ == 2 && !in_metadata_) finish_tensor();
    --level_;
    in_metadata_ = false;
    return true;
  }
  bool start_array(size_t) {
    if (level_ != 2 || in_metadata_ || field_ == Field::kDtype) return unexpected("an array");
    level_ = 3;
    return true;
  }
  bool end_array() {
    --level_;
    return true;
  }

  bool key(json::string_t& key) {
    if (level_ == 1) {
      require<FormatError>(key.size() <= kMaxNameBytes, what_, ": a tensor name has ", key.size(),
                           " bytes, at most ", kMaxNameBytes, " are accepted: \"", printable(key, 60), "\"");
      for (const unsigned char c : key)
        require<FormatError>(c >= 0x20 && c != 0x7f, what_, ": control byte in the tensor name \"",
                             printable(key), "\"");
      require<FormatError>(names_.size() < kMaxTensors, what_, ": more than ", kMaxTensors, " tensors");
      require<FormatError>(names_.insert(key).second, what_, ": two entries for tensor \"", printable(key),
                           "\"");
      name_ = std::move(key);
    } else if (in_metadata_) {
      require<FormatError>(!header_.metadata.contains(key), what_, ": two metadata entries \"",
                           printable(key), "\"");
      key_ = std::move(key);
    } else {
      field_ = key == "dtype"          ? Field::kDtype
               : key == "shape"        ? Field::kShape
               : key == "data_offsets" ? Field::kOffsets
                                       : Field::kNone;
      check(field_ != Field::kNone, "unknown field \"", printable(key), "\"");
      check((seen_ & 1 << static_cast<int>(field_)) == 0, "field ", key, " stands twice");
      seen_ |= 1 << static_cast<int>(field_);
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    throw FormatError(concat(what_, ": the safetensors header is not valid JSON at byte ", position, ": ",
                             printable(error.what())));
  }

 private:
  enum class Field { kDtype, kShape, kOffsets, kNone };

  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    if (!ok) [[unlikely]]
      throw FormatError(concat(what_, ": tensor \"", printable(name_), "\": ", parts...));
  }

  bool unexpected(std::string_view found) const {
    if (level_ == 0)
      throw FormatError(concat(what_, ": the safetensors header is ", found, ", expected an object"));
    if (in_metadata_)
      throw FormatError(
          concat(what_, ": metadata \"", printable(key_), "\" is ", found, ", expected a string"));
    constexpr std::string_view kExpected[] = {"dtype: expected a string",
                                              "shape: expected an array of integers >= 0",
                                              "data_offsets: expected an array of two integers >= 0"};
    const auto expected = level_ == 1 ? "expected an object" : kExpected[static_cast<int>(field_)];
    throw FormatError(concat(what_, ": tensor \"", printable(name_), "\": ", expected, ", found ", found));
  }

  void finish_tensor() {
    check(seen_ == 7, "dtype, shape and data_offsets must all be there");
    check(offsets_.size() == 2, "data_offsets must have two numbers");
    const auto [begin, end] = std::pair(offsets_[0], offsets_[1]);
    check(begin <= end, "data_offsets [", begin, ",", end, "] end before they begin");
    const std::string title = concat(what_, ": tensor \"", printable(name_), "\"");
    const auto elements = static_cast<uint64_t>(checked_product(dims_, title));
    const std::optional<DType> dtype = dtype_from_safetensors(dtype_);
    const uint64_t bits = dtype ? 8 * dtype_size(*dtype) : foreign_dtype_bits(dtype_);
    check(bits != 0, "unknown dtype \"", printable(dtype_, 40), "\"");
    const uint64_t total_bits = checked_mul(elements, bits, title);
    check(total_bits % 8 == 0, "shape [", fmt::to_string(fmt::join(dims_, ",")), "] of ", dtype_,
          " does not end on a whole byte");
    check(total_bits / 8 == end - begin, "shape [", fmt::to_string(fmt::join(dims_, ",")), "] of ", dtype_,
          " needs ", total_bits / 8, " bytes, data_offsets give ", end - begin);
    check(dtype.has_value(), "dtype ", dtype_, " is not supported");
    header_.entries.push_back(
        {std::move(name_), *dtype, Shape(std::span<const int64_t>(dims_)), begin, end - begin});
  }

  SafetensorsHeader& header_;
  std::string_view what_;
  std::unordered_set<std::string> names_;
  int level_ = 0;
  bool in_metadata_ = false;
  std::string name_, key_, dtype_;
  Field field_ = Field::kNone;
  int seen_ = 0;
  std::vector<int64_t> dims_;
  std::vector<uint64_t> offsets_;
};

// Without gaps or overlaps, from the first byte of the data section to the last.
void check_layout(const std::vector<TensorEntry>& entries, uint64_t data_bytes, std::string_view what) {
  uint64_t position = 0;
  for (const TensorEntry& entry : entries) {
    require<FormatError>(entry.begin == position, what, ": tensor \"", printable(entry.name),
                         "\" begins at byte ", entry.begin,
                         entry.begin < position ? " and overlaps" : " after a hole behind",
                         " the data that ends at byte ", position);
    position = checked_add(position, entry.bytes, what);
  }
  require<FormatError>(position <= data_bytes, what, ": truncated: ", position - data_bytes, " of ", position,
                       " bytes of tensor data are missing");
  require<FormatError>(position == data_bytes, what, ": ", data_bytes - position,
                       " bytes after the last tensor");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes,
                                           std::string_view what) {
  require<FormatError>(!text.empty() && text.front() == '{', what,
                       ": the safetensors header must begin with '{'");
  const size_t last = text.find_last_not_of(' ');
  require<FormatError>(text[last] == '}', what, ": bytes other than spaces after the safetensors header");
  require<FormatError>(text.find('\0') == text.npos, what, ": NUL byte in the safetensors header");
  require<FormatError>(is_valid_utf8(text), what, ": the safetensors header is not valid UTF-8");
  SafetensorsHeader header;
  HeaderHandler handler(header, what);
  const bool ok = nlohmann::json::sax_parse(text.begin(), text.begin() + last + 1, &handler);
  require<FormatError>(ok, what, ": the safetensors header is not valid JSON");
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
                   });
  check_layout(header.entries, data_bytes, what);
  return header;
}

}  // namespace rocm_sd
