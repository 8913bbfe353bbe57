#include "kernels/conv/conv2d_vendor.hpp"

#include <array>

#include "base/format.hpp"
#include "kernels/conv/conv2d_parts.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/resample/resample.hpp"
#include "kernels/vendor_algorithms.hpp"
#include "vendor/convolution.hpp"

namespace rocm_sd {
namespace {

using vendor::ConvEpilogue;
using vendor::ConvLibrary;
using vendor::Convolution;
using vendor::ConvOperands;
using vendor::ConvShape;
using Algorithms = VendorAlgorithms<ConvLibrary, Convolution>;

// Engines or solutions that a tuner may try: making a plan of each takes a moment.
constexpr int kMaxAlgorithms = 4;

struct Vendor {
  const char* name;
  DeviceKind device;
  Algorithms::Open open;
};
constexpr std::array kVendors = {Vendor{"cudnn", DeviceKind::kCuda, vendor::open_cudnn},
                                 Vendor{"miopen", DeviceKind::kHip, vendor::open_miopen}};

std::shared_ptr<Algorithms> algorithms_on(const Exec& ex, const Vendor& vendor) {
  return Algorithms::on(*library_host(ex.device()), vendor.name, vendor.open);
}

// The epilogue as a library does it; nothing where none does.
std::optional<ConvEpilogue> epilogue_of(const ConvProblem& p) {
  const Epilogue& e = p.args.epilogue;
  ConvEpilogue epilogue;
  epilogue.bias = p.w.bias.has_value();
  // On an H200 cuDNN's engine for a graph with such a shift read at misaligned addresses: our kernel adds it.
  if (e.channel_shift || e.slopes) return std::nullopt;
  epilogue.residual = e.residual != nullptr;
  switch (e.act) {
    case Activation::kNone: return epilogue;
    case Activation::kSilu: epilogue.act = ConvEpilogue::Activation::kSilu; return epilogue;
    case Activation::kGelu: epilogue.act = ConvEpilogue::Activation::kGelu; return epilogue;
    case Activation::kRelu: epilogue.act = ConvEpilogue::Activation::kRelu; return epilogue;
    case Activation::kQuickGelu: return std::nullopt;
  }
  return std::nullopt;
}

// The convolution alone, of one whole input, with y as x's type.
ConvShape shape_of(const ConvProblem& p) {
  const int64_t scale = p.args.upsample2x ? 2 : 1;
  const Padding& pad = p.args.pad;
  return {.batch = p.batch(),
          .height = scale * p.height(),
          .width = scale * p.width(),
          .channels = conv_padded_channels(p.channels() + p.second_channels(), p.dtype()),
          .outputs = p.out_channels(),
          .filter_h = p.filter_h(),
          .filter_w = p.filter_w(),
          .out_h = p.out_h(),
          .out_w = p.out_w(),
          .stride = p.args.stride,
          .pad_top = pad.top,
          .pad_left = pad.left,
          .pad_bottom = pad.bottom,
          .pad_right = pad.right,
          .dtype = p.dtype(),
          .result = p.dtype()};
}

// How the library's convolution becomes y: with the epilogue in it, or with ours behind its sums.
struct Plan {
  ConvShape shape;
  bool finish = false;
  const FoundAlgorithms<Convolution>* found = nullptr;
};

std::string key_of(const ConvShape& s) {
  const ConvEpilogue& t = s.epilogue;
  return fmt::format("{}x{}x{}x{} {}x{}x{} {}x{} s{} p{},{},{},{} {} {}{}{} act {}", s.batch, s.height,
                     s.width, s.channels, s.out_h, s.out_w, s.outputs, s.filter_h, s.filter_w, s.stride,
                     s.pad_top, s.pad_left, s.pad_bottom, s.pad_right, dtype_name(s.dtype),
                     dtype_name(s.result), t.bias ? " bias" : "", t.residual ? " residual" : "",
                     static_cast<int>(t.act));
}

const FoundAlgorithms<Convolution>& algorithms_of(Algorithms& ways, const ConvShape& shape) {
  return ways.find(key_of(shape),
                   [&](ConvLibrary& library) { return library.prepare(shape, kMaxAlgorithms); });
}

Plan plan_of(Algorithms& ways, const ConvProblem& p) {
  Plan plan;
  const ConvLibrary& library = *ways.library();
  const auto epilogue = epilogue_of(p);
  if (epilogue && (epilogue->empty() || library.fuses_epilogues())) {
    plan.shape = shape_of(p);
    plan.shape.epilogue = *epilogue;
    plan.shape.result = p.out_dtype();
    plan.found = &algorithms_of(ways, plan.shape);
    if (!plan.found->refusal) return plan;
  }
  plan.finish = true;
  plan.shape = shape_of(p);
  if (library.widens()) plan.shape.result = DType::kF32;
  plan.found = &algorithms_of(ways, plan.shape);
  return plan;
}

// Real memory for a library's search, freed behind it.
class SearchMemory {
 public:
  SearchMemory(GpuDevice& device, const ConvShape& s, size_t workspace_bytes) {
    x_ = make_tensor(device, {s.batch, s.height, s.width, s.channels}, s.dtype);
    filter_ = make_tensor(device, {s.outputs, s.filter_h, s.filter_w, s.channels}, s.dtype);
    y_ = make_tensor(device, {s.batch, s.out_h, s.out_w, s.outputs}, s.dtype);
    workspace_ = make_tensor(device, {static_cast<int64_t>(workspace_bytes / 4 + 1)}, DType::kF32);
    for (const Tensor& t : {x_, filter_}) device.fill_zero(t.data(), t.bytes());
  }
  ConvOperands operands() const {
    return {.x = x_.data(), .filter = filter_.data(), .y = y_.data(), .workspace = workspace_.data()};
  }

