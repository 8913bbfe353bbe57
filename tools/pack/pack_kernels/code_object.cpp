// Formats: System V ABI (ELF64); LLVM's AMDGPU usage guide, "Kernel Descriptor"; the .nv.info sections of
// cubins hold records {u8 format, u8 attribute, u16 value or size}, then that many bytes for format 4.
#include "code_object.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace rocm_sd {
namespace {

constexpr uint16_t kMachineAmdGpu = 224, kMachineCuda = 190;
constexpr size_t kDescriptorBytes = 64;

class Elf {
 public:
  Elf(std::string_view bytes, const std::string& what) : bytes_(bytes), what_(what) {
    header_ = at<Elf64_Ehdr>(0);
    check(std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 && header_.e_ident[EI_CLASS] == ELFCLASS64 &&
              header_.e_ident[EI_DATA] == ELFDATA2LSB,
          "is not a little-endian ELF64 file");
    check(header_.e_shentsize == sizeof(Elf64_Shdr) && header_.e_shnum > 0, "has no section headers");
    for (uint64_t i = 0; i < header_.e_shnum; ++i)
      sections_.push_back(at<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr)));
    check(header_.e_shstrndx < sections_.size(), "names a section that it has not");
  }

  uint16_t machine() const { return header_.e_machine; }
  const std::vector<Elf64_Shdr>& sections() const { return sections_; }
  std::string name(const Elf64_Shdr& s) const { return text(sections_[header_.e_shstrndx], s.sh_name); }
  std::string_view content(const Elf64_Shdr& s) const {
    if (s.sh_type == SHT_NOBITS) return {};
    check(s.sh_offset <= bytes_.size() && s.sh_size <= bytes_.size() - s.sh_offset,
          "has a section outside the file");
    return bytes_.substr(s.sh_offset, s.sh_size);
  }

  struct Symbol {
    std::string name;
    Elf64_Sym entry;
  };
  // In the symbol table's order: records refer to symbols by their index.
  std::vector<Symbol> symbols() const {
    std::vector<Symbol> found;
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type != SHT_SYMTAB) continue;
      check(s.sh_link < sections_.size(), "has symbols without names");
      const std::string_view table = content(s);
      for (size_t i = 0; i + sizeof(Elf64_Sym) <= table.size(); i += sizeof(Elf64_Sym)) {
        Elf64_Sym entry;
        std::memcpy(&entry, table.data() + i, sizeof(entry));
        found.push_back({text(sections_[s.sh_link], entry.st_name), entry});
      }
      break;
    }
    return found;
  }

  // `size` bytes at an address of the loaded image.
  std::string_view loaded(uint64_t address, uint64_t size) const {
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type == SHT_NOBITS || !(s.sh_flags & SHF_ALLOC)) continue;
      if (address < s.sh_addr || address - s.sh_addr > s.sh_size || size > s.sh_size - (address - s.sh_addr))
        continue;
      return content(s).substr(address - s.sh_addr, size);
    }
    check(false, "has a kernel descriptor outside its sections");
    return {};
  }

  void check(bool ok, const char* problem) const {
    if (!ok) throw std::runtime_error(what_ + ": " + problem);
  }

 private:
  template <class T>
  T at(uint64_t offset) const {
    check(offset <= bytes_.size() && sizeof(T) <= bytes_.size() - offset, "is cut short");
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  std::string text(const Elf64_Shdr& table, uint64_t offset) const {
    const std::string_view all = content(table);
    check(offset < all.size(), "has a name outside its string table");
    const size_t end = all.find('\0', offset);
    check(end != std::string_view::npos, "has a name without an end");
    return std::string(all.substr(offset, end - offset));
  }

  std::string_view bytes_;
  const std::string& what_;
  Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
};

uint32_t word(std::string_view bytes, size_t offset) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

