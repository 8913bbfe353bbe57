#include "kernels/gemm/linear_vendor.hpp"

#include <array>

#include "kernels/gemm/linear_configs.hpp"
#include "kernels/gemm/linear_params.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/vendor_algorithms.hpp"
#include "vendor/matmul.hpp"

namespace rocm_sd {
namespace {

using vendor::Matmul;
using vendor::MatmulLibrary;
using vendor::MatmulOperands;
using vendor::MatmulShape;
using Algorithms = VendorAlgorithms<MatmulLibrary, Matmul>;

// Algorithms that a tuner may try.
constexpr int kMaxAlgorithms = 8;

struct Vendor {
  const char* name;
  DeviceKind device;
  Algorithms::Open open;
};
constexpr std::array kVendors = {Vendor{"cublaslt", DeviceKind::kCuda, vendor::open_cublaslt},
                                 Vendor{"hipblaslt", DeviceKind::kHip, vendor::open_hipblaslt},
                                 Vendor{"rocblas", DeviceKind::kHip, vendor::open_rocblas}};

// A bias in the type of the result, if that holds every value of it exactly: biases of 16-bit checkpoints.
class StoredBias final : public Weight::Pack {
 public:
  StoredBias(Device& device, const Tensor& bias, DType dtype) : of_(bias.data()) {
    const std::vector<float> values = to_floats(device, bias);
    std::vector<char> stored(values.size() * dtype_size(dtype));
    std::vector<float> back(values.size());
    const auto count = static_cast<int64_t>(values.size());
    convert_elements(values.data(), DType::kF32, stored.data(), dtype, count);
    convert_elements(stored.data(), dtype, back.data(), DType::kF32, count);
    if (back == values) data_ = tensor_from(device, bias.shape(), values.data(), dtype);
  }
  size_t bytes() const override { return data_ ? data_.bytes() : 0; }
  Tensor unpack() const override { throw InternalError("a bias does not give its weight back"); }
  // Null where the values would be rounded, or for another bias than it was made of.
  const void* data_for(const Tensor& bias) const {
    return data_ && bias.data() == of_ ? data_.data() : nullptr;
  }

