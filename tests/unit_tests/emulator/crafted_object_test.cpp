// Code objects made by hand, each with one thing wrong: every one is an error that says what, never a crash.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "emulator/gpu.hpp"

namespace rocm_sd::emu {
namespace {

// A kernel "k" of gfx1100 that ends at once. Where things stand in the file, and in the image, which is the
// same:
constexpr uint64_t kDescriptor = 0x200, kCode = 0x300, kNotes = 0x400, kSymbols = 0x600, kNames = 0x700,
                   kRelocations = 0x780, kImage = 0x800, kSections = 0x800;

struct Crafted {
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Sym> symbols;
  std::vector<Elf64_Rela> relocations;
  std::string names, note_name = std::string("AMDGPU\0", 7);
  uint32_t note_name_size = 7, note_size = 0;  // note_size 0: that of the metadata
  std::vector<uint8_t> metadata;
  uint32_t lds = 0, scratch = 0, kernarg = 16;
  uint64_t entry = kCode - kDescriptor;
  uint32_t rsrc1 = 0xf << 16;                          // keeps denormals, rounds to nearest even
  std::vector<uint32_t> code{0xbfb00000, 0xbfb00000};  // s_endpgm

  Crafted() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_OSABI] = 64;
    header.e_machine = 224;
    header.e_flags = 0x41;
    header.e_phoff = sizeof(Elf64_Ehdr);
    header.e_shoff = kSections;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_shentsize = sizeof(Elf64_Shdr);
    segments = {{PT_LOAD, PF_R | PF_X, 0, 0, 0, kImage, kImage, 4096},
                {PT_NOTE, PF_R, kNotes, kNotes, kNotes, 0, 0, 4}};
    sections.resize(4);
    sections[1].sh_type = SHT_DYNSYM;
    sections[1].sh_offset = kSymbols;
    sections[1].sh_link = 2;
    sections[2].sh_type = SHT_STRTAB;
    sections[2].sh_offset = kNames;
    sections[3].sh_type = SHT_RELA;
    sections[3].sh_offset = kRelocations;
    names = std::string("\0k.kd\0k\0", 8);
    symbols = {{}, {1, 17, 3, 1, kDescriptor, 64}, {6, 18, 3, 1, kCode, 8}};
    relocations = {{kImage - 8, 13, 0x123}};
    set_metadata(8);
  }
  void set_metadata(int offset) {
    metadata = nlohmann::json::to_msgpack(
        {{"amdhsa.kernels",
          {{{".name", "k"},
            {".kernarg_segment_size", 16u},
            {".args",
             {{{".offset", static_cast<unsigned>(offset)}, {".size", 8u}, {".value_kind", "by_value"}}}}}}}});
  }
  std::vector<std::byte> bytes() {
    header.e_phnum = header.e_phnum ? header.e_phnum : static_cast<uint16_t>(segments.size());
    header.e_shnum = header.e_shnum ? header.e_shnum : static_cast<uint16_t>(sections.size());
    const uint32_t note = note_size ? note_size : static_cast<uint32_t>(metadata.size());
    const auto set = [](uint64_t& field, uint64_t value) { field = field ? field : value; };
    if (segments.size() > 1) set(segments[1].p_filesz, 12 + 8 + (metadata.size() + 3) / 4 * 4);
    set(sections[1].sh_size, symbols.size() * sizeof(Elf64_Sym));
    set(sections[2].sh_size, names.size());
    set(sections[3].sh_size, relocations.size() * sizeof(Elf64_Rela));
    std::vector<std::byte> out(kSections + sections.size() * sizeof(Elf64_Shdr));
    const auto put = [&](uint64_t at, const void* from, size_t size) {
      std::memcpy(out.data() + at, from, size);
    };
    put(0, &header, sizeof(header));
    put(sizeof(header), segments.data(), segments.size() * sizeof(Elf64_Phdr));
    const uint32_t start[] = {lds, scratch, kernarg, 0}, wave32 = 1 << 10;
    put(kDescriptor, start, sizeof(start));
    put(kDescriptor + 16, &entry, 8);
    put(kDescriptor + 48, &rsrc1, 4);
    put(kDescriptor + 56, &wave32, 4);
    put(kCode, code.data(), code.size() * 4);
    const uint32_t note_head[] = {note_name_size, note, 32};
    put(kNotes, note_head, sizeof(note_head));
    put(kNotes + 12, note_name.data(), 7);
    put(kNotes + 20, metadata.data(), metadata.size());
    put(kSymbols, symbols.data(), symbols.size() * sizeof(Elf64_Sym));
    put(kNames, names.data(), names.size());
    put(kRelocations, relocations.data(), relocations.size() * sizeof(Elf64_Rela));
    put(kSections, sections.data(), sections.size() * sizeof(Elf64_Shdr));
    return out;
  }
};

