// WeightStore: the tensors of one model component under canonical names, whatever layout the file has.
//
// Canonical names are those of Diffusers and transformers today:
//   UNet2DConditionModel  down_blocks.0.resnets.0.norm1.weight,
//   mid_block.attentions.0.transformer_blocks.0.attn1.to_q.weight AutoencoderKL
//   decoder.mid_block.attentions.0.to_q.weight (also for files that say query/key/value/proj_attn)
//   CLIPTextModel         text_model.encoder.layers.0.self_attn.q_proj.weight, text_projection.weight
//   AutoencoderTiny       decoder.layers.2.conv.0.weight
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "weights/component.hpp"
#include "weights/tensor_set.hpp"

namespace rocm_sd {

// Tensors of a live model by component (SafetensorsFile::of_memory).
using LiveComponents = std::map<Component, std::shared_ptr<const SafetensorsFile>>;

// Where one canonical tensor lies: a file's tensor, or a range of its rows.
struct StoredTensor {
  TensorRef ref;
  Shape shape;              // canonical: after row range and transposition
  int64_t row_begin = 0;    // first row of the file's tensor; its rows are shape[0] unless transposed
  bool transposed = false;  // the file holds [in,out]
  float scale = 1.0f;       // scaled fp8: the values are the stored ones times this

  DType dtype() const { return ref.entry->dtype; }  // as stored
  const std::string& file_name() const { return ref.entry->name; }
};

// What a file holds beyond what was used, for reports.
struct KeyReport {
  std::vector<std::string> unused;      // canonical names that the component has and nobody read
  std::vector<std::string> unexpected;  // names in the file that belong to no known part
  std::vector<std::string>
      harmless;  // buffers and training leftovers that no model needs (position_ids, betas, ...)
};

class WeightStore {
 public:
  // files keeps the tensors' files open. weights: canonical name -> place.
  WeightStore(Component component, std::string title,
              std::vector<std::shared_ptr<const SafetensorsFile>> files,
              std::map<std::string, StoredTensor, std::less<>> weights);

  Component component() const { return component_; }
  const std::string& title() const { return title_; }  // for messages: "unet of sd15.safetensors"
  size_t size() const { return weights_.size(); }
  const std::map<std::string, StoredTensor, std::less<>>& weights() const { return weights_; }
  const std::vector<std::shared_ptr<const SafetensorsFile>>& files() const { return files_; }
  uint64_t parameters() const;    // elements of all tensors
  uint64_t stored_bytes() const;  // bytes in the file

  bool has(std::string_view name) const { return find(name) != nullptr; }
  const StoredTensor* find(std::string_view name) const;  // null where absent

  // These throw FormatError naming the tensor and the file where it is missing.
  const StoredTensor& at(std::string_view name) const;
  const Shape& shape(std::string_view name) const { return at(name).shape; }
  DType dtype(std::string_view name) const { return at(name).dtype(); }

  // Converts the tensor into dst, which holds expected.numel() elements of `want`, row-major. Allowed
  // differences of shape are trailing ones, [C,C,1,1] <-> [C,C] (a 1x1 convolution and a linear layer hold
  // the same numbers); any other is a ShapeError with the tensor's canonical and file names, both shapes and
  // the file. Large tensors are read and converted by several threads. Thread-safe.
  void read(std::string_view name, const Shape& expected, DType want, void* dst) const;
  // Elements [begin, begin + count) of that.
  void read_part(std::string_view name, const Shape& expected, int64_t begin, int64_t count, DType want,
                 void* dst) const;
  // What read() checks before it reads: throws ShapeError where the tensor has another shape, FormatError
  // where it is missing or holds integers or booleans.
  const StoredTensor& check(std::string_view name, const Shape& expected) const;
  // The same as read_part without a check.
  void read_range(const StoredTensor& weight, int64_t begin, int64_t count, DType want, void* dst) const;

  // The canonical names that were never read. A tensor that a model knows of but does not need can be marked.
  std::vector<std::string> unused() const;
  void mark_used(std::string_view name) const;

 private:
  Component component_;
  std::string title_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> weights_;
  std::unordered_map<const StoredTensor*, size_t> positions_;  // in weights_; its nodes do not move
  std::unique_ptr<std::atomic<bool>[]> used_;                  // by position
};

// True where two shapes hold the same numbers under the rule of WeightStore::read.
bool shapes_compatible(const Shape& a, const Shape& b);

}  // namespace rocm_sd
