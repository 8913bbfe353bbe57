// rocBLAS, found when the program runs.
#include <limits>
#include <mutex>

#include "vendor/matmul.hpp"
#include "vendor/rocblas_api.hpp"

namespace rocm_sd::vendor {
namespace {

constexpr const char* kProduct = "rocBLAS";

int type(DType dtype) {
  return dtype == DType::kF32 ? Rocblas::kFloat : dtype == DType::kF16 ? Rocblas::kHalf : Rocblas::kBfloat16;
}

// One handle, whose stream and workspace are set before each product.
class RocblasLibrary final : public MatmulLibrary {
 public:
  explicit RocblasLibrary(const Rocblas::Api& api) : api_(api) {
    check(api_.rocblas_create_handle(&handle_), "rocblas_create_handle");
    // The same bits every time: no sums in the order in which workgroups happen to end.
    const Rocblas::Status status = api_.rocblas_set_atomics_mode(handle_, Rocblas::kAtomicsNotAllowed);
    if (status != Rocblas::kSuccess) {
      api_.rocblas_destroy_handle(handle_);
      check(status, "rocblas_set_atomics_mode");
    }
  }
  ~RocblasLibrary() override { api_.rocblas_destroy_handle(handle_); }

  std::optional<DType> bias_type(DType) const override { return std::nullopt; }
  std::vector<std::shared_ptr<Matmul>> prepare(const MatmulShape& shape, int most) override;

  // Bytes of workspace that the product asks for. Runs nothing.
  size_t workspace_bytes(const MatmulShape& shape) {
    const std::lock_guard lock(mutex_);
    check(api_.rocblas_start_device_memory_size_query(handle_), "rocblas_start_device_memory_size_query");
    const Rocblas::Status status = multiply(shape, {});
    size_t bytes = 0;
    check(api_.rocblas_stop_device_memory_size_query(handle_, &bytes),
          "rocblas_stop_device_memory_size_query");
    const bool told =
        status == Rocblas::kSuccess || status == Rocblas::kSizeIncreased || status == Rocblas::kSizeUnchanged;
    if (!told) check(status, "rocblas_gemm_ex");
    return bytes;
  }
  void run(void* stream, const MatmulShape& shape, const MatmulOperands& operands, size_t workspace_bytes) {
    const std::lock_guard lock(mutex_);
    check(api_.rocblas_set_stream(handle_, stream), "rocblas_set_stream");
    if (workspace_bytes > 0)
      check(api_.rocblas_set_workspace(handle_, operands.workspace, workspace_bytes),
            "rocblas_set_workspace");
    check(multiply(shape, operands), "rocblas_gemm_ex");
  }

 private:
  // rocBLAS counts matrices by columns: y^T = w x^T.
  Rocblas::Status multiply(const MatmulShape& s, const MatmulOperands& o) {
    const float one = 1, beta = s.residual ? 1.0f : 0.0f;
    const auto small = [](int64_t extent) { return static_cast<int>(extent); };
    const int in = type(s.dtype), out = type(s.result);
    return api_.rocblas_gemm_ex(
        handle_, Rocblas::kTransposed, Rocblas::kPlain, small(s.columns), small(s.rows), small(s.depth), &one,
        o.w, in, small(s.depth), o.x, in, small(s.x_stride), &beta, s.residual ? o.residual : o.y, out,
        small(s.columns), o.y, out, small(s.columns), Rocblas::kFloat, Rocblas::kStandard, 0, 0);
  }
  void check(Rocblas::Status status, const char* call) const {
    if (status != Rocblas::kSuccess)
      throw_failed(kProduct, call, concat(api_.rocblas_status_to_string(status), " (", status, ")"));
  }

  const Rocblas::Api api_;
  std::mutex mutex_;
  Rocblas::Handle handle_ = nullptr;
};

class RocblasMatmul final : public Matmul {
 public:
  RocblasMatmul(RocblasLibrary& library, const MatmulShape& shape)
      : library_(library), shape_(shape), workspace_bytes_(library.workspace_bytes(shape)) {}
  size_t workspace_bytes() const override { return workspace_bytes_; }
  void run(void* stream, const MatmulOperands& operands) override {
    library_.run(stream, shape_, operands, workspace_bytes_);
  }

 private:
  RocblasLibrary& library_;
  MatmulShape shape_;
  size_t workspace_bytes_;
};

std::vector<std::shared_ptr<Matmul>> RocblasLibrary::prepare(const MatmulShape& shape, int) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  require<LibraryError>(!shape.bias, kProduct, ": adds no bias");
  require<LibraryError>(
      shape.rows <= kMax && shape.columns <= kMax && shape.depth <= kMax && shape.x_stride <= kMax, kProduct,
      ": counts to 2^31");
  return {std::make_shared<RocblasMatmul>(*this, shape)};
}

}  // namespace

std::shared_ptr<MatmulLibrary> open_rocblas() {
  const DynamicLibrary library = open_library(kProduct);
  Rocblas::Api api;
#define ROCM_SD_LOAD(name, ...) \
  api.name = reinterpret_cast<decltype(api.name)>(find_function(library, #name));
  ROCM_SD_ROCBLAS_FUNCTIONS(ROCM_SD_LOAD)
  ROCM_SD_LOAD(rocblas_status_to_string)
#undef ROCM_SD_LOAD
  return std::make_shared<RocblasLibrary>(api);
}

}  // namespace rocm_sd::vendor
