// How many images share the UNet's calls within a budget, by the plan of one.
#include "pipeline/batch_room.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/step_batch.hpp"

namespace rocm_sd {
namespace {

LoadOptions demo() {
  return {.model = std::string(ROCM_SD_SOURCE_DIR) + "/models/demo", .device = "cpu", .dtype = "f32"};
}

GenerateRequest request_of_four_steps() {
  GenerateRequest request;
  request.prompt = "a";
  request.seed = 1;
  request.steps = 4;
  request.width = request.height = 64;
  return request;
}

TEST(BatchRoom, HasAsManyAsTheMemoryPlanHasRoomFor) {
  const GenerateRequest request = request_of_four_steps();
  const MemoryPlan one = Pipeline::load(demo()).plan(request);
  int before = 0;
  for (const double images : {1.0, 3.0, 6.0, 20.0}) {
    const auto more = static_cast<uint64_t>((images - 1) * static_cast<double>(one.unet + one.buffers));
    LoadOptions options = demo();
    options.vram_budget = one.total() + more;
    Pipeline pipeline = Pipeline::load(options);
    StepBatch batch(pipeline, 8);
    batch.add(0, request, {});
    EXPECT_FALSE(batch.fits(request)) << "nobody knows yet what it takes";
    batch.step();
    EXPECT_LE(batch.limit(), std::max(1.0, images));
    EXPECT_GE(batch.limit(), before);
    before = batch.limit();
    uint64_t joined = 1;
    for (; batch.fits(request); ++joined) batch.add(joined, request, {});
    EXPECT_EQ(joined, static_cast<uint64_t>(batch.limit()));
    uint64_t peak = 0;
    while (!batch.empty())
      for (const StepBatch::Result& result : batch.step()) {
        ASSERT_TRUE(result.drawn.has_value()) << result.alone;
        peak = std::max(peak, result.drawn->device_peak);
      }
    // What a plan leaves out (a few small tensors) it leaves out of a request by itself, too.
    EXPECT_LE(static_cast<double>(peak), 1.005 * static_cast<double>(options.vram_budget))
        << images << " images";
  }
  EXPECT_EQ(before, 8);
}

TEST(BatchRoom, CountsPaddedRowsAndTheLargestStage) {
  const BatchRoom room{.available = 1000,
                       .weights = 100,
                       .others = 50,
                       .arena_of_row = 40,
                       .buffers_of_row = 5,
                       .rows_of_image = 2};
  EXPECT_EQ(room.images(100), 8);  // 16 rows: 100 + 640 + 80; 18 are padded to 24: 100 + 960 + 160
  EXPECT_EQ(room.images(3), 3);
  BatchRoom tight = room;
  tight.available = 100 + 4 * 40 + 4 * 5;
  EXPECT_EQ(tight.images(8), 2);
  tight.available -= 1;
  EXPECT_EQ(tight.images(8), 1);
  tight.others = 200, tight.available = 100 + 200 + 20;
  EXPECT_EQ(tight.images(8), 2);
}

}  // namespace
}  // namespace rocm_sd
