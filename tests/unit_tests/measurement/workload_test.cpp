// Workloads: every problem of the known models is understood, and says of itself what the op said.
#include "measurement/workload.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/choice_record.hpp"
#include "measurement/inputs.hpp"
#include "runtime/device.hpp"

namespace rocm_sd::measurement {
namespace {

const std::vector<std::pair<std::string, std::string>> kTexts = {
    {"attention", "f32 [2,8,64x77,40]"},
    {"attention", "f16 [1,1,33x33,512]"},
    {"attention", "bf16 [1,4,16x16,64] masked"},
    {"attention", "f32 [1,4,16x16,64] causal"},
    {"linear", "128x320x64 f16"},
    {"linear", "128x320x64 f32 bias residual silu"},
    {"linear", "3x64x40 bf16 bias geglu"},
    {"linear", "3x64x40 f32 quick_gelu"},
    {"linear", "3x64x40 bf16 by i8 bias geglu"},
    {"linear", "128x320x64 f32 by f8e4m3 products residual"},
    {"conv2d", "2x8x8x32->64 3x3 s1 p1,1,1,1 f16 bias"},
    {"conv2d", "1x9x7x32+16->8 1x1 s1 p0,0,0,0 f32 bias shift residual silu"},
    {"conv2d", "1x8x8x32->32 3x3 s2 p0,0,1,1 bf16 bias"},
    {"conv2d", "1x4x4x32->32 3x3 s1 p1,1,1,1 f32 upsample2x bias"},
    {"group_norm", "f32 [2,64,64] groups 32 silu"},
    {"group_norm", "f16 [1,9,64+32] groups 32"},
    {"layer_norm", "bf16 [12,320]"},
    {"linear", "3x64x40 f32 by f16 bias"},
    {"dequantize", "i8 to bf16 [3,40]"},
    {"dequantize", "f8e4m3 to f32 [1,1]"},
    {"linear", "128x320x64 bf16->f32 bias residual"},
    {"linear", "16x32x64 f32 by bf16 bias geglu"},
    {"conv2d", "2x8x8x32->64 3x3 s1 p1,1,1,1 bf16->f32 bias shift residual"},
    {"conv2d", "1x8x8x32->32 3x3 s1 p1,1,1,1 f32 by bf16 bias"},
    {"conv2d", "1x8x8x32->32 3x3 s1 p1,1,1,1 f32 by f16 bias"},
    {"group_norm", "f32->bf16 [2,64,64+32] groups 32 silu"},
    {"layer_norm", "f32->bf16 [12,320]"},
};

// These move values and compute none.
bool only_moves(std::string_view op) { return op == "window_partition" || op == "pixel_shuffle"; }

// The text of a problem is read as it was written.
TEST(Workload, EveryOpsExampleIsItsOwnText) {
  for (const AnyOp& op : all_ops()) {
    const Workload workload = parse_workload(op.name, op.example);
    EXPECT_EQ(workload.title(), concat(op.name, " ", op.example));
    EXPECT_EQ(workload.flops > 0, !only_moves(op.name)) << op.name;
    EXPECT_GT(workload.bytes, 0) << op.name;
    EXPECT_GT(output_count(workload), 0) << op.name;
    const std::string_view text = op.example;
    EXPECT_THROW(parse_workload(op.name, concat(text, "?")), UsageError) << op.name;
    EXPECT_THROW(parse_workload(op.name, concat("?", text)), UsageError) << op.name;
  }
}

// Planning the parsed problem makes the op describe it with the same words.
TEST(Workload, TheOpDescribesItWithTheSameWords) {
  for (const auto& [op, text] : kTexts) {
    const Workload workload = parse_workload(op, text);
    const Inputs inputs(host_device(), workload);
    EXPECT_EQ(inputs.rounded_to().has_value(), workload.eight_bit_products);
    Arena arena(host_device());
    Exec ex(arena);
    const ChoiceRecord record;
    const auto results = workload.run(ex, inputs.operands(), inputs.weight());
    ASSERT_EQ(record.choices().size(), 1u) << text;
    EXPECT_EQ(record.choices()[0].op, op);
    EXPECT_EQ(record.choices()[0].problem, text);
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].tensor.numel(), output_count(workload)) << text;
    EXPECT_EQ(results[0].tensor.dtype(), result_type(workload));
    EXPECT_GT(workload.flops, 0);
    EXPECT_GT(workload.bytes, 0);
  }
}

