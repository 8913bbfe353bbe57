// The part of MIOpen that miopen.cpp calls, as libMIOpen.so.1 exports it in ROCm 6 and 7.
// tests/vendor_headers/miopen.cpp compares it with the library's header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocm_sd::vendor {

struct Miopen {
  using Status = int;  // miopenStatus_t
  using Handle = struct MiopenHandleTag*;
  using Tensor = struct MiopenTensorTag*;
  using Conv = struct MiopenConvTag*;
  using Stream = void*;  // hipStream_t

  struct Solution {  // miopenConvSolution_t
    float time;      // milliseconds, measured or guessed
    size_t workspace_bytes;
    uint64_t id;
    int algorithm;
  };
  struct Found {  // miopenConvAlgoPerf_t
    int algorithm;
    float time;
    size_t workspace_bytes;
  };

  static constexpr Status kSuccess = 0;
  static constexpr int kHalf = 0, kFloat = 1, kBfloat16 = 5;  // miopenDataType_t
  static constexpr int kConvolution = 0;                      // miopenConvolutionMode_t
  static constexpr int kDeterministic = 1;                    // MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC

// X(name, parameters...)
#define ROCM_SD_MIOPEN_FUNCTIONS(X)                                                                         \
  X(miopenCreate, Handle* handle)                                                                           \
  X(miopenDestroy, Handle handle)                                                                           \
  X(miopenSetStream, Handle handle, Stream stream)                                                          \
  X(miopenCreateTensorDescriptor, Tensor* tensor)                                                           \
  X(miopenDestroyTensorDescriptor, Tensor tensor)                                                           \
  X(miopenSetTensorDescriptor, Tensor tensor, int type, int rank, const int* extents, const int* strides)   \
  X(miopenCreateConvolutionDescriptor, Conv* conv)                                                          \
  X(miopenDestroyConvolutionDescriptor, Conv conv)                                                          \
  X(miopenInitConvolutionDescriptor, Conv conv, int mode, int pad_h, int pad_w, int stride_h, int stride_w, \
    int dilation_h, int dilation_w)                                                                         \
  X(miopenSetConvolutionAttribute, Conv conv, int attribute, int value)                                     \
  X(miopenConvolutionForwardGetSolutionCount, Handle handle, Tensor w, Tensor x, Conv conv, Tensor y,       \
    size_t* count)                                                                                          \
  X(miopenConvolutionForwardGetSolution, Handle handle, Tensor w, Tensor x, Conv conv, Tensor y,            \
    size_t most, size_t* count, Solution* solutions)                                                        \
  X(miopenConvolutionForwardCompileSolution, Handle handle, Tensor w, Tensor x, Conv conv, Tensor y,        \
    uint64_t id)                                                                                            \
  X(miopenConvolutionForwardImmediate, Handle handle, Tensor w_desc, const void* w, Tensor x_desc,          \
    const void* x, Conv conv, Tensor y_desc, void* y, void* workspace, size_t workspace_bytes, uint64_t id) \
  X(miopenConvolutionForwardGetWorkSpaceSize, Handle handle, Tensor w, Tensor x, Conv conv, Tensor y,       \
    size_t* bytes)                                                                                          \
  X(miopenFindConvolutionForwardAlgorithm, Handle handle, Tensor x_desc, const void* x, Tensor w_desc,      \
    const void* w, Conv conv, Tensor y_desc, void* y, int asked, int* count, Found* found, void* workspace, \
    size_t workspace_bytes, bool exhaustive)

  struct Api {
#define ROCM_SD_MEMBER(name, ...) Status (*name)(__VA_ARGS__) = nullptr;
    ROCM_SD_MIOPEN_FUNCTIONS(ROCM_SD_MEMBER)
#undef ROCM_SD_MEMBER
    const char* (*miopenGetErrorString)(Status) = nullptr;
  };
};

}  // namespace rocm_sd::vendor
