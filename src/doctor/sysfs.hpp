// Small files of /sys and /proc, read without trust: nothing throws, and what cannot be read is empty.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace rocm_sd::doctor {

// The beginning of a small text file, without white space at its end; "" where it cannot be read.
std::string read_text(const std::filesystem::path& path, size_t most = 64 << 10);
// The same with every byte.
std::string read_bytes(const std::filesystem::path& path, size_t most);
// A number in decimal or, after 0x, hexadecimal digits; 0 where there is none.
uint64_t read_number(const std::filesystem::path& path);
// The entries of a folder, sorted by name; none where it cannot be read.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder);
// "name value" lines, as the KFD topology's properties files hold.
std::map<std::string, uint64_t> read_properties(const std::filesystem::path& path);

}  // namespace rocm_sd::doctor
