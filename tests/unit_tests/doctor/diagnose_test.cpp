// Each gap that the doctor knows: planted in a faked machine, found with its cost and its fix.
#include "doctor/diagnose.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/fake_machine.hpp"
#include "support/findings.hpp"

namespace rocm_sd::doctor {
namespace {

using testing::HasSubstr;

// A machine with one RX 7900 XTX on which nothing is missing.
class DiagnoseTest : public testing::Test {
 protected:
  DiagnoseTest() {
    fake_.add_amd("0000:03:00.0", 110000, 1);
    fake_.add_device_files(0660);
    libraries_ = {{.product = "HIP runtime", .file = "libamdhip64.so.6"}};
    devices_ = {{.name = "cpu", .detail = "host", .usable = true},
                {.name = "hip:0", .detail = "gfx1100", .usable = true}};
  }
  Examination examination() const { return {fake_.read(who_), devices_, libraries_, targets_}; }
  std::vector<Finding> findings() const { return diagnose(examination()); }
  Finding found(const std::string& subject) const { return only_finding(findings(), subject); }

  FakeMachine fake_;
  Identity who_{0, {}};
  std::vector<DeviceListing> devices_;
  std::vector<Library> libraries_;
  std::vector<std::string> targets_{"gfx1100", "gfx1201", "sm_90"};
};

TEST_F(DiagnoseTest, NothingIsMissing) {
  for (const Finding& f : findings()) ADD_FAILURE() << f.subject << ": " << f.what;
  EXPECT_THAT(report_text(examination(), {}), HasSubstr("Nothing is missing."));
}

TEST_F(DiagnoseTest, NoPermission) {
  who_ = {fake_.file_owner() + 1, {fake_.file_group() + 1}};
  const Finding f = found("/dev/kfd");
  EXPECT_EQ(f.severity, Severity::kProblem);
  EXPECT_THAT(f.fix, HasSubstr("usermod -aG render"));
  found("/dev/dri/renderD128");
}

TEST_F(DiagnoseTest, NoKfd) {
  fake_.remove("dev/kfd");
  EXPECT_THAT(found("/dev/kfd").what, HasSubstr("missing"));
  fake_.write(".dockerenv", "");
  EXPECT_THAT(found("/dev/kfd").fix, HasSubstr("--device=/dev/kfd"));
}

TEST_F(DiagnoseTest, NoDriverOrAnother) {
  fake_.add_amd("0000:43:00.0", 110000, 2, "");
  EXPECT_THAT(found("0000:43:00.0").what, HasSubstr("no driver"));
  fake_.add_amd("0000:44:00.0", 110000, 3, "vfio-pci");
  EXPECT_THAT(found("0000:44:00.0").fix, HasSubstr("virtual machine"));
}

TEST_F(DiagnoseTest, NoRuntime) {
  libraries_[0] = {.product = "HIP runtime", .problem = "libamdhip64.so.6: cannot open"};
  EXPECT_EQ(found("libamdhip64").severity, Severity::kProblem);
}

TEST_F(DiagnoseTest, NoKernelsForTheArchitecture) {
  targets_ = {"gfx1201"};
  const Finding known = found("gfx1100");
  EXPECT_THAT(known.what, HasSubstr("gfx1201"));
  EXPECT_THAT(known.fix, HasSubstr("-DROCM_SD_ARCHS=gfx1100"));
  fake_.add_amd("0000:43:00.0", 100300, 2);
  EXPECT_THAT(found("gfx1030").fix, HasSubstr("do not support"));
}

TEST_F(DiagnoseTest, OverriddenArchitecture) {
  fake_.environment["HSA_OVERRIDE_GFX_VERSION"] = "10.3.0";
  EXPECT_EQ(found("HSA_OVERRIDE_GFX_VERSION").severity, Severity::kWarning);
  fake_.environment["HSA_OVERRIDE_GFX_VERSION"] = "11.0.0";
  EXPECT_EQ(found("HSA_OVERRIDE_GFX_VERSION").severity, Severity::kNote);
  fake_.environment["HSA_OVERRIDE_GFX_VERSION"] = "navi31\n";
  EXPECT_THAT(found("HSA_OVERRIDE_GFX_VERSION").what, HasSubstr("navi31\\x0a"));
}

TEST_F(DiagnoseTest, HiddenDevices) {
  for (const char* value : {"", "-1", "9", "9,10"}) {
    fake_.environment["HIP_VISIBLE_DEVICES"] = value;
    EXPECT_EQ(found("HIP_VISIBLE_DEVICES").severity, Severity::kProblem) << value;
  }
  for (const char* value : {"0", "0,1", "GPU-a1b2"}) {
    fake_.environment["HIP_VISIBLE_DEVICES"] = value;
    EXPECT_EQ(found("HIP_VISIBLE_DEVICES").severity, Severity::kNote) << value;
  }
}

TEST_F(DiagnoseTest, LeftOverVariables) {
  fake_.environment["MIOPEN_FIND_MODE"] = "2";
  EXPECT_EQ(found("MIOPEN_FIND_MODE").severity, Severity::kNote);
  fake_.environment["PYTORCH_HIP_ALLOC_CONF"] = "expandable_segments:True";
  found("PYTORCH_HIP_ALLOC_CONF");
  fake_.environment["AMD_SERIALIZE_KERNEL"] = "3";
  EXPECT_EQ(found("AMD_SERIALIZE_KERNEL").severity, Severity::kWarning);
}

TEST_F(DiagnoseTest, MemoryAndLinks) {
  const std::string device = "sys/bus/pci/devices/0000:03:00.0/";
  fake_.write(device + "mem_info_vram_used", std::to_string(20ull << 30));
  EXPECT_THAT(found("0000:03:00.0").what, HasSubstr("20.0 of 24.0 GiB"));
  fake_.write(device + "mem_info_vram_used", "0");
  fake_.write(device + "mem_info_vis_vram_total", std::to_string(256ull << 20));
  EXPECT_THAT(found("0000:03:00.0").what, HasSubstr("resizable BAR"));
  fake_.write(device + "mem_info_vis_vram_total", std::to_string(24ull << 30));
  fake_.write(device + "current_link_width", "4");
  EXPECT_THAT(found("0000:03:00.0").cost, HasSubstr("4 times"));
  fake_.write(device + "current_link_width", "16");
  fake_.write("sys/fs/cgroup/memory.max", std::to_string(4ull << 30));
  EXPECT_THAT(found("memory").what, HasSubstr("4.0 GiB"));
}

TEST_F(DiagnoseTest, SeveralGpus) {
  fake_.add_amd("0000:43:00.0", 110000, 2);
  EXPECT_THAT(found("0000:03:00.0 - 0000:43:00.0").what, HasSubstr("no peer link"));
  fake_.add_link(1, 2, "p2p_links", 2, 16000);
  EXPECT_TRUE(findings().empty());
  fake_.add_amd("0000:43:00.0", 120001, 2);
  found("GPUs");
}

TEST_F(DiagnoseTest, AGpuThatNoRuntimeOffers) {
  devices_[1] = {.name = "hip", .detail = "hipInit: hipErrorInvalidDevice", .usable = false};
  devices_.push_back({.name = "emu:gfx1100", .detail = "emulated", .usable = true});  // is no GPU
  const Finding f = found("GPU");
  EXPECT_EQ(f.severity, Severity::kProblem);
  EXPECT_THAT(f.what, HasSubstr("hip: hipInit: hipErrorInvalidDevice"));
  fake_.remove("dev/kfd");  // a cause that is known is named, and nothing beside it
  found("/dev/kfd");
  for (const Finding& other : findings()) EXPECT_NE(other.subject, "GPU") << other.what;
}

TEST(Diagnose, SaysThatThereIsNoGpu) {
  Examination e;
  e.machine.memory = 16ull << 30;
  e.devices = {{.name = "cpu", .detail = "host", .usable = true},
               {.name = "emu:gfx942", .detail = "emulated", .usable = true},
               {.name = "cuda", .detail = "no NVIDIA driver", .usable = false}};
  const std::vector<Finding> all = diagnose(e);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].severity, Severity::kNote);
  EXPECT_THAT(all[0].what, HasSubstr("no AMD or NVIDIA GPU"));
}

