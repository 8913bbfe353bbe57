#include "scaling/file_hash.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.hpp"
#include "scaling/request_key.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHeadBytes = uint64_t{1} << 20, kPieceBytes = 4096, kPieceStep = uint64_t{8} << 20;

// Bytes [begin, end) of the file, as many as there are.
void add_part(TextHash& hash, std::ifstream& file, uint64_t begin, uint64_t end) {
  std::vector<char> bytes(end - begin);
  file.clear();
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  hash.add({bytes.data(), static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0))});
}

void add_samples(TextHash& hash, const fs::path& path, const std::string& name) {
  std::error_code none;
  const uint64_t size = fs::file_size(path, none);
  std::ifstream file(path, std::ios::binary);
  hash.add(concat(name, " ", none ? uint64_t{0} : size, " ", static_cast<bool>(file)));
  if (none || !file) return;
  add_part(hash, file, 0, std::min(kHeadBytes, size));
  for (uint64_t at = kPieceStep; at < size; at += kPieceStep)
    add_part(hash, file, at, std::min(at + kPieceBytes, size));
  add_part(hash, file, size - std::min(kPieceBytes, size), size);
}

void add_path(TextHash& hash, const std::string& path) {
  std::error_code none;
  if (path.empty() || !fs::is_directory(path, none)) {
    if (!path.empty()) add_samples(hash, path, "file");
    return;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path, none))
    if (entry.is_regular_file(none) &&
        (entry.path().extension() == ".safetensors" || entry.path().extension() == ".json"))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) add_samples(hash, file, file.lexically_relative(path).string());
}

}  // namespace

std::string hash_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "none";
  TextHash hash;
  std::vector<char> bytes(kHeadBytes);
  while (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) || file.gcount() > 0)
    hash.add({bytes.data(), static_cast<size_t>(file.gcount())});
  return hash.digits();
}

std::string hash_of_weights(const LoadOptions& options) {
  TextHash hash;
  for (const std::string* path : {&options.model, &options.vae, &options.unet, &options.text_encoder,
                                  &options.text_encoder_2, &options.taesd}) {
    hash.add("part");
    add_path(hash, *path);
  }
  return hash.digits();
}

}  // namespace rocm_sd
