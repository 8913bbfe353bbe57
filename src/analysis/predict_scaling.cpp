#include "analysis/predict_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "analysis/modelled_time.hpp"
#include "analysis/modelled_times.hpp"
#include "analysis/paper_gpu.hpp"
#include "analysis/rank_plan.hpp"
#include "base/error.hpp"
#include "tuning/choices.hpp"

namespace rocm_sd {
namespace {

constexpr double kLaunchMs = kLaunchSeconds * 1e3;

// How much longer than its bound a kernel takes, by stage and op; a gap before each launch beside it.
struct Rates {
  std::string basis = "bound";
  double gap_ms = 0;
  std::map<std::string, std::map<std::string, double>> over_bound;  // 1 where nothing stands

  double of(const std::string& stage, const std::string& op) const {
    const auto ops = over_bound.find(stage);
    if (ops == over_bound.end()) return 1;
    const auto found = ops->second.find(chosen_as(op));
    const auto all = ops->second.find("");
    return found != ops->second.end() ? found->second : all != ops->second.end() ? all->second : 1;
  }
};

// The card's times, or those of another one with the same processor.
std::optional<ModelledTimes> times_like(const GpuProduct& gpu) {
  if (auto own = modelled_times_for(gpu)) return own;
  for (const GpuProduct& other : gpu_products())
    if (other.arch == gpu.arch && other.compute_units == gpu.compute_units)
      if (auto times = modelled_times_for(other)) return times;
  return std::nullopt;
}

class Scaling {
 public:
  Scaling(const GpuProduct& gpu, const KnownModel& model, const PictureShape& shape, int steps, DType dtype,
          const ScalingSetup& setup)
      : gpu_(gpu), model_(model), shape_(shape), steps_(steps), dtype_(dtype), setup_(setup) {
    GpuProduct roomy = gpu;  // as predict()
    roomy.memory_gb = std::max(roomy.memory_gb, 1024.0);
    device_ = make_paper_gpu(roomy);
    counts_ = kernel_counts_for(gpu).value_or(KernelCounts{});
    find_rates();
  }

  ScalingPrediction predict() {
    ScalingPrediction out{.gpu = gpu_,
                          .model = model_.name,
                          .dtype = concat(dtype_),
                          .basis = rates_.basis,
                          .shape = shape_,
                          .steps = steps_,
                          .setup = setup_};
    const std::vector<PlannedStage> whole = plan_model(*device_, model_, shape_, steps_, dtype_);
    out.one_ms = picture_ms(whole, false);
    out.one_peak_bytes = out.peak_bytes = peak(whole);
    out.request_ms = out.compute_ms = out.one_ms;
    if (setup_.division && setup_.gpus > 1) divide(out);
    const int groups = setup_.gpus / out.ranks;
    out.transfer_ms = out.request_ms - out.compute_ms;
    out.speedup = out.one_ms / out.request_ms;
    out.throughput = static_cast<double>(groups * shape_.batch) / out.request_ms * 1e3;
    out.scaling = groups * out.speedup;
    out.efficiency = out.scaling / setup_.gpus;
    out.fits = static_cast<double>(out.peak_bytes) <= gpu_.memory_gb * (1 << 30);
    return out;
  }

 private:
  void find_rates() {
    const PictureShape own{.height = model_.side, .width = model_.side};
    const std::optional<ModelledTimes> times =
        dtype_ == DType::kF16 && !setup_.measured ? times_like(gpu_) : std::nullopt;
    if (!times && !setup_.measured) return;
    for (const PlannedStage& stage : plan_model(*device_, model_, own, 1, dtype_)) {
      const StageBound bound = bound_stage(gpu_, stage, dtype_, counts_);
      std::map<std::string, double>& ratios = rates_.over_bound[stage.name];
      if (setup_.measured) {
        if (stage.name == "unet") {
          ratios[""] = setup_.measured->step_ms / bound.bound_ms;
          own_step_bound_ms_ = bound.bound_ms;
        }
        if (stage.name == "vae") ratios[""] = setup_.measured->decode_ms / bound.bound_ms;
        continue;
      }
      std::map<std::string, double> bounds, launches;
      for (const OpBound& op : bound.ops) {
        bounds[chosen_as(op.op)] += op.bound_ms;
        launches[chosen_as(op.op)] += op.launches;
      }
      // An op whose launches the time model played in less than their gaps keeps its bound.
      for (const auto& [op, ms] : modelled_by_op(stage, bound, *times))
        if (bounds[op] > 0) ratios[op] = std::max(1.0, (ms - launches[op] * kLaunchMs) / bounds[op]);
    }
    if (setup_.measured && setup_.measured->half_step_ms > 0) {
      PictureShape half = own;
      half.guidance = false;
      for (const PlannedStage& stage : plan_model(*device_, model_, half, 1, dtype_))
        if (stage.name == "unet") half_step_bound_ms_ = bound_stage(gpu_, stage, dtype_, counts_).bound_ms;
    }
    rates_.basis = setup_.measured ? "measured" : concat("time model of ", times->card);
    if (times) rates_.gap_ms = kLaunchMs;
  }

