// cuBLASLt, hipBLASLt and rocBLAS of the stand-in. Numbers are the libraries', written from their
// documentation and not shared with src/vendor.
#include <optional>

#include "fake_vendor.hpp"
#include "state.hpp"

using namespace fake_vendor;

extern "C" {

const char* fake_vendor_complaints() { return state().complaints.c_str(); }
size_t fake_vendor_live() { return state().live.size(); }
size_t fake_vendor_calls(const char* function) { return state().calls[function]; }
void fake_vendor_fail(const char* function, int status) {
  status ? void(state().failing[function] = status) : void(state().failing.erase(function));
}
void fake_vendor_workspace(size_t bytes) { state().workspace = bytes; }
void fake_vendor_queue(void (*queue)(void*, void (*)(void*), void*)) { state().queue = queue; }

}  // extern "C"

namespace {

constexpr int kInvalid = 7;

struct LtHandle {};
struct LtLayout {
  DType type;
  uint64_t rows, columns;
  int64_t stride;
};
struct LtDesc {
  bool transposed_a = false, adds_bias = false;
  const void* bias = nullptr;
  std::optional<DType> bias_type;
};
struct LtPreference {
  uint64_t workspace = 0;
};

std::optional<DType> type_of(int type) {  // of CUDA and HIP
  switch (type) {
    case 0: return DType::kF32;
    case 2: return DType::kF16;
    case 14: return DType::kBF16;
    default: return std::nullopt;
  }
}
int invalid(const char* function, const char* what) {
  complain(std::string(function) + ": " + what);
  return kInvalid;
}

// The two libraries' numbers.
struct Cublas {
  static constexpr int kTransA = 3, kEpilogue = 7, kBias = 8, kBiasType = 26, kTransposed = 1, kCompute = 68;
  static constexpr size_t kAlgoBytes = 64;
  static constexpr bool kFloatBias = false;
};
struct Hipblas {
  static constexpr int kTransA = 0, kEpilogue = 2, kBias = 3, kBiasType = 4, kTransposed = 112, kCompute = 2;
  static constexpr size_t kAlgoBytes = 24;
  static constexpr bool kFloatBias = true;
};

template <class Lt>
int set_attribute(const char* function, LtDesc* desc, int attribute, const void* value, size_t bytes) {
  if (!is_live(function, desc)) return kInvalid;
  const auto number = [&] {
    int32_t out = -1;
    if (bytes == sizeof(out)) std::memcpy(&out, value, sizeof(out));
    return out;
  };
  if (attribute == Lt::kTransA) {
    if (number() != Lt::kTransposed) return invalid(function, "A is not transposed");
    desc->transposed_a = true;
  } else if (attribute == Lt::kEpilogue) {
    if (number() != 1 && number() != 4) return invalid(function, "an unknown epilogue");
    desc->adds_bias = number() == 4;
  } else if (attribute == Lt::kBias) {
    if (bytes != sizeof(void*)) return invalid(function, "a pointer of another size");
    std::memcpy(&desc->bias, value, sizeof(void*));
  } else if (attribute == Lt::kBiasType) {
    desc->bias_type = type_of(number());
  } else {
    return invalid(function, "an unknown attribute");
  }
  return 0;
}

// What a product needs to be sound, or why it is not.
template <class Lt>
const char* problem_of(const LtDesc& desc, const LtLayout& a, const LtLayout& b, const LtLayout& d) {
  if (!desc.transposed_a) return "A is not transposed";
  if (a.rows != b.rows || a.columns != d.rows || b.columns != d.columns) return "extents do not fit";
  if (a.type != b.type) return "operands of two types";
  if (d.type != a.type && d.type != DType::kF32) return "a result of a third type";
  if (a.stride < static_cast<int64_t>(a.rows) || b.stride < static_cast<int64_t>(b.rows) ||
      d.stride < static_cast<int64_t>(d.rows))
    return "a stride that is too small";
  if (desc.adds_bias && !desc.bias) return "no bias";
  if (desc.adds_bias && desc.bias_type != d.type && !(Lt::kFloatBias && desc.bias_type == DType::kF32))
    return "a bias of another type";
  return nullptr;
}

// count results of algo, workspace, state (0: sound), waves, reserved; the algo's first byte is its number.
template <class Lt>
int heuristics(const char* function, LtDesc* desc, LtLayout* a, LtLayout* b, LtLayout* d,
               LtPreference* preference, int asked, void* found, int* count) {
  for (const void* handle : {static_cast<void*>(desc), static_cast<void*>(a), static_cast<void*>(b),
                             static_cast<void*>(d), static_cast<void*>(preference)})
    if (!is_live(function, handle)) return kInvalid;
  if (const char* problem = problem_of<Lt>(*desc, *a, *b, *d)) return invalid(function, problem);
  constexpr size_t kBytes = Lt::kAlgoBytes + 8 + 4 + 4 + 16;
  *count = 0;
  // The second wants more workspace than there may be, the third is no good.
  for (int i = 0; i < std::min(asked, 4); ++i) {
    char* const result = static_cast<char*>(found) + static_cast<size_t>(i) * kBytes;
    std::memset(result, 0, kBytes);
    result[0] = static_cast<char>(i + 1);
    const size_t workspace = i == 1 ? preference->workspace + 1 : state().workspace;
    std::memcpy(result + Lt::kAlgoBytes, &workspace, sizeof(workspace));
    const int bad = i == 2 ? 15 : 0;
    std::memcpy(result + Lt::kAlgoBytes + 8, &bad, sizeof(bad));
    ++*count;
  }
  return 0;
}

template <class Lt>
int multiply(const char* function, LtDesc* desc, const void* alpha, const void* a, LtLayout* a_layout,
             const void* b, LtLayout* b_layout, const void* beta, const void* c, LtLayout* c_layout, void* d,
             LtLayout* d_layout, const void* algo, void* workspace, size_t workspace_bytes, void* stream) {
  for (const void* handle :
       {static_cast<void*>(desc), static_cast<void*>(a_layout), static_cast<void*>(b_layout),
        static_cast<void*>(c_layout), static_cast<void*>(d_layout)})
    if (!is_live(function, handle)) return kInvalid;
  if (const char* problem = problem_of<Lt>(*desc, *a_layout, *b_layout, *d_layout))
    return invalid(function, problem);
  float one, scale;
  std::memcpy(&one, alpha, sizeof(one));
  std::memcpy(&scale, beta, sizeof(scale));
  if (one != 1 || (scale != 0 && scale != 1)) return invalid(function, "factors that nobody asked for");
  const char number = static_cast<const char*>(algo)[0];
  if (number != 1 && number != 4) return invalid(function, "an algorithm that was no good");
  if (workspace_bytes < state().workspace) return invalid(function, "too little workspace");
  if (!a || !b || !d || !c || (workspace_bytes > 0 && !workspace)) return invalid(function, "a null operand");
  const Product product{static_cast<int64_t>(b_layout->columns),
                        static_cast<int64_t>(a_layout->columns),
                        static_cast<int64_t>(a_layout->rows),
                        b_layout->stride,
                        a_layout->type,
                        d_layout->type,
                        b,
                        a,
                        c,
                        scale,
                        desc->adds_bias ? desc->bias : nullptr,
                        desc->bias_type.value_or(DType::kF32),
                        d};
  start(stream, [=] {
    use_workspace(workspace, workspace_bytes);
    product.run();
  });
  return 0;
}

}  // namespace

