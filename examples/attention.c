/* Attention through librocm_sd_kernels, checked against plain loops: attention [DEVICE]
 * DEVICE as rocm_sd_kernels_open takes it; "auto" if it is left out. */
#include <math.h>
#include <rocm_sd/kernels.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 2, kHeads = 8, kQueries = 200, kKeys = 77, kHeadDim = 40, kRow = kHeads * kHeadDim };

static uint16_t to_bf16(float x) { /* rounds to nearest, ties to even */
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_bf16(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

/* Evenly distributed in [-1, 1). */
static void fill(uint16_t* data, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = to_bf16((float)(seed >> 8) / (1 << 23) - 1);
  }
}

/* One row of the result in double. q, k, v at the first element of the head. */
static void reference(const uint16_t* q, const uint16_t* k, const uint16_t* v, double* y) {
  double score[kKeys], most = -INFINITY, total = 0;
  for (int j = 0; j < kKeys; ++j) {
    score[j] = 0;
    for (int c = 0; c < kHeadDim; ++c) score[j] += (double)from_bf16(q[c]) * from_bf16(k[j * kRow + c]);
    score[j] /= sqrt(kHeadDim);
    most = fmax(most, score[j]);
  }
  for (int c = 0; c < kHeadDim; ++c) y[c] = 0;
  for (int j = 0; j < kKeys; ++j) {
    const double weight = exp(score[j] - most);
    total += weight;
    for (int c = 0; c < kHeadDim; ++c) y[c] += weight * from_bf16(v[j * kRow + c]);
  }
  for (int c = 0; c < kHeadDim; ++c) y[c] /= total;
}

static double worst_error(const uint16_t* q, const uint16_t* k, const uint16_t* v, const uint16_t* y) {
  double worst = 0, want[kHeadDim];
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kHeads; ++h)
      for (int i = 0; i < kQueries; ++i) {
        const size_t row = ((size_t)b * kQueries + i) * kRow + h * kHeadDim;
        const size_t keys = (size_t)b * kKeys * kRow + h * kHeadDim;
        reference(q + row, k + keys, v + keys, want);
        for (int c = 0; c < kHeadDim; ++c) {
          const double error = fabs(from_bf16(y[row + c]) - want[c]);
          worst = error <= worst ? worst : error; /* a NaN stays */
        }
      }
  return worst;
}

static void check(rocm_sd_kernels_status status) {
  if (status == ROCM_SD_KERNELS_OK) return;
  fprintf(stderr, "error: %s\n", rocm_sd_kernels_last_error());
  exit(status);
}

static void* on_device(rocm_sd_kernels_context* context, const void* values, size_t bytes) {
  void* data = NULL;
  check(rocm_sd_kernels_allocate(context, bytes, &data));
  if (values) check(rocm_sd_kernels_copy_to_device(context, data, values, bytes));
  return data;
}

int main(int argc, char** argv) {
  rocm_sd_kernels_context* context = NULL;
  check(rocm_sd_kernels_open(argc > 1 ? argv[1] : "auto", &context));

  const rocm_sd_kernels_attention problem = {.size = sizeof(problem),
                                             .dtype = ROCM_SD_KERNELS_BF16,
                                             .batch = kBatch,
                                             .heads = kHeads,
                                             .queries = kQueries,
                                             .keys = kKeys,
                                             .head_dim = kHeadDim};
  rocm_sd_kernels_plan* plan = NULL;
  check(rocm_sd_kernels_plan_attention(context, &problem, &plan));
  printf("%s", rocm_sd_kernels_explain(plan));
  rocm_sd_kernels_plan_info info = {.size = sizeof(info)};
  check(rocm_sd_kernels_inspect(plan, &info));

  enum { kQ = kBatch * kQueries * kRow, kK = kBatch * kKeys * kRow };
  static uint16_t q[kQ], k[kK], v[kK], y[kQ];
  fill(q, kQ, 1);
  fill(k, kK, 2);
  fill(v, kK, 3);
  void* dq = on_device(context, q, sizeof(q));
  void* dk = on_device(context, k, sizeof(k));
  void* dv = on_device(context, v, sizeof(v));
  void* dy = on_device(context, NULL, sizeof(y));
  void* workspace = info.workspace_bytes ? on_device(context, NULL, info.workspace_bytes) : NULL;

  const rocm_sd_kernels_operands operands = {.size = sizeof(operands),
                                             .q = dq,
                                             .k = dk,
                                             .v = dv,
                                             .y = dy,
                                             .workspace = workspace,
                                             .workspace_bytes = info.workspace_bytes};
  check(rocm_sd_kernels_launch(plan, &operands, NULL)); /* a program with a stream of its own gives it here */
  check(rocm_sd_kernels_synchronize(context, NULL));
  check(rocm_sd_kernels_copy_to_host(context, y, dy, sizeof(y)));

  rocm_sd_kernels_deallocate(context, workspace, info.workspace_bytes);
  rocm_sd_kernels_deallocate(context, dy, sizeof(y));
  rocm_sd_kernels_deallocate(context, dv, sizeof(v));
  rocm_sd_kernels_deallocate(context, dk, sizeof(k));
  rocm_sd_kernels_deallocate(context, dq, sizeof(q));
  rocm_sd_kernels_plan_free(plan);
  rocm_sd_kernels_close(context);

  /* The result and the weights of the sum are rounded to bf16: 2^-9 each of values below 1. */
  const double worst = worst_error(q, k, v, y);
  printf("largest error against plain loops: %.2g\n", worst);
  return worst < 1.0 / 128 ? 0 : 1;
}
