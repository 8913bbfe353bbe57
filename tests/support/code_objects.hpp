// Code objects made by hand, so that archives and loaders are tested without a GPU compiler: AMD ELF files
// whose kernels have descriptors and no instructions.
#pragma once

#include <elf.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "../../tools/pack/pack_kernels/code_object.hpp"
#include "../../tools/pack/pack_kernels/pack.hpp"

namespace rocm_sd::testing_support {

// name, params, lds and scratch of each kernel are taken.
inline std::string amd_code_object(const std::vector<CodeObjectKernel>& kernels) {
  constexpr uint64_t kAddress =
      0x1000;  // where the descriptors are loaded; in the file they follow the header
  std::string descriptors, symbols(sizeof(Elf64_Sym), '\0'), names(1, '\0');
  const auto append = [](std::string& to, const auto& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const CodeObjectKernel& k : kernels) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<Elf64_Word>(names.size());
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    symbol.st_shndx = 1;
    symbol.st_value = kAddress + descriptors.size();
    symbol.st_size = 64;
    append(symbols, symbol);
    names += k.name + ".kd" + '\0';
    std::string descriptor;
    for (const uint32_t word : {k.lds, k.scratch, k.params}) append(descriptor, word);
    descriptors += descriptor + std::string(64 - descriptor.size(), '\0');
  }
  const std::string section_names("\0.rodata\0.symtab\0.strtab\0.shstrtab\0", 35);
  std::string file(sizeof(Elf64_Ehdr), '\0');
  std::vector<Elf64_Shdr> sections(1);
  const auto add = [&](uint32_t name, uint32_t type, const std::string& content) {
    Elf64_Shdr s{};
    s.sh_name = name;
    s.sh_type = type;
    s.sh_offset = file.size();
    s.sh_size = content.size();
    file += content;
    sections.push_back(s);
  };
  add(1, SHT_PROGBITS, descriptors);
  sections.back().sh_addr = kAddress;
  sections.back().sh_flags = SHF_ALLOC;
  add(9, SHT_SYMTAB, symbols);
  sections.back().sh_link = 3;
  sections.back().sh_entsize = sizeof(Elf64_Sym);
  add(17, SHT_STRTAB, names);
  add(25, SHT_STRTAB, section_names);

  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = 224;  // EM_AMDGPU
  header.e_shoff = file.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = 4;
  std::memcpy(file.data(), &header, sizeof(header));
  for (const Elf64_Shdr& s : sections) append(file, s);
  return file;
}

// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "rocm_sd_test_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace rocm_sd::testing_support
