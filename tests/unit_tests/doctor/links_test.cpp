// The ways between GPUs: read from faked buses, with each trap planted and found.
#include "doctor/links.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "support/fake_machine.hpp"
#include "support/findings.hpp"

namespace rocm_sd::doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kOne = "0000:03:00.0";
constexpr const char* kOther = "0000:43:00.0";
constexpr const char* kBoth = "0000:03:00.0 - 0000:43:00.0";

// Two RX 7900 XTX at root ports of their own, with peer access: nothing is wrong.
class LinksTest : public testing::Test {
 protected:
  LinksTest() {
    add(kOne, 110000, 1, "0000:00:01.1");
    add(kOther, 110000, 2, "0000:00:03.1");
    fake_.add_link(1, 2, "p2p_links", 2, 0);
    fake_.add_link(2, 1, "p2p_links", 2, 0);
  }
  void add(const std::string& address, int gfx, int node, const std::string& port,
           const std::string& root = "pci0000:00") {
    fake_.add_amd(address, gfx, node);
    fake_.write("sys/bus/pci/devices/" + address + "/numa_node", "0\n");
    fake_.put_below(address, {root, port});
    fake_.add_port(root + "/" + port, 16, 16, "16.0", "16.0");
  }
  void set(const std::string& address, const std::string& name, const std::string& text) {
    fake_.write("sys/bus/pci/devices/" + address + "/" + name, text);
  }
  LinkExamination examination() const {
    Examination e;
    e.machine = fake_.read();
    e.libraries = libraries_;
    return examine_links(e, fake_.root());
  }
  std::vector<Finding> findings() const { return diagnose_links(examination()); }
  Finding found(const std::string& subject) const { return only_finding(findings(), subject); }

  FakeMachine fake_;
  std::vector<Library> libraries_;
};

TEST_F(LinksTest, NothingIsWrong) {
  for (const Finding& f : findings()) ADD_FAILURE() << f.subject << ": " << f.what;
  const auto pairs = card_pairs(examination());
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].kind, "PCIe 4.0 x16");
  EXPECT_EQ(pairs[0].peer, true);
  EXPECT_EQ(pairs[0].meeting, Meeting::kHostBridge);
  const std::string text = links_text(examination(), {});
  EXPECT_THAT(text, HasSubstr("gfx1100: PCIe 4.0 x16 (now PCIe 4.0 x16), NUMA 0, window 24.00 GiB of 24.0"));
  EXPECT_THAT(text, HasSubstr("          0     -  yes\n          1   yes    -\n"));
  EXPECT_THAT(text, HasSubstr("ACS not readable"));
  const auto json = links_json(examination(), {});
  EXPECT_EQ(json["pairs"][0]["peer_access"], true);
  EXPECT_EQ(json["cards"][1]["path"][0]["address"], "0000:00:03.1");
  EXPECT_EQ(json["cards"][1]["path"][0]["acs_control"], nullptr);
}

TEST_F(LinksTest, XgmiAndNoPeerAccess) {
  fake_.add_link(1, 2, "io_links", 11, 50000);
  EXPECT_EQ(card_pairs(examination())[0].kind, "xGMI");
  for (const char* kind : {"io_links", "p2p_links"})
    fake_.remove(fmt::format("sys/class/kfd/kfd/topology/nodes/1/{}", kind));
  const Finding f = found(kBoth);
  EXPECT_EQ(f.severity, Severity::kWarning);
  EXPECT_THAT(f.what, HasSubstr("no peer access: the kernel lists no peer link"));
  EXPECT_THAT(f.fix, HasSubstr("iommu=pt"));
}

// The GPU's own link tells x16, the port above it what the slot has.
TEST_F(LinksTest, ASlotOfFewLanes) {
  fake_.add_port("pci0000:00/0000:00:03.1", 4, 4, "8.0", "8.0");
  const Finding f = found(kOther);
  EXPECT_THAT(f.what, HasSubstr("PCIe 3.0 x4 at most"));
  EXPECT_THAT(f.what, HasSubstr("the GPU could do PCIe 4.0 x16"));
  EXPECT_THAT(f.cost, HasSubstr("8.0 times as long"));
  EXPECT_EQ(card_pairs(examination())[0].kind, "PCIe 3.0 x4");
}

TEST_F(LinksTest, ALinkThatLacksLanesOrSleeps) {
  fake_.add_port("pci0000:00/0000:00:03.1", 8, 16, "16.0", "16.0");
  EXPECT_THAT(found(kOther).what, HasSubstr("runs 8 of 16 lanes"));
  EXPECT_THAT(found(kOther).cost, HasSubstr("2.0 times"));
  fake_.add_port("pci0000:00/0000:00:03.1", 16, 16, "2.5", "16.0");
  const Finding f = found(kOther);
  EXPECT_EQ(f.severity, Severity::kNote);
  EXPECT_THAT(f.what, HasSubstr("runs as PCIe 1.0 x16 now, not as PCIe 4.0 x16"));
}

