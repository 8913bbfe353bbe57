// What the host does for one op of an eager caller on a GPU, without the driver: checks, choice of the
// kernel, the launch's parameters. A GPU that runs nothing stands in. Nanoseconds of a call: by the default
// choice, and with a tuning table that names another. Usage: bench_dispatch [calls]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>

#include "kernels/attention/attention.hpp"
#include "kernels/choice_record.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/select.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {
namespace {

// Has every kernel and runs none. Memory is one block, which nobody looks at.
class IdleGpu final : public GpuDevice {
 public:
  explicit IdleGpu(GpuTraits traits) : traits_(std::move(traits)), memory_(1 << 20) {}

  DeviceKind kind() const override { return DeviceKind::kHip; }
  std::string name() const override { return "an idle GPU of the kind " + traits_.arch; }
  MemoryInfo memory() const override { return {}; }
  const GpuTraits& traits() const override { return traits_; }
  DType preferred_dtype() const override { return DType::kF16; }
  const GpuKernel* find_kernel(std::string_view name) override {
    const auto found = kernels_.find(name);
    if (found != kernels_.end()) return &found->second;
    return &kernels_.emplace(std::string(name), GpuKernel{std::string(name), nullptr}).first->second;
  }
  void* allocate(size_t) override { return memory_.data(); }
  void free(void*, size_t) noexcept override {}
  void launch(const GpuKernel&, GpuGrid, uint32_t, uint32_t, const void*, size_t) override { ++launches; }
  void map_boxes(void*, const MatrixBoxes&) override {}
  void map_boxes(void*, const HeadBoxes&) override {}
  void map_boxes(void*, const ImageBoxes&) override {}
  void synchronize() override {}
  void copy_to_device(void*, const void*, size_t) override {}
  void copy_to_host(void*, const void*, size_t) override {}
  void copy_on_device(void*, const void*, size_t) override {}
  void fill_zero(void*, size_t) override {}
  void begin_capture() override { std::abort(); }
  std::unique_ptr<GpuGraph> end_capture() override { std::abort(); }
  std::unique_ptr<GpuEvent> make_event() override { std::abort(); }

  int64_t launches = 0;

 private:
  GpuTraits traits_;
  std::vector<char> memory_;
  std::map<std::string, GpuKernel, std::less<>> kernels_;
};

GpuTraits traits_of(const std::string& arch) {
  GpuTraits traits{.arch = arch, .family = *gpu_family(arch), .compute_units = 132, .lds_per_group = 65536};
  if (traits.family != GpuFamily::kNvidia) return traits;
  traits.lds_per_group = 232448;
  traits.cluster = 8;
  traits.tma = true;
  return traits;
}

struct Row {
  const char* what;
  const char* op;
  std::function<Tensor(Exec&)> run;
};

double nanoseconds(GpuDevice& gpu, const Row& row, int calls) {
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      Arena arena(gpu);
      Exec ex(arena);
      row.run(ex);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / calls);
  }
  return best;
}

// What planning says of the op: its problem, and the last of its candidates.
tuning::Record other_choice(GpuDevice& gpu, const Row& row) {
  const CandidateRecord candidates(row.op);
  Arena arena(gpu);
  Exec ex(arena);
  ChoiceRecord choices;
  row.run(ex);
  if (candidates.candidates().empty() || choices.choices().empty()) return {};
  return {.device = tuning::identity_of(gpu),
          .op = row.op,
          .problem = choices.choices().back().problem,
          .choice = candidates.candidates().back()};
}

void bench(const std::string& arch, int calls) {
  IdleGpu gpu(traits_of(arch));
  const auto f16 = [&](const Shape& shape) { return make_tensor(gpu, shape, DType::kF16); };
  const auto f32 = [&](int64_t count) { return make_tensor(gpu, {count}, DType::kF32); };
  const Tensor rows = f16({2, 4096, 320}), image = f16({2, 64, 64, 320});
  const LinearWeight square{Weight(f16({320, 320})), f32(320)}, wide{Weight(f16({2560, 320})), f32(2560)};
  const ConvWeight filter{Weight(f16({320, 320, 3, 3})), f32(320)};
  const NormWeight norm{f32(320), f32(320)};
  const Row table[] = {
      {"linear 8192x320x320", "linear", [&](Exec& ex) { return linear(ex, rows, square); }},
      {"geglu 8192x2560x320", "linear", [&](Exec& ex) { return linear_geglu(ex, rows, wide); }},
      {"conv2d 2x64x64x320", "conv2d",
       [&](Exec& ex) { return conv2d(ex, image, filter, {.pad = Padding::same(1)}); }},
      {"attention 2x8x4096x40", "attention",
       [&](Exec& ex) { return attention(ex, rows, rows, rows, {.heads = 8}); }},
      {"group_norm 2x64x64x320", "group_norm", [&](Exec& ex) { return group_norm(ex, image, norm); }},
      {"layer_norm 8192x320", "layer_norm", [&](Exec& ex) { return layer_norm(ex, rows, norm); }},
  };
  for (const Row& row : table) {
    double tuned = 0;
    const tuning::Record record = other_choice(gpu, row);
    tuning::Table choices;
    if (!record.choice.empty()) choices.add(record);
    const double plain = [&] {
      const tuning::TuningScope none(nullptr);
      return nanoseconds(gpu, row, calls);
    }();
    {
      const tuning::TuningScope scope(&choices);
      tuned = nanoseconds(gpu, row, calls);
    }
    std::printf("%-8s %-24s %8.0f ns   with a table %8.0f ns (%s)\n", arch.c_str(), row.what, plain, tuned,
                record.choice.c_str());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace rocm_sd

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1000;
  for (const char* arch : {"sm_90", "gfx1100"}) rocm_sd::bench(arch, calls);
}
