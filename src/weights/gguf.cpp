// The strict reader of GGUF files. Beyond ggml's own checks: at most 100 MB before the tensors, 1,000,000
// tensors, 100,000 entries of metadata, strings of 64 MiB, arrays of 16 Mi numbers or strings, an alignment
// of at most 1 MiB, names of at most 1,024 bytes without control bytes, and nothing after the last tensor but
// its padding.
#include "weights/gguf.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "base/checked.hpp"
#include "base/utf8.hpp"

namespace rocm_sd {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kMaxTensors = 1'000'000;
constexpr uint64_t kMaxEntries = 100'000;
constexpr uint64_t kMaxKeyBytes = 65'535;
constexpr uint64_t kMaxStringBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxKeptBytes = uint64_t{1}
                                   << 20;  // of a string that is kept; longer ones are stepped over
constexpr uint64_t kMaxArray = uint64_t{16} << 20;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr size_t kMaxNameBytes = 1024;
constexpr uint32_t kMaxDims = 4;  // ggml's
constexpr uint64_t kMaxDim = uint64_t{1} << 40;
constexpr std::string_view kShapeKey = "comfy.gguf.orig_shape.";

enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// Bytes of a number; 0 for strings and arrays; nothing for no type of the format.
std::optional<uint64_t> value_bytes(uint32_t type) {
  switch (static_cast<ValueType>(type)) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool: return 1;
    case ValueType::kU16:
    case ValueType::kI16: return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32: return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64: return 8;
    case ValueType::kString:
    case ValueType::kArray: return 0;
  }
  return std::nullopt;
}

// Reads forward through the part before the tensors, by windows.
class Cursor {
 public:
  Cursor(const InputFile& file, std::string_view what)
      : file_(file), what_(what), end_(std::min(file.size(), kMaxHeaderBytes)) {}

