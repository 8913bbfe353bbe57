// Fuzzes tables of tuned choices: what is read survives writing, and every choice is one line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "tuning/table.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rocm_sd;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // As it is; behind a good first line; and each line with a checksum that fits.
  std::string signed_lines = concat(tuning::kTableHeader, "\n");
  for (std::string_view rest = input; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    signed_lines += concat(line, "\t", tuning::record_checksum(line), "\n");
  }
  for (const std::string& text :
       {std::string(input), concat(tuning::kTableHeader, "\n", input), signed_lines}) {
    try {
      const tuning::Table table = tuning::Table::parse(text, "fuzz");
      const tuning::Table again = tuning::Table::parse(table.text(), "again");
      if (again.size() != table.size() || again.bad_lines() != 0) __builtin_trap();
      for (const tuning::Record& record : table.records())
        if (!table.find(record.device, record.op, record.problem)) __builtin_trap();
    } catch (const FormatError&) {
    }
  }
  return 0;
}
