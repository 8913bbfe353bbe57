// Ops by name and text: each op's example through the C interface on the host, against its exact result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/op_problem.hpp"
#include "rocm_sd/kernels.h"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

// Random inputs of a problem, and its outputs full of NaN, where the C interface looks for them.
class CallerMemory final : public OperandValues {
 public:
  explicit CallerMemory(const OpProblem& problem) {
    std::mt19937 random(7);
    for (const Operand& operand : problem.operands) {
      Tensor memory = make_tensor(
          host_device(), {static_cast<int64_t>(operand.bytes() / dtype_size(operand.dtype))}, operand.dtype);
      std::memset(memory.data(), 0xff, memory.bytes());
      std::vector<float> values(static_cast<size_t>(memory.numel()));
      const float middle = (operand.low + operand.high) / 2, half = (operand.high - operand.low) / 2;
      for (float& v : values)
        v = middle + (half == 0 ? 1 : half) * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
      if (!operand.output)
        convert_elements(values.data(), DType::kF32, memory.data(), operand.dtype, memory.numel());
      memory_.emplace(operand.role, std::move(memory));
    }
  }
  double value(Role role, int64_t i) const override {
    const Tensor& memory = memory_.at(role);
    const auto* element =
        static_cast<const char*>(memory.data()) + i * static_cast<int64_t>(dtype_size(memory.dtype()));
    float out = 0;
    convert_elements(element, memory.dtype(), &out, DType::kF32, 1);
    return out;
  }
  DType type_of(Role role) const override { return memory_.at(role).dtype(); }
  void* data(Role role) const {
    const auto found = memory_.find(role);
    return found == memory_.end() ? nullptr : found->second.data();
  }

 private:
  std::map<Role, Tensor> memory_;
};

rocm_sd_kernels_operands operands_of(const CallerMemory& memory) {
  rocm_sd_kernels_operands o{};
  o.size = sizeof(o);
  o.q = memory.data(Role::kQ);
  o.k = memory.data(Role::kK);
  o.v = memory.data(Role::kV);
  o.mask = static_cast<float*>(memory.data(Role::kMask));
  o.x = memory.data(Role::kX);
  o.second = memory.data(Role::kSecond);
  o.weight = memory.data(Role::kWeight);
  o.bias = static_cast<float*>(memory.data(Role::kBias));
  o.channel_shift = static_cast<float*>(memory.data(Role::kShift));
  o.residual = memory.data(Role::kResidual);
  o.y = memory.data(Role::kY);
  for (int i = 0; i < kMaxInputs; ++i) o.inputs[i] = memory.data(input_role(i));
  for (int i = 0; i < kMaxOutputs; ++i) o.outputs[i] = memory.data(output_role(i));
  return o;
}

class PlanOp : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(rocm_sd_kernels_open("cpu", &context_), ROCM_SD_KERNELS_OK); }
  void TearDown() override { rocm_sd_kernels_close(context_); }
  void expect_refused(const char* op, const char* text, rocm_sd_kernels_status status, const char* message) {
    rocm_sd_kernels_plan* plan = nullptr;
    EXPECT_EQ(rocm_sd_kernels_plan_op(context_, op, text, &plan), status) << text;
    EXPECT_EQ(plan, nullptr);
    EXPECT_THAT(rocm_sd_kernels_last_error(), testing::HasSubstr(message));
  }
  rocm_sd_kernels_context* context_ = nullptr;
};

TEST_F(PlanOp, EveryExampleIsComputed) {
  for (const AnyOp& op : all_ops()) {
    SCOPED_TRACE(op.name);
    rocm_sd_kernels_plan* plan = nullptr;
    ASSERT_EQ(rocm_sd_kernels_plan_op(context_, op.name, op.example, &plan), ROCM_SD_KERNELS_OK)
        << rocm_sd_kernels_last_error();
    EXPECT_THAT(rocm_sd_kernels_explain(plan), testing::StartsWith(concat(op.name, " ", op.example)));
    const OpProblem problem = op.parse(op.example);
    const CallerMemory memory(problem);
    const rocm_sd_kernels_operands o = operands_of(memory);
    ASSERT_EQ(rocm_sd_kernels_launch(plan, &o, nullptr), ROCM_SD_KERNELS_OK) << rocm_sd_kernels_last_error();
    for (int64_t i = 0; i < problem.output()->shape.numel(); ++i) {
      const ExactValue exact = problem.exact(memory, i);
      ASSERT_NEAR(memory.value(problem.output()->role, i), exact.value, exact.tolerance) << i;
    }
    rocm_sd_kernels_plan_free(plan);
  }
}

TEST_F(PlanOp, RefusesWhatItDoesNotKnow) {
  expect_refused("no_op", "f32 [4]", ROCM_SD_KERNELS_INVALID, "no op is named \"no_op\"");
  expect_refused("dequantize", "i8 to f16", ROCM_SD_KERNELS_INVALID, "expected \" [\"");
  expect_refused("linear", "4x8x8 f32 by i8", ROCM_SD_KERNELS_UNSUPPORTED, "weights in 8 bits");
  expect_refused(nullptr, "f32 [4]", ROCM_SD_KERNELS_INVALID, "op and problem");
  rocm_sd_kernels_plan* plan = nullptr;
  ASSERT_EQ(rocm_sd_kernels_plan_op(context_, "dequantize", "i8 to f32 [4,8]", &plan), ROCM_SD_KERNELS_OK);
  EXPECT_THAT(rocm_sd_kernels_explain(plan), testing::HasSubstr("inputs[1]: scales f32 [4]"));
  rocm_sd_kernels_operands o{};
  o.size = sizeof(o);
  EXPECT_EQ(rocm_sd_kernels_launch(plan, &o, nullptr), ROCM_SD_KERNELS_INVALID);
  EXPECT_THAT(rocm_sd_kernels_last_error(), testing::HasSubstr("inputs[0] is NULL"));
  rocm_sd_kernels_plan_free(plan);
}

}  // namespace
}  // namespace rocm_sd
