#include "emulator/code_object.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/checked.hpp"
#include "base/error.hpp"

namespace rocm_sd::emu {

namespace {

// The parts of ELF64 that a code object uses (System V ABI, AMDGPU supplement).
struct FileHeader {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, phoff, shoff;
  uint32_t flags;
  uint16_t ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};
struct ProgramHeader {
  uint32_t type, flags;
  uint64_t offset, vaddr, paddr, filesz, memsz, align;
};
struct SectionHeader {
  uint32_t name, type;
  uint64_t flags, addr, offset, size;
  uint32_t link, info;
  uint64_t addralign, entsize;
};
struct Symbol {
  uint32_t name;
  uint8_t info, other;
  uint16_t shndx;
  uint64_t value, size;
};
struct Rela {
  uint64_t offset, info, addend;
};
static_assert(sizeof(FileHeader) == 64 && sizeof(ProgramHeader) == 56 && sizeof(SectionHeader) == 64);
static_assert(sizeof(Symbol) == 24 && sizeof(Rela) == 24);

constexpr uint16_t kMachineAmdgpu = 224;
constexpr uint8_t kOsAmdhsa = 64;
constexpr uint32_t kLoad = 1, kNote = 4, kExecutable = 1;
constexpr uint32_t kSectionProgbits = 1, kSectionRela = 4, kSectionDynsym = 11;
constexpr uint64_t kCompressed = 0x800;
constexpr int kFunction = 2;
constexpr uint32_t kRelative64 = 13, kAbsolute64 = 3;
constexpr uint32_t kMetadataNote = 32;
constexpr uint64_t kImageLimit = uint64_t{256} << 20;  // more than the file holds
constexpr uint64_t kCodeLimit = uint64_t{64} << 20;
constexpr size_t kDescriptorBytes = 64;

// Bounds-checked reading of the file or of the image.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& what) : bytes_(bytes), what_(what) {}
  std::span<const std::byte> part(uint64_t offset, uint64_t size, const char* name) const {
    require<FormatError>(offset <= bytes_.size() && size <= bytes_.size() - offset, what_, ": ", name, " at ",
                         offset, " + ", size, " lies outside of ", bytes_.size(), " bytes");
    return bytes_.subspan(offset, size);
  }
  template <class T>
  T get(uint64_t offset, const char* name) const {
    T out;
    std::memcpy(&out, part(offset, sizeof(T), name).data(), sizeof(T));
    return out;
  }
  std::string text(uint64_t offset, const char* name) const {
    const auto rest = part(offset, bytes_.size() - std::min<uint64_t>(offset, bytes_.size()), name);
    size_t length = 0;
    while (length < rest.size() && rest[length] != std::byte{0}) ++length;
    require<FormatError>(length < rest.size() && length < 4096, what_, ": ", name, " at ", offset,
                         " does not end");
    return {reinterpret_cast<const char*>(rest.data()), length};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& what_;
};

std::string target_name(uint32_t flags, const std::string& what) {
  switch (flags & 0xff) {  // EF_AMDGPU_MACH
    case 0x3f: return "gfx90a";
    case 0x40: return "gfx940";
    case 0x41: return "gfx1100";
    case 0x43: return "gfx1150";
    case 0x44: return "gfx1103";
    case 0x46: return "gfx1102";
    case 0x47: return "gfx1101";
    case 0x48: return "gfx1200";
    case 0x4a: return "gfx1151";
    case 0x4c: return "gfx942";
    case 0x4e: return "gfx1201";
    case 0x4f: return "gfx950";
    default: break;
  }
  throw FormatError(concat(what, ": machine ", flags & 0xff, " is not a target that this project knows"));
}

uint32_t number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return 0;
  const auto value = found->get<uint64_t>();
  return value > 0xffffffff ? 0xffffffffu : static_cast<uint32_t>(value);
}
std::string string_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Whether MessagePack nests no deeper than real metadata does: its reader recurses.
bool is_shallow(std::span<const std::byte> bytes) {
  constexpr size_t kDepth = 16;
  std::vector<uint64_t> open;  // values that are still missing at each level
  const auto big_endian = [&](size_t at, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count && at + i < bytes.size(); ++i)
      value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    return value;
  };
  for (size_t at = 0; at < bytes.size();) {
    const auto tag = static_cast<uint8_t>(bytes[at++]);
    uint64_t skip = 0, values = 0;
    if (tag >= 0x80 && tag <= 0x8f)
      values = 2 * (tag & 15u);  // map
    else if (tag >= 0x90 && tag <= 0x9f)
      values = tag & 15u;  // array
    else if (tag >= 0xa0 && tag <= 0xbf)
      skip = tag & 31u;  // text
    else if (tag >= 0xc4 && tag <= 0xc6)
      skip = (1u << (tag - 0xc4)) + big_endian(at, size_t{1} << (tag - 0xc4));
    else if (tag >= 0xc7 && tag <= 0xc9)
      skip = (1u << (tag - 0xc7)) + 1 + big_endian(at, size_t{1} << (tag - 0xc7));
    else if (tag == 0xca || tag == 0xce || tag == 0xd2)
      skip = 4;
    else if (tag == 0xcb || tag == 0xcf || tag == 0xd3)
      skip = 8;
    else if (tag == 0xcc || tag == 0xd0)
      skip = 1;
    else if (tag == 0xcd || tag == 0xd1)
      skip = 2;
    else if (tag >= 0xd4 && tag <= 0xd8)
      skip = (1u << (tag - 0xd4)) + 1;
    else if (tag >= 0xd9 && tag <= 0xdb)
      skip = (1u << (tag - 0xd9)) + big_endian(at, size_t{1} << (tag - 0xd9));
    else if (tag == 0xdc || tag == 0xdd)
      values = big_endian(at, tag == 0xdc ? 2 : 4), skip = tag == 0xdc ? 2 : 4;
    else if (tag == 0xde || tag == 0xdf)
      values = 2 * big_endian(at, tag == 0xde ? 2 : 4), skip = tag == 0xde ? 2 : 4;
    if (skip > bytes.size() - at) return true;  // cut short: the reader says so
    at += skip;
    while (!open.empty() && open.back() == 0) open.pop_back();
    if (!open.empty()) --open.back();
    if (values) open.push_back(values);
    if (open.size() > kDepth) return false;
  }
  return true;
}

