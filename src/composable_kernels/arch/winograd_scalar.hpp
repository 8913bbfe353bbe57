// WinogradUnit of the host: each half on its own.
#pragma once

#include "composable_kernels/arch/scalar.hpp"
#include "composable_kernels/arch/winograd_unit.hpp"

namespace rocm_sd {

template <>
struct WinogradUnit<Scalar> {
  using Atom = rocm_sd::Atom<Scalar, Half>;

  static uint32_t times(uint32_t a, float s) {
    return each([s](float x, float, float) { return x * s; }, a, 0, 0);
  }
  static uint32_t fma(uint32_t a, float s, uint32_t c) {
    return each([s](float x, float, float z) { return x * s + z; }, a, 0, c);
  }
  static uint32_t add(uint32_t a, uint32_t b) {
    return each([](float x, float y, float) { return x + y; }, a, b, 0);
  }
  static uint32_t sub(uint32_t a, uint32_t b) {
    return each([](float x, float y, float) { return x - y; }, a, b, 0);
  }

  static Atom::A load_a(const Half* block) {
    return gather<Atom::A>([block](int row, int piece) { return block + piece * 128 + row * 8; });
  }
  template <class At>
  static Atom::B load_b(const At& at) {
    return gather<Atom::B>(at);
  }

  static void keep_apart(int) {}

  static constexpr uint32_t kNowhere = 0x80000000u;
  static const char* buffer(const void* base) { return static_cast<const char*>(base); }
  static HalfQuad load_window(const char* from, uint32_t at) {
    HalfQuad out{};
    if (at < kNowhere) std::memcpy(&out, from + at, sizeof(out));
    return out;
  }

 private:
  static float half_of(uint32_t x, int i) { return to_float(Half{static_cast<uint16_t>(x >> 16 * i)}); }
  template <class F>
  static uint32_t each(const F& f, uint32_t a, uint32_t b, uint32_t c) {
    uint32_t out = 0;
    for (int i = 0; i < 2; ++i) {
      Half rounded;
      store(rounded, f(half_of(a, i), half_of(b, i), half_of(c, i)));
      out |= static_cast<uint32_t>(rounded.bits) << 16 * i;
    }
    return out;
  }
  template <class Fragment, class At>
  static Fragment gather(const At& at) {
    Fragment f;
    for (int r = 0; r < 16; ++r)
      for (int k = 0; k < 16; ++k) f.x[r][k] = to_float(at(r, k / 8)[k % 8]);
    return f;
  }
};

}  // namespace rocm_sd
