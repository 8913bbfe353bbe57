// The examples of the public templates, compiled for this GPU, against the references.
#include <cstdlib>
#include <filesystem>

#include "gpu_tests/poisoned_gpu.hpp"
#include "support/template_cases.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

// build/examples, beside the folder that holds this program; before the device is opened.
const bool kExamplesAreTheArchive = [] {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const auto folder = program.parent_path().parent_path().parent_path() / "examples";
  return setenv("ROCM_SD_KERNELS", folder.c_str(), 1) == 0;
}();

class GpuBench {
 public:
  void* put(const Tensor& host) {
    kept_.push_back(exec_.to_gpu(host));
    return kept_.back().data();
  }
  void* output(int64_t elements, DType dtype) {
    kept_.push_back(make_tensor(exec_.device, {elements}, dtype));  // poisoned
    return kept_.back().data();
  }
  // waves: of the example's workgroup; 0: it has 256 threads.
  template <class Template>
  void run(const char* name, int waves, const typename Template::Params& p) {
    const GpuKernel* kernel = exec_.device.find_kernel(name);
    ASSERT_NE(kernel, nullptr) << name;
    const GpuTraits& traits = exec_.device.traits();
    ck::Grid grid = Template::grid(p);
    if constexpr (std::is_same_v<Template, ScalarPack>)
      grid.x = (grid.x + 255) / 256;  // a lane to a group there
    const uint32_t threads = waves ? static_cast<uint32_t>(waves * traits.lanes) : 256;
    const uint32_t lds =
        traits.family == GpuFamily::kNvidia ? 64 << 10 : 0;  // as much as any of them asks for
    exec_.device.launch(*kernel, {grid.x, grid.y, grid.z}, threads, lds, &p, sizeof(p));
  }
  std::vector<double> fetch(const void* data, int64_t elements, DType dtype) {
    std::vector<char> raw(static_cast<size_t>(elements) * dtype_size(dtype));
    exec_.device.copy_to_host(raw.data(), data, raw.size());
    return ScalarBench().fetch(raw.data(), elements, dtype);
  }

 private:
  GpuTestExec exec_;
  std::vector<Tensor> kept_;
};

TEST(Examples, BatchedGemm) {
  ASSERT_TRUE(kExamplesAreTheArchive);
  GpuBench bench;
  check_batched_gemm(bench, 3, 70, 72, 40);
  check_batched_gemm(bench, 2, 200, 128, 320);
}

TEST(Examples, Convolution) {
  GpuBench bench;
  check_convolution(bench, {.batch = 2,
                            .height = 9,
                            .width = 7,
                            .channels = 16,
                            .outputs = 24,
                            .filter_h = 3,
                            .filter_w = 3,
                            .stride = 2,
                            .pad_top = 1,
                            .pad_left = 1,
                            .pad_bottom = 1,
                            .pad_right = 1});
  check_convolution(bench, {.batch = 1,
                            .height = 5,
                            .width = 6,
                            .channels = 64,
                            .second_channels = 8,
                            .outputs = 8,
                            .filter_h = 3,
                            .filter_w = 3,
                            .pad_top = 1,
                            .pad_left = 1,
                            .pad_bottom = 1,
                            .pad_right = 1,
                            .doubled = true});
}

TEST(Examples, FusedAttention) {
  GpuBench bench;
  check_attention<false>(bench, 2, 2, 130, 77);
  check_attention<true>(bench, 1, 2, 33, 50);
}

TEST(Examples, GroupNormSilu) {
  GpuBench bench;
  check_group_norm_silu(bench, 2, 64, 320, 32);
  check_group_norm_silu(bench, 1, 1, 8, 4);
}

TEST(Examples, TransformerBlock) {
  GpuBench bench;
  check_transformer_block(bench, 2, 70, 13, 1, 40);
  check_transformer_block(bench, 1, 64, 77, 2, 64);
}

}  // namespace
}  // namespace rocm_sd
