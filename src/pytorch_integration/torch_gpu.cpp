#include "pytorch_integration/torch_gpu.hpp"

#include <dlfcn.h>
#include <torch/csrc/stable/accelerator.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "runtime/gpu_driver.hpp"

namespace rocm_sd::torch_ops {
namespace {

using CurrentStream = AOTITorchError (*)(int32_t, void**);
using IsCapturing = int (*)(void*, int*);  // cudaStreamIsCapturing, hipStreamIsCapturing

// What the GPU half of this process's PyTorch offers; both builds call their devices "cuda".
struct TorchBackend {
  bool hip = false;
  CurrentStream current_stream = nullptr;
  IsCapturing is_capturing = nullptr;

  TorchBackend() {
    for (const auto& [library, is_hip] :
         {std::pair{"libtorch_hip.so", true}, std::pair{"libtorch_cuda.so", false}}) {
      void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);  // PyTorch loaded it, or it is not there
      if (!handle) continue;
      hip = is_hip;
      current_stream = reinterpret_cast<CurrentStream>(dlsym(handle, "aoti_torch_get_current_cuda_stream"));
      // Of the runtime that this PyTorch is linked with: dlsym looks through a library's dependencies, too.
      is_capturing = reinterpret_cast<IsCapturing>(
          dlsym(handle, hip ? "hipStreamIsCapturing" : "cudaStreamIsCapturing"));
      return;
    }
  }
};
const TorchBackend& backend() {
  static const TorchBackend instance;
  return instance;
}

// One GPU: our kernels, PyTorch's memory. Lives as long as the process, since packs free their memory late.
class TorchGpu final : public GpuDevice {
 public:
  explicit TorchGpu(std::unique_ptr<GpuDriver> driver)
      : driver_(*driver), base_(make_gpu_device(std::move(driver))) {}

  std::recursive_mutex& in_use() { return in_use_; }  // held from begin() to end()
  void begin(const AtTensor& like, void* stream) {
    like_ = &like;
    element_ = like.element_size();
    stream_ = stream;
    driver_.use_stream(stream);
  }
  void end() {
    driver_.use_own_stream();
    stream_ = nullptr;
    like_ = nullptr;
  }
  AtTensor take(void* data) {
    const std::lock_guard lock(blocks_mutex_);
    return std::move(blocks_.extract(data).mapped());
  }

  DeviceKind kind() const override { return base_->kind(); }
  std::string name() const override { return base_->name(); }
  const GpuTraits& traits() const override { return base_->traits(); }
  MemoryInfo memory() const override { return base_->memory(); }
  DType preferred_dtype() const override { return base_->preferred_dtype(); }

  void* allocate(size_t bytes) override {
    const auto count = static_cast<int64_t>((std::max<size_t>(bytes, 1) + element_ - 1) / element_);
    AtTensor block = empty_strided_like(*like_, {count}, {1});
    void* data = block.data_ptr();
    const std::lock_guard lock(blocks_mutex_);
    blocks_.emplace(data, std::move(block));
    return data;
  }
  void free(void* data, size_t) noexcept override {
    decltype(blocks_)::node_type block;  // given back to PyTorch after the lock is gone
    const std::lock_guard lock(blocks_mutex_);
    block = blocks_.extract(data);
  }
  void copy_to_device(void* dst, const void* src, size_t bytes) override {
    base_->copy_to_device(dst, src, bytes);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes) override {
    base_->copy_to_host(dst, src, bytes);
  }
  void copy_on_device(void* dst, const void* src, size_t bytes) override {
    base_->copy_on_device(dst, src, bytes);
  }
  void fill_zero(void* data, size_t bytes) override { base_->fill_zero(data, bytes); }
  // PyTorch's allocator gives a block to later work of the same stream only, so nobody here needs to wait.
  void synchronize() override {}

