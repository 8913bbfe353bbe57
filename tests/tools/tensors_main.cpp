// Reads files of tensors and writes them as safetensors, for comparison with other readers.
//   tensors_main < LINES, each "IN<tab>OUT"; prints "ok" or "error: ..." for each.
#include <iostream>
#include <string>

#include "base/error.hpp"
#include "weights/safetensors.hpp"

namespace {

void copy(const std::string& in, const std::string& out) {
  const auto file = rocm_sd::SafetensorsFile::open(in);
  std::vector<rocm_sd::TensorToWrite> tensors;
  for (const rocm_sd::TensorEntry& entry : file->entries())
    tensors.push_back({entry.name, entry.dtype, entry.shape, [&](uint64_t offset, uint64_t bytes, void* dst) {
                         file->read(entry, offset, bytes, dst);
                       }});
  rocm_sd::write_safetensors(out, std::move(tensors), {});
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const size_t tab = line.find('\t');
    try {
      copy(line.substr(0, tab), line.substr(tab + 1));
      std::cout << "ok" << std::endl;
    } catch (const rocm_sd::Error& e) {
      std::cout << "error: " << e.what() << std::endl;
    }
  }
}
