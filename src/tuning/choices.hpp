// The tuned choices that this process goes by: read once per device, when an op first asks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuning/table.hpp"

namespace rocm_sd::tuning {

// What the tables say for this problem of this op, or nothing. Advice: the caller checks that it can be
// followed. The same for the whole life of the process, so that a forward's plan and its capture agree; what
// a tuner finds meanwhile holds from the next process on. Thread-safe.
std::optional<std::string> tuned_choice(Device& device, std::string_view op, const std::string& problem);

// Says once per op, problem and reason that a table's choice was not followed.
void note_refused(std::string_view op, const std::string& problem, const std::string& choice,
                  const std::string& why);

// Tables that apply to a device, the later of greater weight where nothing else decides: the shipped
// tuning/<arch>.tsv, the user's own. ROCM_SD_TUNING=off: none; ROCM_SD_TUNING=FILE: that one alone.
std::vector<std::filesystem::path> table_files(const Identity& device);
// "$XDG_CACHE_HOME/rocm-sd/tuning/sm_90.tsv" (else ~/.cache); empty where neither variable is set.
std::filesystem::path user_table_file(const Identity& device);
// All tables of table_files() that can be read; the others are named in a warning.
Table read_tables(const Identity& device);

// While alive, on this thread: choices come from this table alone, as if for the device that it is asked for;
// null: from none.
class TuningScope {
 public:
  explicit TuningScope(const Table* table);
  ~TuningScope();
  TuningScope(const TuningScope&) = delete;
  TuningScope& operator=(const TuningScope&) = delete;

 private:
  const Table* outer_table_;
  bool outer_active_;
};

}  // namespace rocm_sd::tuning
