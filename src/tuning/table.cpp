#include "tuning/table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/format.hpp"

namespace rocm_sd::tuning {
namespace {

constexpr uint64_t kMaxBytes = 64 << 20;  // of a file
constexpr size_t kMaxField = 300;         // bytes
constexpr size_t kFields = 12;
constexpr int kMaxUnits = 1'000'000;

// What may stand between tabs.
bool is_field(std::string_view text) {
  return text.size() <= kMaxField &&
         std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

constexpr double kMaxMicroseconds = 1e12;

// A time: not negative, and less than a fortnight.
std::optional<double> parse_time(std::string_view text) {
  const auto value = parse_number<double>(text);
  return value && *value >= 0 && *value < kMaxMicroseconds ? value : std::nullopt;
}

std::string key_of(std::string_view op, std::string_view problem) { return concat(op, "\t", problem); }

bool same_place(const Record& a, const Record& b) { return a.device == b.device; }

// Whether `a` is to be kept where there is `b` of the same device.
bool better_founded(const Record& a, const Record& b) {
  if (a.origin != b.origin) return a.origin == Origin::kMeasured;
  return a.date > b.date;
}

// What version 1 called attention's kernels, in the order in which a prefix is looked for.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"gpu flash_group_wide_", "gpu flash_wgmma_large_d_"},
    {"gpu flash_group_", "gpu flash_wgmma_"},
    {"gpu flash_bulk_", "gpu flash_tma_"},
    {"gpu flash_once_", "gpu flash_single_tile_kv_"},
    {"gpu flash_wide_", "gpu flash_large_d_"},
};
// A choice by its name of today. A journal that version 1 began has records of both.
std::string renamed(std::string_view choice) {
  for (const auto& [old, now] : kRenamed)
    if (choice.starts_with(old)) return concat(now, choice.substr(old.size()));
  return std::string(choice);
}

}  // namespace

std::string record_checksum(std::string_view body) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::string format_record(const Record& r) {
  const std::string_view origin = r.origin == Origin::kMeasured ? "measured" : "model";
  for (const std::string* field : {&r.device.product, &r.device.arch, &r.device.code, &r.op, &r.problem,
                                   &r.choice, &r.default_choice, &r.date})
    require<UsageError>(is_field(*field), "tuning table: cannot hold \"", printable(*field), "\"");
  std::string line = fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{:.3f}\t{:.3f}\t{}\t{}", r.device.product,
                                 r.device.arch, r.device.units, r.device.code, r.op, r.problem, r.choice,
                                 r.default_choice, r.microseconds, r.default_microseconds, origin, r.date);
  return line + "\t" + record_checksum(line);
}

std::optional<Record> parse_record(std::string_view line) {
  std::array<std::string_view, kFields + 1> field;
  size_t count = 0;
  for (std::string_view rest = line; count < field.size(); ++count) {
    const size_t tab = rest.find('\t');
    field[count] = rest.substr(0, tab);
    if (!is_field(field[count])) return std::nullopt;
    if (tab == std::string_view::npos) {
      ++count;
      break;
    }
    rest.remove_prefix(tab + 1);
    if (count == kFields) return std::nullopt;  // more fields than a record has
  }
  if (count != field.size()) return std::nullopt;
  const std::string_view body = line.substr(0, line.size() - field[kFields].size() - 1);
  if (field[kFields] != record_checksum(body)) return std::nullopt;
  const auto units = parse_number<int>(field[2]);
  const auto time = parse_time(field[8]), default_time = parse_time(field[9]);
  if (!units || *units < 0 || *units > kMaxUnits || !time || !default_time) return std::nullopt;
  if (field[4].empty() || field[5].empty() || field[6].empty()) return std::nullopt;
  if (field[10] != "measured" && field[10] != "model") return std::nullopt;
  const auto text = [&](size_t i) { return std::string(field[i]); };
  return Record{{text(0), text(1), *units, text(3)},
                text(4),
                text(5),
                renamed(field[6]),
                renamed(field[7]),
                *time,
                *default_time,
                field[10] == "measured" ? Origin::kMeasured : Origin::kModel,
                text(11)};
}

Table Table::parse(std::string_view text, std::string_view what) {
  const std::string_view first = text.substr(0, text.find('\n'));
  require<FormatError>(first == kTableHeader || first == kTableHeader1, what, ": expected a first line \"",
                       kTableHeader, "\", got \"", printable(first, 80), "\"");
  Table out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    if (auto record = parse_record(line))
      out.add(std::move(*record));
    else
      ++out.bad_lines_;
  }
  return out;
}

Table Table::read(const std::filesystem::path& path) {
  return parse(read_file(path, kMaxBytes), printable_path(path));
}

void Table::add(Record record) {
  std::vector<Record>& there = by_problem_[key_of(record.op, record.problem)];
  const auto same = std::ranges::find_if(there, [&](const Record& r) { return same_place(r, record); });
  if (same == there.end())
    there.push_back(std::move(record));
  else if (!better_founded(*same, record))
    *same = std::move(record);
}

void Table::merge(const Table& other) {
  for (const auto& [key, records] : other.by_problem_)
    for (const Record& record : records) add(record);
  bad_lines_ += other.bad_lines_;
}

void Table::erase(const Record& record) {
  const auto found = by_problem_.find(key_of(record.op, record.problem));
  if (found == by_problem_.end()) return;
  const Identity device = record.device;  // `record` may be the one that goes
  std::erase_if(found->second, [&](const Record& r) { return r.device == device; });
  if (found->second.empty()) by_problem_.erase(found);
}

const Record* Table::find(const Identity& device, std::string_view op, std::string_view problem) const {
  const auto found = by_problem_.find(key_of(op, problem));
  if (found == by_problem_.end()) return nullptr;
  const auto rank = [&](const Record& r) {
    return std::tuple(r.origin, match(device, r.device), r.device.code == device.code,
                      std::string_view(r.date));
  };
  const Record* best = nullptr;
  for (const Record& record : found->second)
    if (match(device, record.device) != Match::kNone && (!best || rank(record) > rank(*best))) best = &record;
  return best;
}

const Record* Table::find_exact(const Identity& device, std::string_view op, std::string_view problem) const {
  const auto found = by_problem_.find(key_of(op, problem));
  if (found == by_problem_.end()) return nullptr;
  const auto same = std::ranges::find_if(found->second, [&](const Record& r) { return r.device == device; });
  return same == found->second.end() ? nullptr : &*same;
}

std::vector<Record> Table::records() const {
  std::vector<Record> out;
  for (const auto& [key, records] : by_problem_) {
    const auto first = out.insert(out.end(), records.begin(), records.end());
    std::sort(first, out.end(), [](const Record& a, const Record& b) {
      return std::tie(a.device.arch, a.device.units, a.device.product, a.device.code) <
             std::tie(b.device.arch, b.device.units, b.device.product, b.device.code);
    });
  }
  return out;
}

size_t Table::size() const {
  size_t count = 0;
  for (const auto& [key, records] : by_problem_) count += records.size();
  return count;
}

std::string Table::text() const {
  std::string out = concat(kTableHeader, "\n");
  for (const Record& record : records()) out += format_record(record) + "\n";
  return out;
}

void Table::write(const std::filesystem::path& path) const {
  std::error_code failed;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
  AtomicFile file(path);
  file.write(text());
  file.commit();
}

}  // namespace rocm_sd::tuning