TEST(Workload, CountsWork) {
  EXPECT_EQ(parse_workload("linear", "4x6x8 f16").flops, 2 * 4 * 6 * 8);
  EXPECT_EQ(parse_workload("linear", "4x6x8 f16").bytes, 2 * (4 * 8 + 6 * 8 + 4 * 6));
  EXPECT_EQ(parse_workload("linear", "4x6x8 f16 by i8").bytes, 2 * (4 * 8 + 4 * 6) + 6 * 8);
  EXPECT_EQ(parse_workload("linear", "4x6x8 f32 by f16").bytes, 4 * (4 * 8 + 4 * 6) + 2 * 6 * 8);
  EXPECT_EQ(parse_workload("linear", "4x6x8 bf16->f32 residual").bytes, 2 * (4 * 8 + 6 * 8) + 4 * 2 * 4 * 6);
  EXPECT_EQ(parse_workload("layer_norm", "f32->bf16 [3,8]").bytes, 3 * 8 * (4 + 2));
  EXPECT_EQ(parse_workload("conv2d", "1x4x4x8->16 3x3 s2 p1,1,1,1 f32").flops, 2 * 4 * 16 * 9 * 8);
  EXPECT_EQ(parse_workload("dequantize", "i8 to bf16 [3,8]").bytes, 3 * 8 * (1 + 2) + 3 * 4);
  EXPECT_EQ(parse_workload("attention", "f16 [2,3,5x7,8]").flops, 4 * 2 * 3 * 5 * 7 * 8);
}

TEST(Workload, RefusesWhatIsNoProblem) {
  for (const auto& [op, text] :
       std::vector<std::pair<std::string, std::string>>{{"linear", ""},
                                                        {"linear", "128x320 f16"},
                                                        {"linear", "128x320x64"},
                                                        {"linear", "128x320x64 f64"},
                                                        {"linear", "128x320x64 f32 by f64"},
                                                        {"linear", "128x320x64 f32->bf16"},
                                                        {"layer_norm", "bf16->f32 [12,320]"},
                                                        {"conv2d", "1x4x4x8->8 1x1 s1 p0,0,0,0 f16 by i8"},
                                                        {"conv2d", "1x4x4x8->8 1x1 s1 p0,0,0,0 bf16 by f16"},
                                                        {"linear", "128x320x64 f16 bias bias"},
                                                        {"linear", "128x321x64 f16 geglu"},
                                                        {"linear", "128x320x64 f16 geglu silu"},
                                                        {"linear", "-1x320x64 f16"},
                                                        {"linear", "128x320x0 f16"},
                                                        {"linear", "99999999999999999999x1x1 f16"},
                                                        {"linear", "9999999999x1x1 f16"},
                                                        {"attention", "f16 [2,8,64x77]"},
                                                        {"attention", "f16 [2,8,64x77,40"},
                                                        {"attention", "f16 [2,0,64x77,40]"},
                                                        {"conv2d", "1x2x2x8->8 5x5 s1 p0,0,0,0 f32"},
                                                        {"conv2d", "1x2x2x8->8 1x1 s0 p0,0,0,0 f32"},
                                                        {"conv2d", "1x2x2x8->8 1x1 s1 p0,0,0 f32"},
                                                        {"group_norm", "f16 [1,9,33] groups 32"},
                                                        {"group_norm", "f16 [1,9,32] groups 0"},
                                                        {"layer_norm", "f16 [12]"},
                                                        {"dequantize", "f16 to i8 [3,40]"},
                                                        {"dequantize", "i8 to f16 [3,0]"},
                                                        {"no_op", "f16 [12]"}})
    EXPECT_THROW(parse_workload(op, text), UsageError) << op << " " << text;
}

}  // namespace
}  // namespace rocm_sd::measurement
