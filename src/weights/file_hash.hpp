// SHA-256 of weight files, by which AUTOMATIC1111 and Civitai know a model. Remembered between runs, since
// hashing takes seconds.
#pragma once

#include <filesystem>
#include <string>

namespace rocm_sd {

// 64 lower-case hex digits. Throws FileError as InputFile does.
std::string sha256_of_file(const std::filesystem::path& path);
std::string sha256_of_text(std::string_view text);
// Of a safetensors file without its header, of a file of torch.save whole: what A1111 calls a LoRA's hash.
std::string sha256_of_tensors(const std::filesystem::path& path);

// Of 64 KiB behind the first MiB, the first 8 digits: AUTOMATIC1111's older hash, which its ControlNets are
// named by.
std::string short_hash_of_file(const std::filesystem::path& path);

// sha256_of_file, looked up in and added to the JSON file `cache` under the file's absolute path, size and
// time of change. A cache that cannot be read or written is worth a debug line, never an error.
std::string cached_sha256(const std::filesystem::path& path, const std::filesystem::path& cache);

// $XDG_CACHE_HOME/rocm-sd/hashes.json, else ~/.cache/rocm-sd/hashes.json; empty where neither is set.
std::filesystem::path hash_cache_file();

}  // namespace rocm_sd