TEST_F(DiagnoseTest, GravestFirstAndInJson) {
  targets_.clear();
  fake_.environment["MIOPEN_FIND_MODE"] = "\xff";
  fake_.environment["HIP_LAUNCH_BLOCKING"] = "1";
  const auto all = findings();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].severity, Severity::kProblem);
  EXPECT_EQ(all[1].severity, Severity::kWarning);
  EXPECT_EQ(all[2].severity, Severity::kNote);
  const auto report = report_json(examination(), all);
  const auto read =
      nlohmann::json::parse(report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  EXPECT_EQ(read["findings"].size(), 3u);
  EXPECT_EQ(read["findings"][0]["severity"], "problem");
  EXPECT_EQ(read["cards"][0]["arch"], "gfx1100");
  const std::string text = report_text(examination(), all);
  for (const Finding& f : all) EXPECT_THAT(text, HasSubstr(f.fix));
}

TEST(Examine, ThisMachineHasAHostAndNoCrash) {
  const Examination e = examine();
  ASSERT_FALSE(e.devices.empty());
  EXPECT_EQ(e.devices[0].name, "cpu");
  EXPECT_GT(e.machine.memory, 0u);
  EXPECT_EQ(e.libraries.size(), 9u);
  EXPECT_FALSE(report_text(e, diagnose(e)).empty());
}

}  // namespace
}  // namespace rocm_sd::doctor
