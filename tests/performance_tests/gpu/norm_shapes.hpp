// The norms of SD1.5 and SDXL (guidance: batch 2) and of the VAE's decoder, with the calls per forward.
#pragma once

#include <cstdint>

namespace rocm_sd {

struct NormShape {
  const char* model;
  bool group;  // else layer norm over channels
  int64_t images, pixels, channels;
  int count;
  int64_t second = 0;  // of the channels, those of a second input
};
inline constexpr NormShape kNormShapes[] = {
    {"sd15", true, 2, 4096, 320, 13},      {"sd15", true, 2, 1024, 320, 1},
    {"sd15", true, 2, 1024, 640, 11},      {"sd15", true, 2, 256, 640, 1},
    {"sd15", true, 2, 256, 1280, 11},      {"sd15", true, 2, 64, 1280, 12},
    {"sd15", true, 2, 64, 2560, 3, 1280},  {"sd15", true, 2, 256, 2560, 2, 1280},
    {"sd15", true, 2, 256, 1920, 1, 640},  {"sd15", true, 2, 1024, 1920, 1, 640},
    {"sd15", true, 2, 1024, 1280, 1, 640}, {"sd15", true, 2, 1024, 960, 1, 320},
    {"sd15", true, 2, 4096, 960, 1, 320},  {"sd15", true, 2, 4096, 640, 2, 320},
    {"sd15", false, 2, 4096, 320, 15},     {"sd15", false, 2, 1024, 640, 15},
    {"sd15", false, 2, 256, 1280, 15},     {"sd15", false, 2, 64, 1280, 3},
    {"sdxl", true, 2, 16384, 320, 8},      {"sdxl", true, 2, 4096, 320, 1},
    {"sdxl", true, 2, 4096, 640, 11},      {"sdxl", true, 2, 1024, 640, 1},
    {"sdxl", true, 2, 1024, 1280, 16},     {"sdxl", true, 2, 1024, 2560, 2, 1280},
    {"sdxl", true, 2, 1024, 1920, 1, 640}, {"sdxl", true, 2, 4096, 1920, 1, 640},
    {"sdxl", true, 2, 4096, 1280, 1, 640}, {"sdxl", true, 2, 4096, 960, 1, 320},
    {"sdxl", true, 2, 16384, 960, 1, 320}, {"sdxl", true, 2, 16384, 640, 2, 320},
    {"sdxl", false, 2, 4096, 640, 30},     {"sdxl", false, 2, 1024, 1280, 180},
    {"clip_l", false, 2, 77, 768, 25},     {"clip_g", false, 2, 77, 1280, 65},
    {"vae512", true, 1, 4096, 512, 11},    {"vae512", true, 1, 16384, 512, 6},
    {"vae512", true, 1, 65536, 512, 1},    {"vae512", true, 1, 65536, 256, 5},
    {"vae512", true, 1, 262144, 256, 1},   {"vae512", true, 1, 262144, 128, 6},
    {"vae1024", true, 1, 16384, 512, 11},  {"vae1024", true, 1, 65536, 512, 6},
    {"vae1024", true, 1, 262144, 512, 1},  {"vae1024", true, 1, 262144, 256, 5},
    {"vae1024", true, 1, 1048576, 256, 1}, {"vae1024", true, 1, 1048576, 128, 6},
};

}  // namespace rocm_sd