// The metadata of NT_AMDGPU_METADATA: arguments by symbol of the kernel.
void read_metadata(std::span<const std::byte> bytes, CodeImage& out, const std::string& what) {
  const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
  require<FormatError>(is_shallow(bytes), what, ": the metadata note nests too deeply");
  const auto root = nlohmann::json::from_msgpack(first, first + bytes.size(), true, false);
  require<FormatError>(root.is_object(), what, ": the metadata note is not MessagePack");
  const auto kernels = root.find("amdhsa.kernels");
  if (kernels == root.end() || !kernels->is_array()) return;
  for (const auto& entry : *kernels) {
    if (!entry.is_object()) continue;
    const auto found = out.kernels.find(string_of(entry, ".name"));
    if (found == out.kernels.end()) continue;
    Kernel& kernel = found->second;
    if (const uint32_t bytes_needed = number(entry, ".kernarg_segment_size"))
      kernel.kernarg_bytes = bytes_needed;
    if (const uint32_t threads = number(entry, ".max_flat_workgroup_size")) kernel.max_threads = threads;
    kernel.vgprs = number(entry, ".vgpr_count");
    kernel.agprs = number(entry, ".agpr_count");
    kernel.sgprs = number(entry, ".sgpr_count");
    kernel.vgpr_spills = number(entry, ".vgpr_spill_count");
    kernel.sgpr_spills = number(entry, ".sgpr_spill_count");
    const auto arguments = entry.find(".args");
    if (arguments == entry.end() || !arguments->is_array()) continue;
    for (const auto& argument : *arguments) {
      if (!argument.is_object()) continue;
      KernelArgument a{string_of(argument, ".name"), string_of(argument, ".value_kind"),
                       number(argument, ".offset"), number(argument, ".size")};
      require<FormatError>(static_cast<uint64_t>(a.offset) + a.size <= kernel.kernarg_bytes, what,
                           ": argument at ", a.offset, " of ", printable(kernel.name),
                           " lies outside of its ", kernel.kernarg_bytes, " bytes");
      kernel.arguments.push_back(std::move(a));
    }
  }
}

