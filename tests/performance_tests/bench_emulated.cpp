// What the emulator counts in the main loops of the matrix kernels: per configuration of linear, geglu (of
// 8-bit weights too, where the target multiplies these), conv2d and attention, the instructions and unit
// cycles of one turn of the hottest loop by one wave, and the share that the matrix instructions have in the
// loop's bound of issue cycles. Nothing here is a time.
//
//   bench_emulated [gfx1100,gfx1201,gfx942] [gemm|geglu|conv|attention|eight_bit|all] [f16|bf16|all]
//                  [part of a kernel's name]
//   bench_emulated --write FOLDER [...]   puts what predictions and the kernel report read into
//                                         FOLDER/<target>.json (share/counts); a part replaces its rows only
//   bench_emulated --check FOLDER [...]   compares with that; 1 where a kernel lost 5 points of matrix share
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
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention/flash_plan.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/conv/conv2d_winograd_gpu.hpp"
#include "kernels/eight_bit.hpp"
#include "kernels/gemm/linear_eight_bit.hpp"
#include "kernels/gemm/linear_gpu.hpp"
#include "kernels/gpu_launch.hpp"
#include "runtime/devices.hpp"
#include "support/count_file.hpp"

using namespace rocm_sd;
using bench::CountFile;

namespace {

struct Options {
  std::vector<std::string> targets;
  std::string what = "all", filter, write, check;
  std::vector<DType> dtypes = {DType::kF16};
};

constexpr double kLostShare = 0.05;  // of the matrix share that a kernel may lose before --check fails

// A fraction with four digits, so that files differ where counts do.
double rounded(double x) { return std::round(x * 1e4) / 1e4; }

// What a launch's counts say of its kernel: a row of share/counts/<target>.json.
nlohmann::ordered_json row_of(const nlohmann::json& j) {
  const auto& loop = j["hottest_loop"];
  const double turns = loop["turns"], useful = j["global"]["bytes_useful"], lines = j["global"]["lines64"],
               lds = j["lds"]["cycles"], conflicts = j["lds"]["conflict_cycles"];
  nlohmann::ordered_json turn;  // cycles of one turn by one wave
  for (const char* unit : {"matrix", "vector", "transcendental", "scalar", "lds", "memory"})
    turn[unit] = rounded(loop["cycles"][unit].get<double>() / turns);
  return {{"matrix_share", rounded(loop["cycles"]["matrix_share"])},
          {"limit", loop["cycles"]["limit"]},
          {"waves_per_simd", j["occupancy"]["waves_per_simd"]},
          {"coalescing", rounded(lines > 0 ? useful / (64 * lines) : 1)},
          {"lds_conflicts", rounded(lds > 0 ? conflicts / lds : 0)},
          {"cycles_per_iteration", turn}};
}

// The rows of one target, and what they are compared with or written into.
class CountTable {
 public:
  CountTable(const Options& options, std::string target) : options_(options), target_(std::move(target)) {
    const std::string folder = options.write.empty() ? options.check : options.write;
    if (folder.empty()) return;
    path_ = folder + "/" + target_ + ".json";
    if (std::ifstream file(path_); file) before_ = nlohmann::ordered_json::parse(file);
  }
  void add(const nlohmann::json& launch) { rows_[launch["kernel"].get<std::string>()] = row_of(launch); }

  void write() const {
    auto rows =
        before_.contains("kernels") && !whole() ? before_["kernels"] : nlohmann::ordered_json::object();
    for (const auto& [name, row] : rows_) rows[name] = row;
    std::map<std::string, nlohmann::ordered_json> sorted;
    for (const auto& [name, row] : rows.items()) sorted[name] = row;
    std::ofstream file(path_);
    file << "{\n\"target\": \"" << target_
         << "\",\n\"about\": \"bounds counted by bench_emulated, no measurements; "
            "docs/emulator.md\",\n\"kernels\": {\n";
    size_t left = sorted.size();
    for (const auto& [name, row] : sorted)
      file << nlohmann::json(name).dump() << ": " << row.dump() << (--left ? ",\n" : "\n");
    file << "}\n}\n";
    require<FileError>(static_cast<bool>(file.flush()), path_, ": cannot be written");
    std::printf("%s: %zu kernels\n", path_.c_str(), sorted.size());
  }
  // How many kernels lost matrix share; prints them, and how many rows differ otherwise.
  int check() const {
    require<FileError>(before_.contains("kernels"), path_, ": no counts there");
    int lost = 0, stale = 0;
    for (const auto& [name, row] : rows_) {
      const auto old = before_["kernels"].find(name);
      if (old == before_["kernels"].end()) {
        std::printf("%s: %s has no counts yet\n", path_.c_str(), name.c_str());
        ++stale;
        continue;
      }
      const double was = (*old)["matrix_share"], is = row["matrix_share"];
      if (is < was - kLostShare) {
        std::printf("%s: %s: matrix share %.3f, was %.3f\n", path_.c_str(), name.c_str(), is, was);
        ++lost;
      } else if (nlohmann::json(row) != nlohmann::json(*old)) {
        ++stale;
      }
    }
    std::printf(
        "%s: %zu kernels, %d lost matrix share%s\n", target_.c_str(), rows_.size(), lost,
        stale ? concat("; ", stale, " rows differ: `make kernel-counts` writes them anew").c_str() : "");
    require<UsageError>(!rows_.empty(), target_, ": no kernel was counted");
    return lost;
  }