 private:
  Tensor x_, filter_, y_, workspace_;
};

// What the library's search finds for the shape, searched once.
const FoundAlgorithms<Convolution>& searched(const Exec& ex, Algorithms& ways, const ConvShape& shape) {
  return ways.find(concat("find ", key_of(shape)), [&](ConvLibrary& library) {
    GpuDevice& device = *gpu_device(ex);
    const SearchMemory memory(device, shape, library.search_workspace(shape));
    const auto way = library.search(shape, library_host(device)->library_stream(), memory.operands());
    device.synchronize();
    return way ? std::vector{way} : std::vector<std::shared_ptr<Convolution>>();
  });
}

Refusal supports(const Exec& ex, const ConvProblem& p, const Vendor& vendor) {
  if (!library_host(ex.device()) || ex.device().kind() != vendor.device)
    return vendor.device == DeviceKind::kCuda ? "runs on NVIDIA GPUs only" : "runs on AMD GPUs only";
  if (p.w.weight.scales()) return "weights stored in 8 bits";
  if (p.args.epilogue.channel_scale) return "a scale of channels";
  if (p.args.change) return "a change of the filter";
  if (p.has_parts()) return "parts of maps";
  // The kernels that prepare operands and finish sums are ours.
  for (const char* kernel : {"conv_pack_", "conv_pad_", "conv_reduce_"})
    if (Refusal refusal = supports_kernel(ex, concat(kernel, dtype_name(p.dtype())))) return refusal;
  const auto ways = algorithms_on(ex, vendor);
  if (!ways->library()) return ways->problem();
  const Plan plan = plan_of(*ways, p);
  if (plan.found->refusal) return plan.found->refusal;
  const bool widens = ways->library()->widens() || p.dtype() == DType::kF32;
  if (plan.finish && !widens && p.out_dtype() != p.dtype()) return "sums of 16 bits for a y of float";
  return std::nullopt;
}

template <class T>
Tensor whole_input(Exec& ex, const ConvProblem& p) {
  Tensor x = p.args.second ? concat_channels(ex, p.x, *p.args.second) : p.x;  // [N,H,W,C]
  if (p.args.upsample2x) x = resample(ex, x, 2 * p.height(), 2 * p.width(), ResampleMode::kNearest);
  return conv_whole_pieces<T>(ex, x);  // [N,H,W,C']
}

template <class T>
const void* filter_of(GpuDevice& device, const ConvProblem& p) {
  const auto make = [&](const Tensor& plain) {
    return std::make_shared<GpuFilter>(device, plain, plain.dim(1), plain.dtype(), GpuFilter::Order::kDense);
  };
  return static_cast<const GpuFilter&>(*p.w.weight.packed("gpu dense", make)).packed().data();
}

template <class T>
void launch_finish(Exec& ex, const ConvProblem& p, const Tensor& sums) {
  const Tensor wide = sums.dtype() == DType::kF32 ? sums : cast(ex, sums, DType::kF32);
  const GemmReduceParams<T> params{wide.as<float>(), conv_epilogue<T>(p), 1, false};
  const int64_t pieces = static_cast<int64_t>(params.epilogue.rows) * ((params.epilogue.channels + 7) / 8);
  const auto bytes = static_cast<double>(wide.bytes() + p.y.bytes());
  launch_kernel(ex, {"conv2d", concat("gpu epilogue: ", p.describe()), 0, bytes},
                conv_kernel(ex, concat("conv_reduce_", dtype_name(p.dtype()))),
                {conv_groups_of(pieces), 1, 1}, kConvSmallThreads, 0, params);
}

template <class T>
void run_as(Exec& ex, const ConvProblem& p, const Vendor& vendor, const std::string& config) {
  const auto ways = algorithms_on(ex, vendor);
  const Plan plan = plan_of(*ways, p);
  const FoundAlgorithms<Convolution>& found =
      config == "find" ? searched(ex, *ways, plan.shape) : *plan.found;
  std::shared_ptr<Convolution> way = found.ways.at(0);
  for (const auto& other : found.ways)
    if (other->name() == config) way = other;

  const Tensor x = whole_input<T>(ex, p);
  Tensor sums, workspace;
  if (plan.finish) sums = ex.alloc(p.y.shape(), plan.shape.result);
  if (const auto bytes = static_cast<int64_t>(way->workspace_bytes()); bytes > 0)
    workspace = ex.alloc({(bytes + 3) / 4}, DType::kF32);
  const Epilogue& e = p.args.epilogue;
  const ConvOperands operands{.x = x.data(),
                              .filter = filter_of<T>(*gpu_device(ex), p),
                              .bias = p.w.bias ? p.w.bias->data() : nullptr,
                              .residual = e.residual ? e.residual->data() : nullptr,
                              .y = plan.finish ? sums.data() : p.y.data(),
                              .workspace = workspace ? workspace.data() : nullptr};
  LibraryHost* const host = library_host(ex.device());
  ex.launch(p.info(concat(vendor.name, " ", way->name()).c_str()),
            [host, way, operands] { way->run(host->library_stream(), operands); });
  if (plan.finish) launch_finish<T>(ex, p, sums);
}

void run(Exec& ex, const ConvProblem& p, const Vendor& vendor, const std::string& config) {
  switch (p.dtype()) {
    case DType::kF32: return run_as<float>(ex, p, vendor, config);
    case DType::kBF16: return run_as<Bf16>(ex, p, vendor, config);
    default: return run_as<Half>(ex, p, vendor, config);
  }
}

// A row's functions have no state of their own: one set for each library.
template <size_t kVendor>
struct Row {
  static constexpr const Vendor& kOf = kVendors[kVendor];

