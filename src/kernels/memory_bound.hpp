// MemoryBound<P>: an op that touches each element about once, all of it derived from one description P: a
// plain struct of pointers, extents and types, which launches capture by value. P holds
//   kOp, kExample, text(p, t)  name and text, as for Op<P> (op.hpp); describe(): text_of(*this)
//   operands(p, v)             v.input(name, p.x, shape, type) for each input in the op's order, then
//                              v.output(name, p.y, shape, type): sets, lists or counts them
//   flops()                    the work; the bytes follow from the operands
//   exact(in, i)               element i of the first output, a double or an exact::Sum, where in(n, j) is
//                              element j of input n: the reference, and what measurements compare with
//   Kernels, types()           Storages<> of the body, this problem's; without: {dtype}, of any float type
//   params<T...>(workgroups)   the body's argument
//   body<Arch, T...>(params, block)
//   items()                    what the grid's threads take in turn, or its waves, where there is kWaves
// and, where they say something:
//   kThreads or kWaves         of a workgroup; without them kMemoryBoundThreads
//   kWorkgroupsPerUnit         workgroups per compute unit beyond which items are taken in turn
//   refuse(), refuse_gpu()     why the body, or a GPU, cannot take the problem
//   bytes()                    where not all of each operand is read
//   kernel_name()              where it is not the op and its types
//   host_impls()               faster implementations for the host
#pragma once

#include <algorithm>
#include <array>

#include "kernels/exact.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/memory_bound_threads.hpp"
#include "kernels/op_problem.hpp"
#include "kernels/op_text.hpp"
#include "kernels/reference.hpp"
#include "kernels/scalar_launch.hpp"
#include "kernels/storages.hpp"

namespace rocm_sd {

namespace memory_bound {

// ---- what P::operands() is asked with ----

class Lister {
 public:
  template <class Pointer>
  void input(const char* name, Pointer, const Shape& shape, DType type, float low = 0, float high = 0) {
    Operand operand = dense(input_role(inputs_++), shape, type);
    operand.name = name;
    operand.low = low;
    operand.high = high;
    all.push_back(operand);
  }
  template <class Pointer>
  void output(const char* name, Pointer, const Shape& shape, DType type) {
    all.push_back(dense(output_role(outputs_++), shape, type, true));
    all.back().name = name;
  }
  std::vector<Operand> all;

 private:
  int inputs_ = 0, outputs_ = 0;
};

// Sets the pointers: of checked inputs, and of outputs that it allocates.
class Binder {
 public:
  Binder(Exec& ex, const char* op, std::span<const Tensor> inputs) : ex_(ex), op_(op), inputs_(inputs) {}
  template <class T>
  void input(const char* name, T*& data, const Shape& shape, DType type, float = 0, float = 0) {
    require(used_ < inputs_.size(), op_, ": ", name, " is missing");
    const Tensor& x = inputs_[used_++];
    require_tensor(x, type, shape, op_, name);
    data = static_cast<T*>(x.data());
  }
  template <class T>
  void output(const char*, T*& data, const Shape& shape, DType type) {
    outputs.push_back(ex_.alloc(shape, type));
    data = static_cast<T*>(outputs.back().data());
  }
  void end() const {
    require(used_ == inputs_.size(), op_, ": takes ", used_, " inputs, got ", inputs_.size());
  }
  std::vector<Tensor> outputs;

 private:
  Exec& ex_;
  const char* op_;
  std::span<const Tensor> inputs_;
  size_t used_ = 0;
};

// The elements of the host's memory, and where the first output is.
class Reader {
 public:
  void input(const char*, const void* data, const Shape&, DType type, float = 0, float = 0) {
    inputs_.push_back({data, type});
  }
  void output(const char*, void* data, const Shape& shape, DType type) {
    if (y) return;
    y = data;
    y_type = type;
    count = shape.numel();
  }
  double operator()(int n, int64_t i) const {
    return ref::load(inputs_[static_cast<size_t>(n)].data, inputs_[static_cast<size_t>(n)].type, i);
  }
  void* y = nullptr;
  DType y_type = DType::kF32;
  int64_t count = 0;