void read_notes(std::span<const std::byte> notes, CodeImage& out, const std::string& what) {
  const Reader in(notes, what);
  for (uint64_t at = 0; at + 12 <= notes.size();) {
    const auto name_size = in.get<uint32_t>(at, "note"), size = in.get<uint32_t>(at + 4, "note");
    const auto type = in.get<uint32_t>(at + 8, "note");
    const uint64_t name_at = at + 12, body_at = name_at + (uint64_t{name_size} + 3) / 4 * 4;
    const auto name = in.part(name_at, name_size, "name of a note");
    const auto body = in.part(body_at, size, "note");
    if (type == kMetadataNote && name_size == 7 && std::memcmp(name.data(), "AMDGPU", 7) == 0)
      read_metadata(body, out, what);
    at = body_at + (uint64_t{size} + 3) / 4 * 4;
  }
}

Kernel read_descriptor(const Reader& image, const CodeImage& out, const std::string& name, uint64_t at,
                       const std::string& what) {
  image.part(at, kDescriptorBytes, "kernel descriptor");
  Kernel k;
  k.name = name;
  k.lds_bytes = image.get<uint32_t>(at, "descriptor");
  k.scratch_bytes = image.get<uint32_t>(at + 4, "descriptor");
  k.kernarg_bytes = image.get<uint32_t>(at + 8, "descriptor");
  k.entry = at + image.get<uint64_t>(at + 16, "descriptor");  // relative to the descriptor; wraps
  k.rsrc3 = image.get<uint32_t>(at + 44, "descriptor");
  k.rsrc1 = image.get<uint32_t>(at + 48, "descriptor");
  k.rsrc2 = image.get<uint32_t>(at + 52, "descriptor");
  k.properties = image.get<uint16_t>(at + 56, "descriptor");
  k.kernarg_preload = image.get<uint16_t>(at + 58, "descriptor");
  bool inside = false;
  for (const CodeSection& s : out.code) inside = inside || (k.entry >= s.begin && k.entry < s.end);
  require<FormatError>(inside && k.entry % 4 == 0, what, ": kernel ", printable(name), " begins at ", k.entry,
                       ", which is not code");
  require<FormatError>(k.scratch_bytes <= (1u << 18) && k.kernarg_bytes <= (1u << 20), what, ": kernel ",
                       printable(name), " asks for ", k.scratch_bytes, " bytes of scratch a lane and ",
                       k.kernarg_bytes, " of arguments");
  return k;
}

void read_symbols(const Reader& in, const SectionHeader& s, const SectionHeader& strings, CodeImage& out,
                  const std::string& what) {
  const Reader image(out.image, what);
  const Reader names(in.part(strings.offset, strings.size, "symbol names"), what);
  std::map<std::string, uint64_t> sizes;  // of functions
  for (uint64_t at = 0; at + sizeof(Symbol) <= s.size; at += sizeof(Symbol)) {
    const auto symbol = in.get<Symbol>(checked_add(s.offset, at, what), "symbol");
    const std::string name = names.text(symbol.name, "name of a symbol");
    if (symbol.shndx == 0 || name.empty()) continue;
    if ((symbol.info & 15) == kFunction) sizes[name] = symbol.size;
    if (name.size() <= 3 || !name.ends_with(".kd")) continue;
    const std::string kernel = name.substr(0, name.size() - 3);
    out.kernels.insert_or_assign(kernel, read_descriptor(image, out, kernel, symbol.value, what));
  }
  for (auto& [name, kernel] : out.kernels)
    if (const auto found = sizes.find(name); found != sizes.end())
      kernel.code_bytes = std::min(found->second, out.image.size() - kernel.entry);
}

// The sections of debug information that source lines need.
DebugSections debug_sections(const Reader& in, const FileHeader& header) {
  DebugSections out;
  if (header.shstrndx >= header.shnum) return out;
  const auto section = [&](uint64_t i) {
    return in.get<SectionHeader>(header.shoff + i * sizeof(SectionHeader), "section header");
  };
  const SectionHeader names = section(header.shstrndx);
  for (uint64_t i = 0; i < header.shnum; ++i) {
    const SectionHeader s = section(i);
    if (s.type != kSectionProgbits || s.flags & kCompressed || s.name >= names.size) continue;
    const std::string name = in.text(names.offset + s.name, "name of a section");
    for (const auto& [wanted, to] :
         {std::pair{".debug_line", &out.line}, std::pair{".debug_line_str", &out.line_strings},
          std::pair{".debug_str", &out.strings}})
      if (name == wanted) *to = in.part(s.offset, s.size, wanted);
  }
  return out;
}

