// Receipts: what a picture's file says about how it was drawn, enough to draw it again. JSON in the file
// beside A1111's parameters (docs/reference/picture-files.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

// A file or a folder that an option or a prompt named.
struct ReceiptFile {
  std::string option;  // "model", "init-image"; "lora", "embedding" for those that prompts name
  std::string path;
  uint64_t bytes = 0;  // of a folder: of its files together
  std::string sha256;  // of a folder: over the names and hashes of its files
  std::string name;    // of the file or folder when it was drawn with: what prompts call it by
};

struct Receipt {
  std::string version, device, driver, precision;
  std::string kernel_code, kernel_choices;  // GenerateResult's
  // What generate was asked for, in order, with the defaults of the model filled in: a later value of an
  // option that does not repeat counts.
  std::vector<std::pair<std::string, std::string>> options;
  int picture = 0;   // of the batch
  int quality = 95;  // that a JPEG or WebP file was written with
  std::vector<ReceiptFile> files;
  std::vector<StageTime> times;
  uint64_t planned_bytes = 0, peak_bytes = 0;  // of device memory
};

std::string receipt_text(const Receipt& receipt);
// Throws FormatError naming `what` and the field for anything else than a receipt of this version.
Receipt parse_receipt(std::string_view text, std::string_view what);

// One line for each of device, driver, precision, version and kernels that is not the same.
std::vector<std::string> receipt_differences(const Receipt& then, const Receipt& now);

// Hashes are remembered in hash_cache_file(). Throws FileError where the path cannot be read.
ReceiptFile identify_file(const std::string& option, const std::string& path);

// Versions of the GPU drivers that are loaded, and of the kernel: "linux 6.8.0, amdgpu 6.10.5".
std::string driver_versions();

}  // namespace rocm_sd