 private:
  struct Input {
    const void* data;
    DType type;
  };
  std::vector<Input> inputs_;
};

template <class P>
std::vector<Operand> operands_of(const P& p) {
  Lister all;
  P::operands(p, all);
  return all.all;
}

// Whether data begins at a multiple of 16 bytes, as the widest loads of GPUs need it.
inline bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

inline double value_of(double value) { return value; }
inline double value_of(const exact::Sum& sum) { return sum.value; }
inline exact::Sum sum_of(double value) { return {value, std::fabs(value)}; }
inline exact::Sum sum_of(const exact::Sum& sum) { return sum; }

template <class P>
double bytes_of(const P& p) {
  double bytes = 0;
  if constexpr (requires { p.bytes(); })
    bytes = p.bytes();
  else
    for (const Operand& operand : operands_of(p)) bytes += static_cast<double>(operand.bytes());
  return bytes;
}
template <class P>
OpInfo info_of(const P& p, std::string_view impl) {
  return {P::kOp, concat(impl, " ", text_of(p)), p.flops(), bytes_of(p)};
}
// The storage types of a problem, in the order of its body's.
template <class P>
auto body_types(const P& p) {
  if constexpr (requires { p.types(); })
    return p.types();
  else
    return std::array{p.dtype};
}
template <class P>
auto body_storages(const P&) {
  if constexpr (requires { typename P::Kernels; })
    return typename P::Kernels{};
  else
    return Storages<FloatStorage>{};
}

template <class P>
Refusal refusal_of_body(const P& p) {
  if (!has_storages(body_storages(p), body_types(p))) return "takes other types";
  if constexpr (requires { p.refuse(); }) return p.refuse();
  return std::nullopt;
}

// ---- the implementations ----

inline constexpr int64_t kMaxBlocks = 1024;  // of the host's loop over a scalar body

template <class P>
void run_ref(Exec& ex, const P& problem) {
  ex.launch(info_of(problem, "ref"), [p = problem] {
    Reader in;
    P::operands(p, in);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.count; ++i) ref::store(in.y, in.y_type, i, value_of(p.exact(in, i)));
  });
}

template <class P>
Refusal supports_scalar(const Exec& ex, const P& p) {
  if (const Refusal refusal = supports_host(ex, p)) return refusal;
  return refusal_of_body(p);
}
template <class P>
void run_scalar(Exec& ex, const P& problem) {
  ex.launch(info_of(problem, "scalar"), [p = problem] {
    with_storages(body_storages(p), body_types(p), [&]<class... T>() {
      const auto params = p.template params<T...>(1);
      for_each_block(std::min(p.items(), kMaxBlocks),
                     [&](const Block<Scalar>& block) { P::template body<Scalar, T...>(params, block); });
    });
  });
}

template <class P>
std::string kernel_name(const P& p) {
  if constexpr (requires { p.kernel_name(); }) return p.kernel_name();
  std::string name = P::kOp;
  for (const DType type : body_types(p)) name += concat("_", type);
  return name;
}
template <class P>
Refusal supports_gpu(const Exec& ex, const P& p) {
  if (const Refusal refusal = supports_kernel(ex, kernel_name(p))) return refusal;
  if constexpr (requires { p.refuse_gpu(); })
    if (const Refusal refusal = p.refuse_gpu()) return refusal;
  return refusal_of_body(p);
}

template <class P>
constexpr uint32_t threads_of() {
  if constexpr (requires { P::kThreads; }) return P::kThreads;
  return kMemoryBoundThreads;
}

// The grid's size: a workgroup for each of its items, or at most so many per compute unit (0: no matter).
template <class P>
uint32_t workgroups_of(const Exec& ex, const P& p, int per_unit) {
  int64_t at_once = threads_of<P>();
  if constexpr (requires { P::kWaves; }) at_once = P::kWaves;
  int64_t workgroups = std::max<int64_t>((p.items() + at_once - 1) / at_once, 1);
  if (per_unit > 0)
    workgroups = std::min(workgroups, int64_t{gpu_device(ex)->traits().compute_units} * per_unit);
  return static_cast<uint32_t>(workgroups);
}
template <class P>
constexpr int default_workgroups_per_unit() {
  if constexpr (requires { P::kWorkgroupsPerUnit; }) return P::kWorkgroupsPerUnit;
  return 0;
}

template <class P>
void launch_gpu(Exec& ex, const P& p, int per_unit) {
  GpuDevice& device = *gpu_device(ex);
  const GpuKernel& kernel = *device.find_kernel(kernel_name(p));
  const uint32_t workgroups = workgroups_of(ex, p, per_unit);
  uint32_t threads = threads_of<P>();
  if constexpr (requires { P::kWaves; }) threads = static_cast<uint32_t>(P::kWaves * device.traits().lanes);
  with_storages(body_storages(p), body_types(p), [&]<class... T>() {
    launch_kernel(ex, info_of(p, "gpu"), kernel, {workgroups}, threads, 0,
                  p.template params<T...>(workgroups));
  });
}
template <class P>
void run_gpu(Exec& ex, const P& p) {
  launch_gpu(ex, p, default_workgroups_per_unit<P>());
}

// What the tuner may choose: how many workgroups a compute unit gets. "once": as many as there are items.
struct GridConfig {
  const char* name;
  int per_unit;
};
inline constexpr GridConfig kGrids[] = {{"once", 0}, {"x8", 8}, {"x16", 16}, {"x32", 32}};

// The default first; then those with other grids.
template <class P>
std::vector<std::string> grid_names(const Exec& ex, const P& p) {
  std::vector<std::string> names;
  std::vector<uint32_t> seen;
  const auto add = [&](const GridConfig& grid) {
    const uint32_t workgroups = workgroups_of(ex, p, grid.per_unit);
    if (std::ranges::find(seen, workgroups) != seen.end()) return;
    seen.push_back(workgroups);
    names.emplace_back(grid.name);
  };
  for (const GridConfig& grid : kGrids)
    if (grid.per_unit == default_workgroups_per_unit<P>()) add(grid);
  std::ranges::for_each(kGrids, add);
  return names;
}
template <class P>
Refusal supports_grid(const Exec&, const P&, const std::string& config) {
  for (const GridConfig& grid : kGrids)
    if (config == grid.name) return std::nullopt;
  return "has no such grid";
}
template <class P>
void run_grid(Exec& ex, const P& p, const std::string& config) {
  for (const GridConfig& grid : kGrids)
    if (config == grid.name) return launch_gpu(ex, p, grid.per_unit);
}

}  // namespace memory_bound

