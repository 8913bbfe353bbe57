// The records of a zip archive whose contents are stored without compression, as PyTorch writes its files.
// Format: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 (local headers), 4.3.12 (central directory), 4.3.14 to
// 4.3.16 (end of central directory, with its 64-bit form).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"

namespace rocm_sd {

struct ZipRecord {
  std::string name;
  uint64_t begin = 0;  // of its contents, bytes from the start of the file
  uint64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32 of the contents
};

// Every record, by position in the file. Only the central directory is believed, and every local header must
// agree with it. Throws FormatError, naming the record, for compressed or encrypted ones, archives of several
// parts, names that stand twice or leave the archive ("../x"), and records that overlap or lie outside.
std::vector<ZipRecord> read_zip_records(const InputFile& file, std::string_view what);

// Throws FormatError where the record's contents have another CRC-32 than its header says. Reads all of it.
void check_contents(const InputFile& file, const ZipRecord& record, std::string_view what);

}  // namespace rocm_sd