std::vector<CodeObjectKernel> amd_kernels(const Elf& elf) {
  std::vector<CodeObjectKernel> kernels;
  for (const auto& [name, entry] : elf.symbols()) {
    if (!name.ends_with(".kd") || ELF64_ST_TYPE(entry.st_info) != STT_OBJECT) continue;
    const std::string_view descriptor = elf.loaded(entry.st_value, kDescriptorBytes);
    kernels.push_back({.name = name.substr(0, name.size() - 3),
                       .params = word(descriptor, 8),
                       .lds = word(descriptor, 0),
                       .scratch = word(descriptor, 4)});
  }
  return kernels;
}

struct NvRecord {
  uint8_t attribute;
  uint16_t value;          // formats 1 to 3
  std::string_view bytes;  // format 4
};

std::vector<NvRecord> nv_records(const Elf& elf, std::string_view info) {
  std::vector<NvRecord> records;
  while (info.size() >= 4) {
    uint16_t value;
    std::memcpy(&value, info.data() + 2, sizeof(value));
    NvRecord record{static_cast<uint8_t>(info[1]), value, {}};
    const bool sized = info[0] == 4;
    info.remove_prefix(4);
    if (sized) {
      elf.check(value <= info.size(), "has an .nv.info record beyond its section");
      record.bytes = info.substr(0, value);
      info.remove_prefix(value);
    }
    records.push_back(record);
  }
  return records;
}

std::vector<CodeObjectKernel> nvidia_kernels(const Elf& elf) {
  constexpr uint8_t kParamInfo = 0x17, kParamBytes = 0x19, kRegisters = 0x2f, kFrameBytes = 0x11;
  const std::string prefix = ".nv.info.";
  std::vector<CodeObjectKernel> kernels;
  for (const Elf64_Shdr& s : elf.sections()) {
    const std::string section = elf.name(s);
    if (!section.starts_with(prefix)) continue;
    // What is counted begins where the driver's part of the constants ends; the one argument, for its
    // alignment, perhaps later: at the offset in its record (u32 index, u16 ordinal, u16 offset, u32 flags).
    uint16_t before = 0;
    const std::vector<NvRecord> records = nv_records(elf, elf.content(s));
    for (const NvRecord& record : records)
      if (record.attribute == kParamInfo && record.bytes.size() >= 8)
        std::memcpy(&before, record.bytes.data() + 6, sizeof(before));
    for (const NvRecord& record : records)
      if (record.attribute == kParamBytes) {  // device functions that were not inlined have none
        elf.check(before <= record.value, "has an argument beyond its parameters");
        kernels.push_back({.name = section.substr(prefix.size()), .params = uint32_t{record.value} - before});
      }
  }
  const auto symbols = elf.symbols();
  const auto find = [&](std::string_view name) -> CodeObjectKernel* {
    for (CodeObjectKernel& k : kernels)
      if (k.name == name) return &k;
    return nullptr;
  };
  for (const Elf64_Shdr& s : elf.sections()) {
    const std::string section = elf.name(s);
    if (section.starts_with(".nv.shared."))
      if (CodeObjectKernel* kernel = find(std::string_view(section).substr(11)))
        kernel->lds = static_cast<uint32_t>(s.sh_size);
    if (section != ".nv.info") continue;
    for (const NvRecord& record : nv_records(elf, elf.content(s))) {
      if ((record.attribute != kRegisters && record.attribute != kFrameBytes) || record.bytes.size() < 8)
        continue;
      const uint32_t index = word(record.bytes, 0);
      elf.check(index < symbols.size(), "has an .nv.info record of a symbol that it has not");
      CodeObjectKernel* kernel = find(symbols[index].name);
      if (kernel)
        (record.attribute == kRegisters ? kernel->registers : kernel->scratch) = word(record.bytes, 4);
    }
  }
  return kernels;
}

}  // namespace

std::vector<CodeObjectKernel> kernels_of_code_object(std::string_view bytes, const std::string& what) {
  const Elf elf(bytes, what);
  elf.check(elf.machine() == kMachineAmdGpu || elf.machine() == kMachineCuda, "is not a GPU's code object");
  auto kernels = elf.machine() == kMachineAmdGpu ? amd_kernels(elf) : nvidia_kernels(elf);
  std::sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return kernels;
}

}  // namespace rocm_sd
