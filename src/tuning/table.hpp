// Tables of tuned choices: one record a line, each with a checksum, so that a torn or damaged line costs
// itself only. A table may come from anywhere: what it says is checked against what the op can do before it
// is used (kernels/select.hpp), so that the worst of tables makes a run slow.
//
// Format: UTF-8 lines. The first is "# rocm-sd tuning table 2" (or 1, see kTableHeader1); further ones with
// '#' are comments. A record has 12 fields with tabs between them:
//   product  arch  units  code  op  problem  choice  default  microseconds  microseconds of the default
//   "measured" or "model"  date (2026-11-21), then the checksum of all before: FNV-1a, 64 bits, 16 hex digits
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuning/identity.hpp"

namespace rocm_sd::tuning {

// kModel: nothing was timed; a bound from an emulated GPU's counts stood for the time.
enum class Origin { kModel, kMeasured };

struct Record {
  Identity device;
  std::string op;              // "linear"
  std::string problem;         // "8192x320x320 f16 bias", as the op describes it
  std::string choice;          // "gpu 128x160x64/2": implementation, and its configuration if it has several
  std::string default_choice;  // what would run untuned; "" if not known
  double microseconds = 0, default_microseconds = 0;
  Origin origin = Origin::kMeasured;
  std::string date;

  bool operator==(const Record&) const = default;
};

// The last field of a record whose other fields these are, with tabs between them.
std::string record_checksum(std::string_view body);
// Without the newline. Throws UsageError where a field has a control character or is too long for a table.
std::string format_record(const Record& record);
// Nothing where the line is no sound record.
std::optional<Record> parse_record(std::string_view line);

class Table {
 public:
  // Throws FormatError unless the text begins as a table of this version. Bad lines are left out and counted.
  static Table parse(std::string_view text, std::string_view what);
  // Throws FileError and FormatError as read_file() does.
  static Table read(const std::filesystem::path& path);

  // Takes the place of a record of the same device, op and problem unless that is better founded (measured
  // rather than by the model) or as well founded and newer.
  void add(Record record);
  void merge(const Table& other);
  void erase(const Record& record);

  // The record that suits the device best: measured before the model's, of the same product before a sibling,
  // of the same code before another, the newest. Null if there is none.
  const Record* find(const Identity& device, std::string_view op, std::string_view problem) const;
  // Of exactly this device and code: what a tuner need not do again.
  const Record* find_exact(const Identity& device, std::string_view op, std::string_view problem) const;

  std::vector<Record> records() const;  // by op, problem and device
  size_t size() const;
  size_t bad_lines() const { return bad_lines_; }
  std::string text() const;                             // as parse() takes it
  void write(const std::filesystem::path& path) const;  // whole or not at all; makes folders

 private:
  std::map<std::string, std::vector<Record>, std::less<>> by_problem_;  // "op\tproblem"
  size_t bad_lines_ = 0;
};

inline constexpr std::string_view kTableHeader = "# rocm-sd tuning table 2";
// Tables of version 1 differ in the names of attention's kernels alone, which are read as today's.
inline constexpr std::string_view kTableHeader1 = "# rocm-sd tuning table 1";

}  // namespace rocm_sd::tuning
