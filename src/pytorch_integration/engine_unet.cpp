#include "pytorch_integration/engine_unet.hpp"

#include <algorithm>
#include <utility>

#include "kernels/elementwise/elementwise.hpp"
#include "pytorch_integration/torch_gpu.hpp"

namespace rocm_sd::torch_ops {
namespace {

// Shapes, and streams, whose plans and memory are kept; then the one that was not used for the longest goes.
constexpr size_t kMaxKept = 4;

Tensor optional_rows(const OptionalAt& x) { return x ? row_major_of(*x) : Tensor(); }

// dst [any strides] = src [any strides], of the same sizes; converts.
void assign(const AtTensor& dst, const AtTensor& src) {
  check_torch(aoti_torch_copy_(dst.get(), src.get(), 1), "copy_");
}

// x, of any type of numbers, as f32.
Tensor floats_of(const AtTensor& x) {
  if (dtype_of(x) == DType::kF32) return row_major_of(x);
  const AtTensor floats = empty_strided_of(x, DType::kF32, sizes_of(x), row_major(sizes_of(x)));
  assign(floats, x);
  return view_as(floats, sizes_of(x));
}

Shape sizes_or_none(const OptionalAt& x) { return x ? sizes_of(*x) : Shape(); }

// Memory that stays, for values like x's; none where there is no x.
Tensor room_for(Device& device, const AtTensor& x, const Shape& shape) {
  const auto dtype = dtype_of(x);
  take_if(dtype.has_value(), shown(x), ": the engine takes float32, float16 and bfloat16");
  return make_tensor(device, shape, *dtype);
}
Tensor room_for(Device& device, const OptionalAt& x) {
  return x ? room_for(device, *x, sizes_of(*x)) : Tensor();
}
Tensor room_for_floats(Device& device, const OptionalAt& x) {
  return x ? make_tensor(device, sizes_of(*x), DType::kF32) : Tensor();
}

Shape nhwc(const Shape& sizes) { return {sizes[0], sizes[2], sizes[3], sizes[1]}; }

void fill(const Tensor& room, const AtTensor& x) {
  assign(seen_by_torch(room, room.shape(), row_major(room.shape()), x), x);
}

// The element of `kept` for which is() holds, moved to the end; else make()'s, for which the first goes.
template <class T, class Is, class Make>
T& latest(std::vector<std::unique_ptr<T>>& kept, const Is& is, const Make& make) {
  const auto found = std::ranges::find_if(kept, [&](const auto& one) { return is(*one); });
  if (found != kept.end()) {
    std::rotate(found, found + 1, kept.end());
  } else {
    if (kept.size() == kMaxKept) kept.erase(kept.begin());
    kept.push_back(make());
  }
  return *kept.back();
}

}  // namespace

// A forward of one shape: copies of its inputs in memory that stays, and the program that reads them.
struct EngineUnet::Prepared {
  Prepared(Device& device, const UNet& unet, const TextCache& cache, const UnetInputs& inputs)
      : shapes(shapes_of(inputs)),
        dtype(*dtype_of(inputs.sample)),
        sample(room_for(device, inputs.sample, nhwc(shapes[0]))),
        time{make_tensor(device, shapes[1], DType::kF32), room_for(device, inputs.text_embeds),
             room_for_floats(device, inputs.time_ids), room_for(device, inputs.guidance)},
        prediction(make_tensor(device, {shapes[0][0], shapes[0][2], shapes[0][3], unet.config().out_channels},
                               unet.input_dtype())),
        text(cache),
        arena(device),
        program("unet", arena,
                [this, &unet](Exec& exec) { copy_into(exec, unet(exec, sample, time, text), prediction); }) {}

  static std::vector<Shape> shapes_of(const UnetInputs& inputs) {
    return {sizes_of(inputs.sample), sizes_of(inputs.timestep), sizes_or_none(inputs.text_embeds),
            sizes_or_none(inputs.time_ids), sizes_or_none(inputs.guidance)};
  }
  bool fits(const UnetInputs& inputs) const {
    return dtype == dtype_of(inputs.sample) && shapes == shapes_of(inputs);
  }

  AtTensor run(const UnetInputs& inputs) {
    assign(seen_by_torch(sample, shapes[0], channels_last(shapes[0]), inputs.sample), inputs.sample);
    fill(time.timestep, inputs.timestep);
    if (inputs.text_embeds) fill(time.text_embeds, *inputs.text_embeds);
    if (inputs.time_ids) fill(time.time_ids, *inputs.time_ids);
    if (inputs.guidance) fill(time.guidance_cond, *inputs.guidance);
    program.run();
    const Shape sizes = {prediction.dim(0), prediction.dim(3), prediction.dim(1), prediction.dim(2)};
    AtTensor y = empty_strided_like(inputs.sample, sizes, channels_last(sizes));
    // A copy: the next call writes the prediction anew.
    assign(y, seen_by_torch(prediction, sizes, channels_last(sizes), inputs.sample));
    return y;
  }

