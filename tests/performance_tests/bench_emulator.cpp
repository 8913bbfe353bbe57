// How fast the emulated AMD GPUs are: wave-instructions a second on GEMM and attention, on one host thread
// and on more. Prints target, op, threads, seconds of one run and the rate, in all and a thread.
//
//   bench_emulator [gfx1100,gfx1201,gfx942]
//
// ROCM_SD_KERNELS names another folder of kernel archives, OMP_NUM_THREADS the most host threads.
#include <omp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/gemm/linear.hpp"
#include "runtime/gpu_driver.hpp"

using namespace rocm_sd;

namespace {

constexpr const char* kCounts = "ROCM_SD_EMULATOR_COUNT";
constexpr double kLeastSeconds = 1;  // that a rate is measured over

using Op = std::function<void(Exec&)>;
using MakeOp = std::function<Op(Device&)>;

Tensor random_on(Device& device, const Shape& shape) {
  std::mt19937 random(3);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) v = static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f;
  return tensor_from(device, shape, values.data(), DType::kF16);
}

// SD 1.5's layers at 32 x 32 pixels.
Op gemm(Device& device) {
  const Tensor x = random_on(device, {512, 640});
  const LinearWeight w{Weight(random_on(device, {640, 640})), std::nullopt};
  return [=](Exec& ex) { linear(ex, x, w); };
}
Op attention_of(Device& device) {
  const Tensor x = random_on(device, {1, 512, 320});
  return [=](Exec& ex) { attention(ex, x, x, x, {.heads = 4}); };
}

// Instructions of one run, of all waves.
double instructions(const std::string& target, const MakeOp& make) {
  const auto path =
      std::filesystem::temp_directory_path() / ("bench_emulator." + std::to_string(std::random_device{}()));
  setenv(kCounts, path.c_str(), 1);
  const auto device = make_gpu_device(open_emulator(target));
  Arena arena(*device);
  Exec ex(arena);
  make (*device)(ex);
  unsetenv(kCounts);
  double sum = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    sum += nlohmann::json::parse(line).at("instructions").get<double>();
  std::filesystem::remove(path);
  return sum;
}

// Seconds of one run on this many host threads; kernels have been translated before.
double seconds(const std::string& target, const MakeOp& make, int threads) {
  omp_set_num_threads(threads);  // the device takes as many
  const auto device = make_gpu_device(open_emulator(target));
  Arena arena(*device);
  Exec ex(arena);
  const Op op = make(*device);
  op(ex);
  const auto begin = std::chrono::steady_clock::now();
  double passed = 0;
  int runs = 0;
  for (; passed < kLeastSeconds; ++runs) {
    op(ex);
    passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return passed / runs;
}

void measure(const std::string& target) {
  const int most = omp_get_max_threads();
  for (const auto& [name, make] :
       {std::pair<const char*, MakeOp>{"gemm 512x640x640", gemm}, {"attention 4x512x512x80", attention_of}}) {
    const double count = instructions(target, make);
    for (int threads = 1; threads <= most; threads *= 2) {
      const double time = seconds(target, make, threads);
      std::printf("%-8s %-24s %2d threads: %8.3f M instructions in %7.3f s: %6.2f M/s, %6.2f M/s a thread\n",
                  target.c_str(), name, threads, count * 1e-6, time, count / time * 1e-6,
                  count / time / threads * 1e-6);
      std::fflush(stdout);
    }
    omp_set_num_threads(most);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string targets = argc > 1 ? argv[1] : "gfx1100,gfx1201,gfx942";
    for (size_t at = 0; at <= targets.size();) {
      const size_t comma = std::min(targets.find(',', at), targets.size());
      measure(targets.substr(at, comma - at));
      at = comma + 1;
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
