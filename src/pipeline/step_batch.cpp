#include "pipeline/step_batch.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/fiber.hpp"
#include "base/log.hpp"
#include "kernels/choice_record.hpp"
#include "pipeline/shared_unet.hpp"
#include "pipeline/state.hpp"
#include "pipeline/step_throttle.hpp"

namespace rocm_sd {
namespace {

// Thrown in a run that cannot go on with the others.
struct DrawsAlone {
  std::string why;
};

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

// One request: a fiber that runs the pipeline's usual drawing and stops in each call of the UNet.
class StepBatch::Run final : public SharedUnet {
 public:
  Run(Work& work, uint64_t id, GenerateRequest request, Callbacks callbacks);

  void begin(const PreparedRequest& r, const TextStates& states,
             std::vector<std::vector<float>> sizes) override;
  Tensor call(const Tensor& scaled_input, double timestep, const std::vector<int64_t>& prompts) override;

  void go_on();  // until the next call, or the end
  bool waits() const { return input && !fiber.done(); }
  bool is_cancelled() { return cancelled = cancelled || (callbacks.cancelled && callbacks.cancelled()); }
  int64_t tokens() const { return states->states.dim(1); }
  int64_t text_of(int64_t row) const;                  // the one that it wants
  std::vector<float> strengths_of(int64_t row) const;  // of run-time LoRAs

  Work& work;
  const GenerateRequest request;
  const Callbacks callbacks;
  bool cancelled = false;
  Result result;
  const PreparedRequest* prepared = nullptr;  // these are the fiber's, from begin() on
  const TextStates* states = nullptr;
  std::vector<std::vector<float>> sizes;  // [conditions]
  int64_t first = -1, count = 0;          // its rows: all images of the first condition, then of the next
  std::vector<int64_t> texts;             // that the rows have
  // Of the call that it waits for:
  Tensor input, times;
  std::vector<int64_t> prompts;
  Tensor output;
  std::exception_ptr failure;

 private:
  Tensor times_of(double timestep) const;

  std::vector<double> timesteps_;  // of the schedule
  Tensor times_;                   // [timesteps,rows]: of the schedule, on the device
  Fiber fiber;
};

class StepBatch::Work {
 public:
  Work(Pipeline::State& state, int most) : state(state), most(most), throttle_(*state.components.device) {}

  std::string refusal(const GenerateRequest& q) const;
  bool fits(const GenerateRequest& q) const;
  int images() const;
  std::vector<Result> step();
  // Tokens of rows for a text of so many; throws DrawsAlone where they are too many.
  int64_t common_tokens(int64_t own) const;
  bool has_begun() const {
    return std::ranges::any_of(runs, [](const auto& run) { return run->prepared != nullptr; });
  }

  Pipeline::State& state;
  int most;
  std::vector<std::unique_ptr<Run>> runs;  // in the order of joining

 private:
  void go_on(Run& run);
  void call_unet();
  bool try_call();  // false: memory is short
  void shed(const std::string& why);
  RowStage& place();
  int64_t free_rows(int64_t count, int64_t end) const;
  int64_t last_row() const;
  void close_gaps(RowStage& stage);
  void set_texts(RowStage& stage);
  void collect(std::vector<Result>& out);

