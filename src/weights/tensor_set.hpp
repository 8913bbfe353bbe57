// TensorSet: the tensors of one safetensors file, or of the shards that an index file lists, by their names
// in the file.
#pragma once

#include <memory>
#include <vector>

#include "weights/safetensors.hpp"

namespace rocm_sd {

struct TensorRef {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
};

// An index file's text, checked: shard base names in order of first mention, and the shard of each tensor.
struct ShardIndex {
  std::vector<std::string> shards;
  std::unordered_map<std::string, size_t> weight_map;
};
// Throws FormatError naming `what`; index_name is the index's own base name, which no shard may have.
ShardIndex parse_shard_index(std::string_view json, std::string_view index_name, std::string_view what);

class TensorSet {
 public:
  // path: a .safetensors file, or an index (a name ending in .json). Every tensor must be where the index
  // says, in one shard only. Throws FileError and FormatError.
  static TensorSet open(const std::filesystem::path& path, FileAccess access = FileAccess::kRead);

  // Of one file that is open already (or of a model in memory).
  static TensorSet of(std::shared_ptr<const SafetensorsFile> file);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::shared_ptr<const SafetensorsFile>>& files() const { return files_; }
  const TensorEntry* find(std::string_view name) const;               // null where absent
  TensorRef ref(std::string_view name) const;                         // {null, null} where absent
  const std::vector<TensorRef>& tensors() const { return tensors_; }  // in the order of the files
  const Metadata& metadata() const { return files_.front()->metadata(); }

 private:
  std::filesystem::path path_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::vector<TensorRef> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace rocm_sd
