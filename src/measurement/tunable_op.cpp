#include "measurement/tunable_op.hpp"

#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "kernels/gemm/linear_op.hpp"

namespace rocm_sd::measurement {
namespace {

const char* torch_name(DType type) {
  return type == DType::kF32 ? "float" : type == DType::kF16 ? "Half" : "BFloat16";
}

}  // namespace

std::string tunable_op_csv(const std::vector<std::string>& linear_problems) {
  std::set<std::string> lines;
  for (const std::string& text : linear_problems) {
    LinearSpec p;
    try {
      p = Op<LinearSpec>::parse(text);
    } catch (const UsageError&) {
      continue;
    }
    if ((p.weight && !p.eight_bit_weight()) || p.result) continue;  // no product of PyTorch's
    const char* op = p.bias ? "GemmAndBiasTunableOp" : "GemmTunableOp";
    lines.insert(fmt::format("{}_{}_TN,tn_{}_{}_{}_ld_{}_{}_{}", op, torch_name(p.dtype), p.columns, p.rows,
                             p.in, p.in, p.in, p.columns));
  }
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

}  // namespace rocm_sd::measurement
