// The time shifts of a UNet, or of a ControlNet's trunk, for every timestep of a schedule.
#pragma once

#include <memory>

#include "models/unet.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

class ShiftTable {
 public:
  // inputs: persistent tensors of `rows` rows. model and arena must outlive the table.
  ShiftTable(const UNet& model, Arena& arena, const TimeInputs& inputs);

  const Tensor& current() const { return current_; }  // [rows,C], persistent
  Program& program() { return *program_; }            // makes current() of what the inputs hold
  uint64_t bytes() const { return current_.bytes() + (kept_ ? kept_.bytes() : 0); }

  void make_room(int64_t timesteps);
  void keep(int64_t index);            // current() as the shifts of this timestep
  void take(Exec& ex, int64_t index);  // them as current()

 private:
  Device& device_;
  Tensor current_, kept_;  // kept_: [timesteps,rows,C]
  std::unique_ptr<Program> program_;
};

}  // namespace rocm_sd