TEST_F(LinksTest, ASmallBar) {
  set(kOne, "mem_info_vis_vram_total", std::to_string(256ull << 20));
  const Finding f = found(kOne);
  EXPECT_EQ(f.severity, Severity::kProblem);
  EXPECT_THAT(f.what, HasSubstr("0.25 of 24.0 GiB"));
  // Where amdgpu does not tell, the window on the bus does.
  fake_.remove(std::string("sys/bus/pci/devices/") + kOne + "/mem_info_vis_vram_total");
  set(kOne, "resource",
      "0x000000e000000000 0x000000e00fffffff 0x000000000014220c\n"
      "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
      "0x000000000000e000 0x000000000000efff 0x0000000000040101\n");
  EXPECT_THAT(found(kOne).what, HasSubstr("0.25 of 24.0 GiB"));
}

TEST_F(LinksTest, AnIommuThatTranslates) {
  fake_.write("sys/class/iommu/ivhd0/type", "");
  fake_.write("proc/cmdline", "root=/dev/sda1 quiet\n");
  EXPECT_THAT(found("IOMMU").fix, HasSubstr("amd_iommu=on iommu=pt"));
  fake_.write("proc/cmdline", "amd_iommu=on iommu=pt quiet\n");
  EXPECT_THAT(findings(), IsEmpty());
  EXPECT_EQ(examination().settings.iommu_options, "amd_iommu=on iommu=pt");
  // What a group tells counts more than what the command line asks for.
  set(kOther, "iommu_group/type", "DMA-FQ\n");
  EXPECT_THAT(found("IOMMU").what, HasSubstr("0000:43:00.0 (DMA-FQ)"));
  set(kOther, "iommu_group/type", "identity\n");
  EXPECT_THAT(findings(), IsEmpty());
}

TEST(Links, AcsOfASwitch) {
  FakeMachine fake;
  const std::string above = "pci0000:40/0000:40:01.1/0000:41:00.0";
  int node = 1;
  for (const char* port : {"0000:42:00.0", "0000:42:01.0"}) {
    const std::string address = node == 1 ? "0000:43:00.0" : "0000:44:00.0";
    fake.add_amd(address, 110000, node++);
    fake.put_below(address, {"pci0000:40", "0000:40:01.1", "0000:41:00.0", port});
    fake.add_port(above + "/" + port, 16, 16, "16.0", "16.0");
    fake.add_acs(above + "/" + port, 0x1d);  // as Linux sets it: validation, redirects, upstream forwarding
  }
  fake.add_acs("pci0000:40/0000:40:01.1", 0x1d);  // above the switch: none of their copies passes there
  for (const auto& [from, to] : {std::pair{1, 2}, std::pair{2, 1}})
    fake.add_link(from, to, "p2p_links", 2, 0);
  const auto examined = [&] {
    Examination e;
    e.machine = fake.read();
    return examine_links(e, fake.root());
  };
  const auto findings = diagnose_links(examined());
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].subject, "0000:42:00.0");
  EXPECT_EQ(findings[1].subject, "0000:42:01.0");
  EXPECT_THAT(findings[0].fix, HasSubstr("setpci -s 0000:42:00.0 ECAP_ACS+0x6.w=0000"));
  EXPECT_EQ(card_pairs(examined())[0].port, "0000:41:00.0");
  EXPECT_THAT(links_text(examined(), {}), HasSubstr("ACS redirects"));
  for (const char* port : {"/0000:42:00.0", "/0000:42:01.0"}) fake.add_acs(above + port, 0x01);
  EXPECT_THAT(diagnose_links(examined()), IsEmpty());
}

TEST_F(LinksTest, TheDriverOrTheKernelLacksPeers) {
  fake_.write("sys/module/amdgpu/parameters/pcie_p2p", "N\n");
  EXPECT_THAT(found("amdgpu").fix, HasSubstr("amdgpu.pcie_p2p=0"));
  fake_.write("sys/module/amdgpu/parameters/pcie_p2p", "Y\n");
  fake_.write("boot/config-6.8.0-45-generic", "CONFIG_HSA_AMD=y\n# CONFIG_HSA_AMD_P2P is not set\n");
  EXPECT_THAT(found("Linux 6.8.0-45-generic").what, HasSubstr("CONFIG_HSA_AMD_P2P"));
  fake_.write("boot/config-6.8.0-45-generic", "CONFIG_HSA_AMD=y\nCONFIG_HSA_AMD_P2P=y\n");
  EXPECT_THAT(findings(), IsEmpty());
}

