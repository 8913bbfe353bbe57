#include "weights/zip_records.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "base/checked.hpp"
#include "base/error.hpp"

namespace rocm_sd {
namespace {

constexpr uint64_t kMaxRecords = 1'000'000;
constexpr uint64_t kMaxDirectoryBytes = 256 << 20;
constexpr uint32_t kIn64 = 0xffffffff;  // the value stands in the 64-bit field
constexpr uint16_t kEncrypted = 1, kSizesFollow = 8;
constexpr uint32_t kFolder = 0x10;  // of MS-DOS's attributes

// Little-endian fields of a piece of the file.
class Fields {
 public:
  Fields(std::string_view bytes, std::string_view what) : bytes_(bytes), what_(what) {}
  template <class T>
  T take() {
    T value;
    const std::string_view part = text(sizeof(T));
    std::memcpy(&value, part.data(), sizeof(T));
    return value;
  }
  std::string_view text(size_t count) {
    require<FormatError>(count <= bytes_.size(), what_, ": damaged zip archive: a header is cut off");
    const std::string_view out = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return out;
  }
  void skip(size_t count) { text(count); }
  size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_, what_;
};

std::string read_text(const InputFile& file, uint64_t begin, uint64_t bytes, std::string_view what) {
  require<FormatError>(begin <= file.size() && bytes <= file.size() - begin, what,
                       ": damaged zip archive: bytes [", begin, ", +", bytes, ") are outside the file of ",
                       file.size());
  std::string out(static_cast<size_t>(bytes), '\0');
  file.read_at(begin, out.data(), bytes);
  return out;
}

struct Directory {
  uint64_t begin = 0, bytes = 0, records = 0;
};

// The end of the central directory: the last 22 bytes, or more where a comment follows.
uint64_t end_record(const InputFile& file, std::string_view what) {
  constexpr uint64_t kBytes = 22, kMaxComment = 0xffff;
  const uint64_t span = std::min(file.size(), kBytes + kMaxComment);
  const std::string tail = read_text(file, file.size() - span, span, what);
  for (uint64_t back = kBytes; back <= span; ++back) {
    const std::string_view at = std::string_view(tail).substr(static_cast<size_t>(span - back));
    if (!at.starts_with("PK\5\6")) continue;
    uint16_t comment;
    std::memcpy(&comment, at.data() + 20, 2);
    if (comment == back - kBytes) return file.size() - back;
  }
  throw FormatError(concat(
      what, ": damaged zip archive: it has no end of the central directory; is the file ", "complete?"));
}

// The 64-bit form stands before the plain one, if a field of that overflows.
std::optional<Directory> directory_of_64_bits(const InputFile& file, uint64_t end, std::string_view what) {
  constexpr uint64_t kLocator = 20, kEnd64 = 56;
  if (end < kLocator) return std::nullopt;
  const std::string locator = read_text(file, end - kLocator, kLocator, what);
  if (!locator.starts_with("PK\6\7")) return std::nullopt;
  Fields place(std::string_view(locator).substr(4), what);
  const auto disk = place.take<uint32_t>();
  const auto at = place.take<uint64_t>();
  const auto disks = place.take<uint32_t>();
  require<FormatError>(disk == 0 && disks <= 1, what, ": a zip archive of several parts is not read");
  const std::string text = read_text(file, at, kEnd64, what);
  require<FormatError>(text.starts_with("PK\6\6"), what,
                       ": damaged zip archive: no 64-bit end of the central directory at byte ", at);
  Fields fields(std::string_view(text).substr(4), what);
  const auto rest = fields.take<uint64_t>();
  require<FormatError>(rest == kEnd64 - 12, what, ": damaged zip archive: the 64-bit end of the central ",
                       "directory states ", rest, " bytes, expected ", kEnd64 - 12);
  fields.skip(4);  // versions
  const auto this_disk = fields.take<uint32_t>(), first = fields.take<uint32_t>();
  const auto here = fields.take<uint64_t>(), records = fields.take<uint64_t>();
  require<FormatError>(here == records && this_disk == 0 && first == 0, what,
                       ": a zip archive of several parts is not read");
  Directory out;
  out.records = records;
  out.bytes = fields.take<uint64_t>();
  out.begin = fields.take<uint64_t>();
  return out;
}

Directory find_directory(const InputFile& file, std::string_view what) {
  const uint64_t end = end_record(file, what);
  Directory out;
  const std::optional<Directory> large = directory_of_64_bits(file, end, what);
  if (large) {
    out = *large;
  } else {
    const std::string text = read_text(file, end, 22, what);
    Fields fields(std::string_view(text).substr(4), what);
    const auto disk = fields.take<uint16_t>(), first = fields.take<uint16_t>();
    const auto here = fields.take<uint16_t>();
    out.records = fields.take<uint16_t>();
    require<FormatError>(disk == 0 && first == 0 && here == out.records, what,
                         ": a zip archive of several parts is not read");
    out.bytes = fields.take<uint32_t>();
    out.begin = fields.take<uint32_t>();
  }
  require<FormatError>(out.records <= kMaxRecords && out.bytes <= kMaxDirectoryBytes, what, ": ", out.records,
                       " records in a directory of ", out.bytes, " bytes, at most ", kMaxRecords, " and ",
                       kMaxDirectoryBytes, " are accepted");
  require<FormatError>(checked_add(out.begin, out.bytes, what) <= end, what,
                       ": damaged zip archive: the central directory is outside the file");
  return out;
}

// What one entry of the central directory says. begin is still that of the local header.
struct Entry {
  ZipRecord record;
  uint16_t flags = 0;
};

void check_name(std::string_view name, std::string_view what) {
  constexpr size_t kMaxName = 1024;
  require<FormatError>(!name.empty() && name.size() <= kMaxName, what, ": a record's name has ", name.size(),
                       " bytes, expected 1 to ", kMaxName);
  const bool leaves = name.front() == '/' || name.find("..") != name.npos || name.find('\\') != name.npos;
  const bool control = std::any_of(name.begin(), name.end(), [](char c) { return c >= 0 && c < 0x20; });
  require<FormatError>(!leaves && !control, what, ": record \"", printable(name),
                       "\": a path that leaves the archive, or control bytes");
}

Entry take_entry(Fields& fields, std::string_view what) {
  require<FormatError>(fields.text(4) == "PK\1\2", what,
                       ": damaged zip archive: expected an entry of the central directory");
  Entry out;
  fields.skip(4);  // versions
  out.flags = fields.take<uint16_t>();
  const auto method = fields.take<uint16_t>();
  fields.skip(4);  // time and date
  out.record.crc = fields.take<uint32_t>();
  uint64_t stored = fields.take<uint32_t>();
  out.record.bytes = fields.take<uint32_t>();
  const auto name_bytes = fields.take<uint16_t>(), extra_bytes = fields.take<uint16_t>(),
             comment_bytes = fields.take<uint16_t>();
  const auto disk = fields.take<uint16_t>();
  fields.skip(2);
  const auto attributes = fields.take<uint32_t>();
  out.record.begin = fields.take<uint32_t>();
  out.record.name = fields.text(name_bytes);
  check_name(out.record.name, what);
  Fields extra(fields.text(extra_bytes), what);
  fields.skip(comment_bytes);
  while (extra.left() >= 4) {
    const auto id = extra.take<uint16_t>(), bytes = extra.take<uint16_t>();
    Fields part(extra.text(bytes), what);
    if (id != 1) continue;  // 1: the 64-bit values, in this order, of those that overflow
    for (uint64_t* value : {&out.record.bytes, &stored, &out.record.begin})
      if (*value == kIn64) *value = part.take<uint64_t>();
  }
  const std::string shown = printable(out.record.name);
  require<FormatError>(disk == 0, what, ": a zip archive of several parts is not read");
  require<FormatError>((attributes & kFolder) == 0, what, ": record \"", shown, "\" is a folder");
  require<FormatError>((out.flags & kEncrypted) == 0, what, ": record \"", shown, "\" is encrypted");
  require<FormatError>(method == 0 && stored == out.record.bytes, what, ": record \"", shown,
                       "\" is compressed (method ", method,
                       "); PyTorch stores without compression: was the archive packed again?");
  return out;
}

// The local header must say what the directory says; returns where the contents begin.
uint64_t contents_begin(const InputFile& file, const Entry& entry, std::string_view what) {
  constexpr uint64_t kHeader = 30;
  const uint64_t at = entry.record.begin;
  const std::string text = read_text(file, at, kHeader, what);
  const std::string shown = printable(entry.record.name);
  require<FormatError>(text.starts_with("PK\3\4"), what, ": record \"", shown, "\": no local header at byte ",
                       at);
  Fields fields(std::string_view(text).substr(6), what);
  const auto flags = fields.take<uint16_t>(), method = fields.take<uint16_t>();
  fields.skip(4);
  const auto crc = fields.take<uint32_t>(), stored = fields.take<uint32_t>(), bytes = fields.take<uint32_t>();
  const auto name_bytes = fields.take<uint16_t>(), extra_bytes = fields.take<uint16_t>();
  const std::string name = read_text(file, at + kHeader, name_bytes, what);
  const auto agrees = [&](uint32_t local, uint64_t listed) {
    return local == listed || local == kIn64 || (local == 0 && (flags & kSizesFollow) != 0);
  };
  require<FormatError>(name == entry.record.name && method == 0 && flags == entry.flags &&
                           agrees(stored, entry.record.bytes) && agrees(bytes, entry.record.bytes) &&
                           (crc == entry.record.crc || agrees(crc, entry.record.crc)),
                       what, ": record \"", shown, "\": its local header and the central directory differ");
  return at + kHeader + name_bytes + extra_bytes;
}

}  // namespace

std::vector<ZipRecord> read_zip_records(const InputFile& file, std::string_view what) {
  const Directory directory = find_directory(file, what);
  const std::string text = read_text(file, directory.begin, directory.bytes, what);
  Fields fields(text, what);
  std::vector<ZipRecord> out;
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < directory.records; ++i) {
    Entry entry = take_entry(fields, what);
    require<FormatError>(names.insert(entry.record.name).second, what, ": record \"",
                         printable(entry.record.name), "\" stands twice");
    entry.record.begin = contents_begin(file, entry, what);
    out.push_back(std::move(entry.record));
  }
  require<FormatError>(fields.left() == 0, what, ": damaged zip archive: ", fields.left(),
                       " bytes after the last entry of the central directory");
  std::sort(out.begin(), out.end(), [](const ZipRecord& a, const ZipRecord& b) { return a.begin < b.begin; });
  uint64_t position = 0;
  for (const ZipRecord& record : out) {
    require<FormatError>(record.begin >= position && record.begin <= directory.begin &&
                             record.bytes <= directory.begin - record.begin,
                         what, ": record \"", printable(record.name),
                         "\" overlaps another one or lies outside the archive's contents");
    position = record.begin + record.bytes;
  }
  return out;
}

void check_contents(const InputFile& file, const ZipRecord& record, std::string_view what) {
  constexpr uint64_t kPiece = 1 << 20;
  std::vector<unsigned char> piece(static_cast<size_t>(std::min(kPiece, record.bytes)));
  uLong crc = crc32(0, nullptr, 0);
  for (uint64_t done = 0; done < record.bytes; done += kPiece) {
    const uint64_t part = std::min(kPiece, record.bytes - done);
    file.read_at(record.begin + done, piece.data(), part);
    crc = crc32(crc, piece.data(), static_cast<uInt>(part));
  }
  require<FormatError>(crc == record.crc, what, ": record \"", printable(record.name),
                       "\" is damaged: its CRC-32 is not the one that its header states");
}

}  // namespace rocm_sd
