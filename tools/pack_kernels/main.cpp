// pack_kernels: puts the code objects of one target into the archive that devices load (format:
// src/runtime/kernel_archive.hpp). Needs nothing but the standard library, so that archives can be made where
// the engine's libraries are missing.
//
//   pack_kernels OUT.rsk TARGET COMPILER OBJECT...
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "code_object.hpp"

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

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof()) throw std::runtime_error(path.string() + ": cannot read");
  return bytes;
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

int pack(int count, char** args) {
  const std::filesystem::path out = args[0];
  std::string blobs, objects;
  std::map<std::string, std::string> owner;  // kernel -> object
  for (int i = 3; i < count; ++i) {
    const std::filesystem::path path = args[i];
    const std::string bytes = read(path), name = path.filename().string();
    blobs.resize((blobs.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
    std::string kernels;
    for (const auto& k : rocm_sd::kernels_of_code_object(bytes, path.string())) {
      const auto [first, added] = owner.emplace(k.name, name);
      if (!added) throw std::runtime_error(k.name + ": kernel of both " + first->second + " and " + name);
      char numbers[160];
      std::snprintf(numbers, sizeof(numbers), R"(,"params":%u,"lds":%u,"scratch":%u,"registers":%u})",
                    k.params, k.lds, k.scratch, k.registers);
      kernels += (kernels.empty() ? "" : ",\n    ") + std::string("{\"name\":") + quoted(k.name) + numbers;
    }
    if (kernels.empty()) continue;  // a source of another family
    char place[120];
    std::snprintf(place, sizeof(place), R"(,"offset":%zu,"size":%zu,"hash":"%016llx")", blobs.size(),
                  bytes.size(), static_cast<unsigned long long>(fnv1a(bytes)));
    objects += (objects.empty() ? "" : ",\n  ") + std::string("{\"name\":") + quoted(name) + place +
               ",\"kernels\":[\n    " + kernels + "]}";
    blobs += bytes;
  }
  std::string index = "{\"target\":" + quoted(args[1]) + ",\"compiler\":" + quoted(args[2]) +
                      ",\"objects\":[\n  " + objects + "]}\n";
  std::string head = "RSDKERN\n";
  index.resize(
      (head.size() + 16 + index.size() + kAlignment - 1) / kAlignment * kAlignment - head.size() - 16, ' ');
  append(head, kVersion);
  append(head, uint32_t{0});
  append(head, static_cast<uint64_t>(index.size()));

  // Renamed into place: a program that reads the old archive keeps it whole.
  std::filesystem::path temporary = out;
  temporary += ".part";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << head << index << blobs;
  file.close();
  if (!file) throw std::runtime_error(temporary.string() + ": cannot write");
  std::filesystem::rename(temporary, out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: pack_kernels OUT.rsk TARGET COMPILER OBJECT...\n");
    return 2;
  }
  try {
    return pack(argc - 1, argv + 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pack_kernels: %s\n", error.what());
    return 1;
  }
}