  const GpuKernel* find_kernel(std::string_view name) override { return base_->find_kernel(name); }
  void launch(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes, const void* params,
              size_t bytes) override {
    base_->launch(kernel, grid, threads, lds_bytes, params, bytes);
  }
  void map_boxes(void* map, const MatrixBoxes& boxes) override { base_->map_boxes(map, boxes); }
  void map_boxes(void* map, const HeadBoxes& boxes) override { base_->map_boxes(map, boxes); }
  void map_boxes(void* map, const ImageBoxes& boxes) override { base_->map_boxes(map, boxes); }
  void synchronize_stream(void* stream) override { base_->synchronize_stream(stream); }
  // On a stream of ours: PyTorch's may be the default stream, on which nothing can be recorded. What is
  // recorded is then started on PyTorch's.
  void begin_capture() override {
    driver_.use_own_stream();
    try {
      base_->begin_capture();
    } catch (...) {
      driver_.use_stream(stream_);
      throw;
    }
  }
  std::unique_ptr<GpuGraph> end_capture() override {
    std::unique_ptr<GpuGraph> graph = base_->end_capture();
    driver_.use_stream(stream_);
    return graph;
  }
  std::unique_ptr<GpuEvent> make_event() override { return base_->make_event(); }

 private:
  GpuDriver& driver_;  // base_'s
  std::unique_ptr<GpuDevice> base_;
  std::recursive_mutex in_use_;  // a call of PyTorch's may run Python, which may drop a model
  std::mutex blocks_mutex_;
  const AtTensor* like_ = nullptr;
  void* stream_ = nullptr;
  size_t element_ = 1;
  std::map<void*, AtTensor> blocks_;
};

// Opened once; a GPU that cannot be opened is asked once and its reason kept.
TorchGpu& gpu_at(int32_t index) {
  struct Opened {
    std::unique_ptr<TorchGpu> gpu;
    std::string problem;
  };
  static std::mutex mutex;
  static auto& opened = *new std::map<int32_t, Opened>;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = opened.try_emplace(index);
  if (is_new) try {
      auto gpu = std::make_unique<TorchGpu>(backend().hip ? open_hip(index) : open_cuda(index));
      gpu->find_kernel("");  // throws where the archive has no code for this GPU
      at->second.gpu = std::move(gpu);
    } catch (const Error& error) {
      at->second.problem = error.what();
    }
  take_if(at->second.gpu != nullptr, at->second.problem);
  return *at->second.gpu;
}

// The GPU for the length of one call, on PyTorch's current device and stream.
class GpuCall final : public TorchDevice {
 public:
  GpuCall(const AtTensor& like, int32_t index)
      : guard_(index), gpu_(gpu_at(index)), lock_(gpu_.in_use()), like_(like) {
    check_torch(backend().current_stream(index, &stream_), "get_current_stream");
    gpu_.begin(like_, stream_);
  }
  ~GpuCall() override { gpu_.end(); }
  Device& device() override { return gpu_; }
  void* stream() const override { return stream_; }
  bool is_capturing() const override {
    int status = 1;  // a stream that cannot be asked is as one that records
    return !backend().is_capturing || backend().is_capturing(stream_, &status) != 0 || status != 0;
  }
  AtTensor take(void* data) override { return gpu_.take(data); }

 private:
  torch::stable::accelerator::DeviceGuard guard_;
  TorchGpu& gpu_;
  std::lock_guard<std::recursive_mutex> lock_;
  AtTensor like_;
  void* stream_ = nullptr;
};

}  // namespace

std::unique_ptr<TorchDevice> gpu_device_of(const AtTensor& x) {
  take_if(x.is_cuda(), shown(x), ": our kernels run on the CPU, on CUDA and on ROCm devices");
  take_if(backend().current_stream != nullptr, "this PyTorch has no stream to launch on");
  return std::make_unique<GpuCall>(x, x.get_device_index());
}

std::unique_lock<std::recursive_mutex> hold_device(Device& device) {
  auto* gpu = dynamic_cast<TorchGpu*>(&device);
  return gpu ? std::unique_lock(gpu->in_use()) : std::unique_lock<std::recursive_mutex>();
}

}  // namespace rocm_sd::torch_ops
