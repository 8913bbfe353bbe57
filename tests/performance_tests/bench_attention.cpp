// attention over the shapes of Stable Diffusion: GFLOP/s of each implementation beside oneDNN's sustained
// sgemm rate in the same run, and the error against double precision.
//   bench_attention [--dtype f32|bf16] [--filter TEXT] [rounds] [implementation...]
// Rounds are interleaved over the shapes and the best one counts: other processes only ever add time. The
// error is the largest of a sample of rows, relative to the root mean square of those rows.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dnnl.hpp>

#include "base/format.hpp"
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

// The largest error of y over a sample of rows of every head, relative to their root mean square.
double sampled_error(const Case& s, const Tensor& q, const Tensor& k, const Tensor& y) {
  const std::vector<float> qs = to_floats(host_device(), q), ks = to_floats(host_device(), k),
                           ys = to_floats(host_device(), y);
  const int64_t width = s.heads * s.head_dim;
  double worst = 0, square = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < 2 * s.batch * s.heads; ++i) {
    const int64_t b = i / 2 / s.heads, column = i / 2 % s.heads * s.head_dim;
    const int64_t query = (i * 2654435761) % s.queries;
    const float* q_row = &qs[static_cast<size_t>((b * s.queries + query) * width + column)];
    const int64_t keys = s.causal ? std::min(s.keys, query + 1) : s.keys;
    std::vector<double> score(static_cast<size_t>(keys)), want(static_cast<size_t>(s.head_dim));
    double highest = -1e300, total = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const float* k_row = &ks[static_cast<size_t>((b * s.keys + j) * width + column)];
      double sum = 0;
      for (int64_t d = 0; d < s.head_dim; ++d) sum += double(q_row[d]) * k_row[d];
      score[j] = sum / std::sqrt(double(s.head_dim));
      highest = std::max(highest, score[j]);
    }
    for (int64_t j = 0; j < keys; ++j) {
      const double weight = std::exp(score[j] - highest);
      total += weight;
      const float* v_row = &ks[static_cast<size_t>((b * s.keys + j) * width + column)];
      for (int64_t d = 0; d < s.head_dim; ++d) want[d] += weight * v_row[d];
    }
    for (int64_t d = 0; d < s.head_dim; ++d, ++count) {
      const double value = want[d] / total;
      worst = std::max(worst, std::fabs(ys[(b * s.queries + query) * width + column + d] - value));
      square += value * value;
    }
  }
  return worst / std::sqrt(square / static_cast<double>(count));
}

// CPU seconds of all threads over the number of threads, and wall seconds.
struct Seconds {
  double cpu = 1e30, wall = 1e30, error = 0;
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

void bench(int rounds, const std::vector<std::string>& impls, const std::vector<DType>& dtypes,
           const std::string& filter) {
  std::vector<Case> cases;
  for (const Case& s : kCases)
    if (std::string(s.what).find(filter) != std::string::npos) cases.push_back(s);
  constexpr int64_t kSize = 1536;
  const Tensor a = random_tensor({kSize, kSize}, DType::kF32, 1),
               b = random_tensor({kSize, kSize}, DType::kF32, 2);
  const Tensor c = make_tensor(host_device(), {kSize, kSize}, DType::kF32);
  Seconds gemm;
  std::vector<Seconds> best(cases.size() * impls.size() * dtypes.size());
  for (int round = 0; round < rounds; ++round) {
    time_once(gemm, [&] { sgemm(a, b, c); });
    Seconds* cell = best.data();
    for (const Case& s : cases)
      for (const DType dtype : dtypes) {
        const Tensor q = random_tensor({s.batch, s.queries, s.heads * s.head_dim}, dtype, 1);
        const Tensor k = random_tensor({s.batch, s.keys, s.heads * s.head_dim}, dtype, 2);
        for (const std::string& impl : impls) {
          const ForcedImpl forced("attention", impl);
          Arena arena(host_device());
          Exec ex(arena);
          const AttentionArgs args{.heads = static_cast<int>(s.heads), .causal = s.causal};
          try {
            const Tensor y = attention(ex, q, k, k, args);
            if (round == 0) cell->error = sampled_error(s, q, k, y);
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
  std::printf("%-20s %-28s %-5s %-10s %9s %9s %10s %7s %9s\n", "case", "[B,H,Nq,Nk,D]", "type", "impl",
              "wall ms", "cpu ms", "GFLOP/s", "of gemm", "error");
  const Seconds* cell = best.data();
  for (const Case& s : cases)
    for (const DType dtype : dtypes)
      for (const std::string& impl : impls) {
        const double flops = 4e-9 * static_cast<double>(s.batch * s.heads * s.queries * s.keys * s.head_dim);
        const std::string shape = fmt::format("{}x{}x{}x{}x{}{}", s.batch, s.heads, s.queries, s.keys,
                                              s.head_dim, s.causal ? " causal" : "");
        if (cell->cpu > 1e29)
          std::printf("%-20s %-28s %-5s %-10s refused\n", s.what, shape.c_str(), dtype_name(dtype).data(),
                      impl.c_str());
        else
          std::printf("%-20s %-28s %-5s %-10s %9.2f %9.2f %10.1f %6.0f%% %9.1e\n", s.what, shape.c_str(),
                      dtype_name(dtype).data(), impl.c_str(), cell->wall * 1e3, cell->cpu * 1e3,
                      flops / cell->cpu, 100 * flops / cell->cpu / gemm_rate, cell->error);
        ++cell;
      }
}

}  // namespace
}  // namespace rocm_sd

int main(int argc, char** argv) {
  using rocm_sd::DType;
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16};
  std::string filter;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--dtype" && i + 1 < argc)
      dtypes = {std::string(argv[++i]) == "bf16" ? DType::kBF16 : DType::kF32};
    else if (word == "--filter" && i + 1 < argc)
      filter = argv[++i];
    else
      words.push_back(word);
  }
  const int rounds = words.empty() ? 3 : std::max(std::atoi(words[0].c_str()), 1);
  std::vector<std::string> impls(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (impls.empty()) impls = {"host"};
  rocm_sd::bench(rounds, impls, dtypes, filter);
}
