// The UNet's parts: residual blocks, transformer blocks, and the blocks of one resolution.
// Maps between layers (x, skips, residuals) have a type of their own, which x brings: the compute dtype, or
// f32 where that is bf16. Norms read it and write what the next product takes (the compute dtype, or
// split_bf16's input), products write the maps' type.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/configs.hpp"
#include "models/freeu.hpp"
#include "models/parameters.hpp"
#include "models/scaled_map.hpp"
#include "models/tap.hpp"
#include "models/tensor_split.hpp"
#include "models/token_merging.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// An image's tokens at work beside the text's (IP-Adapter): one or several images' that share a softmax.
struct ImageTokens {
  std::vector<Tensor> keys_values;  // of every attn2, in the order of running: [B,T,2C], keys first
  // Of its result, for each of these: [B], or [B*N] for N pixels, f32 in device memory, read when a launch
  // runs.
  std::vector<Tensor> factors;
};

// What self-attention guidance reads of a layer: how much attention each pixel gets from all of the map.
struct AttentionReceived {
  int64_t images = 0;  // the first of the batch
  // [1,R,C] f32 whose row row_of_ones + d has a one in channel d of each head, and zeros elsewhere. From row
  // row_of_ones - k on it is values under which attention gives the weights of the keys k, k + 1, ...
  Tensor selector;
  int64_t row_of_ones = 0;
  // [images*bands,C] f32: the mean over the queries, of the head_dim keys of each band, for each head.
  Tensor means;
};

// DeepCache: the map that one residual block of the way up reads beside a skip connection. Everything deeper
// than that skip works on nothing else.
struct DeepMap {
  size_t skip = 0;        // its number; 0: conv_in's
  Tensor* map = nullptr;  // [rows,h,w,C], persistent; made when a call that fills it is planned
  int64_t rows = 0;       // of all calls
  int64_t first = 0;      // this call's rows begin here
  bool reuse = false;     // the call begins with it; else it fills it
};

// T-GATE: what each attention over the text adds, the mean over a call's conditions.
struct TextGate {
  std::vector<Tensor>* means = nullptr;  // by CrossAttention::text_index, [images,N,C], persistent; made when
                                         // a call that fills them is planned
  int64_t conditions = 1;                // of the call that fills them
  bool reuse = false;                    // the call adds them; else it fills them
};

// What a forward hands to every block.
struct UNetContext {
  Tensor time_shifts;                                // [B,sum of the resnets' channels]
  const std::vector<Tensor>* keys_values = nullptr;  // per cross attention: [B,T,2C], keys first
  int64_t norm_groups = 32;
  const Tap* tap = nullptr;
  // Images at the batch's end in whose self attention every pixel sees itself alone (perturbed-attention
  // guidance), in these layers, by SelfAttention::index.
  int64_t perturbed = 0;
  const std::vector<bool>* perturbed_layers = nullptr;
  const std::vector<ImageTokens>* images = nullptr;  // null: none
  const AttentionReceived* received = nullptr;       // of this layer; null: of none
  size_t received_layer = 0;                         // by SelfAttention::index
  const DeepMap* deep = nullptr;
  const TextGate* gate = nullptr;
  Ranks* ranks = nullptr;  // each of which has its share of attentions and feed-forwards; null: all is here
  const TokenMerge* merge = nullptr;  // before self attention; null: not

  bool gate_open() const { return gate && gate->reuse; }
  // Whether the way down has computed what is asked of it, with so many skips.
  bool deep_enough(size_t skips) const { return deep && deep->reuse && skips > deep->skip; }
};

// Residual block of UNet and VAE: (norm, SiLU, convolution) twice, beside a shortcut.
struct ResBlock {
  Norm norm1, norm2;
  Conv conv1, conv2;
  std::optional<Conv> skip;  // 1x1, present only when the width changes
  int64_t time_begin = 0;    // this block's columns of the time shifts begin here

