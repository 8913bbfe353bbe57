#include "pipeline/residency.hpp"

#include <algorithm>
#include <utility>

namespace rocm_sd {

Residency::Residency(Components& components)
    : components_(components), offload_(components.loaded_for_offload) {
  for (const Part part : kParts) track(part);
  if (!offload_) return;
  for (const Entry& entry : entries_) entry.model->offload();
}

void Residency::track(Part part) {
  const auto add = [&](auto& model) {
    entries_.push_back({part, std::make_unique<OffloadedModel>([&model](Visitor& v) { model.visit(v); },
                                                               components_.place[part])});
  };
  switch (part) {
    case Part::kText:
      for (TextEncoder& encoder : components_.text) add(encoder.model);
      return;
    case Part::kUnet:
      add(*components_.unet);
      for (const auto& control : components_.controls) track_guest(part, *control);
      return;
    case Part::kImage:
      for (const auto& model : components_.image_models) track_guest(part, *model);
      return;
    case Part::kVae:
      if (components_.vae) add(*components_.vae);
      if (components_.tiny_vae) add(*components_.tiny_vae);
      has_encoder_ = false;
      follow_encoder();
      return;
  }
}

template <class Model>
void Residency::track_guest(Part part, Model& model) {
  const auto visit = [&model](Visitor& v) { model.visit(v); };
  entries_.push_back({part, std::make_unique<OffloadedModel>(visit, components_.place[part]), false, &model});
}

template <class Model>
void Residency::guests_changed(Part part, const std::vector<std::shared_ptr<Model>>& now) {
  std::erase_if(entries_, [&](const Entry& entry) {
    return entry.guest && entry.part == part &&
           std::none_of(now.begin(), now.end(), [&](const auto& g) { return g.get() == entry.guest; });
  });
  for (const auto& guest : now) {
    const auto known = [&](const Entry& entry) { return entry.guest == guest.get(); };
    if (std::any_of(entries_.begin(), entries_.end(), known)) continue;
    track_guest(part, *guest);
    if (offload_) entries_.back().model->offload();
  }
  moved_[part] = true;
}

void Residency::controls_changed() { guests_changed(Part::kUnet, components_.controls); }

void Residency::image_models_changed() { guests_changed(Part::kImage, components_.image_models); }

// The encoder is loaded when a picture is first given, long after the decoder.
void Residency::follow_encoder() {
  if (has_encoder_ == components_.has_encoder()) return;
  has_encoder_ = components_.has_encoder();
  if (!has_encoder_) {
    std::erase_if(entries_, [](const Entry& entry) { return entry.encoder; });
    return;
  }
  Components& components = components_;
  const auto visit = [&components](Visitor& v) {
    if (components.loaded_encoder)
      components.loaded_encoder->visit(v);
    else
      components.loaded_tiny_encoder->visit(v);
  };
  entries_.push_back(
      {Part::kVae, std::make_unique<OffloadedModel>(visit, components_.place[Part::kVae]), true});
  if (offload_) entries_.back().model->offload();
}

void Residency::reloaded(Part part) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.part == part; });
  track(part);
  if (offload_)
    for (const Entry& entry : entries_)
      if (entry.part == part) entry.model->offload();
  moved_[part] = true;
}

void Residency::begin_stream(Arena& arena) {
  begin_offload();
  if (!stream_) stream_ = std::make_unique<WeightStream>(*components_.device, arena);
}

void Residency::enter(Part part) {
  if (streams(part)) stream_->enter();
}

// -> whether what was planned is to be planned anew.
bool Residency::need_streamed() {
  bool moved = !stream_->entered();
  for (Entry& entry : entries_) {
    if (entry.part != Part::kUnet || entry.streamed) continue;
    entry.model->offload();
    entry.model->restore_to(*stream_);
    entry.streamed = moved = true;
  }
  return moved;
}

void Residency::to_host(Part part) {
  for (const Entry& entry : entries_)
    if (entry.part == part) entry.model->to_host();
}

bool Residency::need(Part part) {
  follow_encoder();
  if (stream_ && !streams(part)) stream_->leave();
  if (offload_)
    for (const Entry& entry : entries_)
      if (entry.part != part && !entry.streamed && &components_.place[entry.part] == &components_.place[part])
        entry.model->offload();
  if (streams(part)) {
    const bool moved = std::exchange(moved_[part], false);
    return need_streamed() || moved;
  }
  bool& moved = moved_[part];
  for (const Entry& entry : entries_)
    if (entry.part == part && entry.model->offloaded()) {
      entry.model->restore();
      moved = true;
    }
  return std::exchange(moved, false);
}

bool Residency::resident(Part part) const {
  if (streams(part) && !stream_->entered()) return false;
  return std::none_of(entries_.begin(), entries_.end(),
                      [&](const Entry& entry) { return entry.part == part && entry.model->offloaded(); });
}

uint64_t Residency::bytes_to_restore(Part part) const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_)
    if (entry.part == part) bytes += entry.model->bytes_to_restore();
  return bytes;
}

uint64_t Residency::weight_bytes(Part part) const {
  if (streams(part)) return stream_->bytes().device();
  uint64_t bytes = 0;
  for (const Entry& entry : entries_)
    if (entry.part == part) bytes += entry.model->bytes();
  return bytes;
}

}  // namespace rocm_sd
