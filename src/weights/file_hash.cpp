#include "weights/file_hash.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "weights/torch_file.hpp"

namespace rocm_sd {
namespace {

constexpr uint64_t kPiece = 4 << 20;
constexpr uint64_t kMaxCacheBytes = 16 << 20;

// What tells that a file is still the one that was hashed.
std::string stamp(const std::filesystem::path& path, uint64_t size) {
  const auto changed = std::filesystem::last_write_time(path).time_since_epoch();
  return fmt::format("{} bytes at {}", size,
                     std::chrono::duration_cast<std::chrono::nanoseconds>(changed).count());
}

nlohmann::json read_cache(const std::filesystem::path& cache) {
  if (!path_exists(cache)) return nlohmann::json::object();
  nlohmann::json json = nlohmann::json::parse(read_file(cache, kMaxCacheBytes), nullptr, false);
  return json.is_object() ? json : nlohmann::json::object();
}

// The remembered hash, or "".
std::string lookup(const nlohmann::json& cache, const std::string& key, const std::string& stamp) {
  const auto found = cache.find(key);
  if (found == cache.end() || !found->is_object()) return "";
  if (found->value("stamp", nlohmann::json()) != stamp) return "";
  const auto hash = found->find("sha256");
  return hash != found->end() && hash->is_string() && hash->get_ref<const std::string&>().size() == 64
             ? hash->get<std::string>()
             : "";
}

std::string hex_of(const unsigned char (&digest)[32]) {
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

// Of bytes [begin, end) of the file, which may be shorter.
std::string sha256_from(const InputFile& file, uint64_t begin, uint64_t end = UINT64_MAX) {
  end = std::min(end, file.size());
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  require<InternalError>(context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1,
                         "SHA-256: the crypto library cannot start it");
  std::vector<char> piece(std::min(kPiece, std::max<uint64_t>(file.size(), 1)));
  for (uint64_t at = begin; at < end; at += piece.size()) {
    const uint64_t bytes = std::min<uint64_t>(piece.size(), end - at);
    file.read_at(at, piece.data(), bytes);
    EVP_DigestUpdate(context.get(), piece.data(), bytes);
  }
  unsigned char digest[32];
  EVP_DigestFinal_ex(context.get(), digest, nullptr);
  return hex_of(digest);
}

}  // namespace

std::string sha256_of_file(const std::filesystem::path& path) { return sha256_from(InputFile(path), 0); }

std::string sha256_of_text(std::string_view text) {
  unsigned char digest[32];
  const int ok = EVP_Digest(text.data(), text.size(), digest, nullptr, EVP_sha256(), nullptr);
  require<InternalError>(ok == 1, "SHA-256: the crypto library cannot compute it");
  return hex_of(digest);
}

std::string short_hash_of_file(const std::filesystem::path& path) {
  constexpr uint64_t kBegin = 0x100000, kBytes = 0x10000;
  return sha256_from(InputFile(path), kBegin, kBegin + kBytes).substr(0, 8);
}

std::string sha256_of_tensors(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string head(static_cast<size_t>(std::min<uint64_t>(file.size(), 64)), '\0');
  file.read_at(0, head.data(), head.size());
  if (is_torch_file(head)) return sha256_from(file, 0);
  unsigned char length[8];  // of the header, little-endian
  file.read_at(0, length, sizeof length);
  uint64_t header = 0;
  for (int i = 7; i >= 0; --i) header = header << 8 | length[i];
  require<FormatError>(header <= file.size() - sizeof length, printable(path.string()),
                       ": not a safetensors file");
  return sha256_from(file, sizeof length + header);
}

std::string cached_sha256(const std::filesystem::path& path, const std::filesystem::path& cache) {
  if (cache.empty()) return sha256_of_file(path);
  const std::string key = std::filesystem::absolute(path).lexically_normal().string();
  const std::string now = stamp(path, InputFile(path).size());
  try {
    if (const std::string known = lookup(read_cache(cache), key, now); !known.empty()) return known;
  } catch (const std::exception& e) {
    log().debug("hash cache: {}", e.what());
  }
  const std::string hash = sha256_of_file(path);
  try {
    std::filesystem::create_directories(cache.parent_path());
    nlohmann::json json = read_cache(cache);  // once more: hashing took a while
    json[key] = {{"stamp", now}, {"sha256", hash}};
    AtomicFile out(cache);
    out.write(json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    out.commit();
  } catch (const std::exception& e) {
    log().debug("hash cache: {}", e.what());
  }
  return hash;
}

std::filesystem::path hash_cache_file() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder)
    return std::filesystem::path(folder) / "rocm-sd" / "hashes.json";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".cache" / "rocm-sd" / "hashes.json";
  return {};
}

}  // namespace rocm_sd
