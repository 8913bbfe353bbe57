// How a pipeline stays within its memory: it plans, and where the plan or the device says no, it saves: what
// is kept between images, then what helps the stage that takes the most: the VAE in bands, weights in host
// memory, the UNet's weights streamed from there, and in 8 bits. Attention is not cut further: its kernels go
// through the keys in tiles and never store the scores in memory.
#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "models/bytes_to_load.hpp"
#include "pipeline/state.hpp"
#include "pipeline/tiles.hpp"
#include "runtime/memory_budget.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxBands = 32;
// Streamed weights leave so small a part of the budget for what no plan names: tables that a drawing makes.
constexpr uint64_t kBudgetReserve = 256;

std::string megabytes(uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

}  // namespace

void Pipeline::State::note_memory() {
  uint64_t bytes = 0;
  for (Device* device : components.place.devices()) {
    // On the CPU what waits off the device lies in the same memory: there is nothing to tell apart.
    if (residency.offload() && device == &host_device()) continue;
    const MemoryBudget* counts = memory_budget(*device);
    bytes += counts ? counts->peak_allocated() : device->allocated();
  }
  device_peak_ = std::max(device_peak_, bytes);
}

namespace {

uint64_t text_bytes(const PreparedRequest& r, const UNetConfig& config, int64_t tokens) {
  return static_cast<uint64_t>(r.rows.prompts * (tokens * config.context_width() + config.added_width)) *
         sizeof(float);
}

// Of which a sampler keeps several.
uint64_t latent_bytes(const PreparedRequest& r) {
  return static_cast<uint64_t>(16 * r.request.batch * r.latent_height * r.latent_width * 4) * sizeof(float);
}

}  // namespace

MemoryPlan Pipeline::State::measure(const PreparedRequest& r) {
  make_stages(r);
  if (const bool encodes = r.request.init_image || components.is_inpainting();
      encodes && components.vae && !components.has_encoder())
    keep_room_for(Part::kVae, bytes_to_load(VaeEncoder(components.vae->config()), components.vae->dtype(),
                                            components.vae_weights));
  vae->need_encoder(r.request.init_image || components.is_inpainting());
  const Placement& place = components.place;
  PerPart<uint64_t> arena, buffers;
  for (const Part part : {Part::kVae, Part::kUnet, Part::kImage, Part::kText}) {
    if (!stage(part)) continue;
    if (!stage(part)->planned()) ready(part);
    arena[part] = stage(part)->plan();
    buffers[part] = stage(part)->buffer_bytes();
  }
  MemoryPlan out;
  out.text = arena[Part::kText];
  out.unet = arena[Part::kUnet];
  out.vae = arena[Part::kVae];
  out.image = arena[Part::kImage];
  // What the stages hand to each other: both devices hold it for a while where there are two.
  const uint64_t states = text_bytes(r, components.unet->config(), unet->shape().tokens);
  if (&place[Part::kText] != &place[Part::kUnet]) buffers[Part::kText] += states;
  if (&place[Part::kImage] != &place[Part::kUnet]) buffers[Part::kUnet] += buffers[Part::kImage];
  buffers[Part::kUnet] += states + latent_bytes(r);
  if (r.request.tile_size > 0)
    buffers[Part::kUnet] +=
        tiled_buffer_bytes(r.tiles, r.request.batch * r.conditions, r.latent_height, r.latent_width);
  for (const Device* device : place.devices()) {
    DeviceMemory share{place.name(*device), place.describe_parts(*device)};
    if (const LayerRange& own = components.layers; !own.all())
      share.parts += concat("; layers ", own.begin + 1, " to ", own.end, " of ",
                            unet_layers(components.unet->config()).size(), " of the UNet");
    if (const TensorShare& own = components.share; !own.all())
      share.parts += concat("; share ", own.rank + 1, " of ", own.count,
                            " of the UNet's attention and "
                            "feed-forward layers");
    uint64_t beside = 0;
    for (const Part part : place.parts_on(*device)) {
      const uint64_t weights = residency.weight_bytes(part);
      share.buffers += buffers[part];
      beside += components.base_bytes(part) + components.term_bytes(part);
      if (!residency.offload()) {
        share.weights += weights;
        share.arena = std::max(share.arena, arena[part]);
      } else if (weights + arena[part] > share.weights + share.arena) {  // of the stage that takes the most
        share.weights = weights;
        share.arena = arena[part];
      }
    }
    if (device == components.device && device->kind() == DeviceKind::kHost)
      beside += components.originals->bytes();
    share.weights += beside;
    out.weights += share.weights;
    out.arena += share.arena;
    out.buffers += share.buffers;
    out.devices.push_back(std::move(share));
  }
  out.vae_bands = static_cast<int>(vae->bands());
  out.offload = residency.offload();
  if (WeightStream* stream = residency.stream()) {
    const StreamBytes bytes = stream->bytes();
    out.streamed = bytes.all;
    out.stream_resident = bytes.resident;
    out.stream_ring = bytes.ring;
    out.stream_copied = bytes.copied;
    const double rate = stream->link_rate();
    if (rate > 0) out.link_seconds = static_cast<double>(bytes.copied) / rate;
  }
  return out;
}

