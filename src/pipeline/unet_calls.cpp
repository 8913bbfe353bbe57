// The calls of a UnetStage: rows of what is persistent, and the UNet's halves or layers on them.
#include <algorithm>

#include "kernels/elementwise/elementwise.hpp"
#include "pipeline/unet_stage.hpp"
#include "pipeline/unet_variants.hpp"

namespace rocm_sd {

using namespace unet_variants;

UnetStage::CallRows UnetStage::call_rows(uint32_t active, int64_t first, int64_t count) const {
  const auto own = [&](const Tensor& all) {  // of one that has some for each row
    const int64_t each = all ? all.dim(0) / rows() : 0;
    return all && count < rows() ? all.narrow(0, first * each, count * each) : all;
  };
  // Of what all conditions have the same the first rows: at odd sizes the others may not begin where kernels
  // read whole vectors.
  const auto leading = [&](const Tensor& all) { return all ? leading_rows(all, rows(), count) : all; };
  CallRows out{.shifts = own(shifts_->current()), .cache = {}, .images = {}, .freeu = freeu_};
  if (images_) out.images = images_->tokens((active & kGuests) >> kMaxControls);
  for (ImageTokens& image : out.images)
    for (std::vector<Tensor>* list : {&image.keys_values, &image.factors})
      for (Tensor& t : *list) t = own(t);
  for (const Tensor& t : cache_.keys_values) out.cache.keys_values.push_back(own(t));
  if (out.freeu)
    for (std::vector<FreeULevel>& block : out.freeu->blocks)
      for (FreeULevel& level : block)
        for (std::vector<Tensor>* list : {&level.functions, &level.scaled})
          for (Tensor& t : *list) t = leading(t);
  return out;
}

Tensor UnetStage::forward_layers(Exec& ex, uint32_t active, int64_t first, const Tensor& x,
                                 std::vector<Tensor>& skips) const {
  const int64_t end = first + shape_.micro_rows, perturbed_from = rows() - shape_.batch;
  const CallRows call = call_rows(active, first, shape_.micro_rows);
  return components_.unet->run_layers(
      ex, x, skips, shape_.height, shape_.width, call.shifts, call.cache,
      {.perturbed = shape_.perturbed ? std::max<int64_t>(0, end - std::max(first, perturbed_from)) : 0,
       .perturbed_layers = shape_.perturbed ? &shape_.perturbed_layers : nullptr,
       .freeu = call.freeu ? &*call.freeu : nullptr,
       .images = call.images.empty() ? nullptr : &call.images});
}

TokenMerge UnetStage::token_merge(double* saved_operations) const {
  TokenMerge out{.ratio = shape_.savings.token_merge, .saved_operations = saved_operations};
  int64_t height = shape_.height, width = shape_.width;
  for (int by = 1; by < shape_.savings.token_merge_downsample; by *= 2)
    height = (height + 1) / 2, width = (width + 1) / 2;
  out.least_height = height;
  out.least_width = width;
  return out;
}

// The UNet with the ControlNets and images whose bits are set: its way down, what they add, its way up.
void UnetStage::forward(Exec& ex, uint32_t active) {
  RowMessages messages = RowMessages::kPassing;
  if (keeps_messages_ && !(active & kFirstOnly))
    messages = active & kStale ? RowMessages::kStale : RowMessages::kKept;
  const RowScope scope(shape_.rows, messages);
  const WrapScope wraps(shape_.wrap);
  const UNet& unet = *components_.unet;
  const bool first_only = (active & kFirstOnly) != 0;
  const int64_t first = active & kOneSided ? shape_.batch : 0;
  const int64_t count = first_only ? shape_.batch : rows() - first;
  const CallRows call = call_rows(active, first, count);
  const auto leading = [&](const Tensor& all) { return all ? all.narrow(0, 0, count) : all; };
  const Tensor input = leading(input_), &shifts = call.shifts;
  const Tensor x = extra_ ? concat_channels(ex, input, leading(extra_)) : input;  // [rows,h,w,Cin]
  const std::vector<ImageTokens>* images = call.images.empty() ? nullptr : &call.images;
  const TextCache& cache = call.cache;
  const DeepMap deep{.skip = static_cast<size_t>(shape_.savings.deep_cache_branch),
                     .map = &deep_map_,
                     .rows = rows(),
                     .first = first,
                     .reuse = (active & kShallow) != 0};
  const TextGate gate{
      .means = &text_means_, .conditions = count / shape_.batch, .reuse = (active & kGated) != 0};
  const DeepMap* deep_use = shape_.savings.deep_cache > 1 ? &deep : nullptr;
  const TextGate* gate_use = active & (kNotesText | kGated) ? &gate : nullptr;
  double& merged_operations = merged_operations_[active] = 0;
  const TokenMerge merge = token_merge(&merged_operations);
  const TokenMerge* merge_use = merge.ratio > 0 ? &merge : nullptr;
  const int64_t perturbed = shape_.perturbed && !first_only ? shape_.batch : 0;
  active &= kGuests;
  std::vector<std::vector<ScaledMap>> additions(unet.config().down.size() + 1);
  for (size_t i = 0; i < controls_.size(); ++i)
    if (active >> i & 1) controls_[i]->add_to_blocks(additions, count);
  UNetSkips skips = unet.encode(ex, x, shifts, cache,
                                {.perturbed = perturbed,
                                 .perturbed_layers = shape_.perturbed ? &shape_.perturbed_layers : nullptr,
                                 .received = received_ && !first_only ? &*received_ : nullptr,
                                 .additions = active ? &additions : nullptr,
                                 .images = images,
                                 .deep = deep_use,
                                 .gate = gate_use,
                                 .ranks = shape_.tensors,
                                 .merge = merge_use});
  for (size_t i = 0; i < controls_.size(); ++i)
    if (active >> i & 1) controls_[i]->add(ex, input, skips);
  copy_into(ex,
            unet.decode(ex, std::move(skips), shifts, cache,
                        {.perturbed = perturbed,
                         .perturbed_layers = shape_.perturbed ? &shape_.perturbed_layers : nullptr,
                         .freeu = call.freeu ? &*call.freeu : nullptr,
                         .images = images,
                         .deep = deep_use,
                         .gate = gate_use,
                         .ranks = shape_.tensors,
                         .merge = merge_use}),
            leading(output_));
}

}  // namespace rocm_sd
