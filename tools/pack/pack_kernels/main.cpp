// pack_kernels: puts the code objects of one target into the archive that devices load. Needs nothing but the
// standard library, so that archives can be made where the engine's libraries are missing.
//
//   pack_kernels OUT.rsk TARGET COMPILER OBJECT...
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "pack.hpp"

namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": cannot open");
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) throw std::runtime_error(path.string() + ": cannot read");
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: pack_kernels OUT.rsk TARGET COMPILER OBJECT...\n");
    return 2;
  }
  try {
    std::vector<rocm_sd::PackedObject> objects;
    for (int i = 4; i < argc; ++i) {
      const std::filesystem::path path = argv[i];
      objects.push_back({path.filename().string(), read(path)});
    }
    rocm_sd::write_kernel_archive(argv[1], argv[2], argv[3], objects);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pack_kernels: %s\n", error.what());
    return 1;
  }
  return 0;
}
