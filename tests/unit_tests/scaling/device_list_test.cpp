#include "scaling/device_list.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

const std::vector<DeviceInfo> kThere = {{"cpu", "host", true},           {"hip", "no driver", false},
                                        {"cuda:0", "an old one", false}, {"cuda:1", "one", true},
                                        {"cuda:2", "another", true},     {"emu:gfx1100", "emulated", true}};

std::vector<std::pair<std::string, int>> parsed(std::string_view list) {
  std::vector<std::pair<std::string, int>> out;
  for (const ListedDevice& device : parse_devices(list, kThere)) out.emplace_back(device.name, device.copy);
  return out;
}

TEST(DeviceList, NamesAndCopies) {
  using Names = std::vector<std::pair<std::string, int>>;
  EXPECT_EQ(parsed("cpu"), (Names{{"cpu", 0}}));
  EXPECT_EQ(parsed("cuda:0,cuda,cpu,cuda:0,cpu"),
            (Names{{"cuda:0", 0}, {"cuda:0", 1}, {"cpu", 0}, {"cuda:0", 2}, {"cpu", 1}}));
  EXPECT_EQ(parsed("all"), (Names{{"cuda:1", 0}, {"cuda:2", 0}})) << "usable, neither emulated nor the CPU";
}

TEST(DeviceList, RefusesOthers) {
  for (const char* list : {"", ",", "cpu,", ",cpu", "cpu,,cpu", "auto", "cpu,auto", "cpu,all"})
    EXPECT_THROW(parse_devices(list, kThere), UsageError) << list;
  std::string many = "cpu";
  for (size_t i = 0; i < kMaxDevices; ++i) many += ",cpu";
  EXPECT_THROW(parse_devices(many, kThere), UsageError);
  try {
    parse_devices("all", {kThere[0], kThere[1], kThere[2], kThere[5]});
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("hip: no driver; cuda:0: an old one"));
  }
}

}  // namespace
}  // namespace rocm_sd
