#include "weights/tensor_set.hpp"

#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "weights/weights_files.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kMaxShards = 1024;

void check_shard_name(const std::string& shard, std::string_view index_name, std::string_view what) {
  const std::string shown = printable(shard);
  require<FormatError>(
      shard.size() <= 255 && shard.find_first_of("/\\") == shard.npos && shard != "." && shard != "..", what,
      ": shard \"", shown, "\" must be a plain file name in the index's own folder");
  for (const unsigned char c : shard)
    require<FormatError>(c >= 0x20 && c != 0x7f, what, ": control byte in the shard name \"", shown, "\"");
  require<FormatError>(shard != index_name, what, ": the index names itself as a shard");
  require<FormatError>(!weights_ending(shard).empty(), what, ": shard \"", shown,
                       "\" is no .safetensors or .bin file");
}

}  // namespace

ShardIndex parse_shard_index(std::string_view text, std::string_view index_name, std::string_view what) {
  const nlohmann::json root = parse_json(text, {.max_bytes = 64u << 20, .max_depth = 4}, what);
  require<FormatError>(root.is_object() && root.contains("weight_map") && root["weight_map"].is_object(),
                       what, ": expected an object with \"weight_map\", which maps tensor names to shards");
  ShardIndex index;
  std::unordered_map<std::string, size_t> positions;
  for (const auto& [name, value] : root["weight_map"].items()) {
    require<FormatError>(value.is_string(), what, ": weight_map \"", printable(name),
                         "\": expected a shard's name");
    const std::string& shard = value.get_ref<const std::string&>();
    const auto [it, is_new] = positions.emplace(shard, index.shards.size());
    if (is_new) {
      require<FormatError>(index.shards.size() < kMaxShards, what, ": more than ", kMaxShards, " shards");
      check_shard_name(shard, index_name, what);
      index.shards.push_back(shard);
    }
    index.weight_map.emplace(name, it->second);
  }
  require<FormatError>(!index.shards.empty(), what, ": the weight_map is empty");
  return index;
}

TensorSet TensorSet::open(const std::filesystem::path& path, FileAccess access) {
  TensorSet set;
  set.path_ = path;
  const std::string what = printable_path(path);
  ShardIndex index;
  if (path.extension() == ".json") {
    index = parse_shard_index(read_file(path, 64u << 20), path.filename().native(), what);
    for (const std::string& shard : index.shards)
      set.files_.push_back(SafetensorsFile::open(path.parent_path() / shard, access));
  } else {
    set.files_.push_back(SafetensorsFile::open(path, access));
  }
  for (size_t f = 0; f < set.files_.size(); ++f) {
    for (const TensorEntry& entry : set.files_[f]->entries()) {
      const auto listed = index.weight_map.find(entry.name);
      require<FormatError>(index.shards.empty() || (listed != index.weight_map.end() && listed->second == f),
                           what, ": tensor \"", printable(entry.name), "\" is in ",
                           printable_path(set.files_[f]->path()), ", where the index does not list it");
      set.index_.emplace(entry.name, set.tensors_.size());
      set.tensors_.push_back({set.files_[f].get(), &entry});
    }
  }
  for (const auto& [name, f] : index.weight_map)
    require<FormatError>(set.index_.contains(name), what, ": tensor \"", printable(name),
                         "\" is not in its shard ", printable(index.shards[f]));
  return set;
}

TensorSet TensorSet::of(std::shared_ptr<const SafetensorsFile> file) {
  TensorSet set;
  set.path_ = file->path();
  for (const TensorEntry& entry : file->entries()) {
    set.index_.emplace(entry.name, set.tensors_.size());
    set.tensors_.push_back({file.get(), &entry});
  }
  set.files_.push_back(std::move(file));
  return set;
}

TensorRef TensorSet::ref(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? TensorRef{} : tensors_[it->second];
}
const TensorEntry* TensorSet::find(std::string_view name) const { return ref(name).entry; }

}  // namespace rocm_sd