  // One run. alone: a GPU's graph cannot hold messages that pass through the host, so that every launch is
  // the host's.
  double stage_ms(const PlannedStage& stage, bool launched_singly) const {
    double sum = 0, bound = 0;
    for (const OpBound& op : bound_stage(gpu_, stage, dtype_, counts_).ops) {
      if (op.op == "exchange rows" || op.op == "gather pixels" || op.op == "gather moments" ||
          op.op == "exchange moments and rows" || op.op == "gather parts of a sum")
        continue;
      const double gaps = op.launches * rates_.gap_ms;
      const double ms = op.bound_ms * rates_.of(stage.name, op.op) + gaps;
      sum += launched_singly ? std::max(ms, op.launches * kLaunchMs) : ms;
      bound += op.bound_ms;
    }
    return stage.name == "unet" ? sum * loss_of_little_work(bound) : sum;
  }

  // How much longer than by its bound a step of less work than the measured one takes: what the measured half
  // loses, and as much again with each further halving.
  double loss_of_little_work(double bound_ms) const {
    if (half_step_bound_ms_ == 0 || bound_ms >= own_step_bound_ms_) return 1;
    const OneGpuTimes& known = *setup_.measured;
    const double of_a_half = known.half_step_ms / known.step_ms * own_step_bound_ms_ / half_step_bound_ms_;
    return std::pow(of_a_half, std::log(own_step_bound_ms_ / bound_ms) /
                                   std::log(own_step_bound_ms_ / half_step_bound_ms_));
  }

  double picture_ms(const std::vector<PlannedStage>& stages, bool singly) const {
    double sum = 0;
    for (const PlannedStage& stage : stages) sum += stage.runs * stage_ms(stage, singly);
    return sum;
  }

  static uint64_t peak(const std::vector<PlannedStage>& stages) {
    uint64_t weights = 0, arena = 0;
    for (const PlannedStage& stage : stages) {
      if (stage.name != "prepare") weights += stage.weight_bytes;  // the UNet's, counted once
      arena = std::max(arena, stage.arena_bytes);
    }
    return weights + arena;
  }

  // What one rank needs for an exchange: sent[r] and received[r] bytes to and from rank r.
  double message_ms(const Exchange& own, const std::vector<uint64_t>& received, bool waits) const {
    const Link& link = setup_.link;
    uint64_t got = 0, most = 0;
    for (size_t r = 0; r < received.size(); ++r) {
      got += received[r];
      most = std::max({most, own.sent[r], received[r]});
    }
    if (own.bytes() == 0 && got == 0) return 0;
    const auto seconds = [](uint64_t bytes, double gb) { return static_cast<double>(bytes) / (gb * 1e9); };
    if (setup_.way == MessageWay::kPeer) {
      const double moved = seconds(link.each_pair ? most : std::max(own.bytes(), got), link.gb_per_s);
      const double starts = link.message_us + std::max(0, own.messages() - 1) * link.next_message_us;
      return moved * 1e3 + starts * 1e-3;
    }
    const int copies = own.copies_to_host + own.copies_to_device;
    return (seconds(own.to_host + own.to_device, link.host_gb_per_s) +
            seconds(own.bytes() + got, link.host_memory_gb_per_s)) *
               1e3 +
           copies * link.host_copy_us * 1e-3 + (waits ? link.wake_us * 1e-3 : 0) +
           (copies > 0 ? kLaunchMs : 0);  // the GPU waits for the next launch
  }

  // Of a rank's launches of attention, all of the stage together.
  double attention_ms_per_flop(const RankPlan& plan, std::string_view stage_name) const {
    for (const PlannedStage& stage : plan.stages) {
      if (stage.name != stage_name) continue;
      for (const OpBound& op : bound_stage(gpu_, stage, dtype_, counts_).ops)
        if (op.op == "attention" && op.flops > 0)
          return (op.bound_ms * rates_.of(stage.name, op.op) + op.launches * rates_.gap_ms) / op.flops;
    }
    return 0;
  }

