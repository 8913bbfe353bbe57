#include "tuning/choices.hpp"

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/paths.hpp"

namespace rocm_sd::tuning {
namespace {

namespace fs = std::filesystem;

thread_local bool scope_active = false;
thread_local const Table* scope_table = nullptr;

struct DeviceTables {
  Identity identity;
  std::optional<Table> table;  // once read; it does not change then
};

// By name: a device that stands in for another (a recorder of launches) shares its tables. Nothing is ever
// taken out, so that references stay.
const DeviceTables& tables_of(Device& device, bool read) {
  static std::mutex mutex;
  static auto& all = *new std::map<std::string, DeviceTables>;
  // The host's name costs a look into /proc.
  const std::string name = device.kind() == DeviceKind::kHost ? "host" : device.name();
  const std::lock_guard lock(mutex);
  auto found = all.find(name);
  if (found == all.end()) found = all.emplace(name, DeviceTables{identity_of(device), std::nullopt}).first;
  if (read && !found->second.table) found->second.table = read_tables(found->second.identity);
  return found->second;
}

bool is_off(std::string_view setting) { return setting == "off" || setting == "0" || setting == "none"; }

}  // namespace

std::optional<std::string> tuned_choice(Device& device, std::string_view op, const std::string& problem) {
  if (scope_active && !scope_table) return std::nullopt;
  const DeviceTables& tables = tables_of(device, !scope_active);
  const Table& table = scope_active ? *scope_table : *tables.table;
  if (table.size() == 0) return std::nullopt;  // the usual case, asked for each op of an eager caller
  const Record* record = table.find(tables.identity, op, problem);
  return record ? std::optional(record->choice) : std::nullopt;
}

void note_refused(std::string_view op, const std::string& problem, const std::string& choice,
                  const std::string& why) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::string line = concat("tuning: ", op, " ", problem, ": the table's choice \"", printable(choice),
                                  "\" is not followed: ", why);
  const std::lock_guard lock(mutex);
  if (said.size() < 1000 && said.insert(line).second) log().info("{}", line);
}

fs::path user_table_file(const Identity& device) {
  const auto in = [&](const fs::path& folder) {
    return folder / "rocm-sd" / "tuning" / concat(device.arch, ".tsv");
  };
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder) return in(folder);
  if (const char* home = std::getenv("HOME"); home && *home) return in(fs::path(home) / ".cache");
  return {};
}

std::vector<fs::path> table_files(const Identity& device) {
  const char* set = std::getenv("ROCM_SD_TUNING");
  const std::string_view setting = set ? set : "";
  if (is_off(setting)) return {};
  if (!setting.empty()) return {fs::path(setting)};
  std::vector<fs::path> files;
  for (const fs::path& folder : share_folders()) {
    fs::path file = folder / "tuning" / concat(device.arch, ".tsv");
    if (!path_exists(file)) continue;
    files.push_back(std::move(file));
    break;
  }
  if (fs::path file = user_table_file(device); !file.empty() && path_exists(file))
    files.push_back(std::move(file));
  return files;
}

Table read_tables(const Identity& device) {
  Table all;
  for (const fs::path& file : table_files(device)) {
    try {
      const Table table = Table::read(file);
      if (table.bad_lines() > 0)
        log().info("{}: {} damaged lines are left out", printable_path(file), table.bad_lines());
      all.merge(table);
    } catch (const Error& error) {
      log().warn("tuning: {}; going on without it", error.what());
    }
  }
  return all;
}

TuningScope::TuningScope(const Table* table) : outer_table_(scope_table), outer_active_(scope_active) {
  scope_table = table;
  scope_active = true;
}
TuningScope::~TuningScope() {
  scope_table = outer_table_;
  scope_active = outer_active_;
}

}  // namespace rocm_sd::tuning
