// Files of textual inversion: vectors that stand for a word of a prompt.
//
// Forms: A1111's ("emb_params" [n,width]), Diffusers' (one tensor, whose name is the token: "<cat-toy>"),
// SDXL's ("clip_l" [n,768] and "clip_g" [n,1280], or "text_encoders_0" and "text_encoders_1"), a bare tensor
// of any name; [width] counts as [1,width]. Diffusers' training of SDXL writes two files with one tensor
// each.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weights/component.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd {

constexpr int64_t kMaxEmbeddingVectors = 1024;  // of a file; a prompt's chunk has room for 75

struct EmbeddingMatrix {
  std::string key;  // its tensor
  int64_t vectors = 0, width = 0;
  std::vector<float> values;  // [vectors,width]
};

// Read and checked whole. Immutable.
class EmbeddingFile {
 public:
  // Throws FileError; FormatError for other tensors than one form has, shapes that are none of the above, no
  // or too many vectors, integers, values that are not finite; each names the file and the tensor.
  static std::shared_ptr<const EmbeddingFile> open(const std::filesystem::path& path);
  // The same of a file that is open already; it has no hash.
  static std::shared_ptr<const EmbeddingFile> of(const SafetensorsFile& file);

  // Two files with one tensor each as SDXL's one: the narrower vectors are the first text encoder's. Throws
  // FormatError for another number of vectors in each.
  static std::shared_ptr<const EmbeddingFile> joined(const EmbeddingFile& a, const EmbeddingFile& b);
  // Whether these two can be joined: one tensor each, of different widths.
  static bool are_halves(const EmbeddingFile& a, const EmbeddingFile& b);

  const std::filesystem::path& path() const { return path_; }
  // Diffusers' name of it, "<cat-toy>"; empty where the tensor's name is no token.
  const std::string& token() const { return token_; }
  bool is_sdxl() const { return clip_g_.has_value(); }
  int64_t vectors() const { return first_.vectors; }
  // SHA-256 of the file, as A1111 names an embedding by.
  const std::string& hash() const { return hash_; }

  // What a text encoder reads in place of rows of its table, `width` wide. sdxl: the model has SDXL's
  // encoders. Throws ShapeError for vectors of another model: the message names both.
  const EmbeddingMatrix& of_encoder(Component encoder, int64_t width, bool sdxl) const;

 private:
  EmbeddingFile() = default;
  void take_second(EmbeddingMatrix second);

  std::filesystem::path path_;
  std::string token_, hash_;
  EmbeddingMatrix first_;  // the only one, or clip_l
  std::optional<EmbeddingMatrix> clip_g_;
};

}  // namespace rocm_sd
