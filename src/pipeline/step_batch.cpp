#include "pipeline/step_batch.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/choice_record.hpp"
#include "pipeline/step_batch_work.hpp"

namespace rocm_sd {
namespace {

int images_of(const GenerateRequest& q) {
  return static_cast<int>(std::max(
      {static_cast<size_t>(std::max(q.batch, 1)), q.seeds.size(), q.prompts.size(), q.init_images.size()}));
}

// What has rows, maps or passes that a UNet of separate rows does not know.
std::string refused_by_request(const GenerateRequest& q) {
  if (q.detail.active() || q.loopback.loops != 1 || q.hires.active()) return "several passes";
  if (q.mask || q.only_masked || q.outpaint.active()) return "a mask";
  if (!q.controls.empty()) return "ControlNets";
  if (!q.ip_adapters.empty()) return "IP-Adapters";
  if (!q.regions.empty()) return "regions";
  if (q.tile_size > 0) return "tile-size";
  if (q.tiling_x || q.tiling_y) return "tiling";
  if (q.pag_scale != 0 || q.sag_scale != 0) return "pag-scale, sag-scale";
  if (!q.freeu.empty() || !q.freeu_v2.empty()) return "freeu";
  if (q.savings.active()) return "savings";
  if (q.denoising_start || q.denoising_end) return "one image by two models";
  return "";
}

}  // namespace

StepBatch::Run::Run(Work& owner, uint64_t id, GenerateRequest asked, Callbacks watchers)
    : work(owner), request(std::move(asked)), callbacks(std::move(watchers)), fiber([this] {
        const auto loras = work.has_begun() ? Pipeline::State::Loras::kBeside : Pipeline::State::Loras::kOwn;
        const PreparedRequest r = work.state.prepare(request, this, loras);
        prepared = &r;
        Callbacks watch = callbacks;
        watch.planned = [this](const MemoryPlan& plan) {
          work.note_plan(*this, plan);
          if (callbacks.planned) callbacks.planned(plan);
        };
        result.drawn = work.state.draw(r, watch);
      }) {
  result.id = id;
}

void StepBatch::Run::begin(const PreparedRequest& r, const TextStates& text,
                           std::vector<std::vector<float>> condition_sizes) {
  work.common_tokens(text.states.dim(1));
  states = &text;
  sizes = std::move(condition_sizes);
  count = int64_t{r.conditions} * r.request.batch;
  for (const NoiseLevel& level : r.sampling.schedule.levels)
    if (level.sigma > 0) timesteps_.push_back(level.timestep);
  std::vector<float> values;
  for (const double t : timesteps_)
    values.insert(values.end(), static_cast<size_t>(count), static_cast<float>(t));
  times_ = tensor_from(*work.state.components.device, {static_cast<int64_t>(timesteps_.size()), count},
                       values.data());
}

Tensor StepBatch::Run::times_of(double timestep) const {
  const auto found = std::find(timesteps_.begin(), timesteps_.end(), timestep);
  if (found != timesteps_.end()) return times_.narrow(0, found - timesteps_.begin(), 1).reshape({count});
  const std::vector<float> values(static_cast<size_t>(count), static_cast<float>(timestep));
  return tensor_from(*work.state.components.device, {count}, values.data());
}

Tensor StepBatch::Run::call(const Tensor& scaled_input, double timestep, const std::vector<int64_t>& wanted) {
  input = scaled_input;
  times = times_of(timestep);
  prompts = wanted;
  fiber.suspend();
  input = times = Tensor();
  if (failure) std::rethrow_exception(failure);
  require<CancelledError>(!is_cancelled(), "cancelled");
  return std::exchange(output, Tensor());
}

int64_t StepBatch::Run::text_of(int64_t row) const {
  const int64_t batch = prepared->request.batch;
  const auto images = static_cast<int64_t>(prompts.size()) / prepared->conditions;
  return prompts[static_cast<size_t>(row / batch * images + row % batch % images)];
}

std::vector<float> StepBatch::Run::strengths_of(int64_t row) const {
  const auto& images = prepared->strengths.unet;
  std::vector<float> out = images[static_cast<size_t>(row % prepared->request.batch) % images.size()];
  out.resize(work.state.components.runtime_adapters.size());
  return out;
}

void StepBatch::Run::go_on() { fiber.resume(); }

std::string StepBatch::Work::refusal(const GenerateRequest& q) const {
  const Components& c = state.components;
  if (!state.draws_alone()) return "several devices draw one image";
  if (c.place.several()) return "parts on devices of their own";
  if (state.residency.offload()) return "weights wait in host memory";
  if (state.residency.stream()) return "streamed weights";
  if (c.unet->config().in_channels != 4) return "a model with other inputs than latents";
  if (images_of(q) > most) return "more images than a batch has";
  return refused_by_request(q);
}

StepBatch::Work::Sides StepBatch::Work::sides(const GenerateRequest& r) const {
  const Image* image = r.init_image            ? &*r.init_image
                       : r.init_images.empty() ? nullptr
                                               : &r.init_images.front();
  const ModelInfo& info = state.components.info;
  return {r.width > 0 ? r.width
          : image     ? image->width
                      : info.default_width,
          r.height > 0 ? r.height
          : image      ? image->height
                       : info.default_height};
}

// A step's plan grows with its rows. What the text and the VAE take is for one image at a time.
void StepBatch::Work::note_plan(const Run& run, const MemoryPlan& plan) {
  const auto rows = static_cast<double>(run.prepared->conditions * run.prepared->request.batch);
  rooms_[sides(run.request)] = {.available = state.available_memory(*state.components.device),
                                .weights = plan.weights,
                                .others = std::max(plan.text, plan.vae),
                                .arena_of_row = static_cast<double>(plan.unet) / rows,
                                .buffers_of_row = static_cast<double>(plan.buffers) / rows,
                                .rows_of_image = run.prepared->conditions};
}

// Before a plan has been made for the size, one request at a time, but where memory has no end.
int StepBatch::Work::limit() const {
  if (runs.empty() ||
      state.available_memory(*state.components.device) == std::numeric_limits<uint64_t>::max())
    return most;
  const auto known = rooms_.find(sides(runs.front()->request));
  return known == rooms_.end() ? 1 : known->second.images(most);
}

bool StepBatch::Work::fits(const GenerateRequest& q) const {
  if (runs.empty()) return true;
  if (images() + images_of(q) > limit() || sides(q) != sides(runs.front()->request)) return false;
  try {
    return state.merges_alike(q, runs.front()->request);
  } catch (const Error&) {
    return true;  // it says so when it begins, and no weight is touched
  }
}

int StepBatch::Work::images() const {
  int out = 0;
  for (const auto& run : runs) out += images_of(run->request);
  return out;
}

// Chunks are repeated to a common number; a few short texts are not to pay for a very long one.
int64_t StepBatch::Work::common_tokens(int64_t own) const {
  int64_t common = own, most_own = own;
  for (const auto& run : runs) {
    if (!run->states) continue;
    common = std::lcm(common, run->tokens());
    most_own = std::max(most_own, run->tokens());
  }
  if (common > 2 * most_own) throw DrawsAlone{"a text of another length than the others'"};
  return common;
}

void StepBatch::Work::go_on(Run& run) {
  try {
    run.go_on();
  } catch (const NotFinite& found) {
    run.result.alone = concat("the ", found.model, " gave values that are not finite");
  } catch (const DrawsAlone& alone) {
    run.result.alone = alone.why;
  } catch (const OutOfMemoryError& e) {
    run.result.alone = e.what();
  } catch (...) {
    run.result.error = std::current_exception();
  }
}

void StepBatch::Work::finish(Result result, const ChoiceRecord& record, const Ended& ended) {
  state.choices.add(record);
  if (result.drawn) {
    result.drawn->kernel_choices = state.choices.hash();
    result.drawn->kernel_code = state.choices.code(*state.components.device);
  }
  ended(std::move(result));
}

void StepBatch::Work::step(const Ended& ended) {
  const ChoiceRecord record;
  begin();
  std::vector<std::unique_ptr<Run>> over;
  for (std::unique_ptr<Run>& run : runs)
    if (!run->waits()) over.push_back(std::move(run));
  std::erase(runs, nullptr);
  for (const auto& run : over) finish(std::move(run->result), record, ended);
  if (!runs.empty() && !runs.front()->computes_alone()) call_unet();
  for (Result& result : std::exchange(shed_, {})) finish(std::move(result), record, ended);
  for (size_t i = 0; i < runs.size();) {
    go_on(*runs[i]);
    if (runs[i]->waits()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Run> run = std::move(runs[i]);
    runs.erase(runs.begin() + static_cast<ptrdiff_t>(i));
    finish(std::move(run->result), record, ended);
  }
  state.choices.add(record);
}

// One that has no company is drawn as it is by itself, by the same stage and to the same bits. When others
// come, it shares its further calls, before they change anything that its own stage knows.
void StepBatch::Work::begin() {
  if (runs.size() == 1 && !runs.front()->waits()) runs.front()->company = false;
  if (runs.size() > 1)
    for (const auto& run : runs) run->company = true;
  for (size_t i = 0; i < runs.size(); ++i)
    if (!runs[i]->waits()) go_on(*runs[i]);
}

void StepBatch::Work::call_unet() {
  std::exception_ptr failure;
  try {
    while (!runs.empty() && !try_call()) shed(memory_short_);
  } catch (const CancelledError&) {  // all are: each finds out by itself
  } catch (...) {
    failure = std::current_exception();
  }
  for (const auto& run : runs) run->failure = failure;
}

bool StepBatch::Work::try_call() {
  try {
    state.ready(Part::kUnet);
    RowStage& stage = place();
    Exec ex(state.scratch);
    for (const auto& run : runs) {
      const int64_t left_out = run->count - run->input.dim(0);
      stage.set_input(ex, run->first + left_out, run->input,
                      run->times.narrow(0, left_out, run->input.dim(0)));
    }
    const CancelCheck all_cancelled = [&] {
      bool all = true;
      for (const auto& run : runs) all = run->is_cancelled() && all;
      return all;
    };
    stage.run(last_row(), {state.profiler.get(), &all_cancelled});
    for (const auto& run : runs) {
      const int64_t left_out = run->count - run->input.dim(0);
      run->output = stage.output(run->first + left_out, run->input.dim(0));
    }
  } catch (const OutOfMemoryError& e) {
    memory_short_ = e.what();
    return false;
  }
  throttle_.step();
  return true;
}

// The youngest run leaves, and no more join than are left.
void StepBatch::Work::shed(const std::string& why) {
  Run& youngest = *runs.back();
  state.row_unet.reset();
  state.unet.reset();
  state.arenas.release();
  youngest.failure = std::make_exception_ptr(DrawsAlone{why});
  most = std::max(1, images() - images_of(youngest.request));
  log().warn("out of memory ({}): at most {} images share the UNet's calls from now on", why, most);
  go_on(youngest);
  shed_.push_back(std::move(youngest.result));
  runs.pop_back();
}

StepBatch::StepBatch(Pipeline& pipeline, int most) : work_(std::make_unique<Work>(*pipeline.state_, most)) {}
StepBatch::~StepBatch() = default;

std::string StepBatch::refusal(const GenerateRequest& request) const { return work_->refusal(request); }
bool StepBatch::fits(const GenerateRequest& request) const { return work_->fits(request); }
bool StepBatch::empty() const { return work_->runs.empty(); }
int StepBatch::images() const { return work_->images(); }
int StepBatch::limit() const { return work_->limit(); }
void StepBatch::step(const std::function<void(Result)>& ended) { work_->step(ended); }
std::vector<StepBatch::Result> StepBatch::step() {
  std::vector<Result> out;
  work_->step([&](Result result) { out.push_back(std::move(result)); });
  return out;
}

void StepBatch::add(uint64_t id, GenerateRequest request, Callbacks callbacks) {
  work_->runs.push_back(std::make_unique<Run>(*work_, id, std::move(request), std::move(callbacks)));
}

}  // namespace rocm_sd
