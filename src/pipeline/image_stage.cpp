#include "pipeline/image_stage.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "pipeline/clip_pixels.hpp"
#include "pipeline/ip_request.hpp"

namespace rocm_sd {

ImageStage::ImageStage(Components& components, Arena& arena, std::vector<ImageUnit> units)
    : Stage(Part::kImage, arena), components_(components), units_(std::move(units)) {
  for (const ImageUnit& unit : units_) make_unit(unit);
}

ImageStage::Encoder& ImageStage::encoder_for(const ImageUnit& unit) {
  const ClipVisionModel& model = *unit.encoder->encoder();
  const bool states = unit.adapter->adapter()->config().projection.reads_states();
  const VisionResult result = states ? VisionResult::kStates : VisionResult::kEmbedding;
  for (const auto& known : encoders_)
    if (&known->model == &model && known->result == result) return *known;
  const int64_t side = model.config().image_size;
  encoders_.push_back(std::make_unique<Encoder>(
      Encoder{.model = model,
              .result = result,
              .pixels = make_tensor(device(), {1, side, side, 3}, DType::kF32),
              .encoded = make_tensor(device(), model.result_shape(result, 1), DType::kF32),
              .program = {},
              .known = {}}));
  Encoder& encoder = *encoders_.back();
  encoder.program = std::make_unique<Program>("image encoder", arena(), [&encoder](Exec& ex) {
    copy_into(ex, encoder.model(ex, encoder.pixels, encoder.result), encoder.encoded);
  });
  return encoder;
}

void ImageStage::make_unit(const ImageUnit& unit) {
  const IpAdapter& adapter = *unit.adapter->adapter();
  const ImageProjectionConfig& reads = adapter.config().projection;
  auto made = std::make_unique<Unit>();
  if (unit.encoder) made->encoder = &encoder_for(unit);
  const int64_t sets = 1 + unit.sets, rows = sets * unit.images, tokens = unit.tokens();
  const Shape inputs =
      reads.reads_states() ? Shape{rows, unit.states, reads.in_width} : Shape{rows, reads.in_width};
  made->inputs = make_tensor(device(), inputs, adapter.dtype());
  if (reads.has_both()) made->faces = make_tensor(device(), {rows, reads.face_width}, adapter.dtype());
  made->tokens = make_tensor(device(), {sets, tokens, reads.context_width}, adapter.dtype());
  for (const ImageAttention& layer : adapter.layers())
    made->keys_values.push_back(make_tensor(device(), {sets, tokens, 2 * layer.width}, adapter.dtype()));
  Unit& own = *made;
  own.program = std::make_unique<Program>("image tokens", arena(), [&own, &adapter](Exec& ex) {
    copy_into(ex, adapter.projection()(ex, own.inputs, own.faces), own.tokens);
    for (size_t i = 0; i < own.keys_values.size(); ++i)
      copy_into(ex, adapter.keys_values(ex, own.tokens, i), own.keys_values[i]);
  });
  made_.push_back(std::move(made));
}

std::vector<Program*> ImageStage::programs() {
  std::vector<Program*> out;
  for (const auto& encoder : encoders_) out.push_back(encoder->program.get());
  for (const auto& unit : made_) out.push_back(unit->program.get());
  return out;
}

uint64_t ImageStage::buffer_bytes() const {
  uint64_t bytes = 0;
  for (const auto& encoder : encoders_) bytes += bytes_of({&encoder->pixels, &encoder->encoded});
  for (const auto& unit : made_) {
    bytes += bytes_of({&unit->inputs, &unit->tokens});
    if (unit->faces) bytes += unit->faces.bytes();
    for (const Tensor& t : unit->keys_values) bytes += t.bytes();
  }
  return bytes;
}

std::vector<float> ImageStage::encode(Encoder& encoder, const std::vector<float>& pixels,
                                      const RunWatch& watch) {
  for (const auto& [seen, result] : encoder.known)
    if (seen == pixels) return result;
  upload(device(), encoder.pixels, pixels.data(), encoder.pixels.numel());
  encoder.program->run(watch.profiler, watch.cancel);
  Exec ex = eager(watch);
  require_finite(ex, "image encoder", {&encoder.encoded});
  encoder.known.emplace_back(pixels, to_floats(device(), encoder.encoded));
  return encoder.known.back().second;
}

// [(1+sets)*images,...]: what conditions without the prompt read, then the images.
std::vector<float> ImageStage::inputs_of(const ResolvedRequest& r, size_t index, const RunWatch& watch) {
  const IpAdapterUse& use = r.request.ip_adapters.at(index);
  const Unit& unit = *made_[index];
  const auto set = static_cast<size_t>(unit.inputs.numel() / (1 + units_[index].sets));  // values of one
  if (use.embeds && !unit.faces) return both_embeds(*use.embeds, set);
  const auto side = static_cast<int>(unit.encoder->model.config().image_size);
  std::vector<float> out;
  // A black image's states (after normalisation, as Diffusers has them), or an embedding of zeros.
  if (unit.encoder->result == VisionResult::kStates && r.uses_negative()) {
    const std::vector<float> black = encode(
        *unit.encoder, std::vector<float>(static_cast<size_t>(unit.encoder->pixels.numel()), 0.0f), watch);
    for (int64_t i = 0; i < units_[index].images; ++i) out.insert(out.end(), black.begin(), black.end());
  }
  out.resize(set, 0.0f);
  const auto add = [&](const std::vector<Image>& images) {
    for (const Image& image : images) {
      const std::vector<float> encoded = encode(*unit.encoder, clip_pixels(image, side), watch);
      out.insert(out.end(), encoded.begin(), encoded.end());
    }
  };
  add(use.images);
  for (const std::vector<Image>& images : use.each) add(images);
  return out;
}

ImageStates ImageStage::run(const ResolvedRequest& r, const RunWatch& watch) {
  ImageStates out;
  Exec ex = eager(watch);
  for (size_t i = 0; i < made_.size(); ++i) {
    Unit& unit = *made_[i];
    const std::vector<float> inputs = inputs_of(r, i, watch);
    upload(device(), unit.inputs, inputs.data(), unit.inputs.numel());
    if (unit.faces) {
      const auto half = static_cast<size_t>(unit.faces.numel() / 2);
      const std::vector<float> faces = both_embeds(*r.request.ip_adapters.at(i).embeds, half);
      upload(device(), unit.faces, faces.data(), unit.faces.numel());
    }
    unit.program->run(watch.profiler, watch.cancel);
    for (const Tensor& layer : unit.keys_values) require_finite(ex, "IP-Adapter", {&layer});
    out.push_back(unit.keys_values);
  }
  for (const auto& encoder : encoders_) encoder->known.clear();
  return out;
}

}  // namespace rocm_sd
