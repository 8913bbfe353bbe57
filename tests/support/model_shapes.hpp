// tests/data/model_shapes.txt: the problems of full-size models, which `make model-shapes` writes from the
// planner (analysis/model_shapes.hpp).
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd::testing_support {

struct ModelShape {
  std::string section;  // "f16 sd15 512x512 unet"
  std::string text;     // "8192x320x320 f16 bias": the problem as the op describes it
};

// type: of the models, "f16" or "bf16"; in bf16 some of a model's problems have other types.
inline std::vector<ModelShape> model_shapes(std::string_view op, std::string_view type) {
  std::vector<ModelShape> out;
  std::ifstream file(ROCM_SD_SOURCE_DIR "/tests/data/model_shapes.txt");
  std::string line, section;
  while (std::getline(file, line)) {
    if (line.starts_with("# ")) section = line.substr(2);
    const std::string_view rest = line;
    if (section.starts_with(type) && rest.starts_with(op) && rest.substr(op.size()).starts_with(' '))
      out.push_back({section, line.substr(op.size() + 1)});
  }
  EXPECT_FALSE(out.empty()) << "tests/data/model_shapes.txt has no problem of " << op << " in " << type;
  return out;
}

// The finest group norm of the VAE's decoder for SD 1.5's own picture: [1,pixels,channels].
struct VaeNorm {
  int64_t pixels = 0, channels = 0;
  int groups = 0;
};
inline VaeNorm finest_vae_norm() {
  VaeNorm out;
  for (const ModelShape& shape : model_shapes("group_norm", "f16")) {
    if (shape.section != "f16 sd15 512x512 vae") continue;
    long long pixels = 0, channels = 0;
    int groups = 0;
    const int read =
        std::sscanf(shape.text.c_str(), "f16 [1,%lld,%lld] groups %d", &pixels, &channels, &groups);
    EXPECT_EQ(read, 3) << shape.text;
    if (pixels > out.pixels || (pixels == out.pixels && channels < out.channels))
      out = {pixels, channels, groups};
  }
  EXPECT_GT(out.pixels, 0) << "tests/data/model_shapes.txt has no group norm of the VAE";
  return out;
}

}  // namespace rocm_sd::testing_support
