// GGUF files, as stable-diffusion.cpp and ComfyUI-GGUF write them: a strict reader and a streaming writer.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "weights/ggml_blocks.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd {

// By the file's first bytes.
bool is_gguf(std::string_view head);

// The tensors with their shapes in PyTorch's order, begin in bytes from the start of the file; the metadata's
// strings. A matrix into which ComfyUI-GGUF reshaped a convolution ("comfy.gguf.orig_shape.NAME") has its own
// shape again. Throws FormatError, naming the place, for everything that the format's rules, the limits in
// gguf.cpp or ggml's own reader refuse, and for types that are not read.
SafetensorsHeader read_gguf(const InputFile& file, std::string_view what);

// What a GGUF file is to hold of a tensor: `wanted` for matrices whose rows divide into its blocks, except
// embeddings of tokens, times and sizes; f16 for other matrices and convolutions (f32 where f32 is wanted),
// f32 for vectors. Integers stay what they are.
GgmlType gguf_stored_type(const TensorToWrite& tensor, GgmlType wanted);

struct GgufTensor {
  TensorToWrite tensor;  // filled in its own type, from which the values are converted
  GgmlType type = GgmlType::kF32;
};

// Writes the file through a temporary one in the same folder; a few MiB are in memory at a time. Version 3,
// alignment 32, tensors by name. Throws FileError (disk, permissions) and FormatError (illegal names, values
// that a type cannot hold).
void write_gguf(const std::filesystem::path& path, std::vector<GgufTensor> tensors, const Metadata& metadata);

}  // namespace rocm_sd