  ResBlock(int64_t in, int64_t out, float eps);
  void visit(Visitor& v);
  // x [N,H,W,C1]; second [N,H,W,C2] or empty: a concat that is never made; shift [N,Cout] or empty
  // -> [N,H,W,Cout]. Takes its inputs by value so that their memory can be reused before the second half.
  Tensor operator()(Exec& ex, Tensor x, Tensor second, const Tensor& shift, int64_t groups) const;
};

// The end of a layer that ranks may share: its last matrix, and the sum over the ranks.
struct SharedEnd {
  int parts = 1;      // ranks that have a share of the layer
  bool leads = true;  // adds bias and residual

  // h [B,N,K], of a rank without a share empty -> last(h), summed, + residual (of its type), [B,N,C].
  Tensor operator()(Exec& ex, Tensor h, const Linear& last, const Tensor& residual, Ranks* ranks) const;
  // The same without the residual.
  Tensor alone(Exec& ex, Tensor h, const Linear& last, const Tensor& like, Ranks* ranks) const;

 private:
  Tensor sum(Exec& ex, Tensor h, const Linear& last, const Tensor& like, bool adds, Ranks* ranks) const;
};

struct SelfAttention {
  StackedLinear qkv;  // [3C,C]; of a rank's share of C, [3S,C]
  Linear out;         // [C,C], or [C,S]
  int64_t heads = 1;  // 0: other ranks have them
  SharedEnd end;
  size_t index = 0;  // into UNetContext::perturbed_layers

  SelfAttention(int64_t width, int64_t heads);
  void keep(const TensorShare& share);
  void visit(Visitor& v);
  // x [B,N,C] normalised, residual [B,N,C] -> residual + attention, [B,N,C]. residual: null where the
  // attention alone is wanted, in dtype.
  // perturbed: images at the batch's end that take their values as they are.
  // received: filled, or null. ranks: that have the other heads, or null: with them there is a residual.
  Tensor operator()(Exec& ex, Tensor x, const Tensor* residual, DType dtype, int64_t perturbed = 0,
                    const AttentionReceived* received = nullptr, Ranks* ranks = nullptr) const;

 private:
  Tensor attend(Exec& ex, Tensor x, int64_t perturbed, const AttentionReceived* received) const;
  void note_received(Exec& ex, const Tensor& packed, const AttentionReceived& to) const;
};

// Attention over the text, whose keys and values are made once per prompt (UNet::prepare_text).
struct CrossAttention {
  Linear query, out;
  StackedLinear kv;   // [2C,context]; of a rank's share of C, [2S,context]
  int64_t heads = 1;  // 0: other ranks have them
  SharedEnd end;
  int64_t first_channel = 0;  // of the share
  int text_index = 0;         // into UNetContext::keys_values
  int image_index = -1;       // into ImageTokens; below 0: reads no images (attn1)
  bool elsewhere = false;     // other ranks have this layer

  CrossAttention(int64_t width, int64_t context_width, int64_t heads);
  void keep(const TensorShare& share);
  void visit(Visitor& v);
  Tensor operator()(Exec& ex, Tensor x, const Tensor& residual, const UNetContext& context) const;
  // The same where the context's gate is open: residual + its mean, without x.
  Tensor gated(Exec& ex, const Tensor& residual, const UNetContext& context) const;

 private:
  Tensor attend(Exec& ex, Tensor x, const UNetContext& context) const;
  // added [B,N,C] noted as the gate's, and on top of the residual.
  Tensor note_mean(Exec& ex, const Tensor& added, const Tensor& residual, const TextGate& gate) const;
  // attended [B,N,C] + factors * attention of q over an image's tokens.
  Tensor add_image(Exec& ex, const Tensor& q, Tensor attended, const ImageTokens& image) const;
};

// Attention over the picture, attention over the text, gated feed-forward.
struct TransformerBlock {
  Norm norm1, norm2, norm3;
  std::optional<SelfAttention> self;          // attn1, or
  std::optional<CrossAttention> first_cross;  // attn1 under only_cross_attention
  CrossAttention cross;                       // attn2
  Linear ff_in, ff_out;
  SharedEnd ff_end;

