// Source lines of machine code, from DWARF's line number program (.debug_line, versions 2 to 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rocm_sd::emu {

// The sections that line tables need; empty where the object has none.
struct DebugSections {
  std::span<const std::byte> line, line_strings, strings;
};

struct SourceLine {
  std::string_view file;
  uint32_t line = 0;  // 0: none
};

class LineTable {
 public:
  LineTable() = default;
  // Reads what it can: a damaged table ends the reading, and damage() says where. Addresses outside of
  // [begin, end) (code that the linker dropped) are left out.
  LineTable(const DebugSections& sections, uint64_t begin, uint64_t end);

  bool empty() const { return rows_.empty(); }
  const std::string& damage() const { return damage_; }
  SourceLine at(uint64_t address) const;
  // The first address of each run of code that a line made. `file` may be the end of a path ("a.hip" finds
  // "src/a.hip") or empty for any file.
  std::vector<uint64_t> addresses(std::string_view file, uint32_t line) const;

 private:
  class Reader;
  struct Row {
    uint64_t address = 0;
    uint32_t file = 0, line = 0;  // index in files_; line 0 ends a run of code
  };
  void read_unit(Reader& in, const DebugSections& sections, uint64_t begin, uint64_t end);
  std::vector<uint32_t> read_files(Reader& in, const DebugSections& sections, int version, bool wide);
  uint32_t add_file(const std::string& name);

  std::vector<Row> rows_;  // by address
  std::vector<std::string> files_;
  std::unordered_map<std::string, uint32_t> known_;  // names to indices in files_
  size_t entries_ = 0;                               // of all file tables
  std::string damage_;
};

}  // namespace rocm_sd::emu
