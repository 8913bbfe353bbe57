#include "pipeline/weights_id.hpp"

#include <cstdint>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"

namespace rocm_sd {
namespace {

// FNV-1a (Fowler, Noll, Vo): nobody is to be kept from making two files alike, only from mixing them up.
void mix(uint64_t& hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash = (hash ^ 0xffu) * 0x100000001b3u;
}

}  // namespace

std::string weights_id(const Checkpoint& checkpoint) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Component component : kComponents) {
    const WeightStore* store = checkpoint.find(component);
    if (!store) continue;
    mix(hash, component_name(component));
    for (const auto& file : store->files()) {
      std::error_code none;  // live tensors have a title in place of a path
      const auto changed = std::filesystem::last_write_time(file->path(), none);
      const auto ticks = none ? 0 : changed.time_since_epoch().count();
      mix(hash, concat(file->path().native(), " ", file->file_bytes(), " ", ticks));
    }
    for (const auto& [name, tensor] : store->weights())
      mix(hash, concat(name, " ", tensor.dtype(), " ", tensor.shape));
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace rocm_sd
