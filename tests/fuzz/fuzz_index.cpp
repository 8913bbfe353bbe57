// Fuzzes the index of a sharded model: no accepted shard may leave the index's folder.
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "weights/tensor_set.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const rocm_sd::ShardIndex index =
        rocm_sd::parse_shard_index({reinterpret_cast<const char*>(data), size}, "model.index.json", "fuzz");
    for (const std::string& shard : index.shards)
      if (shard.empty() || shard.find('/') != shard.npos || shard.find('\0') != shard.npos) __builtin_trap();
    for (const auto& [name, position] : index.weight_map)
      if (position >= index.shards.size()) __builtin_trap();
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
