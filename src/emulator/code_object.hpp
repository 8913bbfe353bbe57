// AMD code objects (.hsaco): an ELF shared object for amdgcn-amd-amdhsa, its kernels' descriptors and
// metadata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "emulator/line_table.hpp"

namespace rocm_sd::emu {

// One argument of a kernel, as the metadata says.
struct KernelArgument {
  std::string name;
  std::string kind;  // by_value, global_buffer, hidden_block_count_x, ...
  uint32_t offset = 0, size = 0;
  bool hidden() const { return kind.starts_with("hidden_"); }  // filled by the runtime
};

struct Kernel {
  std::string name;
  uint64_t entry = 0;  // offset of the first instruction in the image
  uint32_t lds_bytes = 0, scratch_bytes = 0, kernarg_bytes = 0;
  uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  uint16_t properties = 0;       // which user SGPRs are set up, and the wave size
  uint16_t kernarg_preload = 0;  // dwords that arrive in SGPRs (low 7 bits) and where they begin
  std::vector<KernelArgument> arguments;
  uint32_t max_threads = 1024;  // in a group
  uint64_t code_bytes = 0;      // from the entry; 0: not known
  // What the metadata says of registers; 0: nothing.
  uint32_t vgprs = 0, agprs = 0, sgprs = 0, vgpr_spills = 0, sgpr_spills = 0;
};

struct CodeSection {
  uint64_t begin = 0, end = 0;  // offsets in the image
};

// A code object laid out as it is loaded: the image begins at address 0.
struct CodeImage {
  std::string target;  // gfx1100, from the ELF header
  std::vector<std::byte> image;
  std::vector<CodeSection> code;
  std::map<std::string, Kernel, std::less<>> kernels;
  struct Relocation {
    uint64_t offset = 0, addend = 0;  // image[offset] (8 bytes) becomes the load address + addend
  };
  std::vector<Relocation> relocations;
  LineTable lines;  // source lines by offset in the image, where there is debug information
};

// Reads a code object; nothing in it is trusted. Throws FormatError that names `what` and the fault.
CodeImage read_code_object(std::span<const std::byte> file, const std::string& what);

}  // namespace rocm_sd::emu
