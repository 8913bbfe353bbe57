// Latents on disk, as one model hands them to the next: safetensors with one tensor "latents" [N,4,h,w], f32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rocm_sd {

struct Latents {
  int64_t images = 0, height = 0, width = 0;
  std::vector<float> values;  // [images,4,height,width]
};

// Throws FileError and FormatError naming the file.
Latents load_latents(const std::string& path);
void save_latents(const std::string& path, const Latents& latents);

}  // namespace rocm_sd
