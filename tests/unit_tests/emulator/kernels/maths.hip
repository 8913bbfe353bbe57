// Functions of the device library and arithmetic in half precision.
#include "device.hpp"

extern "C" {
__attribute__((device)) float __ocml_sin_f32(float);
__attribute__((device)) float __ocml_cos_f32(float);
__attribute__((device)) float __ocml_tan_f32(float);
__attribute__((device)) float __ocml_exp_f32(float);
__attribute__((device)) float __ocml_exp2_f32(float);
__attribute__((device)) float __ocml_log_f32(float);
__attribute__((device)) float __ocml_pow_f32(float, float);
__attribute__((device)) float __ocml_tanh_f32(float);
__attribute__((device)) float __ocml_erf_f32(float);
__attribute__((device)) float __ocml_cbrt_f32(float);
__attribute__((device)) float __ocml_atan2_f32(float, float);
__attribute__((device)) float __ocml_rsqrt_f32(float);
__attribute__((device)) double __ocml_exp_f64(double);
__attribute__((device)) double __ocml_log_f64(double);
__attribute__((device)) double __ocml_sin_f64(double);
__attribute__((device)) double __ocml_erf_f64(double);
}

struct Functions {
  const float *a, *b;  // b > 0
  float* out;          // [12][n]
  double* wide;        // [4][n]
  int n;
};
KERNEL functions(Functions p) {
  const int i = group_x() * 64 + thread_x();
  if (i >= p.n) return;
  const float a = p.a[i], b = p.b[i];
  float* out = p.out + i;
  out[0 * p.n] = __ocml_sin_f32(a);
  out[1 * p.n] = __ocml_cos_f32(a * 1000.0f);
  out[2 * p.n] = __ocml_tan_f32(a);
  out[3 * p.n] = __ocml_exp_f32(a);
  out[4 * p.n] = __ocml_exp2_f32(a);
  out[5 * p.n] = __ocml_log_f32(b);
  out[6 * p.n] = __ocml_pow_f32(b, a);
  out[7 * p.n] = __ocml_tanh_f32(a);
  out[8 * p.n] = __ocml_erf_f32(a);
  out[9 * p.n] = __ocml_cbrt_f32(a);
  out[10 * p.n] = __ocml_atan2_f32(a, b);
  out[11 * p.n] = __ocml_rsqrt_f32(b);
  double* wide = p.wide + i;
  wide[0 * p.n] = __ocml_exp_f64(a);
  wide[1 * p.n] = __ocml_log_f64(b);
  wide[2 * p.n] = __ocml_sin_f64(a * 100.0);
  wide[3 * p.n] = __ocml_erf_f64(a);
}

struct Halves {
  const half *a, *b, *c;
  half* out;    // [8][n]
  float* sums;  // [n]
  int n;
};
KERNEL halves(Halves p) {
  const int i = (group_x() * 64 + thread_x()) * 2;
  if (i >= p.n) return;
  const half2 a = *(const half2*)(p.a + i), b = *(const half2*)(p.b + i), c = *(const half2*)(p.c + i);
  half2* out = (half2*)(p.out + i);
  const int row = p.n / 2;
  out[0 * row] = a + b;
  out[1 * row] = a * b;
  out[2 * row] = __builtin_elementwise_fma(a, b, c);
  out[3 * row] = __builtin_elementwise_max(a, __builtin_elementwise_min(b, c));
  out[4 * row] = half2{(half)((float)a.x * 0.5f), (half)((float)b.y + 1.0f)};
  out[5 * row] = half2{a.x - b.y, -a.y * b.x};
  out[6 * row] = half2{(half)__builtin_sqrtf((float)(a.x * a.x)), a.y / (b.y * b.y + (half)1)};
  out[7 * row] = half2{(half)(int)(float)a.x, (half)(float)(unsigned short)(i & 1023)};
  p.sums[i] = (float)a.x * (float)b.x + (float)c.x;
  p.sums[i + 1] = (float)a.y * (float)b.y - (float)c.y;
}
