// rocm_sd::run_op: any op of the list (kernels/op_problem.hpp), by its name and a problem's text.
#include "kernels/op_problem.hpp"
#include "pytorch_integration/op_scope.hpp"
#include "pytorch_integration/operators.hpp"

namespace rocm_sd::torch_ops {
namespace {

constexpr const char* kOp = "rocm_sd::run_op";

Operands operands_of(const OpProblem& problem, const std::vector<AtTensor>& inputs) {
  Operands out;
  size_t used = 0;
  for (const Operand& operand : problem.operands) {
    if (operand.output) continue;
    const char* name = *operand.name ? operand.name : role_name(operand.role);
    check(used < inputs.size(), kOp, ": ", problem.title(), ": ", name, " is missing");
    const AtTensor& x = inputs[used++];
    check(same_device(x, inputs[0]), kOp, ": ", name, " is on another device than the first input");
    check(stored_dtype_of(x) == operand.dtype && sizes_of(x).numel() == operand.shape.numel(), kOp, ": ",
          problem.title(), ": ", name, " ", shown(x), ": expected ", operand.dtype, " ", operand.shape);
    out.emplace(operand.role, row_major_of(x).reshape(operand.shape));
  }
  check(used == inputs.size(), kOp, ": ", problem.title(), " takes ", used, " inputs, got ", inputs.size());
  return out;
}

}  // namespace

AtTensor run_op(std::vector<AtTensor> inputs, std::string op, std::string text) {
  const OpProblem problem = parse_problem(op, text);
  take_if(!problem.eight_bit_weight, kOp, ": ", problem.title(), ": weights in 8 bits are not taken here");
  check(!inputs.empty(), kOp, ": expected at least one input");
  const Operand& result = *problem.output();
  const Operands operands = operands_of(problem, inputs);
  const AtTensor like = empty_strided_of(inputs[0], result.dtype, {0}, {1});
  if (result.shape.numel() == 0) return empty_strided_like(like, result.shape, row_major(result.shape));
  OpScope scope(like);
  const auto weight = operands.find(Role::kWeight);
  const std::vector<Result> results =
      problem.run(scope.exec(), operands, weight == operands.end() ? Weight() : Weight(weight->second));
  for (const Result& one : results)
    if (one.role == result.role) return scope.give(one.tensor, result.shape, row_major(result.shape));
  throw InternalError(concat(kOp, ": ", problem.title(), " gave no ", role_name(result.role)));
}

std::string op_result(std::string op, std::string text) {
  const OpProblem problem = parse_problem(op, text);
  std::string out(dtype_name(problem.output()->dtype));
  for (const int64_t extent : problem.output()->shape.dims()) out += concat(" ", extent);
  return out;
}

}  // namespace rocm_sd::torch_ops
