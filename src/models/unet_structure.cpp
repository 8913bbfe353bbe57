// What a UNet consists of: its layers by their names in the checkpoint, made from its configuration, and the
// types that they are loaded as.
#include <algorithm>
#include <ranges>
#include <set>
#include <string>

#include "models/unet.hpp"

namespace rocm_sd {
namespace {

constexpr float kTransformerNormEps = 1e-6f;  // of the norm before proj_in, whatever the UNet's norm_eps

// part [width,in] of a stacked matrix -> the rows that make these channels.
void keep_rows(StackedLinear::Part& part, int64_t width, int64_t in, const CutRange& channels) {
  part.cut = std::make_shared<Cut>(Cut{{width, in}, {channels}, {0, in}});
  part.rows = channels.size();
}

int64_t widest(const UNetConfig& config) {
  const auto channels = [](const UNetBlockConfig& block) { return block.channels; };
  return std::ranges::max(config.down | std::views::transform(channels));
}

// The transformer behind resnet i, in blocks that have transformers.
void add_attention(std::vector<Transformer>& attentions, const UNetBlockConfig& config, size_t i) {
  if (config.transformer_layers.empty()) return;
  attentions.emplace_back(config.channels, config.context_width, config.heads,
                          config.transformer_layers.at(i), config.only_cross_attention);
}

}  // namespace

ResBlock::ResBlock(int64_t in, int64_t out, float eps)
    : norm1(in, eps), norm2(out, eps), conv1(in, out), conv2(out, out) {
  if (in != out) skip.emplace(in, out, 1);
}

void ResBlock::visit(Visitor& v) {
  v("norm1", norm1);
  v("conv1", conv1);
  v("norm2", norm2);
  v("conv2", conv2);
  v("conv_shortcut", skip);
}

SelfAttention::SelfAttention(int64_t width, int64_t head_count)
    : qkv(width, {{"to_q", width}, {"to_k", width}, {"to_v", width}}, false, "to_qkv"),
      out(width, width),
      heads(head_count) {}

void SelfAttention::keep(const TensorShare& share) {
  const CutRange own = share_of(heads, share);
  const int64_t width = out.out, depth = width / heads;
  const CutRange channels{own.begin * depth, own.end * depth};
  end = {ranks_with(heads, share), share.leads()};
  for (StackedLinear::Part& part : qkv.parts) keep_rows(part, width, qkv.in, channels);
  keep_columns(out, channels, share);
  heads = own.size();
}

void SelfAttention::visit(Visitor& v) {
  if (heads == 0) return;
  v("", qkv);
  v("to_out.0", out);
}

CrossAttention::CrossAttention(int64_t width, int64_t context_width, int64_t head_count)
    : query(width, width, false),
      out(width, width),
      kv(context_width, {{"to_k", width}, {"to_v", width}}, false, "to_kv"),
      heads(head_count) {}

void CrossAttention::keep(const TensorShare& share) {
  const CutRange own = share_of(heads, share);
  const int64_t width = out.out, depth = width / heads;
  const CutRange channels{own.begin * depth, own.end * depth};
  end = {ranks_with(heads, share), share.leads()};
  query.cut = std::make_shared<Cut>(Cut{{query.out, query.in}, {channels}, {0, query.in}});
  query.out = channels.size();
  for (StackedLinear::Part& part : kv.parts) keep_rows(part, width, kv.in, channels);
  keep_columns(out, channels, share);
  heads = own.size();
  elsewhere = heads == 0;
  first_channel = channels.begin;
}

void CrossAttention::visit(Visitor& v) {
  if (heads == 0) return;
  v("to_q", query);
  v("", kv);
  v("to_out.0", out);
}

TransformerBlock::TransformerBlock(int64_t width, int64_t context_width, int64_t heads,
                                   bool only_cross_attention)
    : norm1(width),
      norm2(width),
      norm3(width),
      cross(width, context_width, heads),
      ff_in(width, 8 * width),
      ff_out(4 * width, width) {
  if (only_cross_attention)
    first_cross.emplace(width, context_width, heads);
  else
    self.emplace(width, heads);
}

void TransformerBlock::keep(const TensorShare& share) {
  if (self) self->keep(share);
  if (first_cross) first_cross->keep(share);
  cross.keep(share);
  const int64_t inner = ff_out.in;
  const CutRange own = share_of_channels(inner, share);
  ff_end = {ranks_with_channels(inner, share), share.leads()};
  ff_in.cut = std::make_shared<Cut>(
      Cut{{ff_in.out, ff_in.in}, {own, {inner + own.begin, inner + own.end}}, {0, ff_in.in}});
  ff_in.out = 2 * own.size();
  keep_columns(ff_out, own, share);
}

void TransformerBlock::visit(Visitor& v) {
  v("norm1", norm1);
  v("attn1", self);
  v("attn1", first_cross);
  v("norm2", norm2);
  v("attn2", cross);
  v("norm3", norm3);
  if (ff_out.in == 0) return;
  v("ff.net.0.proj", ff_in);
  v("ff.net.2", ff_out);
}

Transformer::Transformer(int64_t width, int64_t context_width, int64_t heads, int count,
                         bool only_cross_attention)
    : norm(width, kTransformerNormEps),
      proj_in(width, width),
      proj_out(width, width),
      blocks(static_cast<size_t>(count),
             TransformerBlock(width, context_width, heads, only_cross_attention)) {}

void Transformer::visit(Visitor& v) {
  v("norm", norm);
  v("proj_in", proj_in);
  v("transformer_blocks", blocks);
  v("proj_out", proj_out);
}

DownBlock::DownBlock(int64_t in, const UNetBlockConfig& config, float eps) {
  for (int i = 0; i < config.resnets; ++i) {
    resnets.emplace_back(i == 0 ? in : config.channels, config.channels, eps);
    add_attention(attentions, config, static_cast<size_t>(i));
  }
  if (config.resamples) downsampler.emplace(config.channels, config.channels);
}

void DownBlock::visit(Visitor& v) {
  v("resnets", resnets);
  v("attentions", attentions);
  v("downsamplers.0.conv", downsampler);
}

MidBlock::MidBlock(int64_t channels, const UNetMidConfig& config, float eps) {
  resnets.emplace_back(channels, channels, eps);
  for (const int count : config.transformer_layers) {
    attentions.emplace_back(channels, config.context_width, config.heads, count, false);
    resnets.emplace_back(channels, channels, eps);
  }
}

void MidBlock::visit(Visitor& v) {
  v("resnets", resnets);
  v("attentions", attentions);
}

UpBlock::UpBlock(int64_t in, const std::vector<int64_t>& skips, const UNetBlockConfig& config, float eps) {
  for (int i = 0; i < config.resnets; ++i) {
    const int64_t width = i == 0 ? in : config.channels;
    resnets.emplace_back(width + skips.at(static_cast<size_t>(i)), config.channels, eps);
    add_attention(attentions, config, static_cast<size_t>(i));
  }
  if (config.resamples) upsampler.emplace(config.channels, config.channels);
}

void UpBlock::visit(Visitor& v) {
  v("resnets", resnets);
  v("attentions", attentions);
  v("upsamplers.0.conv", upsampler);
}

UNet::UNet(const UNetConfig& config)
    : config_(config),
      conv_in_(config.in_channels, config.down.front().channels, config.conv_in_kernel),
      conv_out_(config.down.front().channels, config.out_channels, config.conv_out_kernel),
      time1_(config.down.front().channels, config.time_width),
      time2_(config.time_width, config.time_width),
      time_projections_(config.time_width, {}, true, "time_emb_proj"),
      norm_out_(config.down.front().channels, config.norm_eps) {
  if (config.time_cond_width > 0)
    time_cond_.emplace(config.time_cond_width, config.down.front().channels, false);
  if (config.has_added_conditions()) {
    added1_.emplace(config.added_width, config.time_width);
    added2_.emplace(config.time_width, config.time_width);
  }
  int64_t width = config.down.front().channels;
  std::vector<int64_t> skips = {width};  // channels of every tensor that an up block will take back
  for (const UNetBlockConfig& block : config.down) {
    down_.emplace_back(width, block, config.norm_eps);
    width = block.channels;
    skips.insert(skips.end(), static_cast<size_t>(block.resnets + (block.resamples ? 1 : 0)), width);
  }
  if (config.mid) mid_.emplace(width, *config.mid, config.norm_eps);
  for (const UNetBlockConfig& block : config.up) {
    std::vector<int64_t> taken;
    for (int i = 0; i < block.resnets; ++i) {
      taken.push_back(skips.back());
      skips.pop_back();
    }
    up_.emplace_back(width, taken, block, config.norm_eps);
    width = block.channels;
  }
  number_layers();
}

UNet UNet::load(const LoadTarget& target, const UNetConfig& config, const ParameterSource& source,
                DType compute, const WeightFormat& weights, const LayerRange& own, const TensorShare& share) {
  UNet unet(config);
  if (!own.all()) unet.keep_layers(own, source);
  if (!share.all()) unet.keep_share(share, source);
  unet.choose_types(target, compute, weights);
  unet.update(target, source, weights);
  return unet;
}

std::vector<PrecisionRow> UNet::precisions() const {
  return precision_rows(Network::kUnet, is_narrow(widest(config_)));
}

void UNet::choose_types(const LoadTarget& target, DType compute, const WeightFormat& weights) {
  loaded_as_ = compute;
  on_host_ = target.products.kind() == DeviceKind::kHost;
  dtype_ = weights ? compute : product_dtype(target.products, compute, widest(config_));
}

WeightFormat UNet::format_of(const WeightFormat& weights) const {
  WeightFormat format = weights;
  format.short_for_f32 = dtype_ != loaded_as_;
  return format;
}

void UNet::update(const LoadTarget& target, const ParameterSource& source, const WeightFormat& weights,
                  const SlotFilter& only) {
  load_parameters(*this, target.memory, source, dtype_, format_of(weights), only);
}

// The source knows the others' parameters: they are not left over.
void UNet::ignore_others(const ParameterSource& source) {
  std::set<std::string> mine;
  for (const ParameterSlot::Part& part : list_parameters([this](Visitor& v) { visit(v); }))
    mine.insert(part.name);
  for (const ParameterSlot::Part& part : list_parameters(UNet(config_)))
    if (!mine.contains(part.name)) source.ignore(part.name);
}

void UNet::keep_share(const TensorShare& share, const ParameterSource& source) {
  share_ = share;
  const auto keep = [&](std::vector<Transformer>& attentions) {
    for (Transformer& transformer : attentions)
      for (TransformerBlock& block : transformer.blocks) block.keep(share);
  };
  for (DownBlock& block : down_) keep(block.attentions);
  if (mid_) keep(mid_->attentions);
  for (UpBlock& block : up_) keep(block.attentions);
  ignore_others(source);
}

void UNet::keep_layers(const LayerRange& own, const ParameterSource& source) {
  const std::vector<UNetLayer> layers = unet_layers(config_);
  own_ = own;
  own_parameters_ = parameters_of(layers, own);
  ignore_others(source);
  const auto leave = [&](std::vector<Transformer>& attentions, UNetLayer::Kind kind, size_t block) {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].kind != kind || layers[i].block != block || own.has(i)) continue;
      const bool whole = kind == UNetLayer::Kind::kMid;
      for (size_t a = whole ? 0 : layers[i].index; a < attentions.size(); ++a) {
        for (TransformerBlock& t : attentions[a].blocks) {
          t.cross.elsewhere = true;
          if (t.first_cross) t.first_cross->elsewhere = true;
        }
        if (!whole) break;
      }
    }
  };
  for (size_t b = 0; b < down_.size(); ++b) leave(down_[b].attentions, UNetLayer::Kind::kDown, b);
  if (mid_) leave(mid_->attentions, UNetLayer::Kind::kMid, 0);
  for (size_t b = 0; b < up_.size(); ++b) leave(up_[b].attentions, UNetLayer::Kind::kUp, b);
}