  std::vector<Shape> shapes;
  DType dtype;
  Tensor sample;  // [N,H,W,C]
  TimeInputs time;
  Tensor prediction;  // [N,H,W,C']
  TextCache text;
  Arena arena;
  Program program;
};

// Keys and values of one text, and the program that makes them of a copy of it.
struct EngineUnet::Text {
  Text(Device& device, const UNet& unet, const AtTensor& like)
      : shape(sizes_of(like)),
        dtype(*dtype_of(like)),
        cache(unet.make_text_cache(device, shape[0], shape[1])),
        states(room_for(device, like, shape)),
        arena(device),
        program("text keys and values", arena,
                [this, &unet](Exec& exec) { unet.prepare_text(exec, states, cache); }) {}

  Shape shape;
  DType dtype;
  TextCache cache;
  Tensor states;  // [B,T,W]
  Arena arena;
  Program program;
};

struct EngineUnet::OfStream {
  OfStream(Device& on, void* handle) : device(on), stream(handle) {}
  ~OfStream() {
    // Not every driver keeps a graph that still runs.
    if (text && device.kind() != DeviceKind::kHost)
      static_cast<GpuDevice&>(device).synchronize_stream(stream);
  }

  Device& device;
  void* stream;
  std::unique_ptr<Text> text;
  int64_t text_number = -1;                         // of EngineUnet::texts_
  std::vector<std::unique_ptr<Prepared>> prepared;  // they read text->cache
};

EngineUnet::EngineUnet(UNet unet) : unet_(std::move(unet)) {}

EngineUnet::~EngineUnet() {
  if (streams_.empty()) return;
  const auto hold = hold_device(streams_.front()->device);
  streams_.clear();
}

EngineUnet::OfStream& EngineUnet::of_stream(Device& device, void* stream) {
  return latest(
      streams_, [&](const OfStream& of) { return of.stream == stream; },
      [&] { return std::make_unique<OfStream>(device, stream); });
}

void EngineUnet::keep_text(Exec& exec, OfStream& of, const AtTensor& text, ForwardMode mode) {
  const bool fits = of.text && of.text->shape == sizes_of(text) && of.text->dtype == dtype_of(text);
  if (fits && of.text_number == texts_) return;
  of.text_number = -1;  // valid only once it is filled
  if (!fits) {
    of.prepared.clear();
    of.text = nullptr;  // the old one's memory goes first
    of.text = std::make_unique<Text>(of.device, unet_, text);
  }
  if (mode == ForwardMode::kPrepared) {
    fill(of.text->states, text);
    of.text->program.run();
  } else {
    unet_.prepare_text(exec, row_major_of(text), of.text->cache);
  }
  of.text_number = texts_;
}

AtTensor EngineUnet::run_eager(OpScope& scope, const UnetInputs& inputs, const TextCache& text) {
  Exec& exec = scope.exec();
  const TimeInputs time{floats_of(inputs.timestep), optional_rows(inputs.text_embeds),
                        inputs.time_ids ? floats_of(*inputs.time_ids) : Tensor(),
                        optional_rows(inputs.guidance)};
  const Tensor prediction = unet_(exec, nhwc_of(inputs.sample), time, text);  // of bf16's models f32
  const DType dtype = *dtype_of(inputs.sample);
  return scope.give_nchw(prediction.dtype() == dtype ? prediction : cast(exec, prediction, dtype));
}

AtTensor EngineUnet::run_prepared(OfStream& of, const UnetInputs& inputs) {
  Prepared& prepared = latest(
      of.prepared, [&](const Prepared& one) { return one.fits(inputs); },
      [&] { return std::make_unique<Prepared>(of.device, unet_, of.text->cache, inputs); });
  return prepared.run(inputs);
}

AtTensor EngineUnet::run(OpScope& scope, const UnetInputs& inputs, ForwardMode mode) {
  Exec& exec = scope.exec();
  if (mode == ForwardMode::kAuto)
    mode = scope.on_host()        ? ForwardMode::kEager
           : scope.is_capturing() ? ForwardMode::kCaptured
                                  : ForwardMode::kPrepared;
  if (exec.planning()) mode = ForwardMode::kCaptured;
  if (!inputs.same_text) ++texts_;  // also one that is not kept: "the same" would be told of it next
  if (mode == ForwardMode::kCaptured) {
    const Shape shape = sizes_of(inputs.text);
    const TextCache text = unet_.make_text_cache(exec.device(), shape[0], shape[1]);
    unet_.prepare_text(exec, row_major_of(inputs.text), text);
    return run_eager(scope, inputs, text);
  }
  Device& device = scope.on_host() ? host_device() : exec.device();  // one that outlives the call
  OfStream& of = of_stream(device, scope.stream());
  keep_text(exec, of, inputs.text, mode);
  return mode == ForwardMode::kEager ? run_eager(scope, inputs, of.text->cache) : run_prepared(of, inputs);
}

}  // namespace rocm_sd::torch_ops
