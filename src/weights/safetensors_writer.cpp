// The streaming writer of safetensors files.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/checked.hpp"
#include "base/utf8.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{8} << 20;

void check_names(const std::vector<TensorToWrite>& tensors, const std::string& what) {
  std::unordered_map<std::string_view, int> seen;
  for (const TensorToWrite& tensor : tensors) {
    require<FormatError>(
        is_valid_utf8(tensor.name) && tensor.name.size() <= 1024 && tensor.name != "__metadata__", what,
        ": \"", printable(tensor.name), "\" cannot be a tensor's name");
    require<FormatError>(seen[tensor.name]++ == 0, what, ": two tensors named \"", printable(tensor.name),
                         "\"");
  }
}

std::string make_header(const std::vector<TensorToWrite>& tensors, const Metadata& metadata,
                        const std::string& what) {
  std::string text = "{";
  const auto add = [&](const std::string& key, const nlohmann::ordered_json& value) {
    if (text.size() > 1) text += ',';
    text += nlohmann::json(key).dump() + ':' + value.dump();
  };
  if (!metadata.empty()) add("__metadata__", nlohmann::ordered_json(metadata));
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    const auto elements = static_cast<uint64_t>(checked_product(tensor.shape.dims(), what));
    const uint64_t end = checked_add(offset, checked_mul(elements, dtype_size(tensor.dtype), what), what);
    add(tensor.name, {{"dtype", dtype_to_safetensors(tensor.dtype)},
                      {"shape", tensor.shape.dims()},
                      {"data_offsets", {offset, end}}});
    offset = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       const Metadata& metadata) {
  const std::string what = printable_path(path);
  check_names(tensors, what);
  for (const auto& [key, value] : metadata)
    require<FormatError>(is_valid_utf8(key) && is_valid_utf8(value), what, ": metadata \"", printable(key),
                         "\" is not valid UTF-8");
  std::sort(tensors.begin(), tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    const size_t size_a = dtype_size(a.dtype), size_b = dtype_size(b.dtype);
    return size_a != size_b ? size_a > size_b : a.name < b.name;
  });
  const std::string header = make_header(tensors, metadata, what);
  const uint64_t length = header.size();
  AtomicFile file(path);
  file.write(&length, sizeof length);
  file.write(header);
  std::vector<char> buffer;
  for (const TensorToWrite& tensor : tensors) {
    const uint64_t bytes = static_cast<uint64_t>(tensor.shape.numel()) * dtype_size(tensor.dtype);
    for (uint64_t offset = 0; offset < bytes; offset += kChunkBytes) {
      const uint64_t part = std::min(kChunkBytes, bytes - offset);
      buffer.resize(part);
      tensor.fill(offset, part, buffer.data());
      file.write(buffer.data(), part);
    }
  }
  file.commit();
}

}  // namespace rocm_sd
