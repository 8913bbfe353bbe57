// Which rows of the UNet's calls each request has, and what they read.
#include <algorithm>

#include "pipeline/step_batch_work.hpp"

namespace rocm_sd {

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

}  // namespace rocm_sd
