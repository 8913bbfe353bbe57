// The C interface of the kernel library: structs of any version in, no exception out.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "base/error.hpp"
#include "kernel_library/plan.hpp"
#include "rocm_sd/kernels.h"
#include "runtime/devices.hpp"

namespace library = rocm_sd::library;
using rocm_sd::Device;
using rocm_sd::DeviceKind;
using rocm_sd::GpuDevice;
using rocm_sd::ShapeError;
using rocm_sd::UsageError;

struct rocm_sd_kernels_context {
  Device& device;
  std::string name, arch;

  GpuDevice* gpu() const {
    return device.kind() == DeviceKind::kHost ? nullptr : static_cast<GpuDevice*>(&device);
  }
};
struct rocm_sd_kernels_plan {
  library::Plan plan;
};

namespace {

thread_local std::string last_error;

rocm_sd_kernels_status fail(rocm_sd_kernels_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

rocm_sd_kernels_status status_of(const rocm_sd::Error& error) {
  if (dynamic_cast<const ShapeError*>(&error)) return ROCM_SD_KERNELS_INVALID;
  if (dynamic_cast<const UsageError*>(&error)) return ROCM_SD_KERNELS_UNSUPPORTED;
  return static_cast<rocm_sd_kernels_status>(error.exit_code());
}

template <class Body>
rocm_sd_kernels_status guarded(const Body& body) noexcept {
  try {
    body();
    return ROCM_SD_KERNELS_OK;
  } catch (const rocm_sd::Error& e) {
    return fail(status_of(e), e.what());
  } catch (const std::bad_alloc&) {
    return fail(ROCM_SD_KERNELS_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return fail(ROCM_SD_KERNELS_INTERNAL, e.what());
  } catch (...) {
    return fail(ROCM_SD_KERNELS_INTERNAL, "unknown error");
  }
}

void require_argument(bool ok, const char* name) { rocm_sd::require(ok, name, ": must not be NULL"); }

// A caller's struct, which may be of an older version (shorter: the rest is zero) or of a newer one (longer:
// what we do not know must be zero).
template <class Struct>
Struct read(const Struct* given, const char* name) {
  require_argument(given != nullptr, name);
  constexpr size_t kMax = 1 << 16;
  rocm_sd::require(given->size >= sizeof(size_t) && given->size <= kMax, name,
                   ": size must be sizeof the struct, is ", given->size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Struct); i < given->size; ++i)
    rocm_sd::require(bytes[i] == 0, name, ": uses a field that this version (", ROCM_SD_VERSION,
                     ") of the library does not know");
  Struct known{};
  std::memcpy(&known, given, std::min(given->size, sizeof(Struct)));
  return known;
}

// Fills as much of a caller's struct as it has.
template <class Struct>
void write(Struct* out, Struct values, const char* name) {
  require_argument(out != nullptr, name);
  rocm_sd::require(out->size >= sizeof(size_t), name, ": size must be sizeof the struct, is ", out->size);
  values.size = out->size;
  std::memcpy(out, &values, std::min(out->size, sizeof(Struct)));
}

template <class Desc>
rocm_sd_kernels_status plan(rocm_sd_kernels_context* context, const Desc* desc, rocm_sd_kernels_plan** out,
                            library::Problem (*problem_of)(const Desc&)) {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(context && out, "context and out");
    *out = new rocm_sd_kernels_plan{library::Plan(context->device, problem_of(read(desc, "problem")))};
  });
}

// A text that is not understood is an argument that no device would take.
library::Problem parsed(const rocm_sd::AnyOp& op, const char* text) {
  library::Problem problem;
  try {
    problem = op.parse(text);
  } catch (const UsageError& error) {
    throw ShapeError(error.what());
  }
  rocm_sd::require<UsageError>(!problem.eight_bit_weight, problem.title(),
                               ": weights in 8 bits are not taken here");
  return problem;
}

Device& open(const std::string& name) {
  return name.ends_with(":current") ? rocm_sd::current_device(name) : rocm_sd::device_named(name);
}