TEST_F(LinksTest, TwoSocketsAndAnIntegratedGpu) {
  set(kOther, "numa_node", "1\n");
  fake_.remove(std::string("sys/bus/pci/devices/") + kOther);
  add("0000:c3:00.0", 110000, 3, "0000:c0:01.1", "pci0000:c0");
  set("0000:c3:00.0", "numa_node", "1\n");
  fake_.add_link(1, 3, "p2p_links", 2, 0);
  EXPECT_THAT(found("0000:03:00.0 - 0000:c3:00.0").what, HasSubstr("two NUMA nodes, 0 and 1"));
  add("0000:0a:00.0", 100306, 4, "0000:00:08.1");
  const Finding f = found("0000:0a:00.0");
  EXPECT_THAT(f.what, HasSubstr("gfx1036"));
  EXPECT_THAT(f.cost, HasSubstr("rccl#876"));
}

TEST_F(LinksTest, RcclOnRadeons) {
  libraries_ = {{.product = "RCCL", .file = "librccl.so.1"}};
  EXPECT_THAT(found("RCCL").fix, HasSubstr("NCCL_P2P_DISABLE=1"));
  fake_.environment["NCCL_P2P_DISABLE"] = "1";
  EXPECT_THAT(findings(), IsEmpty());
}

TEST(Links, OneGpuOrNoneHaveNoFindings) {
  FakeMachine fake;
  fake.write("sys/class/iommu/ivhd0/type", "");
  Examination e;
  e.machine = fake.read();
  EXPECT_THAT(diagnose_links(examine_links(e, fake.root())), IsEmpty());
  EXPECT_THAT(links_text(examine_links(e, fake.root()), {}), HasSubstr("none on the PCI bus"));
  fake.add_amd(kOne, 110000, 1);
  e.machine = fake.read();
  EXPECT_THAT(diagnose_links(examine_links(e, fake.root())), IsEmpty());
}

// Lists that end nowhere, speeds that are none, links to nothing.
TEST_F(LinksTest, HostileTrees) {
  std::string loop(4096, '\0');
  loop[0x100] = 1, loop[0x102] = 1, loop[0x103] = 0x10;  // the next one is itself
  fake_.write("sys/devices/pci0000:00/0000:00:01.1/config", loop);
  fake_.write("sys/devices/pci0000:00/0000:00:03.1/config", std::string(0x104, '\xff'));
  for (const char* name :
       {"current_link_speed", "max_link_speed", "numa_node", "resource", "current_link_width"})
    set(kOne, name, std::string(1000, '\xff'));
  set(kOther, "max_link_speed", "17 GT/s");
  set(kOther, "resource", "0x0 0xffffffffffffffff 0x200\n");
  const LinkExamination e = examination();
  EXPECT_TRUE(e.places[0].path[0].acs_readable);
  EXPECT_FALSE(e.places[0].path[0].acs_control);
  EXPECT_FALSE(e.places[1].path[0].acs_control);
  EXPECT_EQ(e.places[0].numa, -1);
  EXPECT_FALSE(links_text(e, diagnose_links(e)).empty());
}

TEST(NvidiaLinks, OfTheManagementLibrary) {
  setenv("ROCM_SD_NVML_LIBRARY", ROCM_SD_FAKE_NVML, 1);
  const auto links = read_nvidia_links({"0000:1b:00.0", "0000:1c:00.0", "0000:5d:00.0", "0000:99:00.0"});
  EXPECT_TRUE(read_nvidia_links({"0000:1b:00.0"}).empty());
  setenv("ROCM_SD_NVML_LIBRARY", "/nowhere.so", 1);
  EXPECT_TRUE(read_nvidia_links({"0000:1b:00.0", "0000:1c:00.0"}).empty());
  unsetenv("ROCM_SD_NVML_LIBRARY");
  ASSERT_EQ(links.size(), 6u) << "of three GPUs that it knows";
  EXPECT_EQ(links[0].to, "0000:1c:00.0");
  EXPECT_EQ(links[0].nvlinks, 3);
  EXPECT_EQ(links[0].peer, "ok");
  EXPECT_EQ(links[1].to, "0000:5d:00.0");
  EXPECT_EQ(links[1].nvlinks, 0);
  EXPECT_EQ(links[1].peer, "chipset not supported");
}

TEST(NvidiaLinks, ShowInThePairs) {
  LinkExamination e;
  for (const char* address : {"0000:1b:00.0", "0000:1c:00.0"}) {
    e.machine.cards.push_back({.address = address, .vendor = kNvidia});
    e.places.push_back({.address = address});
  }
  EXPECT_FALSE(card_pairs(e)[0].peer) << "nobody tells";
  EXPECT_EQ(card_pairs(e)[0].kind, "not told");
  e.nvidia = {{"0000:1b:00.0", "0000:1c:00.0", 18, "ok"}};
  EXPECT_EQ(card_pairs(e)[0].kind, "NVLink x18");
  EXPECT_EQ(card_pairs(e)[0].peer, true);
  e.machine.environment["NCCL_P2P_DISABLE"] = "1";
  ASSERT_EQ(diagnose_links(e).size(), 1u);
  EXPECT_EQ(diagnose_links(e)[0].subject, "NCCL_P2P_DISABLE");
}

}  // namespace
}  // namespace rocm_sd::doctor