void UNet::visit(Visitor& v) {
  const VisitOnly only(v, own_parameters_);
  v("conv_in", conv_in_);
  v("time_embedding.linear_1", time1_);
  v("time_embedding.cond_proj", time_cond_);
  v("time_embedding.linear_2", time2_);
  v("add_embedding.linear_1", added1_);
  v("add_embedding.linear_2", added2_);
  v("", time_projections_);
  v("down_blocks", down_);
  v("mid_block", mid_);
  if (up_.empty()) return;
  v("up_blocks", up_);
  v("conv_norm_out", norm_out_);
  v("conv_out", conv_out_);
}

// Gives every residual block its columns of the time shifts and every cross attention its place in the text
// cache, in the order of running.
void UNet::number_layers() {
  const auto number = [this](std::vector<ResBlock>& resnets, const std::string& block) {
    for (size_t i = 0; i < resnets.size(); ++i) {
      resnets[i].time_begin = time_projections_.rows();
      time_projections_.parts.push_back(
          {concat(block, ".resnets.", i, ".time_emb_proj"), resnets[i].conv1.out});
    }
  };
  for (size_t i = 0; i < down_.size(); ++i) number(down_[i].resnets, concat("down_blocks.", i));
  if (mid_) number(mid_->resnets, "mid_block");
  for (size_t i = 0; i < up_.size(); ++i) number(up_[i].resnets, concat("up_blocks.", i));
  int index = 0;
  for (CrossAttention* layer : cross_attentions()) layer->text_index = index++;
  const auto name = [this](std::vector<Transformer>& attentions, const std::string& block, bool middle) {
    for (size_t i = 0; i < attentions.size(); ++i)
      for (size_t j = 0; j < attentions[i].blocks.size(); ++j) {
        if (!attentions[i].blocks[j].self) continue;
        attentions[i].blocks[j].self->index = self_attentions_.size();
        self_attentions_.push_back(concat(block, ".attentions.", i, ".transformer_blocks.", j, ".attn1"));
        middle_layers_.push_back(middle);
      }
  };
  for (size_t i = 0; i < down_.size(); ++i) name(down_[i].attentions, concat("down_blocks.", i), false);
  if (mid_) name(mid_->attentions, "mid_block", true);
  for (size_t i = 0; i < up_.size(); ++i) name(up_[i].attentions, concat("up_blocks.", i), false);
  number_image_attentions();
}