#define LT_LIBRARY(prefix, Lt)                                                                               \
  int prefix##Create(LtHandle** handle) {                                                                    \
    ENTER();                                                                                                 \
    *handle = created(new LtHandle);                                                                         \
    return 0;                                                                                                \
  }                                                                                                          \
  int prefix##Destroy(LtHandle* handle) { return destroyed(__func__, handle); }                              \
  int prefix##MatrixLayoutCreate(LtLayout** out, int type, uint64_t rows, uint64_t columns, int64_t ld) {    \
    ENTER();                                                                                                 \
    if (!type_of(type)) return invalid(__func__, "an unknown type");                                         \
    *out = created(new LtLayout{*type_of(type), rows, columns, ld});                                         \
    return 0;                                                                                                \
  }                                                                                                          \
  int prefix##MatrixLayoutDestroy(LtLayout* layout) { return destroyed(__func__, layout); }                  \
  int prefix##MatmulDescCreate(LtDesc** out, int compute, int scale) {                                       \
    ENTER();                                                                                                 \
    if (compute != Lt::kCompute || scale != 0) return invalid(__func__, "does not compute in float");        \
    *out = created(new LtDesc);                                                                              \
    return 0;                                                                                                \
  }                                                                                                          \
  int prefix##MatmulDescDestroy(LtDesc* desc) { return destroyed(__func__, desc); }                          \
  int prefix##MatmulDescSetAttribute(LtDesc* desc, int attribute, const void* value, size_t bytes) {         \
    ENTER();                                                                                                 \
    return set_attribute<Lt>(__func__, desc, attribute, value, bytes);                                       \
  }                                                                                                          \
  int prefix##MatmulPreferenceCreate(LtPreference** out) {                                                   \
    ENTER();                                                                                                 \
    *out = created(new LtPreference);                                                                        \
    return 0;                                                                                                \
  }                                                                                                          \
  int prefix##MatmulPreferenceDestroy(LtPreference* preference) { return destroyed(__func__, preference); }  \
  int prefix##MatmulPreferenceSetAttribute(LtPreference* preference, int attribute, const void* value,       \
                                           size_t bytes) {                                                   \
    ENTER();                                                                                                 \
    if (attribute != 1 || bytes != 8) return invalid(__func__, "an unknown attribute");                      \
    std::memcpy(&preference->workspace, value, 8);                                                           \
    return 0;                                                                                                \
  }                                                                                                          \
  int prefix##MatmulAlgoGetHeuristic(LtHandle* handle, LtDesc* desc, LtLayout* a, LtLayout* b, LtLayout*,    \
                                     LtLayout* d, LtPreference* preference, int asked, void* found,          \
                                     int* count) {                                                           \
    ENTER();                                                                                                 \
    if (!is_live(__func__, handle)) return kInvalid;                                                         \
    return heuristics<Lt>(__func__, desc, a, b, d, preference, asked, found, count);                         \
  }                                                                                                          \
  int prefix##Matmul(LtHandle* handle, LtDesc* desc, const void* alpha, const void* a, LtLayout* a_layout,   \
                     const void* b, LtLayout* b_layout, const void* beta, const void* c, LtLayout* c_layout, \
                     void* d, LtLayout* d_layout, const void* algo, void* workspace, size_t bytes,           \
                     void* stream) {                                                                         \
    ENTER();                                                                                                 \
    if (!is_live(__func__, handle)) return kInvalid;                                                         \
    return multiply<Lt>(__func__, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,     \
                        algo, workspace, bytes, stream);                                                     \
  }