  TransformerBlock(int64_t width, int64_t context_width, int64_t heads, bool only_cross_attention);
  // This rank's heads and inner channels alone: before the parameters are read.
  void keep(const TensorShare& share);
  void visit(Visitor& v);
  // x [B,N,C] -> [B,N,C]. map: its pixels.
  Tensor operator()(Exec& ex, Tensor x, const UNetContext& context, const TokenGrid& map) const;

 private:
  Tensor first_attention(Exec& ex, Tensor x, const UNetContext& context, const TokenGrid& map) const;
  // The self attention of x with `merged` of its tokens merged into others.
  Tensor merged_attention(Exec& ex, const Tensor& x, const UNetContext& context, const TokenGrid& map,
                          int64_t merged) const;
};

// Transformer blocks over the pixels of a map, beside a shortcut.
struct Transformer {
  Norm norm;
  Linear proj_in, proj_out;  // in the checkpoint [C,C] or [C,C,1,1]
  std::vector<TransformerBlock> blocks;

  Transformer(int64_t width, int64_t context_width, int64_t heads, int count, bool only_cross_attention);
  void visit(Visitor& v);
  // x [N,H,W,C] -> [N,H,W,C]
  Tensor operator()(Exec& ex, Tensor x, const UNetContext& context) const;
};

struct DownBlock {
  std::vector<ResBlock> resnets;
  std::vector<Transformer> attentions;  // one per resnet, or none
  std::optional<Conv> downsampler;

  DownBlock(int64_t in, const UNetBlockConfig& config, float eps);
  void visit(Visitor& v);
  // x [N,H,W,Cin] -> [N,H',W',C], H' = ceil(H/2) if it downsamples; appends every result to skips. added:
  // to the last attention's result, or to the block's where it has none; null: nothing.
  Tensor operator()(Exec& ex, Tensor x, std::vector<Tensor>& skips, const UNetContext& context,
                    const std::string& name, const std::vector<ScaledMap>* added = nullptr) const;
  // What it consists of: a resnet and its attention, and the downsampler.
  Tensor layer(Exec& ex, Tensor x, size_t i, const UNetContext& context, const std::string& name) const;
  Tensor downsample(Exec& ex, Tensor x, const UNetContext& context, const std::string& name) const;
};

struct MidBlock {
  std::vector<ResBlock> resnets;  // one more than attentions
  std::vector<Transformer> attentions;

  MidBlock(int64_t channels, const UNetMidConfig& config, float eps);
  void visit(Visitor& v);
  Tensor operator()(Exec& ex, Tensor x, const UNetContext& context) const;
};

struct UpBlock {
  std::vector<ResBlock> resnets;
  std::vector<Transformer> attentions;
  std::optional<Conv> upsampler;

  // in: channels of x; skips: channels of the skip inputs in the order in which they are used.
  UpBlock(int64_t in, const std::vector<int64_t>& skips, const UNetBlockConfig& config, float eps);
  void visit(Visitor& v);
  // x [N,H,W,Cin] -> [N,2H,2W,C] if it upsamples, cut to the size of the skip that follows; takes its skips
  // from the end of `skips`. freeu: of this block, or null. first: the resnet that x is for.
  Tensor operator()(Exec& ex, Tensor x, std::vector<Tensor>& skips, const UNetContext& context,
                    const std::string& name, const std::vector<FreeULevel>* freeu = nullptr,
                    size_t first = 0) const;
  // What it consists of: a resnet, which reads a skip connection, and its attention; the upsampler, to
  // height x width.
  Tensor layer(Exec& ex, Tensor x, Tensor second, size_t i, const UNetContext& context,
               const std::string& name, const std::vector<FreeULevel>* freeu) const;
  Tensor upsample(Exec& ex, const Tensor& x, int64_t height, int64_t width, const UNetContext& context,
                  const std::string& name) const;
};

// map [N,H,W,C] doubled by nearest neighbour, cut to height x width (2H or 2H - 1, and so on), then convolved
// 3x3.
Tensor upsample_conv(Exec& ex, const Tensor& map, const Conv& conv, int64_t height, int64_t width);

}  // namespace rocm_sd
