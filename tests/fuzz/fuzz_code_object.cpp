// Fuzzes AMD code objects: ELF, descriptors, notes with MessagePack, line tables; offload bundles around
// them.
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "emulator/code_object.hpp"
#include "emulator/offload_bundle.hpp"

namespace {

void read(std::span<const std::byte> file) {
  const rocm_sd::emu::CodeImage image = rocm_sd::emu::read_code_object(file, "fuzz");
  // What was accepted lies within the image.
  for (const auto& section : image.code)
    if (section.begin > section.end || section.end > image.image.size()) __builtin_trap();
  for (const auto& relocation : image.relocations)
    if (relocation.offset > image.image.size() || image.image.size() - relocation.offset < 8)
      __builtin_trap();
  for (const auto& [name, kernel] : image.kernels) {
    if (kernel.entry >= image.image.size() || kernel.code_bytes > image.image.size() - kernel.entry)
      __builtin_trap();
    for (const auto& argument : kernel.arguments)
      if (uint64_t{argument.offset} + argument.size > kernel.kernarg_bytes) __builtin_trap();
    image.lines.at(kernel.entry);
  }
  image.lines.addresses("", 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    if (rocm_sd::emu::is_offload_bundle(file)) {
      for (const auto& object : rocm_sd::emu::read_offload_bundle(file, "fuzz")) read(object.bytes);
    } else {
      read(file);
    }
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
