// Source: the DWARF 5 standard, chapter 6.2, and its changes from DWARF 2 to 4.
#include "emulator/line_table.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace rocm_sd::emu {

namespace {

constexpr uint32_t kNoFile = 0xffffffff;
constexpr size_t kMaxEntries = 1 << 16, kMaxName = 1024;  // bounds on what a hostile table can ask for

enum Form : uint64_t {
  kBlock2 = 3,
  kBlock4 = 4,
  kData2 = 5,
  kData4 = 6,
  kData8 = 7,
  kString = 8,
  kBlock = 9,
  kBlock1 = 10,
  kData1 = 11,
  kStrp = 14,
  kUdata = 15,
  kSecOffset = 23,
  kData16 = 30,
  kLineStrp = 31
};
enum Content : uint64_t { kPath = 1, kDirectory = 2 };

std::string_view string_at(std::span<const std::byte> section, uint64_t offset) {
  if (offset >= section.size()) return {};
  const auto* first = reinterpret_cast<const char*>(section.data()) + offset;
  return {first, strnlen(first, section.size() - offset)};
}
std::string_view bounded(std::string_view name) { return name.substr(0, kMaxName); }

}  // namespace

// A cursor over .debug_line that throws FormatError at its end.
class LineTable::Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t left() const { return bytes_.size() - at_; }
  size_t at() const { return at_; }
  void skip(uint64_t count) {
    need(count);
    at_ += count;
  }
  // The next `count` bytes as a cursor of their own; this one goes on behind them.
  Reader part(uint64_t count) {
    need(count);
    Reader out(bytes_.subspan(at_, count));
    at_ += count;
    return out;
  }
  uint64_t number(uint32_t bytes) {
    need(bytes);
    uint64_t out = 0;
    std::memcpy(&out, bytes_.data() + at_, bytes);
    at_ += bytes;
    return out;
  }
  uint8_t byte() { return static_cast<uint8_t>(number(1)); }
  uint64_t uleb() {
    uint64_t out = 0;
    for (uint32_t shift = 0;; shift += 7) {
      const uint64_t b = number(1);
      if (shift < 64) out |= (b & 127) << shift;
      if (!(b & 128)) return out;
    }
  }
  int64_t sleb() {
    uint64_t out = 0;
    for (uint32_t shift = 0;; shift += 7) {
      const uint64_t b = number(1);
      if (shift < 64) out |= (b & 127) << shift;
      if (b & 128) continue;
      if (shift + 7 < 64 && b & 64) out |= ~uint64_t{0} << (shift + 7);
      return static_cast<int64_t>(out);
    }
  }
  std::string_view string() {
    const std::string_view out = string_at(bytes_, at_);
    skip(out.size() + 1);
    return out;
  }

 private:
  void need(uint64_t count) const {
    require<FormatError>(count <= left(), "the line table ends within an entry");
  }
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

LineTable::LineTable(const DebugSections& sections, uint64_t begin, uint64_t end) {
  Reader in(sections.line);
  try {
    while (in.left() >= 4) read_unit(in, sections, begin, end);
  } catch (const FormatError& e) {
    damage_ = concat(e.what(), " (.debug_line, before byte ", in.at(), ")");
  }
  std::stable_sort(rows_.begin(), rows_.end(),
                   [](const Row& a, const Row& b) { return a.address < b.address; });
}

uint32_t LineTable::add_file(const std::string& name) {
  require<FormatError>(++entries_ <= kMaxEntries, "line tables of more than ", kMaxEntries, " files");
  const auto [found, fresh] = known_.try_emplace(name, static_cast<uint32_t>(files_.size()));
  if (fresh) files_.push_back(name);
  return found->second;
}

// The file table of a unit: its numbers to indices in files_.
std::vector<uint32_t> LineTable::read_files(Reader& in, const DebugSections& sections, int version,
                                            bool wide) {
  std::vector<std::string_view> folders;
  std::vector<uint32_t> out;
  const auto joined = [&](std::string_view name, uint64_t folder) {
    // Folder 0 is where the compiler ran: names are shown as the compiler was given them.
    if (folder == 0 || folder >= folders.size() || name.starts_with('/')) return std::string(bounded(name));
    return std::string(bounded(folders[folder])) + "/" + std::string(bounded(name));
  };
  if (version < 5) {
    folders.emplace_back();
    for (auto name = in.string(); !name.empty(); name = in.string()) folders.emplace_back(name);
    out.push_back(kNoFile);  // numbers begin with 1
    for (auto name = in.string(); !name.empty(); name = in.string()) {
      const uint64_t folder = in.uleb();
      in.uleb(), in.uleb();  // time and size
      out.push_back(add_file(joined(name, folder)));
    }
    return out;
  }
  const auto value = [&](uint64_t form, std::string_view& text) -> uint64_t {
    switch (form) {
      case kString: text = in.string(); return 0;
      case kLineStrp: text = string_at(sections.line_strings, in.number(wide ? 8 : 4)); return 0;
      case kStrp: text = string_at(sections.strings, in.number(wide ? 8 : 4)); return 0;
      case kSecOffset: return in.number(wide ? 8 : 4);
      case kData1: return in.number(1);
      case kData2: return in.number(2);
      case kData4: return in.number(4);
      case kData8: return in.number(8);
      case kUdata: return in.uleb();
      case kData16: in.skip(16); return 0;
      case kBlock: in.skip(in.uleb()); return 0;
      case kBlock1: in.skip(in.number(1)); return 0;
      case kBlock2: in.skip(in.number(2)); return 0;
      case kBlock4: in.skip(in.number(4)); return 0;
      default: break;
    }
    throw FormatError(concat("a line table with form ", form));
  };
  for (const bool is_files : {false, true}) {
    std::vector<std::pair<uint64_t, uint64_t>> format(in.byte());
    for (auto& [content, form] : format) content = in.uleb(), form = in.uleb();
    const uint64_t count = in.uleb();
    // Each entry takes a byte at least, so that a count cannot ask for more than the file holds.
    require<FormatError>(count == 0 || (!format.empty() && count <= in.left()), "a line table of ", count,
                         is_files ? " files" : " folders");
    for (uint64_t i = 0; i < count; ++i) {
      std::string_view name;
      uint64_t folder = 0;
      for (const auto& [content, form] : format) {
        std::string_view text;
        const uint64_t number = value(form, text);
        if (content == kPath) name = text;
        if (content == kDirectory) folder = number;
      }
      if (is_files)
        out.push_back(add_file(joined(name, folder)));
      else
        folders.emplace_back(name);
    }
  }
  return out;
}