// What the device can hold for this pipeline; part of a GPU's memory is the driver's. Beside GPUs the CPU has
// no budget.
uint64_t Pipeline::State::available_memory(const Device& device) const {
  if (vram_budget_ > 0 && !(&device == &host_device() && components.place.several())) return vram_budget_;
  if (device.kind() == DeviceKind::kHost) return std::numeric_limits<uint64_t>::max();
  return (device.memory().free + device.allocated()) / 100 * 97;
}

const DeviceMemory& Pipeline::State::share_of(const MemoryPlan& plan, Part part) const {
  const std::vector<Device*>& devices = components.place.devices();
  return plan.devices.at(
      static_cast<size_t>(std::ranges::find(devices, &components.place[part]) - devices.begin()));
}

bool Pipeline::State::exceeds(const MemoryPlan& plan, Part part) const {
  return share_of(plan, part).total() > available_memory(components.place[part]);
}

void Pipeline::State::drop_caches() {
  for (const Part part : kParts) drop(part);
  components.loaded_encoder.reset();
  components.loaded_tiny_encoder.reset();
  keep_controls(controls_);
  std::vector<std::shared_ptr<LoadedImageModel>> image_models = ip_adapters_;
  image_models.insert(image_models.end(), image_encoders_.begin(), image_encoders_.end());
  keep_image_models(image_models);
  components.bases.clear();
  if (components.device->kind() == DeviceKind::kHost) components.originals->clear();
  upscaler_.reset();
  arenas.release();
  scratch.release();
}

// Who has the device's memory, and what would take less of it: for an error's end.
std::string Pipeline::State::memory_advice(const Device& device) const {
  std::string text;
  if (device.kind() != DeviceKind::kHost) {
    const MemoryInfo memory = device.memory();
    const uint64_t own = device.allocated(), taken = memory.total - std::min(memory.total, memory.free);
    text = concat("; of the device's ", megabytes(memory.total), " other programs and the driver hold ",
                  megabytes(taken - std::min(taken, own)), ", this one ", megabytes(own), ", ",
                  megabytes(memory.free), " are free");
  }
  text += "; what takes less: a smaller picture or batch";
  if (!residency.offload()) text += ", weights in host memory (--offload)";
  if (!residency.stream()) text += ", the UNet's streamed while it works (--stream-weights)";
  if (!components.weights && device.kind() != DeviceKind::kHost)
    text += ", the UNet's weights in 8 bits (--weights int8)";
  return text;
}

// Weights of the UNet in 8 bits, where the user left their form to us and the device stores them so. The
// image is another one, by little (docs/explanation/eight-bit-weights.md), so that this comes last and says
// so.
bool Pipeline::State::shrink_weights() {
  if (!components.weights_are_auto || components.weights || components.device->kind() == DeviceKind::kHost ||
      components.dtype_of(Part::kUnet) == DType::kF32)
    return false;
  const DType dtype = components.dtype_of(Part::kUnet);
  drop(Part::kUnet);
  arenas[Part::kUnet].release();
  components.weights = {.eight_bit = DType::kI8};
  components.reload(Part::kUnet, dtype);
  residency.reloaded(Part::kUnet);
  return true;
}

// The UNet's stage is planned anew for it.
void Pipeline::State::begin_stream() {
  drop(Part::kUnet);
  arenas[Part::kUnet].release();
  residency.begin_stream(arenas[Part::kUnet]);
}