std::string refused(std::span<const std::byte> file) {
  try {
    read_code_object(file, "crafted");
  } catch (const FormatError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CraftedCodeObjects, TheSoundOneRuns) {
  Gpu gpu("gfx1100");
  const CodeObject code = gpu.load(Crafted().bytes(), "crafted");
  EXPECT_EQ(code.kernel("k").arguments.at(0).offset, 8u);
  EXPECT_EQ(code.kernel("k").code_bytes, 8u);
  const uint64_t arguments[2] = {};
  EXPECT_EQ(gpu.launch(code, "k", {{2, 1, 1}, {64, 1, 1}}, std::as_bytes(std::span(arguments))).instructions,
            4u);
}

// What a launch of the object says, "" where it runs.
std::string launch_refused(Crafted crafted) {
  Gpu gpu("gfx1100");
  const CodeObject code = gpu.load(crafted.bytes(), "crafted");
  const uint64_t arguments[2] = {};
  try {
    gpu.launch(code, "k", {{1, 1, 1}, {32, 1, 1}}, std::as_bytes(std::span(arguments)));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CraftedCodeObjects, OtherRoundingIsRefusedByName) {
  for (const uint32_t mode : {1u, 2u, 3u})
    for (const int at : {12, 14}) {  // of 32-bit floats, of the others
      Crafted crafted;
      crafted.rsrc1 |= mode << at;
      EXPECT_EQ(launch_refused(crafted), "kernel k: not emulated: rounding other than to nearest even");
    }
  Crafted flushing;
  flushing.rsrc1 = 0;
  EXPECT_EQ(launch_refused(flushing), "");
}

TEST(CraftedCodeObjects, OtherRoundingIsRefusedWhereAnInstructionAsksForIt) {
  constexpr uint32_t kEnd = 0xbfb00000, kRoundMode = 0xbf910000,
                     kSetMode = 0xb9801801;  // the mode's bits 0 to 3
  const struct {
    std::vector<uint32_t> code;
    const char* text;  // of the refusal; null where none is due
  } kCases[] = {{{kRoundMode | 1, kEnd}, "`s_round_mode 0x1`"},
                {{kRoundMode | 8, kEnd}, "`s_round_mode 0x8`"},
                {{kRoundMode, kEnd}, nullptr},
                {{kSetMode, 2, kEnd}, "`s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 2`"},
                {{kSetMode, 0, kEnd}, nullptr}};
  for (const auto& c : kCases) {
    Crafted crafted;
    crafted.code = c.code;
    crafted.symbols[2].st_size = c.code.size() * 4;
    const std::string said = launch_refused(crafted);
    if (c.text == nullptr) {
      EXPECT_EQ(said, "");
      continue;
    }
    EXPECT_NE(said.find("kernel k"), std::string::npos) << said;
    EXPECT_NE(said.find(c.text), std::string::npos) << said;
    EXPECT_NE(said.find("not implemented: rounding other than to nearest even"), std::string::npos) << said;
  }
}

TEST(CraftedCodeObjects, TargetsThatAreNotEmulatedAreRefusedByName) {
  Crafted crafted;
  crafted.header.e_flags = 0x4f;
  const auto file = crafted.bytes();
  EXPECT_EQ(read_code_object(file, "crafted").target, "gfx950");
  const auto message = [](auto&& act) -> std::string {
    try {
      act();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string made = message([&] { Gpu("gfx942").load(file, "crafted"); });
  EXPECT_NE(made.find("crafted: made for gfx950"), std::string::npos) << made;
  const std::string device = message([] { Gpu("gfx950"); });
  EXPECT_NE(device.find("gfx950"), std::string::npos) << device;
}

TEST(CraftedCodeObjects, EveryTruncationIsRefused) {
  const auto file = Crafted().bytes();
  ASSERT_EQ(refused(file), "accepted");
  for (size_t size = 0; size < file.size(); ++size)
    ASSERT_NE(refused(std::span(file).first(size)).find("crafted: "), std::string::npos) << size;
}

struct Case {
  const char* message;
  std::function<void(Crafted&)> change;
};

TEST(CraftedCodeObjects, EachFaultIsNamed) {
  const uint64_t far = uint64_t{1} << 40, wraps = ~uint64_t{0} - 7;
  const Case cases[] = {
      {"not a 64-bit little-endian ELF", [](Crafted& c) { c.header.e_ident[1] = 'e'; }},
      {"not a 64-bit little-endian ELF", [](Crafted& c) { c.header.e_ident[EI_CLASS] = ELFCLASS32; }},
      {"not a 64-bit little-endian ELF", [](Crafted& c) { c.header.e_ident[EI_DATA] = ELFDATA2MSB; }},
      {"machine is 62", [](Crafted& c) { c.header.e_machine = EM_X86_64; }},
      {"expected an AMD GPU code object", [](Crafted& c) { c.header.e_ident[EI_OSABI] = 0; }},
      {"machine 255 is not a target", [](Crafted& c) { c.header.e_flags = 0xff; }},
      {"headers of an unknown size", [](Crafted& c) { c.header.e_phentsize = 8; }},
      {"headers of an unknown size", [](Crafted& c) { c.header.e_shentsize = 0; }},
      // counts and places of the headers
      {"program header at", [=](Crafted& c) { c.header.e_phoff = far; }},
      {"program header at", [=](Crafted& c) { c.header.e_phoff = wraps; }},
      {"program header at", [](Crafted& c) { c.header.e_phoff = kSections, c.header.e_phnum = 0xffff; }},
      {"section header at", [=](Crafted& c) { c.header.e_shoff = far; }},
      {"section header at", [=](Crafted& c) { c.header.e_shoff = wraps; }},
      {"section header at", [](Crafted& c) { c.header.e_shnum = 0xffff; }},
      // segments
      {"segment at", [=](Crafted& c) { c.segments[0].p_offset = far; }},
      {"segment at", [=](Crafted& c) { c.segments[0].p_offset = wraps; }},
      {"holds more than its size", [](Crafted& c) { c.segments[0].p_memsz = 16; }},
      {"crafted: ", [=](Crafted& c) { c.segments[0].p_vaddr = wraps; }},
      {"an image of", [=](Crafted& c) { c.segments[0].p_memsz = far; }},
      {"overlap", [](Crafted& c) { c.segments.push_back({PT_LOAD, PF_R, 0, 0x7ff, 0, 16, 16, 1}); }},
      {"overlap", [](Crafted& c) { c.segments.resize(6, c.segments[0]); }},
      // symbols and their names
      {"symbol at", [=](Crafted& c) { c.sections[1].sh_offset = far; }},
      {"crafted: ", [=](Crafted& c) { c.sections[1].sh_offset = wraps; }},
      {"tables and notes of", [=](Crafted& c) { c.sections[1].sh_size = wraps; }},
      {"section header at", [](Crafted& c) { c.sections[1].sh_link = 0xffffffff; }},
      {"symbol names at", [=](Crafted& c) { c.sections[2].sh_offset = far; }},
      {"name of a symbol at", [](Crafted& c) { c.symbols[1].st_name = 0xffffffff; }},
      {"does not end", [](Crafted& c) { c.sections[2].sh_size = 4; }},
      {"tables and notes of",
       [](Crafted& c) { c.sections[1].sh_size = 0x100, c.sections.resize(200, c.sections[1]); }},
      // relocations
      {"relocation of kind 3", [](Crafted& c) { c.relocations[0].r_info = 3; }},
      {"relocation of kind 99", [](Crafted& c) { c.relocations[0].r_info = 99; }},
      {"relocation at", [](Crafted& c) { c.relocations[0].r_offset = kImage - 4; }},
      {"relocation at", [=](Crafted& c) { c.relocations[0].r_offset = wraps; }},
      {"relocation at", [=](Crafted& c) { c.sections[3].sh_offset = far; }},
      {"tables and notes of", [](Crafted& c) { c.sections[3].sh_size = 1 << 20; }},
      // notes and their MessagePack
      {"notes at", [=](Crafted& c) { c.segments[1].p_offset = far; }},
      {"tables and notes of", [=](Crafted& c) { c.segments[1].p_filesz = far; }},
      {"name of a note", [](Crafted& c) { c.note_name_size = 0xffffffff; }},
      {"note at", [](Crafted& c) { c.note_size = 0xfffffff0; }},
      {"tables and notes of",
       [](Crafted& c) {
         c.segments[1].p_filesz = 0x1f0;
         c.segments.resize(6, c.segments[1]);
       }},
      {"is not MessagePack", [](Crafted& c) { c.metadata.assign(16, 0xc1); }},
      {"is not MessagePack",
       [](Crafted& c) { c.metadata = {0xdf, 0xff, 0xff, 0xff, 0xff, 0xa1, 'x', 0x01}; }},
      {"is not MessagePack", [](Crafted& c) { c.metadata = {0x81, 0xdb, 0xff, 0xff, 0xff, 0xff, 'x', 0}; }},
      {"is not MessagePack", [](Crafted& c) { c.metadata = {0x90, 0xc0, 0xc0, 0xc0}; }},
      {"is not MessagePack", [](Crafted& c) { c.metadata.resize(c.metadata.size() / 2); }},
      {"nests too deeply", [](Crafted& c) { c.metadata.assign(64, 0x91); }},
      {"lies outside of its 16 bytes", [](Crafted& c) { c.set_metadata(12); }},
      {"lies outside of its 16 bytes", [](Crafted& c) { c.set_metadata(-1); }},
      // descriptors
      {"kernel descriptor at", [](Crafted& c) { c.symbols[1].st_value = kImage - 32; }},
      {"kernel descriptor at", [=](Crafted& c) { c.symbols[1].st_value = wraps; }},
      {"which is not code", [](Crafted& c) { c.entry = kImage; }},
      {"which is not code", [](Crafted& c) { c.entry = kCode - kDescriptor + 2; }},
      {"which is not code", [=](Crafted& c) { c.entry = wraps - 0x1000; }},
      {"which is not code", [](Crafted& c) { c.segments[0].p_flags = PF_R; }},
      {"bytes of scratch a lane", [](Crafted& c) { c.scratch = 0x80000000; }},
      {"of arguments", [](Crafted& c) { c.kernarg = 0xffffffff; }},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    Crafted crafted;
    cases[i].change(crafted);
    const std::string message = refused(crafted.bytes());
    EXPECT_NE(message.find("crafted: "), std::string::npos) << "case " << i << ": " << message;
    EXPECT_NE(message.find(cases[i].message), std::string::npos) << "case " << i << ": " << message;
  }
}

// What only a launch can refuse.
TEST(CraftedCodeObjects, TooMuchLdsIsRefused) {
  Crafted crafted;
  crafted.lds = 0x7fffffff;
  Gpu gpu("gfx1100");
  const CodeObject code = gpu.load(crafted.bytes(), "crafted");
  const uint64_t arguments[2] = {};
  EXPECT_THROW(gpu.launch(code, "k", {}, std::as_bytes(std::span(arguments))), UsageError);
}

}  // namespace
}  // namespace rocm_sd::emu
