#include "tuning/journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/log.hpp"

namespace rocm_sd::tuning {
namespace {

namespace fs = std::filesystem;

std::string reason() { return std::generic_category().message(errno); }

fs::path beside(const fs::path& path, const char* ending) {
  fs::path out = path;
  out += ending;
  return out;
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags)
      : path_(path), handle_(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0666)) {
    require<FileError>(handle_ >= 0, printable_path(path), ": cannot open: ", reason());
  }
  ~Descriptor() { close(handle_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return handle_; }

 private:
  fs::path path_;
  int handle_;
};

// Held by one process at a time; goes with the process however it ends. Not the table's own file, which
// compaction replaces.
class Lock {
 public:
  explicit Lock(const fs::path& table) : file_(beside(table, ".lock"), O_RDWR | O_CREAT) {
    while (flock(file_.get(), LOCK_EX) != 0)
      require<FileError>(errno == EINTR, printable_path(table), ": cannot lock: ", reason());
  }

 private:
  Descriptor file_;
};

}  // namespace

Journal::Journal(fs::path path) : path_(std::move(path)) {
  std::error_code failed;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), failed);
  const Lock lock(path_);
  if (path_exists(path_)) {
    try {
      table_ = Table::read(path_);
    } catch (const FormatError& error) {
      log().warn("{}; set aside as {}", error.what(), printable_path(beside(path_, ".bad")));
      fs::rename(path_, beside(path_, ".bad"), failed);
      require<FileError>(!failed, printable_path(path_), ": cannot rename: ", failed.message());
    }
  }
  std::ifstream trial(beside(path_, ".trying"));
  std::getline(trial, interrupted_);
  if (interrupted_.size() > 1000) interrupted_.clear();
}

void Journal::append(const Record& record) {
  std::string line = format_record(record) + "\n";
  const Lock lock(path_);
  const Descriptor file(path_, O_RDWR | O_CREAT | O_APPEND);
  const off_t end = lseek(file.get(), 0, SEEK_END);
  char last = '\n';
  if (end > 0)
    require<FileError>(pread(file.get(), &last, 1, end - 1) == 1, printable_path(path_),
                       ": cannot read: ", reason());
  if (end == 0) line = concat(kTableHeader, "\n", line);
  if (last != '\n') line = "\n" + line;
  const ssize_t put = write(file.get(), line.data(), line.size());
  require<FileError>(put == static_cast<ssize_t>(line.size()), printable_path(path_),
                     ": cannot write: ", put < 0 ? reason() : std::string("the disk is full"));
  table_.add(record);
}

void Journal::compact() {
  const Lock lock(path_);
  Table all = path_exists(path_) ? Table::read(path_) : Table();
  all.merge(table_);
  all.write(path_);
  table_ = std::move(all);
}

void Journal::trying(const std::string& what) {
  const fs::path trial = beside(path_, ".trying");
  if (what.empty()) {
    std::error_code ignored;
    fs::remove(trial, ignored);
    return;
  }
  // Renamed into place, so that a kill in the middle leaves the last name and not an empty file.
  const fs::path fresh = beside(path_, concat(".trying.", getpid()).c_str());
  std::ofstream file(fresh, std::ios::trunc);
  file << what << std::endl;
  require<FileError>(file.good(), printable_path(fresh), ": cannot write");
  file.close();
  std::error_code error;
  fs::rename(fresh, trial, error);
  require<FileError>(!error, printable_path(trial), ": cannot rename: ", error.message());
}

}  // namespace rocm_sd::tuning