  // Of exchanges in which all ranks take part, one after the other: the slowest of each counts, less what the
  // rank computes meanwhile. A rank that passes messages by way of the host computes nothing meanwhile.
  double exchanges_ms(const std::vector<RankPlan>& plans, std::vector<Exchange> RankPlan::* which, bool waits,
                      std::string_view stage = {}) const {
    std::vector<double> ms_per_flop(plans.size());
    if (setup_.way == MessageWay::kPeer && !stage.empty())
      for (size_t rank = 0; rank < plans.size(); ++rank)
        ms_per_flop[rank] = attention_ms_per_flop(plans[rank], stage);
    double sum = 0;
    for (size_t i = 0; i < (plans[0].*which).size(); ++i) {
      double slowest = 0;
      for (size_t rank = 0; rank < plans.size(); ++rank) {
        std::vector<uint64_t> received;
        for (const RankPlan& other : plans) received.push_back((other.*which)[i].sent[rank]);
        const Exchange& own = (plans[rank].*which)[i];
        slowest = std::max(slowest, message_ms(own, received, waits) - own.beside_flops * ms_per_flop[rank]);
      }
      sum += slowest;
    }
    return sum;
  }

  void divide(ScalingPrediction& out) const {
    out.ranks = *setup_.division == Division::kConditions ? 2 : setup_.gpus;
    const std::vector<RankPlan> plans =
        plan_ranks(*device_, *device_, model_, shape_, steps_, dtype_, *setup_.division, out.ranks);
    const bool host = setup_.way == MessageWay::kHost;
    const bool rows = *setup_.division != Division::kConditions;
    double text = 0, step = 0, decode = 0;
    out.peak_bytes = 0;
    for (const RankPlan& plan : plans) {
      RankPrediction rank{.rows = plan.rows,
                          .bytes = plan.bytes(steps_, shape_.batch),
                          .messages = plan.messages(steps_, shape_.batch)};
      double once = 0;
      for (const PlannedStage& stage : plan.stages) {
        if (stage.name == "unet")
          rank.step_ms = stage_ms(stage, host && rows);
        else if (stage.name == "vae")
          rank.decode_ms = stage.runs ? stage_ms(stage, host && !stage.exchanges.empty()) : 0;
        else
          once += stage.runs * stage_ms(stage, false);
        if (stage.name != "prepare") rank.weight_bytes += stage.weight_bytes;
        if (stage.runs > 0) rank.arena_bytes = std::max(rank.arena_bytes, stage.arena_bytes);
      }
      text = std::max(text, once);
      step = std::max(step, rank.step_ms);
      decode = std::max(decode, rank.decode_ms);
      out.bytes += rank.bytes;
      out.messages += rank.messages;
      for (const Exchange& e : plan.step) {
        out.step_bytes += e.bytes();
        out.step_messages += static_cast<uint64_t>(e.messages());
      }
      out.peak_bytes = std::max(out.peak_bytes, rank.weight_bytes + rank.arena_bytes);
      out.each.push_back(rank);
    }
    const double passed = exchanges_ms(plans, &RankPlan::step, true, "unet");
    const int exact = setup_.exact_calls ? std::min(*setup_.exact_calls, steps_) : steps_;
    // What is displaced waits for nobody; by way of the host it still takes the rank's own time.
    const double stale = host ? step + exchanges_ms(plans, &RankPlan::step, false) : std::max(step, passed);
    const auto pictures = static_cast<double>(shape_.batch);
    out.compute_ms = text + steps_ * step + pictures * decode;
    out.request_ms = text + exact * (step + passed) + (steps_ - exact) * stale +
                     pictures * (decode + exchanges_ms(plans, &RankPlan::decode, true, "vae")) +
                     exchanges_ms(plans, &RankPlan::once, true);
  }

  const GpuProduct& gpu_;
  const KnownModel& model_;
  const PictureShape& shape_;
  const int steps_;
  const DType dtype_;
  const ScalingSetup& setup_;
  std::unique_ptr<GpuDevice> device_;
  KernelCounts counts_;
  Rates rates_;
  // At the model's own size, with measured times: of the step and of its half.
  double own_step_bound_ms_ = 0, half_step_bound_ms_ = 0;
};

}  // namespace

ScalingPrediction predict_scaling(const GpuProduct& gpu, const KnownModel& model, const PictureShape& shape,
                                  int steps, DType dtype, const ScalingSetup& setup) {
  require<UsageError>(peak_rate(gpu, RateType::kF16) > 0 && gpu.bandwidth > 0, gpu.name, " (", gpu.arch,
                      "): no rates are known for this architecture");
  const tuning::TuningScope untuned(nullptr);  // as predict()
  return Scaling(gpu, model, shape, steps, dtype, setup).predict();
}

}  // namespace rocm_sd
