// Tuning between pictures: a share of the time for the shapes that the pictures had.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/choice_record.hpp"
#include "tuning/journal.hpp"

namespace rocm_sd::cli {

// Lives while pictures are made, on the thread that makes them: it notes the problems that their plans meet.
class BackgroundTuning {
 public:
  // device: as --device names it. seconds: after each picture. Throws FileError where the user's table cannot
  // be written.
  BackgroundTuning(const std::string& device, double seconds, std::function<bool()> cancelled);

  // After a picture. Failures are warned of, and are its last.
  void spend();

 private:
  Device& device_;
  double seconds_;
  std::function<bool()> cancelled_;
  std::unique_ptr<tuning::Journal> journal_;  // null: nothing left to do, or it failed
  ChoiceRecord record_;
  size_t nothing_new_ = 0;  // choices that were there when nothing was left to do
};

}  // namespace rocm_sd::cli