// Gives streamed weights the room that the UNet's stage leaves, so that as many as possible stay. Without a
// limit as few as possible do: who asks for it wants the device for something else.
MemoryPlan Pipeline::State::fill_stream(const PreparedRequest& r, const MemoryPlan& plan) {
  WeightStream* const stream = residency.stream();
  if (!stream || (vram_budget_ == 0 && !stream_began_)) return plan;
  const Device& device = components.place[Part::kUnet];
  uint64_t others = share_of(plan, Part::kUnet).buffers + plan.unet;
  for (const Part part : components.place.parts_on(device))
    others += components.base_bytes(part) + components.term_bytes(part);
  const uint64_t most = available_memory(device);
  others += most / kBudgetReserve;
  stream->set_room(stream_fills_ && others < most ? most - others : 0);
  return measure(r);
}

// The fewest bands that fit, or those that take the least.
MemoryPlan Pipeline::State::choose_bands(const PreparedRequest& r, const MemoryPlan& whole) {
  const auto with_bands = [&](int64_t bands) {
    vae_shape_.bands = bands;
    return measure(r);
  };
  int64_t best = vae_shape_.bands;
  uint64_t least = whole.vae;
  for (int64_t bands = 2 * vae_shape_.bands; bands <= std::min(kMaxBands, r.latent_height); bands *= 2) {
    const MemoryPlan plan = with_bands(bands);
    if (!exceeds(plan, Part::kVae)) return plan;
    if (plan.vae >= least) continue;
    least = plan.vae;
    best = bands;
  }
  return with_bands(best);
}

// Before weights of so many bytes are loaded beside those that are there.
void Pipeline::State::keep_room_for(Part part, uint64_t bytes) {
  if (vram_budget_ == 0 || residency.offload()) return;
  const Device& device = components.place[part];
  uint64_t sum = bytes;
  for (const Part other : components.place.parts_on(device))
    sum += residency.weight_bytes(other) + components.base_bytes(other) + components.term_bytes(other);
  if (sum <= available_memory(device)) return;
  log().warn("memory: weights of {}, {}: they wait in host memory (--offload)", megabytes(sum),
             limit_text(device));
  residency.begin_offload();
}

// "the budget is 3221.2 MB", or "the device has" where none was given; "cuda:1 has 3221.2 MB" where there are
// several devices.
std::string Pipeline::State::limit_text(const Device& device) const {
  const Placement& place = components.place;
  const std::string who = place.several()    ? concat(place.name(device), " has ")
                          : vram_budget_ > 0 ? "the budget is "
                                             : "the device has ";
  return concat(who, megabytes(available_memory(device)));
}

// To measure a stage is to have its weights on the device. Those that the budget refuses alone never come
// there: the UNet's are streamed, and for others the image is refused.
void Pipeline::State::keep_off_what_cannot_fit() {
  if (vram_budget_ == 0 || !residency.offload()) return;
  for (const Part part : kParts) {
    const uint64_t weights = residency.bytes_to_restore(part);
    const uint64_t most = available_memory(components.place[part]);
    if (weights <= most || (part == Part::kUnet && residency.stream())) continue;
    if (part == Part::kUnet) {
      log().warn(
          "memory: {} of the UNet's weights, {}: they are streamed from host memory (--stream-weights)",
          megabytes(weights), limit_text(components.place[part]));
      begin_stream();
      stream_began_ = true;
      continue;
    }
    refused_ = true;
    throw OutOfMemoryError(concat("memory: the weights of ", part_name(part), " alone take ",
                                  megabytes(weights), ", ", limit_text(components.place[part]),
                                  memory_advice(components.place[part])));
  }
}

