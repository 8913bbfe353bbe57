// Times of problems that the time model made of the shipped kernels: share/times/<card>.json, written by
// tools/report/model_times.py from `rocm-sd bench` on emulated devices (docs/explanation/time-model.md) and
// read here, so that a prediction runs no kernel. Modelled, never measured.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "analysis/predict.hpp"
#include "base/gpu_products.hpp"

namespace rocm_sd {

struct ModelledTimes {
  std::string card, target;  // "RX 7800 XT"; the target whose code was played
  // How far the model was off AMD's published times, as a median of |modelled / published - 1|; 0: unknown.
  double error = 0;
  // "linear 8192x320x320 f16 bias": microseconds of all its launches, with the gaps before them.
  std::map<std::string, double, std::less<>> microseconds;
};

// Throws FormatError naming the file and the field, FileError where it cannot be read.
ModelledTimes read_modelled_times(const std::filesystem::path& path);

// Of the card of this name; nothing where none were modelled.
std::optional<ModelledTimes> modelled_times_for(const GpuProduct& gpu);

// What a stage's ops take by these times, milliseconds of one run; both linear ops as "linear". Empty where
// too little of the bound's time of attention, convolutions and linear layers is known. Problems that the
// table lacks have their bound and the gap before each launch.
std::map<std::string, double> modelled_by_op(const PlannedStage& stage, const StageBound& bound,
                                             const ModelledTimes& times);

// The name that choices have of an op of a plan: "linear" of "linear_geglu".
std::string chosen_as(const std::string& op);

}  // namespace rocm_sd
