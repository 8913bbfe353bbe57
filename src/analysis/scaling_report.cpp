// What predict_scaling() found, as JSON and as text.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/predict_scaling.hpp"

namespace rocm_sd {
namespace {

const char* way_name(MessageWay way) { return way == MessageWay::kHost ? "host" : "peer"; }

}  // namespace

nlohmann::ordered_json scaling_json(const ScalingPrediction& p) {
  nlohmann::ordered_json out = {{"kind", "model of scaling, not measured"},
                                {"gpu", p.gpu.name},
                                {"gpus", p.setup.gpus},
                                {"link", p.setup.link.name},
                                {"way", way_name(p.setup.way)},
                                {"split", p.setup.split},
                                {"model", p.model},
                                {"dtype", p.dtype},
                                {"width", p.shape.width},
                                {"height", p.shape.height},
                                {"batch", p.shape.batch},
                                {"steps", p.steps},
                                {"basis", p.basis},
                                {"ranks", p.ranks},
                                {"one_gpu_ms", p.one_ms},
                                {"request_ms", p.request_ms},
                                {"compute_ms", p.compute_ms},
                                {"transfer_ms", p.transfer_ms},
                                {"transfer_share", p.transfer_ms / p.request_ms},
                                {"speedup", p.speedup},
                                {"pictures_per_second", p.throughput},
                                {"scaling", p.scaling},
                                {"efficiency", p.efficiency},
                                {"bytes", p.bytes},
                                {"messages", p.messages},
                                {"step_bytes", p.step_bytes},
                                {"step_messages", p.step_messages},
                                {"peak_bytes", p.peak_bytes},
                                {"one_gpu_peak_bytes", p.one_peak_bytes},
                                {"fits", p.fits}};
  out["each_rank"] = nlohmann::ordered_json::array();
  for (const RankPrediction& r : p.each)
    out["each_rank"].push_back({{"rows", r.rows},
                                {"step_ms", r.step_ms},
                                {"decode_ms", r.decode_ms},
                                {"bytes", r.bytes},
                                {"messages", r.messages},
                                {"weight_bytes", r.weight_bytes},
                                {"arena_bytes", r.arena_bytes}});
  for (const LinkFigure& f : p.setup.link.figures)
    out["link_figures"][f.name] = {{"value", f.value}, {"kind", f.kind}, {"source", f.source}};
  return out;
}

std::string scaling_text(const ScalingPrediction& p) {
  const auto mega = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const Link& link = p.setup.link;
  std::string text = fmt::format(
      "{} x {} over {}, split {}, messages {}\n{} {} x {}, batch {}{}, {} steps, {}; times: {}\n\n",
      p.setup.gpus, p.gpu.name, link.name, p.setup.split,
      p.setup.way == MessageWay::kHost ? "through host memory (as the engine passes them)"
                                       : "by copies between peers",
      p.model, p.shape.width, p.shape.height, p.shape.batch, p.shape.guidance ? " with guidance" : "",
      p.steps, p.dtype, p.basis);
  text += fmt::format("a picture      {:>10.1f} ms   on one GPU {:.1f} ms\n",
                      p.request_ms / static_cast<double>(p.shape.batch),
                      p.one_ms / static_cast<double>(p.shape.batch));
  text += fmt::format("speed-up       {:>10.2f}      {:.3f} pictures a second, {:.2f} times one GPU's\n",
                      p.speedup, p.throughput, p.scaling);
  text += fmt::format("efficiency     {:>9.1f} %\n", 100 * p.efficiency);
  text += fmt::format("transfers      {:>9.1f} %   {:.1f} ms that computing does not hide\n",
                      100 * p.transfer_ms / p.request_ms, p.transfer_ms);
  text += fmt::format("bytes sent     {:>10.1f} MB   {} messages; a step {:.2f} MB, {} messages\n",
                      mega(p.bytes), p.messages, mega(p.step_bytes), p.step_messages);
  text += fmt::format("memory         {:>10.1f} MB   of the fullest GPU; alone {:.1f} MB{}\n",
                      mega(p.peak_bytes), mega(p.one_peak_bytes), p.fits ? "" : "; more than the GPU has");
  if (!p.each.empty())
    text += fmt::format("\n{:>4}{:>7}{:>12}{:>12}{:>12}{:>10}{:>13}{:>11}\n", "rank", "rows", "step ms",
                        "decode ms", "sent MB", "messages", "weights MB", "arena MB");
  for (size_t i = 0; i < p.each.size(); ++i) {
    const RankPrediction& r = p.each[i];
    text +=
        fmt::format("{:>4}{:>7}{:>12.3f}{:>12.3f}{:>12.2f}{:>10}{:>13.1f}{:>11.1f}\n", i, r.rows, r.step_ms,
                    r.decode_ms, mega(r.bytes), r.messages, mega(r.weight_bytes), mega(r.arena_bytes));
  }
  text += fmt::format("\n{}\n", link.about);
  for (const LinkFigure& f : link.figures)
    text += fmt::format("  {:<21}{:>8}  {}: {}\n", f.name, f.value, f.kind, f.source);
  return text +
         "MODELLED: nothing was run on several GPUs. docs/explanation/scaling-model.md says what is "
         "assumed.\n";
}

}  // namespace rocm_sd
