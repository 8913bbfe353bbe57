#include "pipeline/shift_table.hpp"

#include "kernels/elementwise/elementwise.hpp"

namespace rocm_sd {

ShiftTable::ShiftTable(const UNet& model, Arena& arena, const TimeInputs& inputs)
    : device_(arena.device()),
      current_(make_tensor(arena.device(), {inputs.timestep.dim(0), model.time_channels()},
                           model.compute_dtype())),
      program_(std::make_unique<Program>("time embedding", arena, [&model, inputs, to = current_](Exec& ex) {
        copy_into(ex, model.time_shifts(ex, inputs), to);
      })) {}

void ShiftTable::make_room(int64_t timesteps) {
  if (kept_ && kept_.dim(0) == timesteps) return;
  kept_ = Tensor();
  kept_ = make_tensor(device_, {timesteps, current_.dim(0), current_.dim(1)}, current_.dtype());
}

void ShiftTable::keep(int64_t index) {
  device_.copy_on_device(kept_.narrow(0, index, 1).data(), current_.data(), current_.bytes());
}

void ShiftTable::take(Exec& ex, int64_t index) { copy_into(ex, kept_.narrow(0, index, 1), current_); }

}  // namespace rocm_sd