 private:
  const void* of_;
  Tensor data_;
};

// How the library's product becomes y.
struct Plan {
  MatmulShape shape;
  const void* bias = nullptr;  // that the library adds
  bool finish = false;         // sums go to memory as float, our kernel does the epilogue
};

// The bias as the library takes it, or null.
const void* bias_for(const Exec& ex, const LinearProblem& p, DType type) {
  if (type == DType::kF32) return p.w.bias->data();
  const auto make = [&](const Tensor&) { return std::make_shared<StoredBias>(ex.device(), *p.w.bias, type); };
  const auto pack = p.w.weight.packed(concat("bias ", type), make, true);
  return static_cast<const StoredBias&>(*pack).data_for(*p.w.bias);
}

Plan plan_of(const Exec& ex, const LinearProblem& p, const MatmulLibrary& library) {
  Plan plan;
  MatmulShape& s = plan.shape;
  s = {.rows = p.rows, .columns = p.gated ? 2 * p.out : p.out, .depth = p.in, .x_stride = p.row_stride};
  s.dtype = p.dtype();
  s.result = p.out_dtype();
  plan.finish = p.gated || p.epilogue.act != Activation::kNone;
  if (p.w.bias && !plan.finish) {
    s.bias = library.bias_type(s.result);
    plan.bias = s.bias ? bias_for(ex, p, *s.bias) : nullptr;
    plan.finish = plan.bias == nullptr;
  }
  if (plan.finish) {
    s.result = DType::kF32;
    s.bias.reset();
  } else {
    s.residual = p.epilogue.residual != nullptr;
  }
  return plan;
}

std::shared_ptr<Algorithms> algorithms_on(const Exec& ex, const Vendor& vendor) {
  return Algorithms::on(*library_host(ex.device()), vendor.name, vendor.open);
}

const FoundAlgorithms<Matmul>& algorithms_of(Algorithms& ways, const Plan& plan) {
  const MatmulShape& s = plan.shape;
  const std::string key =
      concat(s.rows, "x", s.columns, "x", s.depth, "/", s.x_stride, " ", s.dtype, " ", s.result,
             s.bias ? concat(" bias ", *s.bias) : std::string(), s.residual ? " residual" : "");
  return ways.find(key, [&](MatmulLibrary& library) { return library.prepare(s, kMaxAlgorithms); });
}

// Whether the library could be asked at all.
Refusal cannot_ask(const Exec& ex, const LinearProblem& p, const Vendor& vendor) {
  if (!library_host(ex.device()) || ex.device().kind() != vendor.device)
    return vendor.device == DeviceKind::kCuda ? "runs on NVIDIA GPUs only" : "runs on AMD GPUs only";
  if (p.mixed_types()) return "a weight of another type than x";
  if (p.w.weight.scales()) return "weights stored in 8 bits";
  if (const Refusal refusal = linear_refuses_terms(p)) return refusal;
  if (!linear_rows_aligned(p)) return "rows that are not of 16-byte pieces";
  return linear_extents_fit(p);
}

Refusal supports(const Exec& ex, const LinearProblem& p, const Vendor& vendor) {
  if (Refusal refusal = cannot_ask(ex, p, vendor)) return refusal;
  const auto ways = algorithms_on(ex, vendor);
  if (!ways->library()) return ways->problem();
  const Plan plan = plan_of(ex, p, *ways->library());
  if (plan.finish)
    if (Refusal refusal = supports_kernel(ex, concat("gemm_reduce_", p.dtype()))) return refusal;
  return algorithms_of(*ways, plan).refusal;
}

template <class T>
void launch_finish(Exec& ex, const LinearProblem& p, const Tensor& sums) {
  const GemmReduceParams<T> params{sums.as<float>(), gemm_params<T>(p).epilogue, 1, p.gated};
  const GpuKernel& kernel = *gpu_device(ex)->find_kernel(concat("gemm_reduce_", p.dtype()));
  const int64_t pieces = p.rows * ((p.out + 7) / 8);
  const auto workgroups = static_cast<uint32_t>((pieces + kGemmReduceThreads - 1) / kGemmReduceThreads);
  const auto bytes = static_cast<double>(sums.bytes() + p.y.bytes());
  launch_kernel(ex, {"linear", concat("gpu epilogue: ", p.describe()), 0, bytes}, kernel, {workgroups, 1, 1},
                kGemmReduceThreads, 0, params);
}

void run(Exec& ex, const LinearProblem& p, const Vendor& vendor, size_t index) {
  const auto ways = algorithms_on(ex, vendor);
  const Plan plan = plan_of(ex, p, *ways->library());
  const std::shared_ptr<Matmul> way = algorithms_of(*ways, plan).ways.at(index);
  Tensor sums, workspace;
  if (plan.finish) sums = ex.alloc({plan.shape.rows, plan.shape.columns}, DType::kF32);
  if (const auto bytes = static_cast<int64_t>(way->workspace_bytes()); bytes > 0)
    workspace = ex.alloc({(bytes + 3) / 4}, DType::kF32);
  const MatmulOperands operands{
      .x = p.x.data(),
      .w = p.w.weight.plain().data(),
      .bias = plan.bias,
      .residual = plan.shape.residual ? p.epilogue.residual->data() : nullptr,
      .y = plan.finish ? sums.data() : p.y.data(),
      .workspace = workspace ? workspace.data() : nullptr,
  };
  LibraryHost* const host = library_host(ex.device());
  ex.launch(p.info(concat(vendor.name, " ", index).c_str()),
            [host, way, operands] { way->run(host->library_stream(), operands); });
  if (!plan.finish) return;
  switch (p.dtype()) {
    case DType::kF16: return launch_finish<Half>(ex, p, sums);
    case DType::kBF16: return launch_finish<Bf16>(ex, p, sums);
    default: return launch_finish<float>(ex, p, sums);
  }
}

// A row's functions have no state of their own: one set for each library.
template <size_t kVendor>
struct Row {
  static constexpr const Vendor& kOf = kVendors[kVendor];
  static size_t count(const Exec& ex, const LinearProblem& p) {
    const auto ways = algorithms_on(ex, kOf);
    return algorithms_of(*ways, plan_of(ex, p, *ways->library())).ways.size();
  }

  static Refusal supports(const Exec& ex, const LinearProblem& p) { return rocm_sd::supports(ex, p, kOf); }
  static void run(Exec& ex, const LinearProblem& p) { rocm_sd::run(ex, p, kOf, 0); }
  static std::vector<std::string> names(const Exec& ex, const LinearProblem& p) {
    std::vector<std::string> out;
    for (size_t i = 0, all = count(ex, p); i < all; ++i) out.push_back(concat(i));
    return out;
  }
  static Refusal supports_config(const Exec& ex, const LinearProblem& p, const std::string& config) {
    const auto index = way_index(config);
    if (!index || *index >= count(ex, p)) return "the library has no such algorithm";
    return std::nullopt;
  }
  static void run_config(Exec& ex, const LinearProblem& p, const std::string& config) {
    rocm_sd::run(ex, p, kOf, way_index(config).value());
  }
  static constexpr Configs<LinearProblem> kConfigs = {names, supports_config, run_config};
  static Impl<LinearProblem> impl() { return {kOf.name, supports, run, &kConfigs}; }
};

}  // namespace

std::vector<Impl<LinearProblem>> linear_vendor_impls() {
  return {Row<0>::impl(), Row<1>::impl(), Row<2>::impl()};
}

}  // namespace rocm_sd
