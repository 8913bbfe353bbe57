#include "base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/format.hpp"

namespace rocm_sd {
namespace {

std::string reason(int error) { return std::strerror(error); }

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "not a regular file";
}

[[noreturn]] void fail_open(const std::filesystem::path& path, int error) {
  struct stat info{};
  if (error == ENOENT && lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode))
    throw FileError(concat(printable_path(path), ": a symbolic link to a file that does not exist"));
  if (error == ENXIO)
    throw FileError(concat(printable_path(path), ": expected a file, found a socket or a device"));
  throw FileError(concat(printable_path(path), ": cannot open: ", reason(error)));
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO without a writer must not hang; it has no effect on regular files.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) fail_open(path, errno);
  struct stat info{};
  const int status = fstat(descriptor_, &info);
  const int error = errno;
  if (status != 0 || !S_ISREG(info.st_mode)) {
    close(descriptor_);
    require<FileError>(status == 0, printable_path(path), ": cannot examine: ", reason(error));
    throw FileError(concat(printable_path(path), ": expected a file, found ", kind_of(info.st_mode)));
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

InputFile::~InputFile() { close(descriptor_); }

void InputFile::read_at(uint64_t offset, void* dst, uint64_t bytes) const {
  uint64_t done = 0;
  while (done < bytes) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(bytes - done, 1u << 30));
    const ssize_t got =
        pread(descriptor_, static_cast<char*>(dst) + done, part, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    require<FileError>(got >= 0, printable_path(path_), ": read error: ", reason(errno));
    require<FormatError>(got > 0, printable_path(path_), ": the file became shorter while it was read (",
                         bytes, " bytes wanted at offset ", offset, ", ", done, " there)");
    done += static_cast<uint64_t>(got);
  }
}

std::string read_file(const std::filesystem::path& path, uint64_t max_bytes) {
  const InputFile file(path);
  require<FormatError>(file.size() <= max_bytes, printable_path(path), ": ", file.size(), " bytes, at most ",
                       max_bytes, " are accepted for such a file");
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

bool path_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool is_folder_path(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

namespace {

// The file that a path leads to through symbolic links, also where the last of them leads to none yet.
std::filesystem::path followed(std::filesystem::path path) {
  constexpr int kMaxLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMaxLinks && std::filesystem::is_symlink(path, error); ++i) {
    const std::filesystem::path link = std::filesystem::read_symlink(path, error);
    if (error) break;
    path = link.is_absolute() ? link : path.parent_path() / link;
  }
  return path;
}

// Whether something other than a regular file is there to be written to. stat() looks through links such as
// /dev/stdout, whose text is no path.
bool is_stream(const std::filesystem::path& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& target) : target_(target), place_(target) {
  if (is_stream(target)) {
    descriptor_ = open(target.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    require<FileError>(descriptor_ >= 0, printable_path(target), ": cannot write: ", reason(errno));
    return;
  }
  require<FileError>(!is_folder_path(target), printable_path(target), ": cannot write: it is a folder");
  place_ = followed(target);
  std::random_device random;
  for (int attempt = 0; attempt < 16; ++attempt) {
    temporary_ = place_;
    temporary_ += fmt::format(".{:08x}.part", random());
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0 || errno != EEXIST) break;
  }
  require<FileError>(descriptor_ >= 0, printable_path(target), ": cannot write: ", reason(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void require_writable(const std::filesystem::path& target) {
  if (!is_stream(target)) AtomicFile probe(target);  // a FIFO would wait for its reader
  require<FileError>(!is_stream(target) || access(target.c_str(), W_OK) == 0, printable_path(target),
                     ": cannot write: ", reason(errno));
}

void AtomicFile::write(const void* data, uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor_, from, static_cast<size_t>(std::min<uint64_t>(bytes, 1u << 30)));
    if (put < 0 && errno == EINTR) continue;
    require<FileError>(put >= 0, printable_path(target_), ": cannot write: ", reason(errno));
    from += put;
    bytes -= static_cast<uint64_t>(put);
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) {
    const int closed = close(std::exchange(descriptor_, -1));
    require<FileError>(closed == 0, printable_path(target_), ": cannot write: ", reason(errno));
    return;
  }
  require<FileError>(fsync(descriptor_) == 0, printable_path(target_), ": cannot write: ", reason(errno));
  require<FileError>(rename(temporary_.c_str(), place_.c_str()) == 0, printable_path(target_),
                     ": cannot rename the finished file: ", reason(errno));
  close(descriptor_);
  descriptor_ = -1;
  // The rename itself must survive a power cut; a folder that cannot be synced is not worth an error now.
  const std::filesystem::path folder = place_.has_parent_path() ? place_.parent_path() : ".";
  const int handle = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle >= 0) {
    fsync(handle);
    close(handle);
  }
}

}  // namespace rocm_sd
