// rocm-sd doctor: what this machine can do, what is missing and what each gap costs.
#include "doctor/diagnose.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.hpp"
#include "base/error.hpp"
#include "doctor/links.hpp"
#include "scaling/pair_test.hpp"

namespace rocm_sd::cli {
namespace {

struct DoctorOptions {
  bool json = false, links = false;
  std::string root = "/", devices;
};

constexpr double kTestSeconds = 3;

void print(const nlohmann::ordered_json& report) {
  fmt::print("{}\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Those that the user named, else every GPU here that can be used.
std::vector<ListedDevice> devices_to_test(const DoctorOptions& options, const doctor::Examination& found) {
  if (!options.devices.empty()) return parse_devices(options.devices, devices());
  std::vector<ListedDevice> out;
  for (const DeviceListing& device : found.devices)
    if (options.root == "/" && device.usable && device.name != "cpu" && !device.name.starts_with("emu:"))
      out.push_back({device.name});
  return out;
}

void print_links(const DoctorOptions& options) {
  const doctor::Examination found = doctor::examine(options.root);
  const doctor::LinkExamination links = doctor::examine_links(found, options.root);
  const auto findings = doctor::diagnose_links(links);
  const std::vector<ListedDevice> tested = devices_to_test(options, found);
  const std::vector<PairTest> tests =
      tested.size() < 2 ? std::vector<PairTest>() : test_pairs(tested, kTestSeconds);
  if (options.json) {
    nlohmann::ordered_json report = doctor::links_json(links, findings);
    report["tests"] = pair_tests_json(tests);
    return print(report);
  }
  fmt::print("{}{}", doctor::links_text(links, findings), pair_tests_text(tests));
  if (tests.empty())
    fmt::print("measured    nothing: {} here that can be used; --devices names others (cpu,cpu)\n",
               tested.empty() ? "there is no GPU" : "there is one GPU");
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* sub =
      app.add_subcommand("doctor", "what this machine can do, what is missing, its cost and its fix");
  sub->add_flag("--json", options->json, "print JSON");
  sub->add_flag(
      "--links", options->links,
      "the ways between the GPUs instead: links, peer access, what is wrong with them, and a test of "
      "3 s");
  sub->add_option("--devices", options->devices,
                  "with --links: the devices to test, or all [every usable GPU]");
  sub->add_option("--root", options->root,
                  "read /sys, /proc, /dev and /etc below this folder (of another machine) [/]");
  sub->callback([options] {
    require<UsageError>(options->links || options->devices.empty(), "doctor: --devices needs --links");
    if (options->links) return print_links(*options);
    const doctor::Examination examination = doctor::examine(options->root);
    const auto findings = doctor::diagnose(examination);
    if (options->json)
      print(doctor::report_json(examination, findings));
    else
      fmt::print("{}", doctor::report_text(examination, findings));
  });
}

}  // namespace rocm_sd::cli
