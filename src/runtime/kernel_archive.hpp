// Kernel archive: the code objects of one GPU target in one file, kernels_<target>.rsk, made when this
// project is built (cmake/archs.cmake, tools/pack/pack_kernels) and read when a device looks for its kernels.
//
// Format, little-endian: "RSDKERN\n", u32 version (1), u32 0, u64 index bytes, the index (JSON), the objects.
//   {"target": "gfx1100", "compiler": "...", "objects": [{"name", "offset", "size", "hash": FNV-1a 64 in hex,
//    "kernels": [{"name", "params", "lds", "scratch", "registers"}]}]}
// offset counts from the end of the index. A kernel's name is unique in the archive.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"

namespace rocm_sd {

// What the compiler said of a kernel; bytes.
struct ArchivedKernel {
  size_t object = 0;       // index into KernelArchive::objects()
  uint32_t params = 0;     // of arguments; AMD: with those that the compiler added
  uint32_t lds = 0;        // LDS that the kernel declares
  uint32_t scratch = 0;    // per lane
  uint32_t registers = 0;  // vector registers per lane; 0: not known
};

struct ArchivedObject {
  std::string name;
  uint64_t offset = 0;  // in the file
  uint64_t size = 0;
  uint64_t hash = 0;
};

// An open archive. The index is read and checked at once, objects when they are asked for. Thread-safe.
class KernelArchive {
 public:
  // Throws FileError where the file cannot be read, FormatError where it is no sound archive.
  explicit KernelArchive(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::string& target() const { return target_; }      // "gfx1100"
  const std::string& compiler() const { return compiler_; }  // its version line
  const std::vector<ArchivedObject>& objects() const { return objects_; }
  const std::map<std::string, ArchivedKernel, std::less<>>& kernels() const { return kernels_; }

  // The bytes of an object; throws FormatError where they are not those that were packed.
  std::string read(const ArchivedObject& object) const;

 private:
  InputFile file_;
  std::string target_, compiler_;
  std::vector<ArchivedObject> objects_;
  std::map<std::string, ArchivedKernel, std::less<>> kernels_;
};

// The folders that may hold archives, best first: $ROCM_SD_KERNELS (alone, if set); beside the executable and
// beside the library that holds this code, there also lib/rocm-sd and rocm-sd; this build's lib; the
// configured installation prefix.
std::vector<std::filesystem::path> kernel_folders();

// The first kernels_<target>.rsk in kernel_folders().
std::optional<std::filesystem::path> find_kernel_archive(std::string_view target);

// The targets that have an archive in any of the folders, sorted: what messages name.
std::vector<std::string> archived_targets();

}  // namespace rocm_sd
