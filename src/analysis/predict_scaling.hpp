// A model of one picture, or many, on several GPUs of a kind that need not be here: what each rank computes
// (rank_plan.hpp) at the rates that predict.hpp knows, and what passes between them at the figures of a link
// (link.hpp). Nothing was run: docs/explanation/scaling-model.md says what is assumed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/link.hpp"
#include "analysis/predict.hpp"
#include "runtime/ranks.hpp"

namespace rocm_sd {

// By way of host memory, as the engine does, or by copies into the peer's memory that kernels' graphs hold.
enum class MessageWay : uint8_t { kHost, kPeer };

// Times that were measured on one such GPU at the model's own size, one picture. half_step_ms: of a step
// without guidance, which has half of the work and fills the GPU less well; 0: as if it took its bound's
// share. A rank's share of still less work is taken to lose as much again with each halving.
struct OneGpuTimes {
  double step_ms = 0, decode_ms = 0, half_step_ms = 0;
};

struct ScalingSetup {
  int gpus = 2;
  Link link;
  MessageWay way = MessageWay::kHost;
  std::string split = "images";           // for reports
  std::optional<Division> division = {};  // nothing: every GPU draws pictures of its own
  std::optional<int> exact_calls = {};    // of displaced rows
  std::optional<OneGpuTimes> measured = {};
};

struct RankPrediction {
  int64_t rows = 0;                   // of the latents
  double step_ms = 0, decode_ms = 0;  // computing
  uint64_t bytes = 0, messages = 0;   // sent, a request
  uint64_t weight_bytes = 0, arena_bytes = 0;
};

struct ScalingPrediction {
  GpuProduct gpu;
  std::string model, dtype, basis;  // "bound", "time model of RX 7900 XTX", "measured"
  PictureShape shape;
  int steps = 0;
  ScalingSetup setup;
  int ranks = 1;                     // that draw a request together; setup.gpus / ranks requests at a time
  double one_ms = 0;                 // a request on one GPU
  double request_ms = 0;             // on `ranks`
  double compute_ms = 0;             // of it
  double transfer_ms = 0;            // the rest: what computing does not hide
  double speedup = 0;                // of a request
  double throughput = 0;             // pictures a second of all GPUs
  double scaling = 0;                // throughput against one GPU's
  double efficiency = 0;             // scaling / gpus
  uint64_t bytes = 0, messages = 0;  // sent by all ranks, a request
  uint64_t step_bytes = 0, step_messages = 0;  // of one call of the UNet
  std::vector<RankPrediction> each;
  uint64_t peak_bytes = 0, one_peak_bytes = 0;  // of the fullest GPU: weights and the largest arena
  bool fits = true;
};

// Throws what predict() throws, and UsageError where the picture or the GPUs cannot be divided so.
ScalingPrediction predict_scaling(const GpuProduct& gpu, const KnownModel& model, const PictureShape& shape,
                                  int steps, DType dtype, const ScalingSetup& setup);

nlohmann::ordered_json scaling_json(const ScalingPrediction& p);
std::string scaling_text(const ScalingPrediction& p);

}  // namespace rocm_sd
