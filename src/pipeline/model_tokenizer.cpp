#include "pipeline/model_tokenizer.hpp"

#include <algorithm>

#include "base/file.hpp"

namespace rocm_sd {

ModelTokenizer open_tokenizer(const Checkpoint& checkpoint, Component text_encoder, int64_t positions) {
  require<FormatError>(positions >= 3, checkpoint.store(text_encoder).title(),
                       ": text_model.embeddings.position_embedding.weight has ", positions,
                       " rows; a chunk of a prompt has at least 3 ids (CLIP's 77)");
  const auto folder = checkpoint.tokenizer_folder(text_encoder);
  // OpenCLIP pads with id 0, "!".
  const bool open_clip = text_encoder == Component::kTextEncoder2 || checkpoint.kind() == ModelKind::kSd2;
  ModelTokenizer out{folder ? ClipTokenizer::from_folder(*folder) : ClipTokenizer::shipped(),
                     {},
                     folder ? printable_path(*folder) : "shipped"};
  out.chunks.max_length = static_cast<int>(std::min<int64_t>(positions, out.tokenizer.max_length()));
  out.chunks.pad_id = folder ? out.tokenizer.pad_id() : open_clip ? 0 : out.tokenizer.eos_id();
  return out;
}

}  // namespace rocm_sd
