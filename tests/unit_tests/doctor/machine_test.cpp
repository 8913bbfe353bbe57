// Machines made of files: what read_machine finds in a faked /sys, /proc, /dev and /etc.
#include "doctor/machine.hpp"

#include <gtest/gtest.h>

#include "support/fake_machine.hpp"

namespace rocm_sd::doctor {
namespace {

TEST(GfxName, FollowsKfdsDecimalVersion) {
  EXPECT_EQ(gfx_name(110000), "gfx1100");
  EXPECT_EQ(gfx_name(110501), "gfx1151");
  EXPECT_EQ(gfx_name(120001), "gfx1201");
  EXPECT_EQ(gfx_name(90402), "gfx942");
  EXPECT_EQ(gfx_name(90010), "gfx90a");
  EXPECT_EQ(gfx_name(0), "");
  EXPECT_EQ(gfx_name(~0ull), "");
}

TEST(GfxName, ReadsTheOverride) {
  EXPECT_EQ(gfx_name_of_override("11.0.0"), "gfx1100");
  EXPECT_EQ(gfx_name_of_override("9.0.10"), "gfx90a");
  for (const char* bad :
       {"", "11", "11.0", "11.0.", "11.0.0.0", "eleven", "11.0.0 ", "-1.0.0", "11.0.100", "gfx1100"})
    EXPECT_EQ(gfx_name_of_override(bad), "") << bad;
}

TEST(ReadMachine, FindsACardItsTopologyAndItsLink) {
  FakeMachine fake;
  fake.add_amd("0000:03:00.0", 110000, 1);
  const Machine m = fake.read();
  ASSERT_EQ(m.cards.size(), 1u);
  const Card& card = m.cards[0];
  EXPECT_EQ(card.address, "0000:03:00.0");
  EXPECT_EQ(card.vendor, kAmd);
  EXPECT_EQ(card.device, 0x744cu);
  EXPECT_EQ(card.driver, "amdgpu");
  EXPECT_EQ(card.arch, "gfx1100");
  EXPECT_EQ(card.node, 1);
  EXPECT_EQ(card.vram, 24ull << 30);
  EXPECT_EQ(card.link_width, 16);
  EXPECT_EQ(card.link_speed, "16.0 GT/s PCIe");
  EXPECT_EQ(m.amdgpu, "6.8.5");
  EXPECT_EQ(m.rocm, "6.4.1");
  EXPECT_EQ(m.memory, 32ull << 30);
  EXPECT_FALSE(m.wsl);
  EXPECT_TRUE(m.links.empty());
}

TEST(ReadMachine, KeepsLinksBetweenGpusOnly) {
  FakeMachine fake;
  fake.add_amd("0000:03:00.0", 90402, 1);
  fake.add_amd("0000:43:00.0", 90402, 2);
  fake.add_link(1, 0, "io_links", 2, 32000);  // to the processor
  fake.add_link(1, 2, "io_links", 11, 50000);
  fake.add_link(2, 1, "p2p_links", 2, 16000);
  const Machine m = fake.read();
  ASSERT_EQ(m.links.size(), 2u);
  EXPECT_EQ(m.links[0].from, 1);
  EXPECT_EQ(m.links[0].to, 2);
  EXPECT_EQ(m.links[0].type, 11);
  EXPECT_EQ(m.links[0].max_megabytes, 50000u);
  EXPECT_EQ(m.links[1].type, 2);
}

TEST(ReadMachine, JudgesPermissionsByOwnerGroupAndMode) {
  FakeMachine fake;
  fake.add_amd("0000:03:00.0", 110000, 1);
  fake.add_device_files(0660);
  const uint32_t group = fake.file_group();
  const auto accessible = [&](Identity who) {
    for (const DeviceFile& f : fake.read(who).files)
      if (f.path == "/dev/kfd") return f.accessible;
    ADD_FAILURE() << "no /dev/kfd";
    return false;
  };
  const uint32_t stranger = fake.file_owner() + 1000;
  EXPECT_TRUE(accessible({0, {}}));
  EXPECT_TRUE(accessible({stranger, {group}}));
  EXPECT_FALSE(accessible({stranger, {group + 1}}));
  fake.add_device_files(0666);
  EXPECT_TRUE(accessible({stranger, {group + 1}}));
  for (const DeviceFile& f : fake.read().files) EXPECT_EQ(f.group, "render") << f.path;
}

TEST(ReadMachine, EmptyOrHostileTreesGiveAnEmptyMachine) {
  FakeMachine fake(false);
  const Machine nothing = fake.read();
  EXPECT_TRUE(nothing.cards.empty());
  EXPECT_EQ(nothing.memory, 0u);
  const std::string rubbish(100'000, '\xff');
  for (const char* path :
       {"proc/meminfo", "proc/sys/kernel/osrelease", "sys/module/amdgpu/version", "etc/group",
        "sys/bus/pci/devices/0000:01:00.0/class", "sys/bus/pci/devices/0000:01:00.0/vendor",
        "sys/class/kfd/kfd/topology/nodes/x/properties", "proc/driver/nvidia/version"})
    fake.write(path, rubbish);
  fake.write("sys/bus/pci/devices/0000:02:00.0/class", "0x030000");
  fake.write("sys/bus/pci/devices/0000:02:00.0/vendor", "0x1002");
  fake.write("sys/bus/pci/devices/0000:02:00.0/current_link_width", "99999999999999999999999");
  const Machine m = fake.read();
  ASSERT_EQ(m.cards.size(), 1u);
  EXPECT_EQ(m.cards[0].driver, "");
  EXPECT_EQ(m.cards[0].link_width, 0);
  EXPECT_EQ(m.memory, 0u);
}

TEST(ReadMachine, KnowsWslAndContainersAndCaches) {
  FakeMachine fake;
  fake.write("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n");
  fake.write(".dockerenv", "");
  fake.write("home/u/.cache/miopen/3/find.db", std::string(1000, 'x'));
  fake.environment["HOME"] = "/home/u";
  fake.environment["EDITOR"] = "vi";
  fake.environment["MIOPEN_FIND_MODE"] = "2";
  const Machine m = fake.read();
  EXPECT_TRUE(m.wsl);
  EXPECT_TRUE(m.container);
  ASSERT_TRUE(m.caches.contains("/home/u/.cache/miopen"));
  EXPECT_EQ(m.caches.at("/home/u/.cache/miopen"), 1000u);
  EXPECT_TRUE(m.environment.contains("MIOPEN_FIND_MODE"));
  EXPECT_FALSE(m.environment.contains("EDITOR"));
}

}  // namespace
}  // namespace rocm_sd::doctor