void LineTable::read_unit(Reader& all, const DebugSections& sections, uint64_t begin, uint64_t end) {
  uint64_t length = all.number(4);
  const bool wide = length == 0xffffffff;
  if (wide) length = all.number(8);
  Reader in = all.part(length);
  const auto version = static_cast<int>(in.number(2));
  if (version < 2 || version > 5) return;
  if (version == 5) in.skip(2);  // sizes of an address and of a segment
  const uint64_t header = in.number(wide ? 8 : 4);
  Reader head = in.part(header);
  const uint64_t min_bytes = head.byte();
  if (version >= 4) head.skip(1);  // operations per VLIW instruction
  head.skip(1);                    // default_is_stmt
  const auto line_base = static_cast<int8_t>(head.byte());
  const uint8_t line_range = head.byte(), opcode_base = head.byte();
  require<FormatError>(line_range > 0 && opcode_base > 0, "a line table with a range or base of 0");
  uint8_t lengths[256] = {};
  for (int i = 1; i < opcode_base; ++i) lengths[i] = head.byte();
  const std::vector<uint32_t> files = read_files(head, sections, version, wide);

  uint64_t address = 0, file = 1, line = 1;
  const auto row = [&](bool ends) {
    const uint32_t index = file < files.size() ? files[file] : kNoFile;
    if (address < begin || address > end || (address == end && !ends)) return;
    rows_.push_back({address, index, ends || index == kNoFile ? 0 : static_cast<uint32_t>(line)});
  };
  const auto special = [&](uint32_t adjusted) {
    address += adjusted / line_range * min_bytes;
    line += static_cast<uint64_t>(static_cast<int64_t>(line_base) + adjusted % line_range);
  };
  while (in.left() > 0) {
    const uint8_t opcode = in.byte();
    if (opcode >= opcode_base) {
      special(opcode - opcode_base);
      row(false);
      continue;
    }
    if (opcode == 0) {  // extended
      Reader body = in.part(in.uleb());
      const uint8_t kind = body.left() ? body.byte() : 0;
      if (kind == 1) {
        row(true);
        address = 0, file = 1, line = 1;
      } else if (kind == 2) {
        require<FormatError>(body.left() >= 1 && body.left() <= 8, "an address of ", body.left(), " bytes");
        address = body.number(static_cast<uint32_t>(body.left()));
      }
      continue;
    }
    switch (opcode) {
      case 1: row(false); break;
      case 2: address += in.uleb() * min_bytes; break;
      case 3: line += static_cast<uint64_t>(in.sleb()); break;
      case 4: file = in.uleb(); break;
      case 5: in.uleb(); break;  // column
      case 6:
      case 7:
      case 10:
      case 11: break;  // statements, blocks, prologues
      case 8: address += (255u - opcode_base) / line_range * min_bytes; break;
      case 9: address += in.number(2); break;
      case 12: in.uleb(); break;  // instruction set
      default:
        for (int i = 0; i < lengths[opcode]; ++i) in.uleb();
    }
  }
}

SourceLine LineTable::at(uint64_t address) const {
  const auto after = std::upper_bound(rows_.begin(), rows_.end(), address,
                                      [](uint64_t a, const Row& r) { return a < r.address; });
  if (after == rows_.begin()) return {};
  // Of several rows at one address the last that is no end of another run counts.
  for (auto row = after; row != rows_.begin() && (row - 1)->address == (after - 1)->address; --row)
    if ((row - 1)->line) return {files_[(row - 1)->file], (row - 1)->line};
  return {};
}

std::vector<uint64_t> LineTable::addresses(std::string_view file, uint32_t line) const {
  std::vector<uint64_t> out;
  const auto matches = [&](const Row& r) {
    if (r.line != line || r.line == 0) return false;
    const std::string_view name = files_[r.file];
    return file.empty() || name == file ||
           (name.ends_with(file) && name[name.size() - file.size() - 1] == '/');
  };
  for (size_t i = 0; i < rows_.size(); ++i)
    if (matches(rows_[i]) && (i == 0 || !matches(rows_[i - 1]))) out.push_back(rows_[i].address);
  return out;
}

}  // namespace rocm_sd::emu
