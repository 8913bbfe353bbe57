// The user's own table while it grows: each record is on disk as soon as it is made, so that a tuner that is
// killed loses the problem that it was at and nothing else.
#pragma once

#include <filesystem>
#include <string>

#include "tuning/table.hpp"

namespace rocm_sd::tuning {

// Records are appended under a lock of the file "<path>.lock", a line in one write, so that several processes
// may tune into the same table. A line that a killed process left unfinished is closed first; its checksum
// gives it away when the table is read.
class Journal {
 public:
  // Reads what is there. A file that is no table is set aside as "<path>.bad" with a warning. Throws
  // FileError where the folder cannot be made or the file not be written.
  explicit Journal(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const Table& table() const { return table_; }

  void append(const Record& record);  // to the file and to table()
  // Writes the file anew without what was replaced or damaged; records of other processes are kept.
  void compact();

  // What is being tried, in "<path>.trying": a candidate that takes the process (or the driver) down is found
  // there by the next one. "" ends the trial.
  void trying(const std::string& what);
  // What the process before this one was at when it ended, or "".
  const std::string& interrupted() const { return interrupted_; }

 private:
  std::filesystem::path path_;
  Table table_;
  std::string interrupted_;
};

}  // namespace rocm_sd::tuning