extern "C" {

LT_LIBRARY(cublasLt, Cublas)
LT_LIBRARY(hipblasLt, Hipblas)

struct RocblasHandle {
  void* stream = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  bool querying = false, repeatable = false;
};

int rocblas_create_handle(RocblasHandle** handle) {
  ENTER();
  *handle = created(new RocblasHandle);
  return 0;
}
int rocblas_destroy_handle(RocblasHandle* handle) { return destroyed(__func__, handle); }
int rocblas_set_stream(RocblasHandle* handle, void* stream) {
  ENTER();
  handle->stream = stream;
  return 0;
}
int rocblas_set_atomics_mode(RocblasHandle* handle, int mode) {
  ENTER();
  handle->repeatable = mode == 0;
  return 0;
}
int rocblas_set_workspace(RocblasHandle* handle, void* data, size_t bytes) {
  ENTER();
  handle->workspace = data;
  handle->workspace_bytes = bytes;
  return 0;
}
int rocblas_start_device_memory_size_query(RocblasHandle* handle) {
  ENTER();
  handle->querying = true;
  return 0;
}
int rocblas_stop_device_memory_size_query(RocblasHandle* handle, size_t* bytes) {
  ENTER();
  handle->querying = false;
  *bytes = state().workspace;
  return 0;
}
const char* rocblas_status_to_string(int) { return "as the stand-in says"; }
int rocblas_gemm_ex(RocblasHandle* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha,
                    const void* a, int a_type, int lda, const void* b, int b_type, int ldb, const void* beta,
                    const void* c, int c_type, int ldc, void* d, int d_type, int ldd, int compute, int algo,
                    int32_t, uint32_t) {
  ENTER();
  if (!is_live(__func__, handle)) return kInvalid;
  const auto type = [](int t) {
    return t == 151   ? std::optional(DType::kF32)
           : t == 150 ? std::optional(DType::kF16)
           : t == 168 ? std::optional(DType::kBF16)
                      : std::nullopt;
  };
  if (trans_a != 112 || trans_b != 111 || compute != 151 || algo != 0 || !handle->repeatable)
    return invalid(__func__, "not as it should be called");
  if (!type(a_type) || a_type != b_type || !type(d_type) || c_type != d_type)
    return invalid(__func__, "types that do not fit");
  if (lda < k || ldb < k || ldc < m || ldd < m) return invalid(__func__, "a stride that is too small");
  if (handle->querying) return state().workspace > 0 ? 9 : 10;
  if (handle->workspace_bytes < state().workspace) return invalid(__func__, "too little workspace");
  if (!a || !b || !c || !d) return invalid(__func__, "a null operand");
  float one, scale;
  std::memcpy(&one, alpha, sizeof(one));
  std::memcpy(&scale, beta, sizeof(scale));
  if (one != 1) return invalid(__func__, "a factor that nobody asked for");
  const Product product{n, m, k, ldb, *type(a_type), *type(d_type), b, a, c, scale, nullptr, DType::kF32, d};
  start(handle->stream, [product, workspace = handle->workspace, bytes = handle->workspace_bytes] {
    use_workspace(workspace, bytes);
    product.run();
  });
  return 0;
}

}  // extern "C"
