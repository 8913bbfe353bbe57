#include "measurement/tunable_op.hpp"

#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "measurement/workload.hpp"

namespace rocm_sd::measurement {
namespace {

const char* torch_name(DType type) {
  return type == DType::kF32 ? "float" : type == DType::kF16 ? "Half" : "BFloat16";
}

}  // namespace

std::string tunable_op_csv(const std::vector<std::string>& linear_problems) {
  std::set<std::string> lines;
  for (const std::string& text : linear_problems) {
    Workload workload;
    try {
      workload = parse_workload("linear", text);
    } catch (const UsageError&) {
      continue;
    }
    if (workload.types.weight || workload.types.result) continue;  // no product of PyTorch's
    const auto& p = std::get<rocm_sd_kernels_linear>(workload.args);
    const int64_t columns = p.gated ? 2 * p.out : p.out;
    const char* op = p.has_bias ? "GemmAndBiasTunableOp" : "GemmTunableOp";
    lines.insert(fmt::format("{}_{}_TN,tn_{}_{}_{}_ld_{}_{}_{}", op, torch_name(workload.dtype), columns,
                             p.rows, p.in, p.in, p.in, columns));
  }
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

}  // namespace rocm_sd::measurement