// Runs body(device) with the thread's device as it was afterwards.
template <class Body>
void on_device(const rocm_sd_kernels_context* context, const Body& body) {
  require_argument(context != nullptr, "context");
  if (!context->gpu()) return body(context->device);
  const rocm_sd::KeepThreadContext keep(*context->gpu());
  body(context->device);
}

library::Pointers pointers_of(const rocm_sd_kernels_operands& o) {
  library::Pointers out = {o.q,      o.k,      o.v,        o.mask,          o.x,
                           o.second, o.weight, o.bias,     o.channel_shift, o.residual,
                           o.sum,    o.y,      o.prepared, o.workspace};
  std::ranges::copy(o.inputs, out.begin() + static_cast<int>(rocm_sd::Role::kInput));
  std::ranges::copy(o.outputs, out.begin() + static_cast<int>(rocm_sd::Role::kOutput));
  return out;
}
static_assert(std::size(rocm_sd_kernels_operands{}.inputs) == rocm_sd::kMaxInputs);
static_assert(std::size(rocm_sd_kernels_operands{}.outputs) == rocm_sd::kMaxOutputs);

}  // namespace

extern "C" {

const char* rocm_sd_kernels_version(void) { return ROCM_SD_VERSION; }
const char* rocm_sd_kernels_last_error(void) { return last_error.c_str(); }

rocm_sd_kernels_status rocm_sd_kernels_open(const char* device, rocm_sd_kernels_context** out) {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(device && out, "device and out");
    Device& opened = open(device);
    auto context =
        std::make_unique<rocm_sd_kernels_context>(rocm_sd_kernels_context{opened, opened.name(), ""});
    if (GpuDevice* gpu = context->gpu()) {
      const rocm_sd::KeepThreadContext keep(*gpu);
      context->arch = gpu->traits().arch;
      gpu->find_kernel("");  // throws where the device has no archive
    }
    *out = context.release();
  });
}

void rocm_sd_kernels_close(rocm_sd_kernels_context* context) { delete context; }

rocm_sd_kernels_status rocm_sd_kernels_describe(const rocm_sd_kernels_context* context,
                                                rocm_sd_kernels_device* device) {
  return guarded([&] {
    require_argument(context != nullptr, "context");
    const GpuDevice* gpu = context->gpu();
    write(device,
          {0, static_cast<rocm_sd_kernels_device_kind>(context->device.kind()), context->name.c_str(),
           context->arch.c_str(), gpu ? gpu->traits().lanes : 1,
           gpu ? gpu->traits().compute_units : rocm_sd::host_threads()},
          "device");
  });
}

rocm_sd_kernels_status rocm_sd_kernels_plan_attention(rocm_sd_kernels_context* context,
                                                      const rocm_sd_kernels_attention* problem,
                                                      rocm_sd_kernels_plan** out) {
  return plan(context, problem, out, library::attention_problem);
}
rocm_sd_kernels_status rocm_sd_kernels_plan_linear(rocm_sd_kernels_context* context,
                                                   const rocm_sd_kernels_linear* problem,
                                                   rocm_sd_kernels_plan** out) {
  return plan(context, problem, out, library::linear_problem);
}
rocm_sd_kernels_status rocm_sd_kernels_plan_conv2d(rocm_sd_kernels_context* context,
                                                   const rocm_sd_kernels_conv2d* problem,
                                                   rocm_sd_kernels_plan** out) {
  return plan(context, problem, out, library::conv2d_problem);
}
rocm_sd_kernels_status rocm_sd_kernels_plan_group_norm(rocm_sd_kernels_context* context,
                                                       const rocm_sd_kernels_group_norm* problem,
                                                       rocm_sd_kernels_plan** out) {
  return plan(context, problem, out, library::group_norm_problem);
}
rocm_sd_kernels_status rocm_sd_kernels_plan_layer_norm(rocm_sd_kernels_context* context,
                                                       const rocm_sd_kernels_layer_norm* problem,
                                                       rocm_sd_kernels_plan** out) {
  return plan(context, problem, out, library::layer_norm_problem);
}
rocm_sd_kernels_status rocm_sd_kernels_plan_geglu(rocm_sd_kernels_context* context,
                                                  const rocm_sd_kernels_geglu* problem,
                                                  rocm_sd_kernels_plan** out) {
  return plan(context, problem, out, library::geglu_problem);
}
rocm_sd_kernels_status rocm_sd_kernels_plan_op(rocm_sd_kernels_context* context, const char* op,
                                               const char* problem, rocm_sd_kernels_plan** out) {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(context && out, "context and out");
    require_argument(op && problem, "op and problem");
    const auto* known = rocm_sd::find_op(op);
    rocm_sd::require(known != nullptr, "no op is named \"", rocm_sd::printable(op), "\"");
    *out = new rocm_sd_kernels_plan{library::Plan(context->device, parsed(*known, problem))};
  });
}
void rocm_sd_kernels_plan_free(rocm_sd_kernels_plan* plan) { delete plan; }

