// cuBLASLt and hipBLASLt: the same interface under two names, so one class for both. Private to their two
// files.
#pragma once

#include <array>
#include <mutex>

#include "vendor/matmul.hpp"

namespace rocm_sd::vendor {

// Most workspace that a product may ask for: what the libraries' makers recommend on their largest GPUs.
inline constexpr uint64_t kLtWorkspace = 32 << 20;

// One library, opened: its functions, its handle, and the reasons it gives.
template <class Lt>
class LtHandle {
 public:
  using Status = typename Lt::Status;

  LtHandle(const typename Lt::Api& api, std::string (*reason)(Status)) : api(api), reason_(reason) {
    check(api.Create(&handle), "Create");
  }
  ~LtHandle() { api.Destroy(handle); }
  LtHandle(const LtHandle&) = delete;
  LtHandle& operator=(const LtHandle&) = delete;

  void check(Status status, const char* call) const {
    if (status != Lt::kSuccess) throw_failed(Lt::kProduct, call, reason_(status));
  }

  const typename Lt::Api api;
  typename Lt::Handle handle = nullptr;

 private:
  std::string (*reason_)(Status);
};

// The descriptors of one shape. The libraries count matrices by columns: y^T = w x^T, so that A is w
// (transposed), B is x, C the residual and D y.
template <class Lt>
class LtProblem {
 public:
  LtProblem(const LtHandle<Lt>& lt, const MatmulShape& shape) : lt_(lt), shape_(shape) {
    try {
      make();
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~LtProblem() { destroy(); }
  LtProblem(const LtProblem&) = delete;
  LtProblem& operator=(const LtProblem&) = delete;

  std::vector<typename Lt::Heuristic> heuristics(int most) const {
    typename Lt::Preference preference = nullptr;
    lt_.check(lt_.api.MatmulPreferenceCreate(&preference), "MatmulPreferenceCreate");
    std::vector<typename Lt::Heuristic> found(static_cast<size_t>(most));
    int count = 0;
    const auto status = lt_.api.MatmulPreferenceSetAttribute(preference, Lt::kMaxWorkspace, &kLtWorkspace,
                                                             sizeof(kLtWorkspace));
    const auto found_status = status == Lt::kSuccess
                                  ? lt_.api.MatmulAlgoGetHeuristic(lt_.handle, desc_, w_, x_, y_, y_,
                                                                   preference, most, found.data(), &count)
                                  : status;
    lt_.api.MatmulPreferenceDestroy(preference);
    lt_.check(status, "MatmulPreferenceSetAttribute");
    lt_.check(found_status, "MatmulAlgoGetHeuristic");
    require<LibraryError>(count >= 0 && count <= most, Lt::kProduct, ": gives ", count, " algorithms of ",
                          most);
    found.resize(static_cast<size_t>(count));
    std::erase_if(found,
                  [](const auto& h) { return h.state != Lt::kSuccess || h.workspace_bytes > kLtWorkspace; });
    require<LibraryError>(!found.empty(), Lt::kProduct, ": has no algorithm for it");
    return found;
  }

  void run(void* stream, const typename Lt::Heuristic& way, const MatmulOperands& o) {
    const float one = 1, beta = shape_.residual ? 1.0f : 0.0f;
    const std::lock_guard lock(mutex_);  // the bias's address is part of the descriptor
    if (shape_.bias) set(Lt::kBias, o.bias);
    lt_.check(lt_.api.Matmul(lt_.handle, desc_, &one, o.w, w_, o.x, x_, &beta,
                             shape_.residual ? o.residual : o.y, y_, o.y, y_, &way.algo, o.workspace,
                             way.workspace_bytes, static_cast<typename Lt::Stream>(stream)),
              "Matmul");
  }

 private:
  static int type(DType dtype) {
    return dtype == DType::kF32 ? Lt::kFloat : dtype == DType::kF16 ? Lt::kHalf : Lt::kBfloat16;
  }
  template <class T>
  void set(int attribute, const T& value) {
    lt_.check(lt_.api.MatmulDescSetAttribute(desc_, attribute, &value, sizeof(value)),
              "MatmulDescSetAttribute");
  }
  void layout(typename Lt::Layout& out, DType dtype, int64_t rows, int64_t columns, int64_t stride) {
    lt_.check(lt_.api.MatrixLayoutCreate(&out, type(dtype), static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), stride),
              "MatrixLayoutCreate");
  }
  void make() {
    const MatmulShape& s = shape_;
    lt_.check(lt_.api.MatmulDescCreate(&desc_, Lt::kCompute, Lt::kFloat), "MatmulDescCreate");
    set(Lt::kTransA, Lt::kTransposed);
    set(Lt::kEpilogue, s.bias ? Lt::kAddBias : Lt::kNoEpilogue);
    if (s.bias) {
      set(Lt::kBiasType, static_cast<int32_t>(type(*s.bias)));
      // Heuristics refuse a bias that is nowhere; any aligned address stands for the later ones.
      set(Lt::kBias, reinterpret_cast<const void*>(uintptr_t{256}));
    }
    layout(w_, s.dtype, s.depth, s.columns, s.depth);
    layout(x_, s.dtype, s.depth, s.rows, s.x_stride);
    layout(y_, s.result, s.columns, s.rows, s.columns);
  }
  void destroy() noexcept {
    for (const auto part : {w_, x_, y_})
      if (part) lt_.api.MatrixLayoutDestroy(part);
    if (desc_) lt_.api.MatmulDescDestroy(desc_);
  }

  const LtHandle<Lt>& lt_;
  const MatmulShape shape_;
  std::mutex mutex_;
  typename Lt::Desc desc_ = nullptr;
  typename Lt::Layout w_ = nullptr, x_ = nullptr, y_ = nullptr;
};

template <class Lt>
class LtMatmul final : public Matmul {
 public:
  LtMatmul(std::shared_ptr<LtProblem<Lt>> problem, const typename Lt::Heuristic& way)
      : problem_(std::move(problem)), way_(way) {}
  size_t workspace_bytes() const override { return way_.workspace_bytes; }
  void run(void* stream, const MatmulOperands& operands) override { problem_->run(stream, way_, operands); }

 private:
  std::shared_ptr<LtProblem<Lt>> problem_;
  typename Lt::Heuristic way_;
};

template <class Lt>
class LtLibrary final : public MatmulLibrary {
 public:
  LtLibrary(const typename Lt::Api& api, std::string (*reason)(typename Lt::Status)) : handle_(api, reason) {}

  std::optional<DType> bias_type(DType result) const override {
    return Lt::kFloatBias ? DType::kF32 : result;
  }
  std::vector<std::shared_ptr<Matmul>> prepare(const MatmulShape& shape, int most) override {
    const auto problem = std::make_shared<LtProblem<Lt>>(handle_, shape);
    std::vector<std::shared_ptr<Matmul>> out;
    for (const auto& way : problem->heuristics(most))
      out.push_back(std::make_shared<LtMatmul<Lt>>(problem, way));
    return out;
  }

 private:
  LtHandle<Lt> handle_;
};

}  // namespace rocm_sd::vendor
