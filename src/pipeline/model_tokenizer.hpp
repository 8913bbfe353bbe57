// The tokenizer that goes with a checkpoint's text encoder.
#pragma once

#include "text/chunks.hpp"
#include "weights/checkpoint.hpp"

namespace rocm_sd {

struct ModelTokenizer {
  ClipTokenizer tokenizer;
  ChunkOptions chunks;     // ids per chunk, and what pads them
  std::string vocabulary;  // the folder that it is of, or "shipped"
};

// positions: rows of the encoder's table of positions. Single files have no vocabulary of their own: the
// shipped one is CLIP's. Throws what ClipTokenizer::from_folder throws, and FormatError where there are fewer
// than three positions.
ModelTokenizer open_tokenizer(const Checkpoint& checkpoint, Component text_encoder, int64_t positions);

}  // namespace rocm_sd
