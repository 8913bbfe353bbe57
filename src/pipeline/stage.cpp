#include "pipeline/stage.hpp"

#include <algorithm>

#include "kernels/step/step.hpp"

namespace rocm_sd {

size_t Stage::plan() {
  size_t most = 0;
  for (Program* program : programs()) {
    if (!program->planned()) program->plan();
    most = std::max(most, program->arena_bytes());
  }
  return most;
}

bool Stage::planned() {
  const std::vector<Program*> all = programs();
  return std::all_of(all.begin(), all.end(), [](const Program* p) { return p->planned(); });
}

void Stage::replan() {
  for (Program* program : programs()) program->plan();
}

Exec Stage::eager(const RunWatch& watch) const {
  Exec ex(arena_);
  ex.profiler = watch.profiler;
  ex.cancel = watch.cancel;
  return ex;
}

void Stage::require_finite(Exec& ex, const char* model, std::initializer_list<const Tensor*> tensors) const {
  NotFinite found{.model = model};
  for (const Tensor* tensor : tensors) {
    if (!*tensor) continue;
    found.count += nonfinite_values(ex, *tensor);
    found.of += tensor->numel();
  }
  if (found.count > 0) throw found;
}

int64_t nonfinite_values(Exec& ex, const Tensor& x) {
  const Tensor count = count_nonfinite(ex, x);
  int64_t out = 0;
  ex.device().copy_to_host(&out, count.data(), sizeof out);
  return out;
}

std::unique_ptr<PendingRead> nonfinite_values_later(Exec& ex, const Tensor& x) {
  return ex.device().read_later(count_nonfinite(ex, x).data(), sizeof(int64_t));
}

uint64_t bytes_of(std::initializer_list<const Tensor*> tensors) {
  uint64_t bytes = 0;
  for (const Tensor* tensor : tensors) bytes += *tensor ? tensor->bytes() : 0;
  return bytes;
}

}  // namespace rocm_sd
