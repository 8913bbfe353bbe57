// WinogradUnit: what the Winograd convolution asks of a family beside its atom: arithmetic on two halves at a
// time, and fragments out of pieces of 16 bytes that lie anywhere.
//
// WinogradUnit<Arch> has
//   times(a, s), fma(a, s, c), add(a, b), sub(a, b)  of two halves in a word each: a s, a s + c, a + b, a -
//   b,
//                                                    rounded once; s: a float that a half can hold
//   load_a(block)             A of Atom<Arch, Half> from global memory: row r, k = 8 piece .. + 7 at
//                             block + 128 piece + 8 r; block: the same in all lanes
//   load_b(at)                B from LDS: column c, k = 8 piece .. + 7 at at(c, piece)
//   load_window(from, at)     8 bytes, `at` bytes behind `from`, which is the same in all lanes; zeros where
//                             at is kNowhere; from: buffer(base) of an address
//   keep_apart(branch)        at the end of branches that differ in registers only: the compiler does not
//   make
//                             one of them, which would put the registers into memory
#pragma once

#include "composable_kernels/atom.hpp"
#include "composable_kernels/types.hpp"

namespace rocm_sd {

// Four halves of neighbouring channels.
struct alignas(8) HalfQuad {
  uint32_t x[2];
};

template <class Arch>
struct WinogradUnit;

}  // namespace rocm_sd
