// What the stand-ins share: what is alive, what was complained of, and their arithmetic.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/dtype.hpp"

namespace fake_vendor {

struct State {
  std::recursive_mutex mutex;
  std::string complaints;
  std::set<const void*> live;
  std::map<std::string, size_t> calls;
  std::map<std::string, int> failing;
  size_t workspace = 0;
  void (*queue)(void*, void (*)(void*), void*) = nullptr;
  std::list<std::function<void()>> queued;  // a graph runs its work again and again: kept to the end
};
inline State& state() {
  static auto& instance = *new State;
  return instance;
}

inline void complain(const std::string& text) { state().complaints += text + "\n"; }
inline int enter(const char* function) {
  ++state().calls[function];
  const auto failing = state().failing.find(function);
  return failing == state().failing.end() ? 0 : failing->second;
}
#define ENTER()                              \
  const std::lock_guard lock(state().mutex); \
  if (const int forced = enter(__func__)) return forced

template <class T>
T* created(T* object) {
  state().live.insert(object);
  return object;
}
inline bool is_live(const char* function, const void* object) {
  if (state().live.contains(object)) return true;
  complain(std::string(function) + ": no such handle");
  return false;
}
template <class T>
int destroyed(const char* function, T* object) {
  if (!is_live(function, object)) return 1;
  state().live.erase(object);
  delete object;
  return 0;
}

// Does the work now, or when the stream comes to it.
inline void start(void* stream, std::function<void()> work) {
  if (!state().queue) return work();
  auto& held = state().queued.emplace_back(std::move(work));
  state().queue(stream, [](void* w) { (*static_cast<std::function<void()>*>(w))(); }, &held);
}

using rocm_sd::DType;

inline double load(const void* data, DType type, int64_t i) {
  float value;
  const auto at = static_cast<size_t>(i) * rocm_sd::dtype_size(type);
  rocm_sd::convert_elements(static_cast<const char*>(data) + at, type, &value, DType::kF32, 1);
  return static_cast<double>(value);
}
inline void store(void* data, DType type, int64_t i, double value) {
  const auto narrow = static_cast<float>(value);
  const auto at = static_cast<size_t>(i) * rocm_sd::dtype_size(type);
  rocm_sd::convert_elements(&narrow, DType::kF32, static_cast<char*>(data) + at, type, 1);
}

// y [rows,columns] = x w^T + bias + beta residual, the operands as the libraries' callers see them.
struct Product {
  int64_t rows, columns, depth, x_stride;
  DType in, out;
  const void *x, *w, *residual;
  float beta;
  const void* bias;
  DType bias_type;
  void* y;

  void run() const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) sum += load(x, in, r * x_stride + k) * load(w, in, c * depth + k);
        if (bias) sum += load(bias, bias_type, c);
        if (beta != 0) sum += static_cast<double>(beta) * load(residual, out, r * columns + c);
        store(y, out, r * columns + c, sum);
      }
  }
};

// y [n,p,q,k] = the convolution of x [n,h,w,c] with filter [k,r,s,c]; at(n,p,q,k) takes each sum.
struct Correlation {
  int64_t batch, height, width, channels, outputs, filter_h, filter_w, out_h, out_w;
  int64_t stride_h, stride_w, pad_h, pad_w;
  DType type;
  const void *x, *filter;

  void run(const std::function<void(int64_t index, double sum)>& take) const {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t p = 0; p < out_h; ++p)
        for (int64_t q = 0; q < out_w; ++q)
          for (int64_t k = 0; k < outputs; ++k)
            take(((n * out_h + p) * out_w + q) * outputs + k, sum(n, p, q, k));
  }
  double sum(int64_t n, int64_t p, int64_t q, int64_t k) const {
    double out = 0;
    for (int64_t r = 0; r < filter_h; ++r)
      for (int64_t s = 0; s < filter_w; ++s) {
        const int64_t y = p * stride_h + r - pad_h, at = q * stride_w + s - pad_w;
        if (y < 0 || at < 0 || y >= height || at >= width) continue;
        for (int64_t c = 0; c < channels; ++c)
          out += load(x, type, ((n * height + y) * width + at) * channels + c) *
                 load(filter, type, ((k * filter_h + r) * filter_w + s) * channels + c);
      }
    return out;
  }
};

// Fills the workspace, so that one that is too small or somebody else's shows.
inline void use_workspace(void* data, size_t bytes) {
  if (bytes > 0) std::memset(data, 0xfb, bytes);
}

}  // namespace fake_vendor
