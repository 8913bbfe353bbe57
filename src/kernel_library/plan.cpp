#include "kernel_library/plan.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"
#include "kernels/choice_record.hpp"

namespace rocm_sd::library {
namespace {

constexpr size_t kGpuAlignment = 16;  // of operands: the kernels' widest loads

std::string describe(const PlannedLaunch& launch) {
  return fmt::format("{}: {}x{}x{} groups of {} threads, {} bytes of dynamic LDS", launch.kernel->name,
                     launch.grid.x, launch.grid.y, launch.grid.z, launch.threads, launch.lds_bytes);
}

const void* at(const Pointers& pointers, Role role) { return pointers[static_cast<size_t>(role)]; }

}  // namespace

Plan::Plan(Device& device, Problem problem)
    : device_(device), problem_(std::move(problem)), title_(problem_.title()) {
  for (const Operand& operand : problem_.operands)
    static_cast<void>(operand.bytes());  // throws where too large
  explanation_ = title_ + " on " + device.name() + "\n";
  for (const Operand& operand : problem_.operands)
    if (operand.role >= Role::kInput)
      explanation_ +=
          concat(role_name(operand.role), ": ", operand.name, " ", operand.dtype, " ", operand.shape, "\n");
  if (device.kind() == DeviceKind::kHost) {
    plan_on_host();
    return;
  }
  const KeepThreadContext keep(gpu());
  program_ = plan_launches(gpu(), problem_);
  for (const std::string& choice : program_->choices) explanation_ += "chose " + choice + "\n";
  for (const PlannedLaunch& launch : program_->prepare)
    explanation_ += "prepares the weight: " + describe(launch) + "\n";
  for (const PlannedLaunch& launch : program_->run) explanation_ += "launches " + describe(launch) + "\n";
}

// A dry run: it checks the problem and chooses. Weights must exist there, for layouts are made of them.
void Plan::plan_on_host() {
  Arena arena(device_);
  Exec ex(arena, Mode::kPlan);
  Operands operands;
  Weight weight;
  for (const Operand& operand : problem_.operands) {
    if (operand.output) continue;
    Tensor tensor(std::make_shared<Storage>(nullptr, operand.bytes()), operand.shape, operand.strides,
                  operand.dtype);
    if (operand.role == Role::kWeight) {
      tensor = make_tensor(device_, operand.shape, operand.dtype);
      std::memset(tensor.data(), 0, tensor.bytes());
      weight = Weight(tensor);
    }
    operands.emplace(operand.role, std::move(tensor));
  }
  const ChoiceRecord choices;
  arena.begin_plan();
  try {
    problem_.run(ex, operands, weight);
  } catch (...) {
    arena.end_plan();
    throw;
  }
  arena.end_plan();
  for (const std::string& choice : choices.lines()) explanation_ += "chose " + choice + "\n";
}

size_t Plan::workspace_bytes(bool prepared) const {
  if (!program_) return 0;
  return program_->workspace_bytes + (prepared ? 0 : program_->prepared_bytes);
}

void Plan::check(const Pointers& pointers) const {
  std::array<bool, kRoles> wanted{};
  wanted[static_cast<size_t>(Role::kWorkspace)] = true;
  wanted[static_cast<size_t>(Role::kPrepared)] = prepared_bytes() > 0;
  const bool prepared = prepared_bytes() > 0 && at(pointers, Role::kPrepared);
  for (const Operand& operand : problem_.operands) {
    wanted[static_cast<size_t>(operand.role)] = true;
    const bool may_miss = operand.bytes() == 0 || (operand.role == Role::kWeight && prepared);
    require(at(pointers, operand.role) || may_miss, title_, ": ", role_name(operand.role), " is NULL");
  }
  for (size_t i = 0; i < pointers.size(); ++i) {
    const char* name = role_name(static_cast<Role>(i));
    require(wanted[i] || !pointers[i], title_, ": takes no ", name);
    require(!program_ || reinterpret_cast<uintptr_t>(pointers[i]) % kGpuAlignment == 0, title_, ": ", name,
            " at ", pointers[i], " is not aligned to ", kGpuAlignment, " bytes");
  }
}

void Plan::prepare(const void* weight, void* prepared, void* stream) const {
  require(prepared_bytes() > 0, title_,
          ": its kernels read the weight as it is, there is nothing to prepare");
  for (const void* data : {weight, static_cast<const void*>(prepared)})
    require(data && reinterpret_cast<uintptr_t>(data) % kGpuAlignment == 0, title_,
            ": weight and prepared must not be NULL, and be aligned to ", kGpuAlignment, " bytes");
  Pointers pointers{};
  pointers[static_cast<size_t>(Role::kWeight)] = weight;
  pointers[static_cast<size_t>(Role::kPrepared)] = prepared;
  const KeepThreadContext keep(gpu());
  start(gpu(), program_->prepare, pointers, stream);
}

void Plan::launch(Pointers pointers, size_t workspace_bytes, void* stream) const {
  check(pointers);
  if (!program_) return run_on_host(pointers);
  const void*& prepared = pointers[static_cast<size_t>(Role::kPrepared)];
  const bool prepares = prepared_bytes() > 0 && !prepared;
  const void* workspace = at(pointers, Role::kWorkspace);
  const size_t needed = this->workspace_bytes(!prepares);
  require(needed == 0 || (workspace && workspace_bytes >= needed), title_, ": the workspace has ",
          workspace ? workspace_bytes : 0, " bytes, needed are ", needed);
  const KeepThreadContext keep(gpu());
  if (prepares) {  // behind what the run itself needs
    prepared = static_cast<const std::byte*>(workspace) + program_->workspace_bytes;
    start(gpu(), program_->prepare, pointers, stream);
  }
  start(gpu(), program_->run, pointers, stream);
}

void Plan::run_on_host(const Pointers& pointers) const {
  Arena arena(device_);
  Exec ex(arena);
  Operands operands;
  for (const Operand& operand : problem_.operands) {
    if (operand.output) continue;
    auto storage = std::make_shared<Storage>(const_cast<void*>(at(pointers, operand.role)), operand.bytes());
    operands.emplace(operand.role, Tensor(std::move(storage), operand.shape, operand.strides, operand.dtype));
  }
  const auto found = operands.find(Role::kWeight);
  const Weight weight = found == operands.end() ? Weight() : Weight(found->second);
  for (const Result& result : problem_.run(ex, operands, weight)) {
    void* to = const_cast<void*>(at(pointers, result.role));
    if (result.tensor.bytes() > 0)
      std::memcpy(static_cast<char*>(to) + result.offset, result.tensor.data(), result.tensor.bytes());
  }
}

}  // namespace rocm_sd::library
