#include "server/worker_task.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/worker_request.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

constexpr int kPreviewRest = 49;  // times what a look took, until the next: 2 % of the time at most

}  // namespace

WorkerTask::WorkerTask(FrameSink& sink, const json& head, std::string bytes)
    : sink_(sink), head_(std::make_unique<const json>(head)), bytes_(std::move(bytes)), id_(head.at("id")) {}
WorkerTask::~WorkerTask() = default;

std::string WorkerTask::model() const { return head_->at("model"); }
bool WorkerTask::enlarges() const { return head_->contains("enlargement"); }
bool WorkerTask::draws() const { return !enlarges() || head_->at("enlargement").at("of_drawn").get<bool>(); }
bool WorkerTask::next_round() { return ++round < head_->at("rounds").get<int>(); }

void WorkerTask::read(GenerateRequest begin) {
  request_ = read_order(std::move(begin), *head_, bytes_);
  const std::string preview = head_->at("preview");
  // Whoever asks for partial pictures by number gets pictures.
  if (preview != "none")
    request_.preview.mode = head_->at("partials") > 0 && preview == "proj" ? "vae" : preview;
  std::string().swap(bytes_);
  is_read_ = true;
}

GenerateRequest WorkerTask::request() const {
  GenerateRequest one = request_;
  if (one.seed >= 0) one.seed += int64_t{round} * one.batch;
  if (one.variation_seed >= 0) one.variation_seed += int64_t{round} * one.batch;
  return one;
}

// Progress at most 20 times a second but for a stage's ends, and a sign of life every half second.
Callbacks WorkerTask::callbacks() {
  Callbacks callbacks;
  callbacks.progress = [this](const Progress& p) {
    const auto now = Clock::now();
    if (p.step < p.total && p.stage == stage_ && now - told_ < std::chrono::milliseconds(50)) return true;
    stage_ = p.stage;
    told_ = alive_ = now;
    sink_.send({{"type", "progress"},
                {"id", id_},
                {"stage", p.stage},
                {"step", p.step},
                {"total", p.total},
                {"round", round}});
    return true;
  };
  callbacks.cancelled = [this] {
    if (Clock::now() - alive_ > std::chrono::milliseconds(500)) {
      alive_ = Clock::now();
      sink_.send({{"type", "alive"}});
    }
    return cancel.load(std::memory_order_relaxed) || skip.load(std::memory_order_relaxed);
  };
  if (head_->at("preview") != "none") add_previews(callbacks);
  return callbacks;
}

// Looks at the picture: those of `partials`, at their steps, and one where somebody asked and none was made
// just now.
void WorkerTask::add_previews(Callbacks& callbacks) {
  callbacks.wants_preview = [this, partials = head_->at("partials").get<int>()](int step, int total) {
    preview_begin_ = Clock::now();
    if (is_partial(step, total, partials)) return true;
    return preview_begin_ >= next_preview_ && look.exchange(false);
  };
  callbacks.preview = [this](const Preview& preview) {
    if (preview.image > 0) return;  // the first of the batch stands for all
    const std::vector<uint8_t> file =
        encode_image(preview.picture, format_named(head_->at("format")), {.quality = head_->at("quality")});
    sink_.send({{"type", "preview"},
                {"id", id_},
                {"width", preview.picture.width},
                {"height", preview.picture.height},
                {"step", preview.step},
                {"total", preview.total},
                {"partial", is_partial(preview.step, preview.total, head_->at("partials"))}},
               {reinterpret_cast<const char*>(file.data()), file.size()});
    const auto now = Clock::now();
    next_preview_ = now + kPreviewRest * (now - preview_begin_);
  };
}

void WorkerTask::send_image(const Picture& picture) {
  const bool metadata = head_->at("metadata");
  const std::vector<uint8_t> file =
      encode_image(picture.image, format_named(head_->at("format")),
                   {.quality = head_->at("quality"), .parameters = metadata ? picture.parameters : ""});
  sink_.send({{"type", "image"},
              {"id", id_},
              {"seed", picture.seed},
              {"width", picture.image.width},
              {"height", picture.image.height},
              {"parameters", picture.parameters}},
             {reinterpret_cast<const char*>(file.data()), file.size()});
}

void WorkerTask::send_done() { sink_.send({{"type", "done"}, {"id", id_}, {"warnings", warnings}}); }

}  // namespace rocm_sd::server
