#include "base/gpu_products.hpp"

#include <gtest/gtest.h>

namespace rocm_sd {
namespace {

TEST(GpuProducts, KnowsTheChipletsOfCardsAndOfTheirPartitions) {
  EXPECT_EQ(gpu_chiplets("gfx942", 304), 8);  // MI300X
  EXPECT_EQ(gpu_chiplets("gfx942", 228), 6);  // MI300A
  EXPECT_EQ(gpu_chiplets("gfx942", 38), 1);   // MI300X in partitions of one chiplet (CPX)
  EXPECT_EQ(gpu_chiplets("gfx942", 80), 1);   // a product that nobody has described
  EXPECT_EQ(gpu_chiplets("gfx950", 256), 8);
  for (const GpuProduct& gpu : gpu_products()) {
    if (gpu.arch == "gfx942" || gpu.arch == "gfx950") continue;
    EXPECT_EQ(gpu_chiplets(gpu.arch, driver_compute_units(gpu)), 1) << gpu.name;
  }
}

}  // namespace
}  // namespace rocm_sd
