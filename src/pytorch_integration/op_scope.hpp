// OpScope: one call of an operator: the device of its tensors, memory from PyTorch's allocator, and the way
// back to PyTorch's own code where our kernels do not take the problem.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "kernels/select.hpp"
#include "pytorch_integration/torch_tensor.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd::torch_ops {

// A device over memory of PyTorch's allocator, which can hand a block back as a PyTorch tensor.
class TorchDevice {
 public:
  virtual ~TorchDevice() = default;
  virtual Device& device() = 0;
  // PyTorch's stream that the call works on; null on the host (and for the default stream of a GPU).
  virtual void* stream() const { return nullptr; }
  // PyTorch records that stream's launches for a graph of its own.
  virtual bool is_capturing() const { return false; }
  // The block at this address, given away: the device forgets it.
  virtual AtTensor take(void* data) = 0;
};

// Why this operator leaves the problem to PyTorch. Not a mistake of the caller's.
using Declined = ErrorOf<ExitCode::kUsage, struct DeclinedTag>;

// Lets the operators of this thread choose their kernels without running them (explain).
struct Explanation {
  std::string text;
};
Explanation*& explanation();  // of this thread; null: operators run

// False: every operator leaves its problems to PyTorch, in every thread. Returns what was set before.
bool set_kernels_enabled(bool enabled);

class OpScope {
 public:
  // like: whose device and element type new blocks have. Throws Declined for a device or type that we have no
  // kernels for.
  explicit OpScope(const AtTensor& like);
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  Exec& exec() { return exec_; }
  bool on_host() const { return on_host_; }
  void* stream() const { return device_->stream(); }
  bool is_capturing() const { return device_->is_capturing(); }

  // y's memory (all of a block that exec() allocated) as a PyTorch tensor with these sizes and strides.
  AtTensor give(const Tensor& y, const Shape& sizes, const Shape& strides);
  AtTensor give(const Tensor& y) { return give(y, y.shape(), row_major(y.shape())); }
  // y [N,H,W,C] as [N,C,H,W].
  AtTensor give_nchw(const Tensor& y);

  // A vector of parameters [C] as f32; cast where it is not. count: what it must hold, name: for the message.
  Tensor f32_vector(const AtTensor& x, int64_t count, const char* name);

 private:
  AtTensor like_;
  bool on_host_ = true;
  std::unique_ptr<TorchDevice> own_;
  TorchDevice* device_ = nullptr;
  std::unique_ptr<Arena> arena_;
  Exec exec_;
};

// Throws ShapeError unless ok: the caller's mistake, which PyTorch would not take either.
template <class... Parts>
void check(bool ok, const Parts&... parts) {
  require<ShapeError>(ok, parts...);
}
// Throws Declined unless ok.
template <class... Parts>
void take_if(bool ok, const Parts&... parts) {
  require<Declined>(ok, parts...);
}
// Operands of one device and, where typed, one element type. Throws UsageError naming both.
void check_alike(const char* op, const AtTensor& x, const AtTensor& other, const char* name,
                 bool typed = true);

// One log line per operator, problem and reason; notes it in an explanation.
void note_fallback(const char* op, const std::string& problem, const std::string& reason);
// All that note_fallback was told so far, one line each.
std::string fallbacks_so_far();

// The operator rocm_sd::<op>, which is made of PyTorch's own.
template <class... Args>
AtTensor call_plain(const char* op, const Args&... args) {
  std::array<StableIValue, sizeof...(Args)> stack{torch::stable::detail::from(args)...};
  check_torch(torch_call_dispatcher(op, "", stack.data(), TORCH_ABI_VERSION), op);
  return torch::stable::detail::to<AtTensor>(stack[0]);
}
template <class... Args>
std::tuple<AtTensor, AtTensor> call_plain_pair(const char* op, const Args&... args) {
  std::array<StableIValue, sizeof...(Args)> stack{torch::stable::detail::from(args)...};
  check_torch(torch_call_dispatcher(op, "", stack.data(), TORCH_ABI_VERSION), op);
  return {torch::stable::detail::to<AtTensor>(stack[0]), torch::stable::detail::to<AtTensor>(stack[1])};
}

// ours(), or plain() where ours declines or no implementation takes the problem. problem(): its name, which
// only a message needs. Throws TorchRefused with both reasons where PyTorch's own does not take it either.
template <class Problem, class Ours, class Plain>
auto ours_or_plain(const char* op, const Problem& problem, const Ours& ours, const Plain& plain)
    -> decltype(plain()) {
  std::string reason;
  try {
    return ours();
  } catch (const Declined& declined) {
    reason = declined.what();
  } catch (const UsageError& refused) {  // what select() throws
    reason = refused.what();
  }
  note_fallback(op, problem(), reason);
  try {
    return plain();
  } catch (const TorchRefused& refused) {
    throw TorchRefused(
        concat("rocm_sd::", op, " ", problem(), ": ", reason, "; PyTorch's own: ", refused.what()));
  }
}

}  // namespace rocm_sd::torch_ops