void UNet::number_image_attentions() {
  int64_t level = 0;
  const auto number = [&](std::vector<Transformer>& attentions, const std::string& block) {
    for (size_t i = 0; i < attentions.size(); ++i)
      for (size_t j = 0; j < attentions[i].blocks.size(); ++j) {
        CrossAttention& layer = attentions[i].blocks[j].cross;
        layer.image_index = static_cast<int>(image_attentions_.size());
        image_attentions_.push_back({concat(block, ".attentions.", i, ".transformer_blocks.", j, ".attn2"),
                                     layer.kv.rows() / 2, 0, level});
      }
  };
  for (size_t i = 0; i < down_.size(); ++i) {
    number(down_[i].attentions, concat("down_blocks.", i));
    if (config_.down[i].resamples) ++level;
  }
  const size_t before = image_attentions_.size();
  if (mid_) number(mid_->attentions, "mid_block");
  const size_t middle = image_attentions_.size();
  for (size_t i = 0; i < up_.size(); ++i) {
    number(up_[i].attentions, concat("up_blocks.", i));
    if (config_.up[i].resamples) --level;
  }
  // Files count as Diffusers lists its attentions: attn1 and attn2 in turn, the middle block last.
  const size_t count = image_attentions_.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t place = i < before ? i : i < middle ? count - middle + i : i - (middle - before);
    image_attentions_[i].number = 2 * static_cast<int64_t>(place) + 1;
  }
}

std::vector<CrossAttention*> UNet::cross_attentions() {
  std::vector<CrossAttention*> out;
  const auto collect = [&out](std::vector<Transformer>& attentions) {
    for (Transformer& transformer : attentions)
      for (TransformerBlock& block : transformer.blocks) {
        if (block.first_cross) out.push_back(&*block.first_cross);
        out.push_back(&block.cross);
      }
  };
  for (DownBlock& block : down_) collect(block.attentions);
  if (mid_) collect(mid_->attentions);
  for (UpBlock& block : up_) collect(block.attentions);
  return out;
}

std::vector<const CrossAttention*> UNet::cross_attentions() const {
  const auto layers = const_cast<UNet*>(this)->cross_attentions();  // the walk itself changes nothing
  return {layers.begin(), layers.end()};
}

}  // namespace rocm_sd
