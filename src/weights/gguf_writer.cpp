// The streaming writer of GGUF files.
#include <algorithm>

#include "base/checked.hpp"
#include "base/utf8.hpp"
#include "weights/gguf.hpp"

namespace rocm_sd {
namespace {

constexpr uint64_t kAlignment = 32;             // the format's default
constexpr uint64_t kElementsAtOnce = 1u << 20;  // divides into blocks of every type
constexpr uint32_t kStringType = 8, kU32Type = 4;
constexpr uint32_t kBlocksVersion = 2;  // "general.quantization_version": ggml's present layouts
constexpr int kMaxDims = 4;

uint64_t aligned(uint64_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<uint64_t>(text.size()));
  out += text;
}

uint64_t file_bytes(const GgufTensor& item) {
  const GgmlTypeInfo& info = ggml_type_info(item.type);
  return static_cast<uint64_t>(item.tensor.shape.numel() / info.block * info.bytes);
}

void check(const std::vector<GgufTensor>& tensors, const std::string& what) {
  std::unordered_map<std::string_view, int> seen;
  for (const GgufTensor& item : tensors) {
    const TensorToWrite& tensor = item.tensor;
    const std::string title = concat(what, ": tensor \"", printable(tensor.name), "\"");
    require<FormatError>(is_valid_utf8(tensor.name) && !tensor.name.empty() && tensor.name.size() <= 1024,
                         title, ": cannot be a tensor's name");
    require<FormatError>(seen[tensor.name]++ == 0, title, " is given twice");
    require<FormatError>(tensor.shape.rank() <= kMaxDims && tensor.shape.numel() > 0, title, ": shape ",
                         tensor.shape, ", GGUF files have one to ", kMaxDims, " dimensions above 0");
    const GgmlTypeInfo& info = ggml_type_info(item.type);
    require<InternalError>(info.plain || can_quantize(item.type), title, ": ", info.name, " is not written");
    const int64_t row = tensor.shape.rank() == 0 ? 1 : tensor.shape[tensor.shape.rank() - 1];
    require<InternalError>(row % info.block == 0, title, ": rows of ", row, " for blocks of ", info.block);
  }
}

std::string make_header(const std::vector<GgufTensor>& tensors, const Metadata& metadata) {
  std::string out = "GGUF";
  put(out, uint32_t{3});
  put(out, static_cast<uint64_t>(tensors.size()));
  const bool blocks =
      std::ranges::any_of(tensors, [](const GgufTensor& item) { return !ggml_type_info(item.type).plain; });
  put(out, static_cast<uint64_t>(metadata.size() + (blocks ? 1 : 0)));
  for (const auto& [key, value] : metadata) {
    put_text(out, key);
    put(out, kStringType);
    put_text(out, value);
  }
  if (blocks) {
    put_text(out, "general.quantization_version");
    put(out, kU32Type);
    put(out, kBlocksVersion);
  }
  uint64_t offset = 0;
  for (const GgufTensor& item : tensors) {
    const auto dims = item.tensor.shape.dims();
    put_text(out, item.tensor.name);
    put(out, static_cast<uint32_t>(dims.size()));
    for (size_t i = dims.size(); i-- > 0;) put(out, static_cast<uint64_t>(dims[i]));
    put(out, static_cast<uint32_t>(item.type));
    put(out, offset);
    offset = aligned(offset + file_bytes(item));
  }
  out.resize(aligned(out.size()), '\0');
  return out;
}

// `count` elements as the file holds them.
void convert_piece(const GgufTensor& item, const std::vector<char>& filled, int64_t count,
                   std::vector<char>& out) {
  const GgmlTypeInfo& info = ggml_type_info(item.type);
  out.resize(static_cast<size_t>(count / info.block * info.bytes));
  if (info.plain) return convert_elements(filled.data(), item.tensor.dtype, out.data(), *info.plain, count);
  std::vector<float> values(static_cast<size_t>(count));
  convert_elements(filled.data(), item.tensor.dtype, values.data(), DType::kF32, count);
  const std::string title = concat("tensor \"", printable(item.tensor.name), "\"");
  quantize_blocks(item.type, values.data(), count / info.block, out.data(), title);
}

bool kept_fine(std::string_view name) {
  for (const std::string_view part : {"token_embedding.", "position_embedding", "positional_embedding",
                                      "time_embed", "label_emb.", "add_embedding.", "text_projection"})
    if (name.find(part) != name.npos) return true;
  return false;
}

}  // namespace

GgmlType gguf_stored_type(const TensorToWrite& tensor, GgmlType wanted) {
  if (!is_float(tensor.dtype)) return ggml_type_of(tensor.dtype);
  const int rank = tensor.shape.rank();
  if (rank <= 1) return GgmlType::kF32;
  const GgmlTypeInfo& info = ggml_type_info(wanted);
  if (info.plain) return wanted;
  return tensor.shape[rank - 1] % info.block == 0 && !kept_fine(tensor.name) ? wanted : GgmlType::kF16;
}

void write_gguf(const std::filesystem::path& path, std::vector<GgufTensor> tensors,
                const Metadata& metadata) {
  const std::string what = printable_path(path);
  check(tensors, what);
  std::ranges::sort(tensors, {},
                    [](const GgufTensor& item) -> const std::string& { return item.tensor.name; });
  AtomicFile file(path);
  file.write(make_header(tensors, metadata));
  std::vector<char> filled, converted;
  for (const GgufTensor& item : tensors) {
    const auto count = static_cast<uint64_t>(item.tensor.shape.numel());
    const uint64_t size = dtype_size(item.tensor.dtype);
    for (uint64_t begin = 0; begin < count; begin += kElementsAtOnce) {
      const uint64_t part = std::min(kElementsAtOnce, count - begin);
      filled.resize(part * size);
      item.tensor.fill(begin * size, part * size, filled.data());
      convert_piece(item, filled, static_cast<int64_t>(part), converted);
      file.write(converted.data(), converted.size());
    }
    file.write(std::string(aligned(file_bytes(item)) - file_bytes(item), '\0'));
  }
  file.commit();
}

}  // namespace rocm_sd
