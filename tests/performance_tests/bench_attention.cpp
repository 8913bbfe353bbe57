// attention over the shapes of Stable Diffusion: GFLOP/s of each implementation beside oneDNN's sustained
// sgemm rate in the same run. Usage: bench_attention [rounds] [implementation...] Rounds are interleaved over
// the shapes and the best one counts: other processes only ever add time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dnnl.hpp>

#include "kernels/attention/attention.hpp"
#include "kernels/select.hpp"

namespace rocm_sd {
namespace {

struct Case {
  const char* what;
  int64_t batch, heads, queries, keys, head_dim;
  bool causal = false;
};
constexpr Case kCases[] = {
    {"SD1.5 self 64x64", 2, 8, 4096, 4096, 40}, {"SD1.5 cross 64x64", 2, 8, 4096, 77, 40},
    {"SD1.5 self 32x32", 2, 8, 1024, 1024, 80}, {"SD1.5 cross 32x32", 2, 8, 1024, 77, 80},
    {"SD1.5 self 16x16", 2, 8, 256, 256, 160},  {"SD2 self 64x64", 2, 5, 4096, 4096, 64},
    {"SDXL self 64x64", 2, 10, 4096, 4096, 64}, {"SDXL cross 64x64", 2, 10, 4096, 77, 64},
    {"VAE 64x64", 1, 1, 4096, 4096, 512},       {"CLIP-L", 2, 12, 77, 77, 64, true},
    {"head_dim 128", 1, 8, 2048, 2048, 128},
};

// Values in -2..2, quickly.
Tensor random_tensor(const Shape& shape, DType dtype, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) v = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 8) * 0x1p-22f - 2.0f;
  return tensor_from(host_device(), shape, values.data(), dtype);
}

// CPU seconds of all threads over the number of threads, and wall seconds.
struct Seconds {
  double cpu = 1e30, wall = 1e30;
};
template <class Body>
void time_once(Seconds& best, const Body& body) {
  const std::clock_t cpu = std::clock();
  const auto wall = std::chrono::steady_clock::now();
  body();
  best.wall =
      std::min(best.wall, std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count());
  best.cpu = std::min(best.cpu, static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC / host_threads());
}

void sgemm(const Tensor& a, const Tensor& b, const Tensor& c) {
  dnnl_sgemm('N', 'N', a.dim(0), b.dim(1), a.dim(1), 1, a.as<float>(), a.dim(1), b.as<float>(), b.dim(1), 0,
             c.as<float>(), b.dim(1));
}

void bench(int rounds, const std::vector<std::string>& impls) {
  constexpr int64_t kSize = 1536;
  const Tensor a = random_tensor({kSize, kSize}, DType::kF32, 1),
               b = random_tensor({kSize, kSize}, DType::kF32, 2);
  const Tensor c = make_tensor(host_device(), {kSize, kSize}, DType::kF32);
  Seconds gemm;
  std::vector<Seconds> best(std::size(kCases) * impls.size() * 2);
  for (int round = 0; round < rounds; ++round) {
    time_once(gemm, [&] { sgemm(a, b, c); });
    Seconds* cell = best.data();
    for (const Case& s : kCases)
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Tensor q = random_tensor({s.batch, s.queries, s.heads * s.head_dim}, dtype, 1);
        const Tensor k = random_tensor({s.batch, s.keys, s.heads * s.head_dim}, dtype, 2);
        for (const std::string& impl : impls) {
          const ForcedImpl forced("attention", impl);
          Arena arena(host_device());
          Exec ex(arena);
          const AttentionArgs args{.heads = static_cast<int>(s.heads), .causal = s.causal};
          try {
            attention(ex, q, k, k, args);
            time_once(*cell, [&] { attention(ex, q, k, k, args); });
          } catch (
              const UsageError&) {  // this CPU lacks what the implementation needs: the row says so below
          }
          ++cell;
        }
      }
  }
  const double gemm_rate = 2e-9 * kSize * kSize * kSize / gemm.cpu;
  std::printf("%s\noneDNN sgemm %d^3: %.1f GFLOP/s by CPU time\n", host_device().name().c_str(), int(kSize),
              gemm_rate);
  std::printf("%-20s %-28s %-5s %-10s %9s %9s %10s %7s\n", "case", "[B,H,Nq,Nk,D]", "type", "impl", "wall ms",
              "cpu ms", "GFLOP/s", "of gemm");
  const Seconds* cell = best.data();
  for (const Case& s : kCases)
    for (const char* dtype : {"f32", "bf16"})
      for (const std::string& impl : impls) {
        const double flops = 4e-9 * static_cast<double>(s.batch * s.heads * s.queries * s.keys * s.head_dim);
        const std::string shape = fmt::format("{}x{}x{}x{}x{}{}", s.batch, s.heads, s.queries, s.keys,
                                              s.head_dim, s.causal ? " causal" : "");
        if (cell->cpu > 1e29)
          std::printf("%-20s %-28s %-5s %-10s refused\n", s.what, shape.c_str(), dtype, impl.c_str());
        else
          std::printf("%-20s %-28s %-5s %-10s %9.2f %9.2f %10.1f %6.0f%%\n", s.what, shape.c_str(), dtype,
                      impl.c_str(), cell->wall * 1e3, cell->cpu * 1e3, flops / cell->cpu,
                      100 * flops / cell->cpu / gemm_rate);
        ++cell;
      }
}

}  // namespace
}  // namespace rocm_sd

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 3;
  std::vector<std::string> impls(argv + std::min(argc, 2), argv + argc);
  if (impls.empty()) impls = {"host"};
  rocm_sd::bench(rounds, impls);
}