  static Refusal supports(const Exec& ex, const ConvProblem& p) { return rocm_sd::supports(ex, p, kOf); }
  static void run(Exec& ex, const ConvProblem& p) { rocm_sd::run(ex, p, kOf, ""); }
  static std::vector<std::string> names(const Exec& ex, const ConvProblem& p) {
    const auto ways = algorithms_on(ex, kOf);
    std::vector<std::string> out;
    for (const auto& way : plan_of(*ways, p).found->ways) out.push_back(way->name());
    if (ways->library()->searches()) out.push_back("find");
    return out;
  }
  static Refusal supports_config(const Exec& ex, const ConvProblem& p, const std::string& config) {
    const auto ways = algorithms_on(ex, kOf);
    const Plan plan = plan_of(*ways, p);
    if (config == "find" && ways->library()->searches()) return searched(ex, *ways, plan.shape).refusal;
    for (const auto& way : plan.found->ways)
      if (way->name() == config) return std::nullopt;
    return "the library has no such way of computing it";
  }
  static void run_config(Exec& ex, const ConvProblem& p, const std::string& config) {
    rocm_sd::run(ex, p, kOf, config);
  }
  static constexpr Configs<ConvProblem> kConfigs = {names, supports_config, run_config};
  static Impl<ConvProblem> impl() { return {kOf.name, supports, run, &kConfigs}; }
};

}  // namespace

std::vector<Impl<ConvProblem>> conv2d_vendor_impls() { return {Row<0>::impl(), Row<1>::impl()}; }

}  // namespace rocm_sd