MemoryPlan Pipeline::State::plan_within_budget(const PreparedRequest& r) {
  refused_ = false;
  const Placement& place = components.place;
  keep_off_what_cannot_fit();
  MemoryPlan plan = measure(r);
  std::map<const Device*, uint64_t> available;  // asked once: not every driver is quick to tell
  const auto over = [&](Part part) {
    const auto [known, is_new] = available.try_emplace(&place[part]);
    if (is_new) known->second = available_memory(place[part]);
    return share_of(plan, part).total() > known->second;
  };
  const auto tight = [&] { return std::ranges::find_if(kParts, over); };  // a part on a device that is
  if (tight() == kParts.end()) return fill_stream(r, plan);
  const auto note = [&](Part part, const std::string& saving) {
    log().warn("memory: {} planned, {}: {}", megabytes(share_of(plan, part).total()), limit_text(place[part]),
               saving);
  };
  // Beside the VAE, or the UNet, on its device.
  const auto beside = [&](Part part, Part other, uint64_t bytes) {
    return &place[part] == &place[other] ? bytes : 0;
  };
  if (!caches_dropped_) {
    note(*tight(), "dropping what is kept between images");
    drop_caches();
    available.clear();
    caches_dropped_ = true;
    plan = measure(r);
  }
  const uint64_t others =
      std::max(beside(Part::kVae, Part::kText, plan.text), beside(Part::kVae, Part::kUnet, plan.unet));
  if (over(Part::kVae) && plan.vae > others && !components.tiny_vae) {
    const MemoryPlan banded = choose_bands(r, plan);
    if (vae_shape_.bands > 1) note(Part::kVae, concat("the VAE works in ", vae_shape_.bands, " bands"));
    plan = banded;
  }
  const auto shares_device = [&](Part part) {
    return std::ranges::any_of(kParts, [&](Part other) {
      return other != part && &place[other] == &place[part] && residency.weight_bytes(other) > 0;
    });
  };
  const auto crowded =
      std::ranges::find_if(kParts, [&](Part part) { return over(part) && shares_device(part); });
  if (crowded != kParts.end() && !residency.offload()) {
    note(*crowded, "weights wait in host memory (--offload)");
    residency.begin_offload();
    plan = measure(r);
  }
  const auto unet_takes_most = [&] {
    return residency.weight_bytes(Part::kUnet) + plan.unet >=
           beside(Part::kUnet, Part::kVae, residency.weight_bytes(Part::kVae) + plan.vae);
  };
  if (over(Part::kUnet) && !residency.stream() && unet_takes_most()) {
    note(Part::kUnet, "the UNet's weights are streamed from host memory (--stream-weights)");
    begin_stream();
    stream_began_ = true;
    plan = measure(r);
  }
  if (residency.stream()) {  // nothing stays until the rest is settled
    residency.stream()->set_room(0);
    plan = measure(r);
  }
  if (over(Part::kUnet) && unet_takes_most() && shrink_weights()) {
    note(Part::kUnet, "the UNet's weights in 8 bits (--weights int8), which changes the image a little");
    plan = measure(r);
  }
  if (over(Part::kVae) && !components.tiny_vae && residency.offload() && !unet_takes_most()) {
    plan = choose_bands(r, plan);
    if (vae_shape_.bands > 1) note(Part::kVae, concat("the VAE works in ", vae_shape_.bands, " bands"));
  }
  plan = fill_stream(r, plan);
  refused_ = tight() != kParts.end();
  if (!refused_) return plan;
  const DeviceMemory& share = share_of(plan, *tight());
  throw OutOfMemoryError(concat("memory: the image takes ", megabytes(share.total()),
                                " with every saving (weights ", megabytes(share.weights), ", arena ",
                                megabytes(share.arena), ", buffers ", megabytes(share.buffers), "), ",
                                limit_text(place[*tight()]), memory_advice(place[*tight()])));
}

bool Pipeline::State::save_memory(const std::string& reason) {
  const auto note = [&](const std::string& saving) {
    log().warn("out of memory ({}): {}, then once more", reason, saving);
  };
  // Bands make the VAE's stage smaller and no other.
  const bool bands_help = at_work_ == Part::kVae && !components.tiny_vae && vae_shape_.bands < kMaxBands / 2;
  if (!caches_dropped_) {
    note("dropping what is kept between images");
  } else if (bands_help) {
    vae_shape_.bands = vae_shape_.bands == 1 ? 4 : 4 * vae_shape_.bands;
    note(concat("the VAE works in ", vae_shape_.bands, " bands"));
  } else if (!residency.offload()) {
    note("weights wait in host memory (--offload)");
    residency.begin_offload();
  } else if (at_work_ == Part::kUnet && !residency.stream()) {
    note("the UNet's weights are streamed from host memory (--stream-weights)");
    begin_stream();
    stream_fills_ = false;
  } else if (at_work_ == Part::kUnet && stream_fills_) {
    note("none of the UNet's weights stay on the device");
    stream_fills_ = false;
  } else if (at_work_ == Part::kUnet && shrink_weights()) {
    note("the UNet's weights in 8 bits (--weights int8), which changes the image a little");
  } else {
    return false;
  }
  caches_dropped_ = true;
  drop_caches();
  return true;
}

}  // namespace rocm_sd