 private:
  bool whole() const { return options_.what == "all" && options_.filter.empty(); }

  const Options& options_;
  std::string target_, path_;
  nlohmann::ordered_json before_ = nlohmann::ordered_json::object();
  std::map<std::string, nlohmann::ordered_json> rows_;
};

Tensor random_on(Device& device, const Shape& shape, DType dtype) {
  std::mt19937 random(3);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) v = static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f;
  return tensor_from(device, shape, values.data(), dtype);
}

// Random weights stored in 8 bits with a scale a row, for products of 8 bits.
Weight eight_bit_on(Device& device, const Shape& shape, DType type, DType dtype) {
  const Tensor from = random_on(host_device(), shape, DType::kF32);
  const Tensor values = make_tensor(host_device(), shape, type);
  const Tensor scales = make_tensor(host_device(), {shape[0]}, DType::kF32);
  quantise_rows(from.as<float>(), shape[0], shape[1], type, values.data(), scales.as<float>());
  const auto to_device = [&](const Tensor& host) {
    const Tensor y = make_tensor(device, host.shape(), host.dtype());
    device.copy_to_device(y.data(), host.data(), host.bytes());
    return y;
  };
  return Weight(StoredWeight(to_device(values), to_device(scales), dtype, true));
}

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
  Bench(GpuDevice& device, CountFile& counts, const Options& options, DType dtype, CountTable& table)
      : device_(device), counts_(counts), options_(options), dtype_(dtype), table_(table), arena_(device) {}

  void linear(bool gated) {
    for (const GemmConfig* config : gemm_configs(device_.traits(), dtype_, gated)) {
      const GemmChoice choice{config, 1};
      if (!wanted(gemm_kernel_name(device_.traits(), choice, dtype_, gated))) continue;
      const TileShape& s = config->shape;
      const int64_t rows = 2 * s.block_m, out = gated ? s.block_n / 2 : s.block_n, in = 1280;
      const Tensor x = random_on(device_, {rows, in}, dtype_);
      const LinearWeight w{Weight(random_on(device_, {s.block_n, in}, dtype_)),
                           random_on(device_, {s.block_n}, DType::kF32)};
      const Tensor y = make_tensor(device_, {rows, out}, dtype_);
      const Epilogue none;
      const LinearProblem problem{x, w, none, gated, y, rows, in, out, in};
      run([&](Exec& ex) { linear_gpu_as(ex, problem, choice); });
    }
  }
  // Products of i8 and f8e4m3 with activations that are quantised before them.
  void eight_bit() {
    for (const DType type : {DType::kI8, DType::kF8E4M3}) {
      if (!multiplies_eight_bit(device_, type)) continue;
      for (const bool gated : {false, true}) {
        const int64_t rows = 256, held = 256, out = gated ? held / 2 : held, in = 1280;
        const Tensor x = random_on(device_, {rows, in}, dtype_);
        const LinearWeight w{eight_bit_on(device_, {held, in}, type, dtype_), std::nullopt};
        const Tensor y = make_tensor(device_, {rows, out}, dtype_);
        const Epilogue none;
        const LinearProblem problem{x, w, none, gated, y, rows, in, out, in};
        for (const EightBitChoice& choice : eight_bit_candidates(device_.traits(), problem))
          if (choice.splits == 1 && wanted(eight_bit_kernel_name(choice, problem)))
            run([&](Exec& ex) { linear_eight_bit_as(ex, problem, choice); });
      }
    }
  }
  void conv() {
    for (const GemmConfig& config : conv_configs_of(device_.traits(), dtype_)) {
      if (!wanted(conv_kernel_name(dtype_, config))) continue;
      const int64_t side = config.shape.block_m >= 256 ? 16 : 8,
                    images = std::max<int64_t>(1, config.shape.block_m / (side * side));
      const int64_t channels = 320;
      const Tensor x = random_on(device_, {images, side, side, channels}, dtype_);
      const ConvWeight w{Weight(random_on(device_, {config.shape.block_n, channels, 3, 3}, dtype_)),
                         random_on(device_, {config.shape.block_n}, DType::kF32)};
      const Tensor y = make_tensor(device_, {images, side, side, config.shape.block_n}, dtype_);
      ConvArgs args;
      args.pad = Padding::same(1);
      const ConvProblem problem{x, w, args, y};
      run([&](Exec& ex) { conv2d_gpu_by(ex, problem, {config, 1}); });
    }
    if (dtype_ == DType::kF16 && wanted("conv_winograd_f16")) winograd();
  }
  void attention() {
    for (const int64_t head_dim : {32, 40, 64, 80, 104, 128, 160, 512})
      for (const bool causal : {false, true}) attention(head_dim, causal);
  }

 private:
  void winograd() {
    const int64_t channels = 320, outputs = 64;
    const Tensor x = random_on(device_, {1, 16, 16, channels}, dtype_);
    const ConvWeight w{Weight(random_on(device_, {outputs, channels, 3, 3}, dtype_)),
                       random_on(device_, {outputs}, DType::kF32)};
    const Tensor y = make_tensor(device_, {1, 16, 16, outputs}, dtype_);
    ConvArgs args;
    args.pad = Padding::same(1);
    const ConvProblem problem{x, w, args, y};
    run([&](Exec& ex) { conv2d_winograd_gpu(ex, problem); });
  }
  // causal: the kernels that take masks (text encoders); the others are counted without one, as the UNet and
  // the VAE run them.
  void attention(int64_t head_dim, bool causal) {
    AttentionProblem p;
    p.dtype = dtype_;
    p.batch = p.heads = 1;
    p.keys = 512;
    p.causal = causal;
    p.head_dim = head_dim;
    p.scale = 1 / std::sqrt(static_cast<float>(head_dim));
    p.queries = causal ? p.keys : 128;
    const Tensor q = random_on(device_, {p.queries, head_dim}, dtype_);
    const Tensor k = random_on(device_, {p.keys, head_dim}, dtype_);
    const Tensor y = make_tensor(device_, {p.queries, head_dim}, dtype_);
    p.q = {q.data(), p.queries * head_dim, head_dim};
    p.k = p.v = {k.data(), p.keys * head_dim, head_dim};
    p.y = y.data();
    for (const FlashKernel& kernel : flash_candidates(p, device_.traits())) {
      if (causal && !kernel.name.starts_with("flash_general")) continue;
      if (!wanted(kernel.name)) continue;
      run([&](Exec& ex) { run_flash(ex, p, plan_flash(kernel, 1, p, device_.traits())); });
    }
  }
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
      if (launch["by_class"]["matrix"].get<uint64_t>() > 0) {
        table_.add(launch);
        if (options_.check.empty()) print_row(launch);
      }
  }

  GpuDevice& device_;
  CountFile& counts_;
  const Options& options_;
  DType dtype_;
  CountTable& table_;
  Arena arena_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const std::string first = argc > 2 ? argv[1] : ""; first == "--write" || first == "--check") {
    (first == "--write" ? options.write : options.check) = argv[2];
    argc -= 2;
    argv += 2;
  }
  std::string list = argc > 1 ? argv[1] : "gfx1100,gfx1201,gfx942";
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    options.targets.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  if (argc > 2) options.what = argv[2];
  if (const std::string dtype = argc > 3 ? argv[3] : "f16"; dtype == "all")
    options.dtypes = {DType::kF16, DType::kBF16};
  else
    options.dtypes = {dtype == "bf16" ? DType::kBF16 : DType::kF16};
  if (argc > 4) options.filter = argv[4];
  const auto asks = [&](const char* what) { return options.what == "all" || options.what == what; };
  int lost = 0;
  try {
    CountFile counts;
    for (const std::string& target : options.targets) {
      auto& device = static_cast<GpuDevice&>(device_named("emu:" + target));
      CountTable table(options, target);
      if (options.check.empty()) print_head(target);
      for (const DType dtype : options.dtypes) {
        Bench bench(device, counts, options, dtype, table);
        if (asks("gemm")) bench.linear(false);
        if (asks("geglu")) bench.linear(true);
        if (asks("conv")) bench.conv();
        if (asks("attention")) bench.attention();
        if (asks("eight_bit")) bench.eight_bit();
      }
      if (!options.write.empty()) table.write();
      if (!options.check.empty()) lost += table.check();
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return lost > 0 ? 1 : 0;
}
