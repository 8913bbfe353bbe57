// The GPU under test, with fresh memory full of NaN, so that an element nobody wrote is seen.
#pragma once

#include <vector>

#include "gpu_tests/gpu_test.hpp"
#include "runtime/arena.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

class PoisonedGpu final : public GpuDevice {
 public:
  explicit PoisonedGpu(GpuDevice& gpu) : gpu_(gpu) {}

  void* allocate(size_t bytes) override {
    void* data = gpu_.allocate(bytes);
    const std::vector<unsigned char> poison(bytes, 0xff);  // NaN in f32, f16, bf16 and fp8
    gpu_.copy_to_device(data, poison.data(), bytes);
    return data;
  }
  DeviceKind kind() const override { return gpu_.kind(); }
  std::string name() const override { return gpu_.name(); }
  MemoryInfo memory() const override { return gpu_.memory(); }
  uint64_t allocated() const override { return gpu_.allocated(); }
  void free(void* data, size_t bytes) noexcept override { gpu_.free(data, bytes); }
  void copy_to_device(void* to, const void* from, size_t n) override { gpu_.copy_to_device(to, from, n); }
  void copy_to_host(void* to, const void* from, size_t n) override { gpu_.copy_to_host(to, from, n); }
  void copy_on_device(void* to, const void* from, size_t n) override { gpu_.copy_on_device(to, from, n); }
  void synchronize() override { gpu_.synchronize(); }
  DType preferred_dtype() const override { return gpu_.preferred_dtype(); }
  const GpuTraits& traits() const override { return gpu_.traits(); }
  const GpuKernel* find_kernel(std::string_view name) override { return gpu_.find_kernel(name); }
  void launch(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes, const void* params,
              size_t bytes) override {
    gpu_.launch(kernel, grid, threads, lds_bytes, params, bytes);
  }
  void map_boxes(void* map, const MatrixBoxes& boxes) override { gpu_.map_boxes(map, boxes); }
  void map_boxes(void* map, const HeadBoxes& boxes) override { gpu_.map_boxes(map, boxes); }
  void map_boxes(void* map, const ImageBoxes& boxes) override { gpu_.map_boxes(map, boxes); }
  void fill_zero(void* data, size_t bytes) override { gpu_.fill_zero(data, bytes); }
  void begin_capture() override { gpu_.begin_capture(); }
  std::unique_ptr<GpuGraph> end_capture() override { return gpu_.end_capture(); }
  std::unique_ptr<GpuEvent> make_event() override { return gpu_.make_event(); }

 private:
  GpuDevice& gpu_;
};

// An eager Exec over the GPU's poisoned memory.
struct GpuTestExec {
  PoisonedGpu device{test_gpu()};
  Arena arena{device};
  Exec ex{arena};

  // A host tensor's values in new memory of the GPU.
  Tensor to_gpu(const Tensor& host) {
    const std::vector<float> values = to_floats(host_device(), host);
    return tensor_from(device, host.shape(), values.data(), host.dtype());
  }
};

}  // namespace rocm_sd
