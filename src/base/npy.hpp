// NumPy's .npy files: one array of plain numbers, in C order and little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

// Element types: NumPy's kind letter and the bytes of an element. 'f' float, 'i' int, 'u' unsigned, 'b' bool,
// 'c' complex, 'V' opaque (what NumPy writes for bfloat16 and 8-bit floats).
struct NpyType {
  char kind = 'f';
  uint32_t bytes = 4;
  bool operator==(const NpyType&) const = default;
};

struct NpyArray {
  NpyType type;
  std::vector<uint64_t> shape;  // empty: a scalar
  std::vector<std::byte> data;
};

// Parses the bytes of a file; `what` names it in errors. Throws FormatError for what is no .npy of versions
// 1 to 3, for big-endian or Fortran order, object and structured arrays, and where the size does not fit.
NpyArray parse_npy(std::span<const std::byte> file, const std::string& what);
// The file's bytes for an array. data must hold the product of the shape times type.bytes.
std::vector<std::byte> format_npy(const NpyType& type, std::span<const uint64_t> shape,
                                  std::span<const std::byte> data);

// Files of at most 16 GiB. Throw FileError or FormatError.
NpyArray read_npy(const std::filesystem::path& path);
void write_npy(const std::filesystem::path& path, const NpyType& type, std::span<const uint64_t> shape,
               std::span<const std::byte> data);

}  // namespace rocm_sd
