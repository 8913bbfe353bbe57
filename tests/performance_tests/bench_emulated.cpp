// What the emulator counts in the main loops of the matrix kernels: per configuration of linear, geglu,
// conv2d and attention, the instructions and unit cycles of one turn of the hottest loop by one wave, and the
// share that the matrix instructions have in the loop's bound of issue cycles. Nothing here is a time.
//
//   bench_emulated [gfx1100,gfx1201,gfx942] [gemm|geglu|conv|attention|all] [f16|bf16] [part of a kernel's
//   name]
//
// Grids are small: a workgroup or a few of each configuration, with depths like those of SD1.5 and SDXL.
// ROCM_SD_KERNELS names another folder of kernel archives. ROCM_SD_EMULATOR_COUNT keeps the JSON of all
// launches.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention/flash_plan.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/gemm/linear_gpu.hpp"
#include "kernels/gpu_launch.hpp"
#include "runtime/devices.hpp"

using namespace rocm_sd;

namespace {

struct Options {
  std::vector<std::string> targets;
  std::string what = "all", filter;
  DType dtype = DType::kF16;
};

Tensor random_on(Device& device, const Shape& shape, DType dtype) {
  std::mt19937 random(3);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) v = static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f;
  return tensor_from(device, shape, values.data(), dtype);
}

// What the launches since the last call counted.
class CountFile {
 public:
  CountFile() {
    if (const char* kept = std::getenv("ROCM_SD_EMULATOR_COUNT")) {
      path_ = kept;
      end_ = std::filesystem::exists(path_) ? std::filesystem::file_size(path_) : 0;
    } else {
      path_ = std::filesystem::temp_directory_path() /
              ("bench_emulated." + std::to_string(std::random_device{}()));
      setenv("ROCM_SD_EMULATOR_COUNT", path_.c_str(), 1);
      temporary_ = true;
    }
  }
  ~CountFile() {
    std::error_code ignored;
    if (temporary_) std::filesystem::remove(path_, ignored);
  }
  CountFile(const CountFile&) = delete;
  CountFile& operator=(const CountFile&) = delete;

  std::vector<nlohmann::json> take() {
    std::vector<nlohmann::json> out;
    std::ifstream file(path_);
    file.seekg(static_cast<std::streamoff>(end_));
    for (std::string line; std::getline(file, line);) {
      end_ += line.size() + 1;
      out.push_back(nlohmann::json::parse(line));
    }
    return out;
  }

 private:
  std::filesystem::path path_;
  uint64_t end_ = 0;
  bool temporary_ = false;
};

void print_head(const std::string& target) {
  std::printf(
      "\n%s: one turn of the hottest loop by one wave; cycles are of a SIMD, lds and memory shared among the "
      "unit's\n",
      target.c_str());
  std::printf("%-42s %5s %6s | %6s %6s %5s %6s %5s %5s %5s | %7s %7s %7s %7s %7s %7s | %5s %6s %-14s %6s\n",
              "kernel", "waves", "turns", "matrix", "vector", "trans", "scalar", "lds", "vmem", "wait",
              "matrix", "vector", "trans", "scalar", "lds", "memory", "confl", "coal", "limit", "share");
}

void print_row(const nlohmann::json& j) {
  const auto& loop = j["hottest_loop"];
  const double turns = loop["turns"], simds = j["target"].get<std::string>().starts_with("gfx9") ? 4 : 2;
  const auto count = [&](const char* name) { return loop["instructions"][name].get<double>() / turns; };
  const auto cycles = [&](const char* name, double scale = 1) {
    return loop["cycles"][name].get<double>() / turns * scale;
  };
  const double lds = j["lds"]["cycles"], conflicts = j["lds"]["conflict_cycles"];
  const double useful = j["global"]["bytes_useful"], lines = j["global"]["lines64"];
  std::printf(
      "%-42s %5d %6.0f | %6.0f %6.0f %5.0f %6.0f %5.0f %5.0f %5.0f | %7.0f %7.0f %7.0f %7.0f %7.0f %7.0f | "
      "%4.0f%% %5.0f%% %-14s %5.1f%%\n",
      j["kernel"].get<std::string>().c_str(), j["occupancy"]["waves_per_simd"].get<int>(),
      turns / j["waves"].get<double>(), count("matrix"), count("valu"), count("trans"),
      count("salu") + count("branch") + count("smem"), count("lds"), count("vmem"), count("wait"),
      cycles("matrix"), cycles("vector"), cycles("transcendental"), cycles("scalar"), cycles("lds", simds),
      cycles("memory", simds), lds > 0 ? 100 * conflicts / lds : 0.0,
      lines > 0 ? 100 * useful / (64 * lines) : 0.0, loop["cycles"]["limit"].get<std::string>().c_str(),
      100 * loop["cycles"]["matrix_share"].get<double>());
  std::fflush(stdout);
}

