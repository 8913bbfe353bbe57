// The layers of a model in bf16 that are computed with more bits than bf16 has: those that bring much of the
// prediction's error and do little of the work (docs/architecture.md, "Numerics"). The page has this table,
// and a test compares the two.
#include "models/precision.hpp"

namespace rocm_sd {
namespace {

using enum Precision;
using enum Network;
using enum Widths;
constexpr EightBit k8Bit = EightBit::kAllowed, kNo8Bit = EightBit::kNever;

constexpr PrecisionRow kTable[] = {
    // UNets of every width.
    {kUnet, kAll, "conv_in", kFloat, kNo8Bit, "every later layer sees its rounding of the latents"},
    {kUnet, kAll, "time_embedding.*", kCompute, kNo8Bit, "little work, and every block reads it"},
    {kUnet, kAll, "add_embedding.*", kCompute, kNo8Bit, "little work, and every block reads it"},
    {kUnet, kAll, "conv_out", kSplit, kNo8Bit, "its error is the prediction's"},

    // Wide UNets: what brings much of the error and does little of the work.
    {kUnet, kWide, "*.conv_shortcut", kSplitInput, k8Bit, "the last one brings 12 % of the squared error"},
    {kUnet, kWide, "*.proj_in", kSplitInput, k8Bit, "the last one brings 18 % of the squared error"},
    {kUnet, kWide, "*.proj_out", kSplitInput, k8Bit,
     "shortcuts and projections bring 17 % of the squared error"},
    {kUnet, kWide, "*[to_kv].to_out.0", kSplitInput, k8Bit,
     "outputs of attention bring 4 % of the squared error"},
    {kUnet, kWide, "down_blocks.0.*.ff.net.0.proj", kSplitInput, k8Bit, "GEGLU of the finest maps"},
    {kUnet, kWide, "up_blocks.last.*.ff.net.0.proj", kSplitInput, k8Bit,
     "the last GEGLU brings 13 % of the squared error"},
    {kUnet, kWide, "up_blocks.last.*.conv_shortcut", kSplit, k8Bit,
     "the last block's error reaches the prediction undamped"},
    {kUnet, kWide, "up_blocks.last.*.proj_in", kSplit, k8Bit,
     "the last block's error reaches the prediction undamped"},
    {kUnet, kWide, "up_blocks.last.*.proj_out", kSplit, k8Bit,
     "the last block's error reaches the prediction undamped"},
    {kUnet, kWide, "up_blocks.last.resnets.last.conv2", kSplitInput, k8Bit,
     "the last one brings 8 % of the squared error"},

    // Narrow UNets: all but the time embedding, which is three times as many products, where they are few.
    {kUnet, kNarrow, "down_blocks.*", kSplit, k8Bit, "a sum of few products averages little rounding out"},
    {kUnet, kNarrow, "mid_block.*", kSplit, k8Bit, "a sum of few products averages little rounding out"},
    {kUnet, kNarrow, "up_blocks.*", kSplit, k8Bit, "a sum of few products averages little rounding out"},

    {kUnet, kAll, "*.to_kv", kHalf, k8Bit, "every step sees the same error of the text"},

    {kControlNet, kAll, "controlnet_cond_embedding.*", kFloat, kNo8Bit, "once per image"},
    {kControlNet, kWide, "controlnet_down_blocks.*", kSplitInput, kNo8Bit, "little work; added to the skips"},
    {kControlNet, kWide, "controlnet_mid_block", kSplitInput, kNo8Bit, "little work; added to the middle"},
    {kControlNet, kNarrow, "controlnet_down_blocks.*", kSplit, kNo8Bit, "little work; added to the skips"},
    {kControlNet, kNarrow, "controlnet_mid_block", kSplit, kNo8Bit, "little work; added to the middle"},

    // A union ControlNet's types and mixer: a handful of rows.
    {kControlNet, kAll, "control_add_embedding.*", kFloat, kNo8Bit, "a handful of rows"},
    {kControlNet, kAll, "transformer_layes.*", kFloat, kNo8Bit, "a handful of rows"},
    {kControlNet, kAll, "spatial_ch_projs", kFloat, kNo8Bit, "a handful of rows"},

    {kT2iAdapter, kAll, "adapter.*", kFloat, kNo8Bit, "once per image"},

    // The VAE's error in bf16 is 55 dB below the image.
    {kVae, kAll, "decoder.conv_in", kCompute, kNo8Bit, "little memory, and every value passes through it"},
    {kVae, kAll, "decoder.conv_out", kCompute, kNo8Bit, "little memory, and every value passes through it"},
    {kVae, kAll, "encoder.conv_in", kCompute, kNo8Bit, "little memory, and every value passes through it"},
    {kVae, kAll, "encoder.conv_out", kCompute, kNo8Bit, "little memory, and every value passes through it"},
    {kVae, kAll, "post_quant_conv", kCompute, kNo8Bit, "little memory, and every value passes through it"},
    {kVae, kAll, "quant_conv", kCompute, kNo8Bit, "little memory, and every value passes through it"},
};

}  // namespace

std::span<const PrecisionRow> precision_table() { return kTable; }

}  // namespace rocm_sd
