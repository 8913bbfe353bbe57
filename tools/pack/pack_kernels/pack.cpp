#include "pack.hpp"

#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>

#include "code_object.hpp"

namespace rocm_sd {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kAlignment = 256;  // of each object in the file

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) throw std::runtime_error("control byte in a name");
    out += c;
  }
  return out + '"';
}

uint64_t fnv1a(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

template <class Number>
void append(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string kernel_entry(const CodeObjectKernel& k) {
  char numbers[160];
  std::snprintf(numbers, sizeof(numbers), R"(,"params":%u,"lds":%u,"scratch":%u,"registers":%u})", k.params,
                k.lds, k.scratch, k.registers);
  return "{\"name\":" + quoted(k.name) + numbers;
}

std::string aligned(std::string bytes, char filler) {
  bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment, filler);
  return bytes;
}

}  // namespace

void write_kernel_archive(const std::filesystem::path& out, const std::string& target,
                          const std::string& compiler, const std::vector<PackedObject>& objects) {
  std::string blobs, entries;
  std::map<std::string, std::string> owner;  // kernel -> object
  for (const PackedObject& object : objects) {
    std::string kernels;
    for (const CodeObjectKernel& k : kernels_of_code_object(object.bytes, object.name)) {
      const auto [first, added] = owner.emplace(k.name, object.name);
      if (!added)
        throw std::runtime_error(k.name + ": kernel of both " + first->second + " and " + object.name);
      kernels += (kernels.empty() ? "" : ",\n    ") + kernel_entry(k);
    }
    if (kernels.empty()) continue;  // a source of another family
    blobs = aligned(std::move(blobs), '\0');
    char place[120];
    std::snprintf(place, sizeof(place), R"(,"offset":%zu,"size":%zu,"hash":"%016llx")", blobs.size(),
                  object.bytes.size(), static_cast<unsigned long long>(fnv1a(object.bytes)));
    entries += (entries.empty() ? "" : ",\n  ") + std::string("{\"name\":") + quoted(object.name) + place +
               ",\"kernels\":[\n    " + kernels + "]}";
    blobs += object.bytes;
  }
  const std::string text = "{\"target\":" + quoted(target) + ",\"compiler\":" + quoted(compiler) +
                           ",\"objects\":[\n  " + entries + "]}\n";
  // Spaces after the index: the first object starts at a round offset.
  const size_t head_bytes = 24;
  const std::string index = aligned(std::string(head_bytes, ' ') + text, ' ').substr(head_bytes);
  std::string head = "RSDKERN\n";
  append(head, kVersion);
  append(head, uint32_t{0});
  append(head, static_cast<uint64_t>(index.size()));

  std::filesystem::path temporary = out;
  temporary += ".part";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << head << index << blobs;
  file.close();
  if (!file) throw std::runtime_error(temporary.string() + ": cannot write");
  std::filesystem::rename(temporary, out);
}

}  // namespace rocm_sd
