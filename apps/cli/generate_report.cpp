#include "apps/cli/generate_report.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace rocm_sd::cli {
namespace {

std::string gigabytes(uint64_t bytes) { return fmt::format("{:.3f} GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

void print_model(const MultiPipeline& pipeline) {
  const ModelInfo& info = pipeline.info();
  fmt::print(stderr, "model: {} ({}, {} prediction, {:.1f} M parameters)\n", printable(info.name), info.kind,
             info.prediction, static_cast<double>(info.parameters) / 1e6);
  const std::vector<DrawerInfo> drawers = pipeline.drawers();
  for (const DrawerInfo& drawer : drawers)
    fmt::print(
        stderr, "device: {}{}, computing in {}\n",
        drawers.size() > 1 || drawer.devices.find('+') != std::string::npos ? drawer.devices + ": " : "",
        drawer.model.device, drawer.model.dtype);
  for (const std::string& note : info.notes) fmt::print(stderr, "note: {}\n", note);
}

void print_plan(const MemoryPlan& plan, const std::string& device) {
  fmt::print(stderr, "memory plan{}: {} = weights {} + arena {} (text {}, unet {}, vae {}) + buffers {}\n",
             device.empty() ? "" : " of " + device, gigabytes(plan.total()), gigabytes(plan.weights),
             gigabytes(plan.arena), gigabytes(plan.text), gigabytes(plan.unet), gigabytes(plan.vae),
             gigabytes(plan.buffers));
  if (plan.streamed > 0) {
    const std::string link = plan.link_seconds > 0 ? fmt::format(", which takes {:.1f} ms of the bus alone",
                                                                 1e3 * plan.link_seconds)
                                                   : "";
    fmt::print(
        stderr,
        "streamed weights: {}: {} stay on the device, {} are copied in each call of the UNet{}, through "
        "{} of the device's memory\n",
        gigabytes(plan.streamed), gigabytes(plan.stream_resident), gigabytes(plan.stream_copied), link,
        gigabytes(plan.stream_ring));
  }
  if (plan.devices.size() < 2) return;
  for (const DeviceMemory& one : plan.devices)
    fmt::print(stderr, "  on {} ({}): {} = weights {} + arena {} + buffers {}\n", one.device, one.parts,
               gigabytes(one.total()), gigabytes(one.weights), gigabytes(one.arena), gigabytes(one.buffers));
}

std::string quality_text(const PictureQuality& quality) {
  return fmt::format("PSNR {:.2f} dB, SSIM {:.5f}, FLIP {:.5f}", quality.psnr, quality.ssim, quality.flip);
}

void print_times(const GenerateResult& result) {
  std::string line;
  double all = 0;
  for (const StageTime& t : result.times) {
    line += fmt::format("{}{} {:.3f} s", line.empty() ? "" : ", ", t.stage, t.seconds);
    all += t.seconds;
  }
  fmt::print(stderr, "time: {:.3f} s ({}){}\narena used: {} of {} planned\n", all, line,
             result.device.empty() ? "" : " on " + result.device, gigabytes(result.arena_used),
             gigabytes(result.plan.arena));
  if (result.device_peak > 0)
    fmt::print(stderr, "device memory: {} at most, {} planned\n", gigabytes(result.device_peak),
               gigabytes(result.plan.total()));
  for (const std::string& line : result.savings) fmt::print(stderr, "saving: {}\n", line);
  for (const std::string& warning : result.warnings) fmt::print(stderr, "warning: {}\n", warning);
}

}  // namespace rocm_sd::cli