template <class P>
struct MemoryBound {
  static const ImplList<P>& implementations() {
    using namespace memory_bound;
    static const Configs<P> grids = {grid_names<P>, supports_grid<P>, run_grid<P>};
    static const ImplList<P> list = [] {
      ImplList<P> out{P::kOp, {{"gpu", supports_gpu<P>, run_gpu<P>, &grids}}};
      if constexpr (requires { P::host_impls(); })
        for (const Impl<P>& impl : P::host_impls()) out.impls.push_back(impl);
      out.impls.push_back({"scalar", supports_scalar<P>, run_scalar<P>});
      out.impls.push_back({"ref", supports_host<P>, run_ref<P>});
      return out;
    }();
    return list;
  }

  // The outputs. Checks the inputs, which are contiguous tensors of exactly the description's types and
  // shapes; throws ShapeError otherwise.
  static std::vector<Tensor> run(Exec& ex, P p, std::span<const Tensor> inputs) {
    memory_bound::Binder bound(ex, P::kOp, inputs);
    P::operands(p, bound);
    bound.end();
    if (bound.outputs[0].numel() > 0) select(ex, implementations(), p).run(ex, p);
    return std::move(bound.outputs);
  }

  static OpProblem problem(const P& p) {
    OpProblem out{.op = P::kOp, .text = text_of(p), .operands = memory_bound::operands_of(p)};
    out.dtype = out.output()->dtype;
    out.flops = p.flops();
    out.bytes = memory_bound::bytes_of(p);
    out.run = [p](Exec& ex, const Operands& in, const Weight&) {
      std::vector<Tensor> inputs;
      for (int i = 0; in.contains(input_role(i)); ++i) inputs.push_back(in.at(input_role(i)));
      std::vector<Result> results;
      for (const Tensor& y : run(ex, p, inputs))
        results.push_back({output_role(static_cast<int>(results.size())), 0, y});
      return results;
    };
    out.exact = [p, dtype = out.dtype](const OperandValues& in, int64_t i) {
      const auto read = [&](int n, int64_t j) { return in.value(input_role(n), j); };
      return exact::finished(memory_bound::sum_of(p.exact(read, i)), Activation::kNone, dtype);
    };
    return out;
  }
  static AnyOp any() {
    return {P::kOp, P::kExample, [](std::string_view text) { return problem(problem_from<P>(text)); }};
  }
};

// The first output of the op on these inputs.
template <class P>
Tensor run_op(Exec& ex, const P& p, std::initializer_list<Tensor> inputs) {
  return MemoryBound<P>::run(ex, p, {inputs.begin(), inputs.size()})[0];
}

}  // namespace rocm_sd
