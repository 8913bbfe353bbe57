// What step_batch.hpp works with: the requests at work, and their rows in the UNet's calls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fiber.hpp"
#include "kernels/choice_record.hpp"
#include "pipeline/batch_room.hpp"
#include "pipeline/shared_unet.hpp"
#include "pipeline/state.hpp"
#include "pipeline/step_batch.hpp"
#include "pipeline/step_throttle.hpp"

namespace rocm_sd {

// Thrown in a run that cannot go on with the others.
struct DrawsAlone {
  std::string why;
};

// One request: a fiber that runs the pipeline's usual drawing and stops in each call of the UNet.
class StepBatch::Run final : public SharedUnet {
 public:
  Run(Work& work, uint64_t id, GenerateRequest request, Callbacks callbacks);

  bool has_company() const override { return company; }
  void begin(const PreparedRequest& r, const TextStates& states,
             std::vector<std::vector<float>> sizes) override;
  Tensor call(const Tensor& scaled_input, double timestep, const std::vector<int64_t>& prompts) override;

  void go_on();  // until the next call, or the end
  bool waits() const { return input && !fiber.done(); }
  bool computes_alone() const { return !company; }
  bool is_cancelled() { return cancelled = cancelled || (callbacks.cancelled && callbacks.cancelled()); }
  int64_t tokens() const { return states->states.dim(1); }
  int64_t text_of(int64_t row) const;                  // the one that it wants
  std::vector<float> strengths_of(int64_t row) const;  // of run-time LoRAs

  Work& work;
  const GenerateRequest request;
  const Callbacks callbacks;
  bool cancelled = false;
  bool company = true;  // others share, or have shared, its calls
  Result result;
  const PreparedRequest* prepared = nullptr;  // these are the fiber's, from begin() on
  const TextStates* states = nullptr;
  std::vector<std::vector<float>> sizes;  // [conditions]
  int64_t first = -1, count = 0;          // its rows: all images of the first condition, then of the next
  std::vector<int64_t> texts;             // that the rows have
  // Of the call that it waits for:
  Tensor input, times;  // without the first condition's rows where the request leaves them out
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

  int limit() const;  // of images at once, of the size at work
  std::string refusal(const GenerateRequest& q) const;
  bool fits(const GenerateRequest& q) const;
  int images() const;
  using Ended = std::function<void(Result)>;
  void step(const Ended& ended);
  // Tokens of rows for a text of so many; throws DrawsAlone where they are too many.
  int64_t common_tokens(int64_t own) const;
  bool has_begun() const {
    return std::ranges::any_of(runs, [](const auto& run) { return run->prepared != nullptr; });
  }

  Pipeline::State& state;
  int most;
  std::vector<std::unique_ptr<Run>> runs;  // in the order of joining

 private:
  friend class Run;
  using Sides = std::pair<int, int>;
  Sides sides(const GenerateRequest& q) const;
  void note_plan(const Run& run, const MemoryPlan& plan);
  void begin();
  void go_on(Run& run);
  void call_unet();
  bool try_call();  // false: memory is short
  void shed(const std::string& why);
  RowStage& place();
  int64_t free_rows(int64_t count, int64_t end) const;
  int64_t last_row() const;
  void close_gaps(RowStage& stage);
  void set_texts(RowStage& stage);
  void finish(Result result, const ChoiceRecord& record, const Ended& ended);

  StepThrottle throttle_;
  std::map<Sides, BatchRoom> rooms_;  // of sizes that were planned
  std::string memory_short_;
  std::vector<Result> shed_;
};

}  // namespace rocm_sd
