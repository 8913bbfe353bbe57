// MIOpen of the stand-in. Numbers are the library's, written from its documentation and not shared with
// src/vendor.
#include <algorithm>
#include <array>

#include "fake_vendor.hpp"
#include "state.hpp"

using namespace fake_vendor;

namespace {

constexpr int kInvalid = 3;

int invalid(const char* function, const char* what) {
  complain(std::string(function) + ": " + what);
  return kInvalid;
}

using Extents = std::array<int64_t, 4>;  // N C H W

// Whether the strides are those of NHWC.
bool is_nhwc(const Extents& e, const Extents& strides) {
  const Extents want = {e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]};
  for (size_t i = 0; i < 4; ++i)
    if (e[i] > 1 && strides[i] != want[i]) return false;
  return true;
}

}  // namespace

extern "C" {

struct MiopenHandle {
  void* stream = nullptr;
};
struct MiopenTensor {
  DType type = DType::kF32;
  Extents extents{};
};
struct MiopenConv {
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1;
  bool repeatable = false;
};
struct MiopenSolution {
  float time;
  size_t workspace;
  uint64_t id;
  int algorithm;
};
struct MiopenFound {
  int algorithm;
  float time;
  size_t memory;
};
// Before a search solution 11 is guessed to be the best; a search finds 42.
static bool searched = false;
static std::set<uint64_t> compiled;

int miopenCreate(MiopenHandle** handle) {
  ENTER();
  *handle = created(new MiopenHandle);
  return 0;
}
int miopenDestroy(MiopenHandle* handle) { return destroyed(__func__, handle); }
int miopenSetStream(MiopenHandle* handle, void* stream) {
  ENTER();
  handle->stream = stream;
  return 0;
}
const char* miopenGetErrorString(int) { return "as the stand-in says"; }
int miopenCreateTensorDescriptor(MiopenTensor** tensor) {
  ENTER();
  *tensor = created(new MiopenTensor);
  return 0;
}
int miopenDestroyTensorDescriptor(MiopenTensor* tensor) { return destroyed(__func__, tensor); }
int miopenSetTensorDescriptor(MiopenTensor* tensor, int type, int rank, const int* extents,
                              const int* strides) {
  ENTER();
  if (!is_live(__func__, tensor) || rank != 4) return invalid(__func__, "four extents are wanted");
  if (type != 0 && type != 1 && type != 5) return invalid(__func__, "an unknown type");
  tensor->type = type == 1 ? DType::kF32 : type == 0 ? DType::kF16 : DType::kBF16;
  Extents s{};
  for (size_t i = 0; i < 4; ++i) {
    tensor->extents[i] = extents[i];
    s[i] = strides[i];
  }
  return is_nhwc(tensor->extents, s) ? 0 : invalid(__func__, "not NHWC");
}
int miopenCreateConvolutionDescriptor(MiopenConv** conv) {
  ENTER();
  *conv = created(new MiopenConv);
  return 0;
}
int miopenDestroyConvolutionDescriptor(MiopenConv* conv) { return destroyed(__func__, conv); }
int miopenInitConvolutionDescriptor(MiopenConv* conv, int mode, int pad_h, int pad_w, int stride_h,
                                    int stride_w, int dilation_h, int dilation_w) {
  ENTER();
  if (mode != 0 || dilation_h != 1 || dilation_w != 1) return invalid(__func__, "an unknown convolution");
  *conv = {pad_h, pad_w, stride_h, stride_w, conv->repeatable};
  return 0;
}
int miopenSetConvolutionAttribute(MiopenConv* conv, int attribute, int value) {
  ENTER();
  conv->repeatable = attribute == 1 && value == 1;
  return 0;
}

static int check_miopen(const char* function, MiopenTensor* w, MiopenTensor* x, MiopenConv* conv,
                        MiopenTensor* y) {
  for (const void* handle :
       {static_cast<void*>(w), static_cast<void*>(x), static_cast<void*>(conv), static_cast<void*>(y)})
    if (!is_live(function, handle)) return kInvalid;
  if (w->type != x->type || y->type != x->type) return invalid(function, "operands of several types");
  if (!conv->repeatable) return invalid(function, "results that differ from run to run");
  const Extents &we = w->extents, &xe = x->extents, &ye = y->extents;
  const int64_t out_h = (xe[2] + 2 * conv->pad_h - we[2]) / conv->stride_h + 1;
  const int64_t out_w = (xe[3] + 2 * conv->pad_w - we[3]) / conv->stride_w + 1;
  if (we[1] != xe[1] || ye[0] != xe[0] || ye[1] != we[0] || ye[2] != out_h || ye[3] != out_w)
    return invalid(function, "extents that do not fit");
  return 0;
}
static void convolve(MiopenTensor* w_desc, const void* w, MiopenTensor* x_desc, const void* x,
                     MiopenConv* conv, MiopenTensor* y_desc, void* y) {
  const Extents &we = w_desc->extents, &xe = x_desc->extents, &ye = y_desc->extents;
  const Correlation correlation{
      xe[0], xe[2],          xe[3],          xe[1],       we[0],       we[2],        we[3], ye[2],
      ye[3], conv->stride_h, conv->stride_w, conv->pad_h, conv->pad_w, x_desc->type, x,     w};
  correlation.run([&](int64_t i, double sum) { store(y, x_desc->type, i, sum); });
}

int miopenConvolutionForwardGetSolutionCount(MiopenHandle*, MiopenTensor* w, MiopenTensor* x,
                                             MiopenConv* conv, MiopenTensor* y, size_t* count) {
  ENTER();
  *count = 2;
  return check_miopen(__func__, w, x, conv, y);
}
int miopenConvolutionForwardGetSolution(MiopenHandle*, MiopenTensor* w, MiopenTensor* x, MiopenConv* conv,
                                        MiopenTensor* y, size_t most, size_t* count, MiopenSolution* out) {
  ENTER();
  *count = std::min<size_t>(most, 2);
  for (size_t i = 0; i < *count; ++i)
    out[i] = {1.0f + static_cast<float>(i), state().workspace, (i == 0) == searched ? 42u : 11u, 5};
  return check_miopen(__func__, w, x, conv, y);
}
int miopenConvolutionForwardCompileSolution(MiopenHandle*, MiopenTensor* w, MiopenTensor* x, MiopenConv* conv,
                                            MiopenTensor* y, uint64_t id) {
  ENTER();
  compiled.insert(id);
  return check_miopen(__func__, w, x, conv, y);
}
int miopenConvolutionForwardImmediate(MiopenHandle* handle, MiopenTensor* w_desc, const void* w,
                                      MiopenTensor* x_desc, const void* x, MiopenConv* conv,
                                      MiopenTensor* y_desc, void* y, void* workspace, size_t bytes,
                                      uint64_t id) {
  ENTER();
  if (check_miopen(__func__, w_desc, x_desc, conv, y_desc)) return kInvalid;
  if (!compiled.contains(id)) return invalid(__func__, "a solution that was not compiled");
  if (bytes < state().workspace || (bytes > 0 && !workspace))
    return invalid(__func__, "too little workspace");
  if (!w || !x || !y) return invalid(__func__, "a null operand");
  start(handle->stream, [=] {
    use_workspace(workspace, bytes);
    convolve(w_desc, w, x_desc, x, conv, y_desc, y);
  });
  return 0;
}
int miopenConvolutionForwardGetWorkSpaceSize(MiopenHandle*, MiopenTensor* w, MiopenTensor* x,
                                             MiopenConv* conv, MiopenTensor* y, size_t* bytes) {
  ENTER();
  *bytes = state().workspace;
  return check_miopen(__func__, w, x, conv, y);
}
int miopenFindConvolutionForwardAlgorithm(MiopenHandle* handle, MiopenTensor* x_desc, const void* x,
                                          MiopenTensor* w_desc, const void* w, MiopenConv* conv,
                                          MiopenTensor* y_desc, void* y, int asked, int* count,
                                          MiopenFound* found, void* workspace, size_t bytes, bool) {
  ENTER();
  if (check_miopen(__func__, w_desc, x_desc, conv, y_desc) || asked < 1) return kInvalid;
  if (!x || !w || !y) return invalid(__func__, "a null operand");
  if (bytes < state().workspace) return invalid(__func__, "too little workspace");
  *count = 1;
  *found = {5, 0.5f, state().workspace};
  searched = true;
  start(handle->stream, [=] {
    use_workspace(workspace, bytes);
    convolve(w_desc, w, x_desc, x, conv, y_desc, y);
  });
  return 0;
}

}  // extern "C"
