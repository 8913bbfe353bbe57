// The measurements of docs/lab/performance-analysis.md: reads with gaps between lanes, LDS bank conflicts,
// products and attention by hand and as the library does them, fusing, and ways to decode a large picture. On
// an emulated GPU memory lines and bank conflicts are counted in small shapes, and nothing is timed.
//
//   bench_analysis_gpu [device] [--json FILE] [memory] [products] [vae]      all of them by default
//
// Exit code 1 where a result is wrong.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/gpu_products.hpp"
#include "measurement/clocks.hpp"
#include "measurement/record.hpp"
#include "performance_tests/gpu/analysis/memory_cases.hpp"
#include "performance_tests/gpu/analysis/product_cases.hpp"
#include "performance_tests/gpu/analysis/vae_cases.hpp"
#include "runtime/gpu_driver.hpp"

namespace {

using namespace rocm_sd;
using namespace rocm_sd::analysis;

std::unique_ptr<GpuDevice> open(const std::string& name) {
  constexpr std::string_view kEmulated = "emu:";
  if (name.starts_with(kEmulated)) return make_gpu_device(open_emulator(name.substr(kEmulated.size())));
  const size_t colon = name.find(':');
  const std::string api = name.substr(0, colon);
  const int index = colon == std::string::npos ? 0 : std::atoi(name.c_str() + colon + 1);
  require<UsageError>(api == "cuda" || api == "hip", "device \"", printable(name),
                      "\": expected cuda, hip or emu:TARGET");
  return make_gpu_device(api == "hip" ? open_hip(index) : open_cuda(index));
}

// A device finds its archive when it is opened: the one with analysis.hip lies in build/analysis, beside the
// folder that holds this program.
std::unique_ptr<GpuDevice> open_with_analysis(const std::string& name) {
  const char* set = std::getenv("ROCM_SD_KERNELS");
  const std::optional<std::string> before = set ? std::optional<std::string>(set) : std::nullopt;
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const auto folder = program.parent_path().parent_path().parent_path() / "analysis";
  setenv("ROCM_SD_KERNELS", folder.c_str(), 1);
  auto device = open(name);
  before ? setenv("ROCM_SD_KERNELS", before->c_str(), 1) : unsetenv("ROCM_SD_KERNELS");
  return device;
}

// The row of the table of cards: a driver's name holds the whole of it ("AMD Radeon RX 7900 XTX") or its
// first word
// ("NVIDIA H200").
const GpuProduct* product_of(const GpuDevice& device) {
  for (const bool whole : {true, false})
    for (const GpuProduct& gpu : gpu_products())
      if (gpu.arch == device.traits().arch &&
          device.name().find(whole ? gpu.name : gpu.name.substr(0, gpu.name.find(' '))) != std::string::npos)
        return &gpu;
  return nullptr;
}

ordered_json describe(GpuDevice& device) {
  ordered_json out = measurement::record_head("analysis", device);
  out["arch"] = device.traits().arch;
  if (const GpuProduct* gpu = product_of(device))
    out["peak"] = {{"gpu", gpu->name},
                   {"gb_per_s", gpu->bandwidth},
                   {"f16_tflops", peak_rate(*gpu, RateType::kF16) / 1e12},
                   {"f32_tflops", peak_rate(*gpu, RateType::kF32) / 1e12},
                   {"l2_mb", gpu->l2_mb}};
  return out;
}

int run(int argc, char** argv) {
  std::string name = "cuda", file;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json" && i + 1 < argc)
      file = argv[++i];
    else if (word == "memory" || word == "products" || word == "vae")
      wanted.push_back(word);
    else
      name = word;
  }
  const auto asks = [&](const char* what) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), what) != wanted.end();
  };
  std::optional<bench::CountFile> counts;
  if (name.starts_with("emu:")) counts.emplace();
  const auto demo = open_with_analysis(name), library = open(name);
  Lab lab(*demo, *library, counts ? &*counts : nullptr);
  measurement::ClockLog clocks(measurement::clock_meter(*library));
  const auto run_part = [&](const char* part, const auto& body) {
    if (!asks(part)) return;
    body();
    clocks.read();
  };
  run_part("memory", [&] { MemoryCases(lab).run(); });
  run_part("products", [&] { ProductCases(lab).run(); });
  if (!lab.emulated()) run_part("vae", [&] { VaeCases(lab).run(); });
  const int code = lab.wrong() > 0 ? 1 : 0;
  if (file.empty()) return code;
  ordered_json report = describe(*library);
  if (!lab.emulated()) report["clocks"] = clocks.json();
  report["rows"] = lab.rows();
  std::ofstream out(file);
  out << report.dump(1) << "\n";
  require<FileError>(static_cast<bool>(out.flush()), file, ": cannot be written");
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
