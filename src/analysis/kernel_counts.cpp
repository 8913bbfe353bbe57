#include "analysis/kernel_counts.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/gpu_family.hpp"
#include "base/json.hpp"
#include "base/paths.hpp"
#include "base/text.hpp"
#include "kernels/family/kernel_index.hpp"

namespace rocm_sd {
namespace {

constexpr std::string_view kWinogradKernel = "conv_winograd_";

}  // namespace

KernelCounts read_kernel_counts(const std::filesystem::path& path) {
  const nlohmann::json json = parse_json_file(path);
  const std::string what = path.string();
  const auto text = [&](const nlohmann::json& object, const char* field) {
    require<FormatError>(object.contains(field) && object[field].is_string(), what, ": \"", field,
                         "\" must be a text");
    return printable(object[field].get<std::string>(), 64);
  };
  require<FormatError>(json.is_object() && json.contains("kernels") && json["kernels"].is_object(), what,
                       ": expected an object with \"target\" and \"kernels\"");
  KernelCounts out{text(json, "target"), {}};
  for (const auto& [name, entry] : json["kernels"].items()) {
    const bool known =
        entry.is_object() && entry.contains("matrix_share") && entry["matrix_share"].is_number();
    require<FormatError>(known, what, ": ", printable(name, 64), ": \"matrix_share\" must be a number");
    const double share = entry["matrix_share"].get<double>();
    require<FormatError>(share > 0 && share <= 1, what, ": ", printable(name, 64), ": \"matrix_share\" is ",
                         share, ", expected above 0 and at most 1");
    out.kernels.emplace(name, KernelCount{share, text(entry, "limit")});
  }
  return out;
}

std::optional<KernelCounts> kernel_counts_for(const GpuProduct& gpu) {
  const auto family = gpu_family(gpu.arch);
  const ArchRates* rates = find_arch_rates(gpu.arch);
  if (!family || *family == GpuFamily::kNvidia || !rates) return std::nullopt;
  std::vector<std::string> targets{gpu.arch};
  for (const GpuTarget& target : kGpuTargets) {
    const ArchRates* other = find_arch_rates(target.arch);
    if (target.family == *family && target.arch != gpu.arch && other && other->f16 == rates->f16)
      targets.emplace_back(target.arch);
  }
  for (const std::string& target : targets)
    for (const auto& folder : share_folders()) {
      const auto path = folder / "counts" / (target + ".json");
      std::error_code ignored;
      if (std::filesystem::is_regular_file(path, ignored)) return read_kernel_counts(path);
    }
  return std::nullopt;
}

// The details are those that linear_gpu.cpp, conv2d_gpu.cpp and attention_gpu.cpp give their launches:
// "gpu 128x128x32g/2 ...", "gpu phases 128x128x32/1 ...", "gpu flash_f16_... ...".
std::string kernel_of_problem(std::string_view problem, DType dtype) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < problem.size() && words.size() < 4;) {
    const size_t end = std::min(problem.find(' ', at), problem.size());
    words.push_back(problem.substr(at, end - at));
    at = end + 1;
  }
  if (words.size() < 3 || words[1] != "gpu") return {};
  const std::string_view op = words[0];
  std::string_view config = words[2] == "phases" && words.size() > 3 ? words[3] : words[2];
  const size_t slash = config.find('/');
  // Warpgroups' sums of parts are paired by the launch that adds them up.
  const bool apart = slash != std::string_view::npos && config.substr(slash) != "/1" &&
                     config.substr(0, slash).ends_with('g');
  config = config.substr(0, slash);
  if (op == "conv2d" && config == "winograd") return concat(kWinogradKernel, dtype_name(dtype));
  if (op == "attention") return tile_of_kernel_named(config).rows > 0 ? std::string(config) : std::string();
  const char* kernel = op == "conv2d"                   ? "conv_"
                       : op == "linear_geglu" && !apart ? "geglu_"
                       : op.starts_with("linear")       ? "gemm_"
                                                        : nullptr;
  return kernel ? gemm_kernel_of_choice(kernel, config, dtype_name(dtype)) : std::string();
}

double multiplied_share(std::string_view kernel) { return kernel.starts_with(kWinogradKernel) ? 4.0 / 9 : 1; }

}  // namespace rocm_sd