  StepThrottle throttle_;
  std::string memory_short_;
  std::vector<Result> shed_;
};

StepBatch::Run::Run(Work& owner, uint64_t id, GenerateRequest asked, Callbacks watchers)
    : work(owner), request(std::move(asked)), callbacks(std::move(watchers)), fiber([this] {
        const auto loras = work.has_begun() ? Pipeline::State::Loras::kBeside : Pipeline::State::Loras::kOwn;
        const PreparedRequest r = work.state.prepare(request, this, loras);
        result.drawn = work.state.draw(r, callbacks);
      }) {
  result.id = id;
}

void StepBatch::Run::begin(const PreparedRequest& r, const TextStates& text,
                           std::vector<std::vector<float>> condition_sizes) {
  work.common_tokens(text.states.dim(1));
  prepared = &r;
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
  if (state.vram_budget_ > 0) return "a memory budget";
  if (c.unet->config().in_channels != 4) return "a model with other inputs than latents";
  if (images_of(q) > most) return "more images than a batch has";
  return refused_by_request(q);
}

bool StepBatch::Work::fits(const GenerateRequest& q) const {
  if (runs.empty()) return true;
  const auto sides = [&](const GenerateRequest& r) {
    const Image* image = r.init_image            ? &*r.init_image
                         : r.init_images.empty() ? nullptr
                                                 : &r.init_images.front();
    const ModelInfo& info = state.components.info;
    return std::pair{r.width > 0 ? r.width
                     : image     ? image->width
                                 : info.default_width,
                     r.height > 0 ? r.height
                     : image      ? image->height
                                  : info.default_height};
  };
  if (images() + images_of(q) > most || sides(q) != sides(runs.front()->request)) return false;
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

// A run that has ended keeps its result until collect().
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

void StepBatch::Work::collect(std::vector<Result>& out) {
  std::ranges::move(std::exchange(shed_, {}), std::back_inserter(out));
  std::erase_if(runs, [&](const std::unique_ptr<Run>& run) {
    if (run->waits()) return false;
    if (run->result.drawn) {
      run->result.drawn->kernel_choices = state.choices.hash();
      run->result.drawn->kernel_code = state.choices.code(*state.components.device);
    }
    out.push_back(std::move(run->result));
    return true;
  });
}

std::vector<StepBatch::Result> StepBatch::Work::step() {
  const ChoiceRecord record;
  for (size_t i = 0; i < runs.size(); ++i)
    if (!runs[i]->waits()) go_on(*runs[i]);
  std::vector<Result> out;
  collect(out);
  if (!runs.empty()) call_unet();
  for (size_t i = 0; i < runs.size(); ++i) go_on(*runs[i]);
  state.choices.add(record);
  collect(out);
  return out;
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
    for (const auto& run : runs) stage.set_input(ex, run->first, run->input, run->times);
    const CancelCheck all_cancelled = [&] {
      bool all = true;
      for (const auto& run : runs) all = run->is_cancelled() && all;
      return all;
    };
    stage.run(last_row(), {state.profiler.get(), &all_cancelled});
    for (const auto& run : runs) run->output = stage.output(run->first, run->count);
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
  state.arenas.release();
  youngest.failure = std::make_exception_ptr(DrawsAlone{why});
  most = std::max(1, images() - images_of(youngest.request));
  log().warn("out of memory ({}): at most {} images share the UNet's calls from now on", why, most);
  go_on(youngest);
  shed_.push_back(std::move(youngest.result));
  runs.pop_back();
}

int64_t StepBatch::Work::last_row() const {
  int64_t end = 0;
  for (const auto& run : runs) end = std::max(end, run->first + run->count);
  return end;
}

// The first of `count` rows below `end` that nobody has, or -1.
int64_t StepBatch::Work::free_rows(int64_t count, int64_t end) const {
  for (int64_t first = 0; first + count <= end; ++first)
    if (std::ranges::none_of(runs, [&](const auto& run) {
          return run->first >= 0 && run->first < first + count && first < run->first + run->count;
        }))
      return first;
  return -1;
}

// The stage with a place for every run, and its texts there.
RowStage& StepBatch::Work::place() {
  int64_t rows = 1, wanted = 0, tokens = common_tokens(runs.front()->tokens());
  for (const auto& run : runs) wanted += run->count;
  while (rows < wanted) rows *= 2;
  const PreparedRequest& r = *runs.front()->prepared;
  const auto is_placed = [](const auto& run) { return run->first >= 0; };
  const RowStage* now = state.row_unet.get();
  if (now && (now->shape().height != r.latent_height || now->shape().width != r.latent_width)) now = nullptr;
  // What is there serves while somebody has rows of it, or where it is just what is needed.
  const bool joins = now && std::ranges::any_of(runs, is_placed) && now->shape().tokens % tokens == 0;
  if (joins) tokens = now->shape().tokens;
  if (now) rows = std::max(rows, now->shape().rows);
  for (;; rows *= 2) {
    const RowShape shape{rows, r.latent_height, r.latent_width, tokens};
    if (!now || now->shape() != shape)
      for (const auto& run : runs) run->first = -1;
    RowStage& stage = state.make_row_stage(shape);
    now = &stage;
    for (const auto& run : runs) {
      if (run->first >= 0) continue;
      run->texts.clear();
      run->first = free_rows(run->count, rows);
    }
    if (!std::ranges::all_of(runs, is_placed)) continue;
    close_gaps(stage);
    set_texts(stage);
    return stage;
  }
}

// The last ones move to the front where a smaller program is enough for all then.
void StepBatch::Work::close_gaps(RowStage& stage) {
  int64_t used = 0;
  for (const auto& run : runs) used += run->count;
  while (padded_rows(used) < padded_rows(last_row())) {
    Run& last = **std::ranges::max_element(runs, {}, [](const auto& run) { return run->first; });
    const int64_t to = free_rows(last.count, last.first);
    if (to < 0) return;
    for (int64_t row = 0; !last.texts.empty() && row < last.count; ++row)
      stage.copy_row(last.first + row, to + row);
    last.first = to;
  }
}

void StepBatch::Work::set_texts(RowStage& stage) {
  std::vector<std::vector<float>> strengths(static_cast<size_t>(stage.shape().rows));
  for (const auto& run : runs) {
    const bool is_new = run->texts.empty();
    run->texts.resize(static_cast<size_t>(run->count), -1);
    for (int64_t row = 0; row < run->count; ++row) {
      if (is_new) stage.set_guidance(run->first + row, run->prepared->request.cfg_scale);
      strengths[static_cast<size_t>(run->first + row)] = run->strengths_of(row);
      int64_t& has = run->texts[static_cast<size_t>(row)];
      if (has == run->text_of(row)) continue;
      has = run->text_of(row);
      stage.set_text(run->first + row, *run->states, has,
                     run->sizes[static_cast<size_t>(row / run->prepared->request.batch)],
                     run->strengths_of(row), {state.profiler.get(), nullptr});
    }
  }
  const size_t adapters = state.components.runtime_adapters.size();
  for (std::vector<float>& row : strengths) row.resize(adapters);
  stage.set_strengths(std::move(strengths));
}

StepBatch::StepBatch(Pipeline& pipeline, int most) : work_(std::make_unique<Work>(*pipeline.state_, most)) {}
StepBatch::~StepBatch() = default;

std::string StepBatch::refusal(const GenerateRequest& request) const { return work_->refusal(request); }
bool StepBatch::fits(const GenerateRequest& request) const { return work_->fits(request); }
bool StepBatch::empty() const { return work_->runs.empty(); }
int StepBatch::images() const { return work_->images(); }
std::vector<StepBatch::Result> StepBatch::step() { return work_->step(); }

void StepBatch::add(uint64_t id, GenerateRequest request, Callbacks callbacks) {
  work_->runs.push_back(std::make_unique<Run>(*work_, id, std::move(request), std::move(callbacks)));
}

}  // namespace rocm_sd