rocm_sd_kernels_status rocm_sd_kernels_inspect(const rocm_sd_kernels_plan* plan,
                                               rocm_sd_kernels_plan_info* info) {
  return guarded([&] {
    require_argument(plan != nullptr, "plan");
    const library::Plan& p = plan->plan;
    write(info, {0, p.workspace_bytes(false), p.prepared_bytes(), p.workspace_bytes(true), p.launches()},
          "info");
  });
}

const char* rocm_sd_kernels_explain(const rocm_sd_kernels_plan* plan) {
  return plan ? plan->plan.explanation().c_str() : "";
}

rocm_sd_kernels_status rocm_sd_kernels_prepare(const rocm_sd_kernels_plan* plan, const void* weight,
                                               void* prepared, void* stream) {
  return guarded([&] {
    require_argument(plan != nullptr, "plan");
    plan->plan.prepare(weight, prepared, stream);
  });
}

rocm_sd_kernels_status rocm_sd_kernels_launch(const rocm_sd_kernels_plan* plan,
                                              const rocm_sd_kernels_operands* operands, void* stream) {
  return guarded([&] {
    require_argument(plan != nullptr, "plan");
    const rocm_sd_kernels_operands o = read(operands, "operands");
    plan->plan.launch(pointers_of(o), o.workspace_bytes, stream);
  });
}

rocm_sd_kernels_status rocm_sd_kernels_allocate(rocm_sd_kernels_context* context, size_t bytes, void** out) {
  if (out) *out = nullptr;
  return guarded([&] {
    require_argument(out != nullptr, "out");
    on_device(context, [&](Device& device) { *out = device.allocate(bytes); });
  });
}
void rocm_sd_kernels_deallocate(rocm_sd_kernels_context* context, void* data, size_t bytes) {
  if (data) guarded([&] { on_device(context, [&](Device& device) { device.free(data, bytes); }); });
}
rocm_sd_kernels_status rocm_sd_kernels_copy_to_device(rocm_sd_kernels_context* context, void* to,
                                                      const void* from, size_t bytes) {
  return guarded(
      [&] { on_device(context, [&](Device& device) { device.copy_to_device(to, from, bytes); }); });
}
rocm_sd_kernels_status rocm_sd_kernels_copy_to_host(rocm_sd_kernels_context* context, void* to,
                                                    const void* from, size_t bytes) {
  return guarded([&] { on_device(context, [&](Device& device) { device.copy_to_host(to, from, bytes); }); });
}
rocm_sd_kernels_status rocm_sd_kernels_synchronize(rocm_sd_kernels_context* context, void* stream) {
  return guarded([&] {
    on_device(context, [&](Device& device) {
      if (GpuDevice* gpu = context->gpu())
        gpu->synchronize_stream(stream);
      else
        device.synchronize();
    });
  });
}

}  // extern "C"
