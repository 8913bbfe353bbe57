// Files from and to a hostile world: regular files only, exact reads, atomic writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace rocm_sd {

// An open regular file. Directories, FIFOs, devices, sockets, dangling links and unreadable files are refused
// with a FileError that says which it is; opening never blocks.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }  // bytes, at opening
  int descriptor() const { return descriptor_; }

  // Reads exactly `bytes` bytes at `offset`; thread-safe. Throws FileError on an I/O error and FormatError
  // where the file has become too short.
  void read_at(uint64_t offset, void* dst, uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  uint64_t size_ = 0;
  int descriptor_ = -1;
};

// The whole file as bytes. Throws FormatError above max_bytes, FileError as InputFile does.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes);

// Writes a new file beside the target and renames it over the target on commit(); without commit() the
// temporary file is removed and the old target stays as it was. A symbolic link is followed: it stays, and
// the file that it points to is the target. What is no file (a FIFO, /dev/stdout, a device) is written to
// directly. Every failure is a FileError with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, uint64_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();  // fsync of the file, rename, fsync of the folder

 private:
  std::filesystem::path target_, place_, temporary_;  // as named; where it lies; until commit(), or empty
  int descriptor_ = -1;
};

// Throws the FileError that writing the file would, as far as it can be told before: no folder, no
// permission, a folder in its place. Nothing is left behind.
void require_writable(const std::filesystem::path& target);

// False also where the path cannot be examined.
bool path_exists(const std::filesystem::path& path);
bool is_folder_path(const std::filesystem::path& path);

// A path for messages: printable and quoted by nobody.
inline std::string printable_path(const std::filesystem::path& path) { return printable(path.native(), 400); }

}  // namespace rocm_sd
