// The ops that memory bounds, over shapes of SD1.5 and its VAE: GB/s of each implementation (inputs once,
// outputs once) beside a parallel copy in the same run, and the error against the double-precision reference.
// Usage: bench_memory [rounds]. Rounds are interleaved and the best one counts: other processes only ever add
// time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/select.hpp"
#include "kernels/step/step.hpp"

namespace rocm_sd {
namespace {

// Values in -2..2, quickly.
Tensor random_tensor(const Shape& shape, DType dtype, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) v = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 8) * 0x1p-22f - 2.0f;
  return tensor_from(host_device(), shape, values.data(), dtype);
}

struct Row {
  const char* what;
  const char* op;
  DType dtype;
  double bytes;
  std::function<Tensor(Exec&)> run;
  double wall = 1e30, cpu = 1e30;
};

void time_once(Row& row, const std::function<void()>& body) {
  const std::clock_t cpu = std::clock();
  const auto wall = std::chrono::steady_clock::now();
  body();
  row.wall =
      std::min(row.wall, std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count());
  row.cpu = std::min(row.cpu, static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC / host_threads());
}

std::vector<float> values_under(const Row& row, const char* impl) {
  const ForcedImpl forced(row.op, impl);
  Arena arena(host_device());
  Exec ex(arena);
  return to_floats(host_device(), row.run(ex));
}
double worst_error(const Row& row) {
  const std::vector<float> got = values_under(row, "host"), want = values_under(row, "ref");
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  return worst;
}

std::vector<Row> make_rows(DType dtype) {
  const auto norm = [](int64_t c) {
    return NormWeight{random_tensor({c}, DType::kF32, 5), random_tensor({c}, DType::kF32, 6)};
  };
  const Tensor map = random_tensor({2, 64, 64, 320}, dtype, 1),
               tokens = random_tensor({2, 4096, 320}, dtype, 2);
  const Tensor wide = random_tensor({2, 4096, 2560}, dtype, 3),
               vae = random_tensor({1, 512, 512, 128}, dtype, 4);
  const Tensor latents = random_tensor({4, 64, 64, 4}, DType::kF32, 7);
  const double size = static_cast<double>(dtype_size(dtype));
  const auto traffic = [size](const Tensor& x, double passes) {
    return passes * size * static_cast<double>(x.numel());
  };
  return {
      {"group_norm+silu 2x64x64x320", "group_norm", dtype, traffic(map, 2),
       [=](Exec& ex) { return group_norm(ex, map, norm(320), {.act = Activation::kSilu}); }},
      {"group_norm+silu 512x512x128", "group_norm", dtype, traffic(vae, 2),
       [=](Exec& ex) { return group_norm(ex, vae, norm(128), {.act = Activation::kSilu}); }},
      {"layer_norm 8192x320", "layer_norm", dtype, traffic(tokens, 2),
       [=](Exec& ex) { return layer_norm(ex, tokens, norm(320)); }},
      {"geglu 8192x2560", "elementwise", dtype, traffic(wide, 1.5),
       [=](Exec& ex) { return geglu(ex, wide); }},
      {"silu 512x512x128", "elementwise", dtype, traffic(vae, 2),
       [=](Exec& ex) { return activate(ex, vae, Activation::kSilu); }},
      {"add 2x64x64x320", "elementwise", dtype, traffic(map, 3), [=](Exec& ex) { return add(ex, map, map); }},
      {"combine 4 of 4x64x64x4", "linear_combination", DType::kF32,
       20.0 * static_cast<double>(latents.numel()),
       [=](Exec& ex) {
         return linear_combination(ex, {{1, latents}, {2, latents}, {-1, latents}, {.5, latents}});
       }},
  };
}

void bench(int rounds) {
  std::vector<Row> rows = make_rows(DType::kF32);
  for (Row& row : make_rows(DType::kBF16))
    if (row.dtype == DType::kBF16) rows.push_back(std::move(row));
  constexpr int64_t kCopy = int64_t{64} << 20;
  const Tensor from = random_tensor({kCopy / 4}, DType::kF32, 1),
               to = random_tensor({kCopy / 4}, DType::kF32, 2);
  Row copy{"copy 64 MB", "", DType::kF32, 2.0 * kCopy, nullptr};
  Arena arena(host_device());  // programs replay in it, so that no page is touched for the first time
  std::vector<Program> programs;
  programs.reserve(rows.size());
  for (Row& row : rows) programs.emplace_back(row.what, arena, [&row](Exec& ex) { row.run(ex); });
  for (int round = 0; round < rounds; ++round) {
    time_once(copy, [&] {
#pragma omp parallel for schedule(static)
      for (int64_t i = 0; i < 64; ++i)
        std::memcpy(to.as<char>() + i * (1 << 20), from.as<char>() + i * (1 << 20), 1 << 20);
    });
    for (size_t i = 0; i < rows.size(); ++i) {
      programs[i].run();
      programs[i].run();
      time_once(rows[i], [&] { programs[i].run(); });
    }
  }
  std::printf("%s\n%-30s %-5s %9s %9s %8s %10s\n", host_device().name().c_str(), "case", "type", "wall ms",
              "cpu ms", "GB/s", "max error");
  const auto print = [](const Row& row, double error) {
    std::printf("%-30s %-5s %9.3f %9.3f %8.1f %10.1e\n", row.what, std::string(dtype_name(row.dtype)).c_str(),
                row.wall * 1e3, row.cpu * 1e3, 1e-9 * row.bytes / row.cpu, error);
  };
  print(copy, 0);
  for (const Row& row : rows) print(row, worst_error(row));
}

}  // namespace
}  // namespace rocm_sd

int main(int argc, char** argv) { rocm_sd::bench(argc > 1 ? std::max(std::atoi(argv[1]), 1) : 5); }
