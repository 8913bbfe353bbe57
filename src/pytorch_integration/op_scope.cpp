#include "pytorch_integration/op_scope.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "base/log.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "pytorch_integration/torch_gpu.hpp"

namespace rocm_sd::torch_ops {
namespace {

// The host device, but for where blocks come from.
class TorchHost final : public TorchDevice, private Device {
 public:
  explicit TorchHost(AtTensor like) : like_(std::move(like)), element_(like_.element_size()) {}

  Device& device() override { return *this; }
  AtTensor take(void* data) override {
    const auto at = find(data);
    AtTensor block = std::move(at->second);
    blocks_.erase(at);
    return block;
  }

 private:
  DeviceKind kind() const override { return DeviceKind::kHost; }
  std::string name() const override { return host_device().name(); }
  MemoryInfo memory() const override { return host_device().memory(); }
  void* allocate(size_t bytes) override {
    const auto count = static_cast<int64_t>((std::max<size_t>(bytes, 1) + element_ - 1) / element_);
    AtTensor block = empty_strided_like(like_, {count}, {1});
    void* data = block.data_ptr();
    blocks_.emplace_back(data, std::move(block));
    return data;
  }
  void free(void* data, size_t) noexcept override {  // not a block that was given away
    if (const auto at = find(data); at != blocks_.end()) blocks_.erase(at);
  }
  void copy_to_device(void* dst, const void* src, size_t bytes) override {
    host_device().copy_to_device(dst, src, bytes);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes) override {
    host_device().copy_to_host(dst, src, bytes);
  }
  void copy_on_device(void* dst, const void* src, size_t bytes) override {
    host_device().copy_on_device(dst, src, bytes);
  }
  void synchronize() override {}
  DType preferred_dtype() const override { return host_device().preferred_dtype(); }

  std::vector<std::pair<void*, AtTensor>>::iterator find(void* data) {
    return std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& b) { return b.first == data; });
  }

  AtTensor like_;
  size_t element_;
  std::vector<std::pair<void*, AtTensor>> blocks_;
};

struct Fallbacks {
  std::mutex mutex;
  std::set<std::string> lines;
};
Fallbacks& fallbacks() {
  static auto& all = *new Fallbacks;  // outlives every thread that may still log
  return all;
}

std::atomic<bool> kernels_enabled{true};

std::unique_ptr<TorchDevice> open_device(const AtTensor& like) {
  take_if(kernels_enabled, "our kernels are switched off");
  const auto dtype = dtype_of(like);
  take_if(dtype.has_value(), shown(like), ": our kernels take float32, float16 and bfloat16");
  if (!like.is_cpu()) return gpu_device_of(like);
  take_if(*dtype != DType::kF16, "float16 on the CPU: our host kernels take float32 and bfloat16");
  return std::make_unique<TorchHost>(like);
}

}  // namespace

Explanation*& explanation() {
  thread_local Explanation* current = nullptr;
  return current;
}

bool set_kernels_enabled(bool enabled) { return kernels_enabled.exchange(enabled); }

OpScope::OpScope(const AtTensor& like)
    : like_(like),
      on_host_(like.is_cpu()),
      own_(open_device(like)),
      device_(own_.get()),
      arena_(std::make_unique<Arena>(device_->device())),
      exec_(*arena_, explanation() ? Mode::kPlan : Mode::kRun) {
  if (explanation()) arena_->begin_plan();
}

OpScope::~OpScope() {
  if (exec_.planning()) arena_->end_plan();
}

AtTensor OpScope::give(const Tensor& y, const Shape& sizes, const Shape& strides) {
  if (exec_.planning() || y.numel() == 0) return empty_strided_like(like_, sizes, strides);
  const AtTensor block = device_->take(y.data());
  AtenTensorHandle made = nullptr;
  check_torch(
      aoti_torch__reinterpret_tensor(block.get(), sizes.rank(), sizes.begin(), strides.begin(), 0, &made),
      "reinterpret_tensor");
  return AtTensor(made);
}

AtTensor OpScope::give_nchw(const Tensor& y) {
  const Shape sizes = {y.dim(0), y.dim(3), y.dim(1), y.dim(2)};
  return give(y, sizes, channels_last(sizes));
}

Tensor OpScope::f32_vector(const AtTensor& x, int64_t count, const char* name) {
  check(x.dim() == 1 && x.size(0) == count, name, " ", shown(x), ": expected [", count, "]");
  take_if(dtype_of(x).has_value(), name, " ", shown(x), ": our kernels take float types");
  const Tensor vector = row_major_of(x);
  return vector.dtype() == DType::kF32 ? vector : cast(exec_, vector, DType::kF32);
}

void check_alike(const char* op, const AtTensor& x, const AtTensor& other, const char* name, bool typed) {
  require<UsageError>(same_device(x, other), op, ": ", name, " is on another device than the first operand");
  require<UsageError>(!typed || x.scalar_type() == other.scalar_type(), op, ": ", name, " is ", shown(other),
                      ", the first operand ", shown(x));
}

void note_fallback(const char* op, const std::string& problem, const std::string& reason) {
  const std::string line = concat(op, " ", problem, ": PyTorch's own: ", reason);
  if (explanation()) explanation()->text += line + "\n";
  Fallbacks& all = fallbacks();
  const std::lock_guard lock(all.mutex);
  if (all.lines.insert(line).second && !explanation()) log().info("{}", line);
}

std::string fallbacks_so_far() {
  Fallbacks& all = fallbacks();
  const std::lock_guard lock(all.mutex);
  std::string text;
  for (const std::string& line : all.lines) text += line + "\n";
  return text;
}

}  // namespace rocm_sd::torch_ops