  uint64_t position() const { return position_; }
  void skip(uint64_t bytes, std::string_view thing) {
    need(bytes, thing);
    position_ += bytes;
  }
  void take(void* dst, uint64_t bytes, std::string_view thing) {
    need(bytes, thing);
    if (position_ < window_begin_ || position_ + bytes > window_begin_ + window_.size()) {
      window_begin_ = position_;
      window_.resize(std::min(std::max<uint64_t>(bytes, 65'536), end_ - position_));
      file_.read_at(position_, window_.data(), window_.size());
    }
    std::memcpy(dst, window_.data() + (position_ - window_begin_), bytes);
    position_ += bytes;
  }
  template <class T>
  T number(std::string_view thing) {
    T value;
    take(&value, sizeof value, thing);
    return value;
  }
  // A string that may have at most `most` bytes; beyond `kept` it is stepped over and comes back empty.
  std::string string(uint64_t most, uint64_t kept, std::string_view thing) {
    const auto bytes = number<uint64_t>(thing);
    require<FormatError>(bytes <= most, what_, ": ", thing, " has ", bytes, " bytes, at most ", most,
                         " are accepted");
    need(bytes, thing);
    if (bytes > kept) return skip(bytes, thing), std::string();
    std::string text(bytes, '\0');
    if (bytes > 0) take(text.data(), bytes, thing);
    return text;
  }

 private:
  void need(uint64_t bytes, std::string_view thing) const {
    if (bytes <= end_ - position_) return;
    require<FormatError>(file_.size() > kMaxHeaderBytes, what_, ": truncated GGUF file: ", thing,
                         " ends at byte ", checked_add(position_, bytes, what_), ", the file has ",
                         file_.size());
    throw FormatError(concat(what_, ": the part before the tensors is above the limit of ", kMaxHeaderBytes,
                             " bytes: no GGUF file of a model, or damaged"));
  }

  const InputFile& file_;
  std::string_view what_;
  uint64_t end_, position_ = 0, window_begin_ = 0;
  std::string window_;
};

class Reader {
 public:
  Reader(const InputFile& file, std::string_view what) : file_(file), what_(what), in_(file, what) {}

  SafetensorsHeader run() {
    in_.skip(4, "the magic number");
    const auto version = in_.number<uint32_t>("the version");
    require<FormatError>((version & 0xffff) != 0 || version == 0, what_,
                         ": a GGUF file of a big-endian machine, which is not read");
    require<FormatError>(version == 2 || version == 3, what_, ": GGUF version ", version,
                         ", expected 2 or 3");
    const auto tensors = in_.number<uint64_t>("the number of tensors");
    const auto entries = in_.number<uint64_t>("the number of metadata entries");
    require<FormatError>(tensors <= kMaxTensors, what_, ": ", tensors, " tensors, at most ", kMaxTensors,
                         " are accepted");
    require<FormatError>(entries <= kMaxEntries, what_, ": ", entries, " metadata entries, at most ",
                         kMaxEntries, " are accepted");
    for (uint64_t i = 0; i < entries; ++i) read_entry();
    for (uint64_t i = 0; i < tensors; ++i) read_tensor();
    for (const auto& [name, shape] : shapes_)
      require<FormatError>(names_.contains(name), what_, ": ", kShapeKey, printable(name),
                           ": no such tensor");
    place_tensors();
    return std::move(header_);
  }

 private:
  void read_entry() {
    const std::string key = in_.string(kMaxKeyBytes, kMaxKeyBytes, "a key of the metadata");
    const std::string title = concat("metadata \"", printable(key), "\"");
    require<FormatError>(!key.empty(), what_, ": a key of the metadata is empty");
    require<FormatError>(is_valid_utf8(key), what_, ": ", title, ": not valid UTF-8");
    require<FormatError>(keys_.insert(key).second, what_, ": ", title, " stands twice");
    const auto type = in_.number<uint32_t>(title);
    const std::optional<uint64_t> bytes = value_bytes(type);
    require<FormatError>(bytes.has_value(), what_, ": ", title, ": unknown type ", type);
    if (key == "general.alignment") {
      require<FormatError>(static_cast<ValueType>(type) == ValueType::kU32, what_, ": ", title,
                           ": expected an unsigned number of 32 bits, found type ", type);
      alignment_ = in_.number<uint32_t>(title);
      require<FormatError>(
          alignment_ != 0 && (alignment_ & (alignment_ - 1)) == 0 && alignment_ <= kMaxAlignment, what_, ": ",
          title, ": ", alignment_, ", expected a power of two up to ", kMaxAlignment);
    } else if (static_cast<ValueType>(type) == ValueType::kString) {
      std::string text = in_.string(kMaxStringBytes, kMaxKeptBytes, title);
      if (is_valid_utf8(text)) header_.metadata[key] = std::move(text);
    } else if (static_cast<ValueType>(type) == ValueType::kArray) {
      read_array(key, title);
    } else {
      in_.skip(*bytes, title);
    }
  }

  void read_array(const std::string& key, const std::string& title) {
    const auto type = in_.number<uint32_t>(title);
    const auto count = in_.number<uint64_t>(title);
    const std::optional<uint64_t> bytes = value_bytes(type);
    require<FormatError>(bytes.has_value() && static_cast<ValueType>(type) != ValueType::kArray, what_, ": ",
                         title, ": an array of type ", type, ", expected numbers or strings");
    require<FormatError>(count <= kMaxArray, what_, ": ", title, ": ", count, " items, at most ", kMaxArray,
                         " are accepted");
    if (key.starts_with(kShapeKey)) {
      require<FormatError>(
          static_cast<ValueType>(type) == ValueType::kI32 && count >= 1 && count <= Shape::kMaxRank, what_,
          ": ", title, ": expected 1 to ", Shape::kMaxRank, " integers of 32 bits");
      std::vector<int64_t> dims;
      for (uint64_t i = 0; i < count; ++i) dims.push_back(in_.number<int32_t>(title));
      for (const int64_t d : dims)
        require<FormatError>(d >= 1, what_, ": ", title, ": dimension ", d, ", expected at least 1");
      shapes_[key.substr(kShapeKey.size())] = std::move(dims);
    } else if (static_cast<ValueType>(type) == ValueType::kString) {
      for (uint64_t i = 0; i < count; ++i) in_.string(kMaxStringBytes, 0, title);
    } else {
      in_.skip(count * *bytes, title);
    }
  }

  void read_tensor() {
    const std::string name = in_.string(kMaxNameBytes, kMaxNameBytes, "a tensor's name");
    const std::string title = concat(what_, ": tensor \"", printable(name), "\"");
    require<FormatError>(
        !name.empty() && is_valid_utf8(name) &&
            std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
        title, ": the name is empty, not UTF-8 or has a control byte");
    require<FormatError>(names_.insert(name).second, title, " stands twice");
    const auto rank = in_.number<uint32_t>("a tensor's rank");
    require<FormatError>(rank <= kMaxDims, title, ": ", rank, " dimensions, at most ", kMaxDims,
                         " are accepted");
    std::vector<int64_t> dims(rank);  // the file has the innermost first
    for (uint32_t i = 0; i < rank; ++i) {
      const auto dim = in_.number<uint64_t>("a tensor's shape");
      require<FormatError>(dim >= 1 && dim <= kMaxDim, title, ": dimension ", dim, ", expected 1 to 2^40");
      dims[rank - 1 - i] = static_cast<int64_t>(dim);
    }
    const auto number = in_.number<uint32_t>("a tensor's type");
    const GgmlTypeInfo* type = find_ggml_type(number);
    require<FormatError>(type != nullptr, title, ": ggml type ", number,
                         ", which is not read; expected one of ", ggml_type_names(false));
    const int64_t count = checked_product(dims, title);
    const int64_t row = rank == 0 ? 1 : dims.back();
    require<FormatError>(row % type->block == 0, title, ": rows of ", row, " do not divide into ", type->name,
                         "'s blocks of ", type->block);
    if (const auto shape = shapes_.find(name); shape != shapes_.end()) {
      require<FormatError>(checked_product(shape->second, title) == count, title, ": has ", count,
                           " elements, its ", kShapeKey, " says ",
                           Shape(std::span<const int64_t>(shape->second)));
      dims = shape->second;
    }
    TensorEntry entry{.name = name, .shape = Shape(std::span<const int64_t>(dims))};
    entry.dtype = type->plain.value_or(DType::kF32);
    entry.blocks = type->plain ? nullptr : type;
    entry.begin = in_.number<uint64_t>("a tensor's offset");
    entry.bytes = checked_mul(static_cast<uint64_t>(count), dtype_size(entry.dtype), title);
    header_.entries.push_back(std::move(entry));
  }

  // Offsets count from the first aligned byte after the tensors' list; each tensor begins at the first
  // aligned byte after the one before it, as ggml demands.
  void place_tensors() {
    const auto aligned = [&](uint64_t at) {
      return checked_add(at, alignment_ - 1, what_) / alignment_ * alignment_;
    };
    const uint64_t data = aligned(in_.position());
    uint64_t next = 0, end = in_.position();
    for (TensorEntry& entry : header_.entries) {
      const std::string title = concat(what_, ": tensor \"", printable(entry.name), "\"");
      require<FormatError>(entry.begin == next, title, ": offset ", entry.begin, ", expected ", next,
                           ", the first aligned byte after the tensor before it");
      entry.begin = checked_add(data, next, title);
      end = checked_add(entry.begin, entry.stored_bytes(), title);
      require<FormatError>(end <= file_.size(), title, ": truncated: ends at byte ", end, ", the file has ",
                           file_.size());
      next = aligned(checked_add(next, entry.stored_bytes(), title));
    }
    require<FormatError>(file_.size() <= aligned(end), what_, ": ",
                         file_.size() - std::min(file_.size(), end), " bytes after the last tensor");
  }

  const InputFile& file_;
  std::string_view what_;
  Cursor in_;
  SafetensorsHeader header_;
  uint64_t alignment_ = 32;
  std::unordered_set<std::string> keys_, names_;
  std::unordered_map<std::string, std::vector<int64_t>> shapes_;  // ComfyUI-GGUF's
};

}  // namespace

bool is_gguf(std::string_view head) { return head.starts_with("GGUF"); }

SafetensorsHeader read_gguf(const InputFile& file, std::string_view what) { return Reader(file, what).run(); }

}  // namespace rocm_sd
