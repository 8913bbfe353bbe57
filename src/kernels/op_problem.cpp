#include "kernels/op_problem.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 41;  // of an operand: no GPU has as much

// Bytes from the first element to the last; throws ShapeError where they are too many to count.
size_t span_bytes(const Shape& shape, const Shape& strides, DType dtype) {
  int64_t last = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 0) return 0;
    int64_t step = 0;
    const bool overflow =
        __builtin_mul_overflow(shape[i] - 1, strides[i], &step) || __builtin_add_overflow(last, step, &last);
    require(!overflow && strides[i] >= 0 && last < kMaxBytes, "an operand ", shape, " with strides ", strides,
            " is larger than any memory, or has a negative stride");
  }
  return static_cast<size_t>(last + 1) * dtype_size(dtype);
}

}  // namespace

int64_t require_extent(const char* op, const char* name, int64_t value, int64_t least) {
  require(value >= least && value < kMaxBytes, op, ": ", name, " is ", value, ", expected ", least,
          " or more");
  return value;
}

size_t Operand::bytes() const { return span_bytes(shape, strides, dtype); }

Operand dense(Role role, const Shape& shape, DType dtype, bool output) {
  Operand operand{role, shape, shape, dtype, output};
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    operand.strides[i] = step;
    require(!__builtin_mul_overflow(step, std::max<int64_t>(shape[i], 1), &step), "an operand ", shape,
            " is larger than any memory");
  }
  return operand;
}

std::optional<Tensor> optional_operand(const Operands& operands, Role role) {
  const auto found = operands.find(role);
  return found == operands.end() ? std::nullopt : std::optional(found->second);
}

const char* role_name(Role role) {
  static constexpr const char* kNames[kRoles] = {
      "q",         "k",         "v",          "mask",          "x",
      "second",    "weight",    "bias",       "channel_shift", "residual",
      "sum",       "y",         "prepared",   "workspace",     "inputs[0]",
      "inputs[1]", "inputs[2]", "inputs[3]",  "inputs[4]",     "inputs[5]",
      "inputs[6]", "inputs[7]", "outputs[0]", "outputs[1]",    "outputs[2]",
      "outputs[3]"};
  return kNames[static_cast<int>(role)];
}

const Operand* OpProblem::output() const {
  const auto found = std::ranges::find_if(
      operands, [](const Operand& o) { return o.output && (o.role == Role::kY || o.role == Role::kOutput); });
  return found == operands.end() ? nullptr : &*found;
}

const AnyOp* find_op(std::string_view name) {
  const auto ops = all_ops();
  const auto found = std::ranges::find_if(ops, [&](const AnyOp& op) { return op.name == name; });
  return found == ops.end() ? nullptr : &*found;
}

OpProblem parse_problem(std::string_view op, std::string_view text) {
  if (const AnyOp* known = find_op(op)) return known->parse(text);
  std::string names;
  for (const AnyOp& one : all_ops()) names += concat(names.empty() ? "" : ", ", one.name);
  throw UsageError(concat("op \"", printable(op), "\": expected one of ", names));
}

}  // namespace rocm_sd
