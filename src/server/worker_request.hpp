// What a worker makes of an order: the engine's request, and files that are in memory alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "rocm_sd/image.hpp"
#include "rocm_sd/pipeline.hpp"

namespace rocm_sd::server {

// The bytes of an attachment under a path: what reads option files reads these, and nothing is on a disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);  // throws FileError
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// The order's options and files, set in `request`. Throws UsageError that names the option.
GenerateRequest read_order(GenerateRequest request, const nlohmann::json& head, std::string_view bytes);

// Whether a step is one of `partials` of `total`, evenly; the last of all is none.
bool is_partial(int step, int total, int partials);
ImageFormat format_named(const std::string& name);
// At most so much of it, around its middle.
Image middle_of(const Image& image, int width, int height);

}  // namespace rocm_sd::server
