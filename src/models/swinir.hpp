// SwinIR (Liang et al., "SwinIR: Image Restoration Using Swin Transformer", 2021): attention inside windows
// of a map, every second time of the map shifted by half a window, with a bias for each relative position.
#pragma once

#include <optional>
#include <vector>

#include "kernels/windows/windows.hpp"
#include "models/layers.hpp"
#include "models/parameters.hpp"
#include "runtime/exec.hpp"
#include "weights/store.hpp"

namespace rocm_sd {

// How the features become a larger image.
enum class SwinUpsampler {
  kShuffle,        // convolutions whose channels become squares of 2 x 2 or 3 x 3 pixels ("pixelshuffle")
  kDirectShuffle,  // one convolution does, for all of the factor ("pixelshuffledirect")
  kNearest,        // doubled by nearest neighbour, then convolved ("nearest+conv")
  kNone            // a convolution whose result is added to the image: the same size
};

struct SwinConfig {
  std::vector<int> depths = {6, 6, 6, 6};  // blocks of each group of layers
  int64_t heads = 6, window = 8, hidden = 360;
  int64_t features = 64;     // before the image is enlarged: kShuffle, kNearest
  bool three_convs = false;  // behind each group: a narrow one between two, in place of one
  bool embed_norm = true;    // a norm of the first features
  SwinUpsampler upsampler = SwinUpsampler::kShuffle;
  int64_t tripled = 1;  // 3: one of kShuffle's convolutions makes squares of 3 x 3
};
// From names and shapes. Throws FormatError where they are those of no such network.
SwinConfig swin_config(const WeightStore& store);

// One convolution of 3 x 3, or three of 3 x 3, 1 x 1 and 3 x 3, the inner ones a quarter as wide, with
// rectifiers between them.
struct SwinConv {
  std::vector<Conv> convs;
  SwinConv(int64_t width, bool three);
  void visit(Visitor& v, const char* name);
  Tensor operator()(Exec& ex, const Tensor& x, const Tensor& residual) const;  // [1,h,w,C]
};

struct SwinBlock {
  Norm norm1, norm2;
  Linear qkv, proj, fc1, fc2;
  Embedding positions;  // [(2w-1)^2,heads]
  Tensor masks;  // [kinds of windows,heads,w^2,w^2] f32: biases, and -100 between what was not neighbours
  int64_t heads = 1, head_dim = 1, window = 8, shift = 0;

  SwinBlock(int64_t width, const SwinConfig& config, bool shifted);
  void visit(Visitor& v);
  // Heads of `room` channels, those beyond head_dim zero: sizes that kernels of GPUs have. Before it is
  // loaded.
  void widen_heads(int64_t room);
  void make_masks(Device& device, const ParameterSource& source, const std::string& name);
  Tensor operator()(Exec& ex, Tensor x) const;  // [1,h,w,C] -> the same, h and w multiples of the window

 private:
  Tensor attended(Exec& ex, const Tensor& packed, const WindowGrid& grid) const;
  int64_t room_ = 0;  // channels of a head as stored
};

struct SwinLayer {
  std::vector<SwinBlock> blocks;
  SwinConv conv;
  SwinLayer(int64_t width, const SwinConfig& config, int depth);
  void visit(Visitor& v);
  Tensor operator()(Exec& ex, const Tensor& x) const;
};

class SwinNet {
 public:
  // width: channels between layers. doublings, side: of kShuffle and kNearest, of kDirectShuffle.
  SwinNet(const SwinConfig& config, int64_t width, int64_t doublings, int64_t side);
  void visit(Visitor& v);
  // Reads the parameters, and makes what follows from them. Throws what load_parameters throws.
  void load(Device& device, const ParameterSource& source, DType compute);
  // x [1,h,w,3], h and w multiples of the window -> [1,h*f,w*f,3], or kDirectShuffle's [1,h,w,3*side^2]; of
  // kNone what is to be added to the image.
  Tensor operator()(Exec& ex, const Tensor& x) const;

 private:
  Tensor enlarged(Exec& ex, Tensor x) const;

  SwinConfig config_;
  Conv input_, first_;
  std::optional<Norm> embed_norm_;
  std::vector<SwinLayer> layers_;
  Norm norm_;
  SwinConv after_body_;
  std::optional<Conv> before_, hr_, last_;
  std::vector<Conv> up_;
};

}  // namespace rocm_sd
