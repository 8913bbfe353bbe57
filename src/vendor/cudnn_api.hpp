// The part of cuDNN's graph interface that cudnn.cpp calls, as libcudnn.so.9 exports it.
// tests/vendor_headers/cudnn.cpp compares it with the library's header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocm_sd::vendor {

struct Cudnn {
  using Status = int;  // cudnnStatus_t
  using Handle = struct CudnnHandleTag*;
  using Descriptor = void*;  // cudnnBackendDescriptor_t
  using Stream = void*;      // cudaStream_t

  static constexpr Status kSuccess = 0;
  // cudnnDataType_t
  static constexpr int kFloat = 0, kHalf = 2, kBfloat16 = 9;
  // cudnnBackendDescriptorType_t
  static constexpr int kPointwise = 0, kConvolution = 1, kEngine = 2, kEngineConfig = 3, kHeuristics = 4,
                       kPlan = 5, kConvolutionForward = 10, kOperationPointwise = 13, kGraph = 15,
                       kVariantPack = 16, kTensor = 17, kMatmul = 18, kOperationMatmul = 19, kReduction = 21,
                       kOperationReduction = 22;
  // cudnnBackendAttributeType_t
  static constexpr int kTypeHandle = 0, kTypeDataType = 1, kTypeBool = 2, kTypeInt64 = 3, kTypeFloat = 4,
                       kTypePointer = 6, kTypeConvMode = 7, kTypeHeurMode = 8, kTypeNote = 11,
                       kTypePointwiseMode = 14, kTypeDescriptor = 15, kTypeReductionOp = 18;
  // cudnnBackendAttributeName_t
  static constexpr int kPointwiseMode = 0, kPointwisePrecision = 1, kSwishBeta = 8;
  static constexpr int kConvType = 100, kConvMode = 101, kConvDilations = 102, kConvStrides = 103,
                       kConvPostPaddings = 104, kConvPrePaddings = 105, kConvDims = 106;
  static constexpr int kHeurMode = 200, kHeurGraph = 201, kHeurResults = 202;
  static constexpr int kConfigEngine = 300, kEngineNotes = 1303;
  static constexpr int kPlanHandle = 400, kPlanConfig = 401, kPlanWorkspace = 402;
  static constexpr int kForwardAlpha = 700, kForwardBeta = 701, kForwardConv = 702, kForwardW = 703,
                       kForwardX = 704, kForwardY = 705;
  static constexpr int kOpPointwise = 750, kOpX = 751, kOpB = 752, kOpY = 753;
  static constexpr int kGraphHandle = 800, kGraphOps = 801;
  static constexpr int kTensorAlignment = 900, kTensorType = 901, kTensorExtents = 902, kTensorStrides = 903,
                       kTensorId = 906, kTensorVirtual = 907, kTensorByValue = 908;
  static constexpr int kPackIds = 1000, kPackPointers = 1001, kPackWorkspace = 1003;
  static constexpr int kMatmulPrecision = 1500, kMatmulA = 1520, kMatmulB = 1521, kMatmulC = 1522,
                       kOpMatmul = 1523;
  static constexpr int kReductionOp = 1600, kReductionPrecision = 1601, kReductionX = 1610,
                       kReductionY = 1611, kOpReduction = 1612;
  // cudnnPointwiseMode_t
  static constexpr int kAdd = 0, kMultiply = 1, kDivide = 6, kSubtract = 9, kExponential = 13,
                       kLogarithm = 15, kRelu = 100, kGelu = 104, kSwish = 106;
  static constexpr int kSum = 0, kMaximum = 3;  // cudnnReduceTensorOp_t
  // cudnnBackendNumericalNote_t
  static constexpr int kTensorCore = 0, kDownConverts = 1, kReducedPrecision = 2, kNondeterministic = 4,
                       kWinograd = 5, kNoteCount = 10;
  static constexpr int kCrossCorrelation = 1;  // cudnnConvolutionMode_t
  // cudnnBackendHeurMode_t: by decision trees; whatever works
  static constexpr int kModeA = 3, kModeFallback = 2;

// X(name, parameters...)
#define ROCM_SD_CUDNN_FUNCTIONS(X)                                                                      \
  X(cudnnCreate, Handle* handle)                                                                        \
  X(cudnnDestroy, Handle handle)                                                                        \
  X(cudnnSetStream, Handle handle, Stream stream)                                                       \
  X(cudnnBackendCreateDescriptor, int type, Descriptor* descriptor)                                     \
  X(cudnnBackendDestroyDescriptor, Descriptor descriptor)                                               \
  X(cudnnBackendFinalize, Descriptor descriptor)                                                        \
  X(cudnnBackendSetAttribute, Descriptor descriptor, int name, int type, int64_t count, const void* of) \
  X(cudnnBackendGetAttribute, Descriptor descriptor, int name, int type, int64_t asked, int64_t* count, \
    void* to)                                                                                           \
  X(cudnnBackendExecute, Handle handle, Descriptor plan, Descriptor pack)

  struct Api {
#define ROCM_SD_MEMBER(name, ...) Status (*name)(__VA_ARGS__) = nullptr;
    ROCM_SD_CUDNN_FUNCTIONS(ROCM_SD_MEMBER)
#undef ROCM_SD_MEMBER
    const char* (*cudnnGetErrorString)(Status) = nullptr;
  };
};

}  // namespace rocm_sd::vendor
