// What all tools see of an op (the tuner, bench, the C interface, PyTorch's generic operator): problems made
// of their texts, with operands, counts of work, a way to run them and single elements of the exact result.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// What an operand is to its op. kInput and kOutput with the next ones: those of an op that are known by their
// order alone. kWorkspace and kPrepared: memory of the kernel library's own.
enum class Role {
  kQ,
  kK,
  kV,
  kMask,
  kX,
  kSecond,
  kWeight,
  kBias,
  kShift,
  kResidual,
  kSum,
  kY,
  kPrepared,
  kWorkspace,
  kInput,
  kOutput = kInput + 8
};
inline constexpr int kMaxInputs = 8, kMaxOutputs = 4;
inline constexpr int kRoles = static_cast<int>(Role::kOutput) + kMaxOutputs;
inline Role input_role(int i) { return static_cast<Role>(static_cast<int>(Role::kInput) + i); }
inline Role output_role(int i) { return static_cast<Role>(static_cast<int>(Role::kOutput) + i); }
const char* role_name(Role role);  // as rocm_sd_kernels_operands calls it

struct Operand {
  Role role;
  Shape shape, strides;  // strides in elements
  DType dtype;
  bool output = false;
  const char* name = "";    // of an operand that is known by its order
  float low = 0, high = 0;  // of what a measurement fills it with; both 0: as its role and type suggest
  size_t bytes() const;     // from the first element to the last; ShapeError where no memory holds them
};
// Row-major.
Operand dense(Role role, const Shape& shape, DType dtype, bool output = false);
// value, or ShapeError naming it where no device would take it as an extent.
int64_t require_extent(const char* op, const char* name, int64_t value, int64_t least);
using Operands = std::map<Role, Tensor>;
std::optional<Tensor> optional_operand(const Operands& operands, Role role);

// A result of an op, which the caller finds `offset` bytes into the operand of that role.
struct Result {
  Role role;
  size_t offset;
  Tensor tensor;  // contiguous
};

// The elements of a problem's inputs, known to the host.
class OperandValues {
 public:
  virtual ~OperandValues() = default;
  // Element i of the operand's memory, as stored in its type; of a weight in 8 bits, with its scale.
  virtual double value(Role role, int64_t i) const = 0;
  virtual DType type_of(Role role) const = 0;
  // The 8-bit type that products may round the other operand to: the weight's.
  virtual std::optional<DType> rounded_to() const { return std::nullopt; }
};

struct ExactValue {
  double value = 0;
  double tolerance = 0;   // of a right implementation that sums in float and stores in the result's type
  double stored_sum = 0;  // and more, of one that stores the sum in that type before its epilogue
};

// What is tiled of a result: `copies` matrices of rows x columns.
struct OutputExtent {
  double copies = 1, rows = 1, columns = 1;
};

struct OpProblem {
  std::string op;    // "attention"
  std::string text;  // as the op's problem describes itself: "f16 [2,8,4096x77,40]"
  std::vector<Operand> operands;
  DType dtype = DType::kF32;              // of what is computed with
  std::optional<DType> eight_bit_weight;  // i8 or f8e4m3 where the weight is stored so
  bool eight_bit_products = false;        // and may be multiplied so
  double flops = 0;                       // 2 per multiply-add
  double bytes = 0;                       // operands read once, the output written once
  double reads_per_output = 1;            // elements that exact() reads
  OutputExtent extent;

  // Runs the ops. weight: over the operand of that role, where the problem has one.
  std::function<std::vector<Result>(Exec&, const Operands&, const Weight& weight)> run;
  // Element i of the first output, row-major.
  std::function<ExactValue(const OperandValues&, int64_t i)> exact;

  std::string title() const { return concat(op, " ", text); }
  const Operand* output() const;  // the first; null where there is none
};

// An op by its name.
struct AnyOp {
  const char* name;
  const char* example;                        // the text of a problem
  OpProblem (*parse)(std::string_view text);  // UsageError with the place where it is not understood
};

// Every op that tools know, in the order of ops.cpp.
std::span<const AnyOp> all_ops();
const AnyOp* find_op(std::string_view name);  // or null
// Throws UsageError where there is no such op, or its text is not understood.
OpProblem parse_problem(std::string_view op, std::string_view text);

}  // namespace rocm_sd