class Bench {
 public:
  Bench(GpuDevice& device, CountFile& counts, const Options& options)
      : device_(device), counts_(counts), options_(options), arena_(device) {}

  void linear(bool gated) {
    for (const GemmConfig* config : gemm_configs(device_.traits(), options_.dtype, gated)) {
      const GemmChoice choice{config, 1};
      if (!wanted(gemm_kernel_name(choice, options_.dtype, gated))) continue;
      const TileShape& s = config->shape;
      const int64_t rows = 2 * s.block_m, out = gated ? s.block_n / 2 : s.block_n, in = 1280;
      const Tensor x = random_on(device_, {rows, in}, options_.dtype);
      const LinearWeight w{Weight(random_on(device_, {s.block_n, in}, options_.dtype)),
                           random_on(device_, {s.block_n}, DType::kF32)};
      const Tensor y = make_tensor(device_, {rows, out}, options_.dtype);
      const Epilogue none;
      const LinearProblem problem{x, w, none, gated, y, rows, in, out, in};
      run([&](Exec& ex) { linear_gpu_as(ex, problem, choice); });
    }
  }
  void conv() {
    for (const ConvConfig& config : conv_configs_of(device_.traits(), options_.dtype)) {
      if (!wanted(conv_kernel_name(options_.dtype, config))) continue;
      const int64_t side = config.shape.block_m >= 256 ? 16 : 8,
                    images = std::max<int64_t>(1, config.shape.block_m / (side * side));
      const int64_t channels = 320;
      const Tensor x = random_on(device_, {images, side, side, channels}, options_.dtype);
      const ConvWeight w{Weight(random_on(device_, {config.shape.block_n, channels, 3, 3}, options_.dtype)),
                         random_on(device_, {config.shape.block_n}, DType::kF32)};
      const Tensor y = make_tensor(device_, {images, side, side, config.shape.block_n}, options_.dtype);
      ConvArgs args;
      args.pad = Padding::same(1);
      const ConvProblem problem{x, w, args, y};
      run([&](Exec& ex) { conv2d_gpu_by(ex, problem, {config, 1}); });
    }
  }
  void attention() {
    for (const int64_t head_dim : {40, 64, 80, 128, 160, 512}) {
      AttentionProblem p;
      p.dtype = options_.dtype;
      p.batch = p.heads = 1;
      p.keys = 512;
      p.head_dim = head_dim;
      p.scale = 1 / std::sqrt(static_cast<float>(head_dim));
      p.queries = 128;
      const Tensor q = random_on(device_, {p.queries, head_dim}, options_.dtype);
      const Tensor k = random_on(device_, {p.keys, head_dim}, options_.dtype);
      const Tensor y = make_tensor(device_, {p.queries, head_dim}, options_.dtype);
      p.q = {q.data(), p.queries * head_dim, head_dim};
      p.k = p.v = {k.data(), p.keys * head_dim, head_dim};
      p.y = y.data();
      for (const FlashKernel& kernel : flash_candidates(p, device_.traits())) {
        if (!wanted(kernel.name)) continue;
        run([&](Exec& ex) { run_flash(ex, p, plan_flash(kernel, 1, p, device_.traits())); });
      }
    }
  }

 private:
  bool wanted(const std::string& kernel) const {
    return kernel.find(options_.filter) != std::string::npos && device_.find_kernel(kernel) != nullptr;
  }
  void run(const std::function<void(Exec&)>& op) {
    (void)counts_.take();
    try {
      Exec ex(arena_);
      op(ex);
    } catch (const Error& error) {
      std::printf("%s\n", error.what());
    }
    for (const nlohmann::json& launch : counts_.take())
      if (launch["by_class"]["matrix"].get<uint64_t>() > 0) print_row(launch);
  }

  GpuDevice& device_;
  CountFile& counts_;
  const Options& options_;
  Arena arena_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string list = argc > 1 ? argv[1] : "gfx1100,gfx1201,gfx942";
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    options.targets.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  if (argc > 2) options.what = argv[2];
  if (argc > 3) options.dtype = std::string(argv[3]) == "bf16" ? DType::kBF16 : DType::kF16;
  if (argc > 4) options.filter = argv[4];
  const auto asks = [&](const char* what) { return options.what == "all" || options.what == what; };
  try {
    CountFile counts;
    for (const std::string& target : options.targets) {
      auto& device = static_cast<GpuDevice&>(device_named("emu:" + target));
      print_head(target);
      Bench bench(device, counts, options);
      if (asks("gemm")) bench.linear(false);
      if (asks("geglu")) bench.linear(true);
      if (asks("conv")) bench.conv();
      if (asks("attention")) bench.attention();
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
