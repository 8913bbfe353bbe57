// What a request takes at least, and which are refused before they wait.
#include "server/admission.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "server/http.hpp"

namespace rocm_sd::server {
namespace {

constexpr std::pair<int, int> kDefault = {512, 512};
constexpr StepMemory kDevice{.available = 1'000'000'000, .base = 1e6, .pixel = 1000};

JobRequest sized(int width, int height, int batch = 1) {
  JobRequest r;
  r.batch = batch;
  if (width > 0) r.options.emplace_back("width", std::to_string(width));
  if (height > 0) r.options.emplace_back("height", std::to_string(height));
  return r;
}

TEST(Admission, CountsThePixelsOfAllImages) {
  EXPECT_EQ(least_memory(sized(64, 128), kDefault, kDevice),
            static_cast<uint64_t>(0.9 * (1e6 + 1000.0 * 64 * 128)));
  EXPECT_EQ(least_memory(sized(0, 0), kDefault, kDevice), least_memory(sized(512, 512), kDefault, kDevice));
  EXPECT_EQ(least_memory(sized(0, 64), kDefault, kDevice), least_memory(sized(512, 64), kDefault, kDevice));
  EXPECT_EQ(least_memory(sized(64, 64, 3), kDefault, kDevice),
            least_memory(sized(64, 192), kDefault, kDevice));
}

TEST(Admission, CountsHalfWithoutGuidance) {
  JobRequest plain = sized(64, 64), guided = plain;
  plain.options.emplace_back("cfg-scale", "1");
  guided.options.emplace_back("cfg-scale", "4.5");
  StepMemory distilled = kDevice;
  distilled.default_guidance = 1;
  EXPECT_EQ(least_memory(guided, kDefault, kDevice), least_memory(sized(64, 64), kDefault, kDevice));
  EXPECT_EQ(least_memory(plain, kDefault, kDevice), static_cast<uint64_t>(0.9 * (1e6 + 500.0 * 64 * 64)));
  EXPECT_EQ(least_memory(sized(64, 64), kDefault, distilled), least_memory(plain, kDefault, kDevice));
  EXPECT_EQ(least_memory(guided, kDefault, distilled), least_memory(guided, kDefault, kDevice));
}

TEST(Admission, DoesNotGuess) {
  JobRequest tiled = sized(4096, 4096), started = sized(0, 0), enlarged = sized(4096, 4096);
  tiled.options.emplace_back("tile-size", "512");
  started.files = {{"init-image", "x"}};
  enlarged.enlargement.upscaler = "lanczos";
  for (const JobRequest& unknown : {tiled, started, enlarged})
    EXPECT_EQ(least_memory(unknown, kDefault, kDevice), 0u);
  started.options = sized(64, 64).options;
  EXPECT_EQ(least_memory(started, kDefault, kDevice), least_memory(sized(64, 64), kDefault, kDevice));
}

TEST(Admission, SaysWhatIsNeededAndWhatThereIs) {
  const std::array devices = {kDevice};
  EXPECT_NO_THROW(admit(sized(1024, 1024), kDefault, devices));
  try {
    admit(sized(2048, 1024, 2), kDefault, devices);
    FAIL() << "it fits no device";
  } catch (const RequestError& e) {
    EXPECT_EQ(e.error().status, 422);
    EXPECT_EQ(e.error().type, "out_of_memory");
    EXPECT_EQ(e.error().needed, least_memory(sized(2048, 1024, 2), kDefault, kDevice));
    EXPECT_EQ(e.error().available, kDevice.available);
    EXPECT_NE(e.error().message.find("2 images take at least 3775.8 MB"), std::string::npos) << e.what();
    EXPECT_NE(e.error().message.find("the device has 1000.0 MB"), std::string::npos) << e.what();
  }
}

TEST(Admission, TheLargestDeviceDecidesAndWhoIsUnknownMayTakeAll) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<StepMemory> devices(1 + random() % 3, kDevice);
    for (StepMemory& device : devices) device.available = random() % 8 == 0 ? 0 : random() % 4'000'000'000;
    const JobRequest request = sized(8 * (1 + random() % 256), 8 * (1 + random() % 256));
    bool fits = false;
    for (const StepMemory& device : devices)
      fits = fits || device.available == 0 || least_memory(request, kDefault, device) <= device.available;
    bool admitted = true;
    try {
      admit(request, kDefault, devices);
    } catch (const RequestError&) {
      admitted = false;
    }
    EXPECT_EQ(admitted, fits);
  }
}

}  // namespace
}  // namespace rocm_sd::server