// Segments that are loaded must not share a byte of the image.
void require_apart(const std::vector<ProgramHeader>& segments, const std::string& what) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // their ends have been checked
  for (const ProgramHeader& p : segments)
    if (p.type == kLoad && p.memsz > 0) ranges.emplace_back(p.vaddr, p.vaddr + p.memsz);
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    require<FormatError>(ranges[i].first >= ranges[i - 1].second, what, ": the segments at ",
                         ranges[i - 1].first, " and ", ranges[i].first, " overlap");
}

}  // namespace

CodeImage read_code_object(std::span<const std::byte> file, const std::string& what) {
  const Reader in(file, what);
  const auto header = in.get<FileHeader>(0, "ELF header");
  require<FormatError>(std::memcmp(header.ident,
                                   "\x7f"
                                   "ELF\x02\x01",
                                   6) == 0,
                       what, ": not a 64-bit little-endian ELF file");
  require<FormatError>(header.machine == kMachineAmdgpu && header.ident[7] == kOsAmdhsa, what,
                       ": expected an AMD GPU code object for HSA, machine is ", header.machine);
  require<FormatError>(header.phentsize == sizeof(ProgramHeader) && header.shentsize == sizeof(SectionHeader),
                       what, ": headers of an unknown size");
  CodeImage out;
  out.target = target_name(header.flags, what);

  std::vector<ProgramHeader> segments;
  uint64_t size = 0;
  for (uint64_t i = 0; i < header.phnum; ++i) {
    const auto p = in.get<ProgramHeader>(header.phoff + i * sizeof(ProgramHeader), "program header");
    segments.push_back(p);
    if (p.type != kLoad) continue;
    require<FormatError>(p.filesz <= p.memsz, what, ": a segment holds more than its size");
    size = std::max(size, checked_add(p.vaddr, p.memsz, what));
    require<FormatError>(size <= kImageLimit + file.size(), what, ": an image of ", size,
                         " bytes in a file of ", file.size());
  }
  require_apart(segments, what);
  out.image.resize(size);
  for (const ProgramHeader& p : segments) {
    if (p.type != kLoad) continue;
    const auto bytes = in.part(p.offset, p.filesz, "segment");
    if (!bytes.empty()) std::memcpy(out.image.data() + p.vaddr, bytes.data(), bytes.size());
    require<FormatError>(!(p.flags & kExecutable) || p.filesz <= kCodeLimit, what, ": ", p.filesz,
                         " bytes of code");
    if (p.flags & kExecutable) out.code.push_back({p.vaddr, p.vaddr + p.filesz / 4 * 4});
  }

  const Reader image(out.image, what);
  // Each byte of tables and notes counts once, so that headers that share them cannot ask for more work than
  // the file is long.
  uint64_t tables = 0;
  const auto count = [&](uint64_t bytes) {
    tables = checked_add(tables, bytes, what);
    require<FormatError>(tables <= file.size(), what, ": tables and notes of ", tables,
                         " bytes in a file of ", file.size());
  };
  for (uint64_t i = 0; i < header.shnum; ++i) {
    const auto s = in.get<SectionHeader>(header.shoff + i * sizeof(SectionHeader), "section header");
    if (s.type == kSectionDynsym || s.type == kSectionRela) count(s.size);
    if (s.type == kSectionDynsym)
      read_symbols(
          in, s,
          in.get<SectionHeader>(header.shoff + uint64_t{s.link} * sizeof(SectionHeader), "section header"),
          out, what);
    if (s.type == kSectionRela)
      for (uint64_t at = 0; at + sizeof(Rela) <= s.size; at += sizeof(Rela)) {
        const auto r = in.get<Rela>(checked_add(s.offset, at, what), "relocation");
        const auto type = static_cast<uint32_t>(r.info);
        require<FormatError>(type == kRelative64, what, ": relocation of kind ", type, " is not supported",
                             type == kAbsolute64 ? " (an undefined symbol?)" : "");
        image.part(r.offset, 8, "relocation");
        out.relocations.push_back({r.offset, r.addend});
      }
  }
  for (const ProgramHeader& p : segments) {
    if (p.type != kNote) continue;
    count(p.filesz);
    read_notes(in.part(p.offset, p.filesz, "notes"), out, what);
  }
  if (!out.code.empty()) {
    uint64_t begin = out.code.front().begin, end = out.code.front().end;
    for (const CodeSection& c : out.code) begin = std::min(begin, c.begin), end = std::max(end, c.end);
    out.lines = LineTable(debug_sections(in, header), begin, end);
  }
  return out;
}

}  // namespace rocm_sd::emu
