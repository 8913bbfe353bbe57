// The shapes of scalar operations: read operands, compute with scc, write the destination.
#pragma once

#include <iterator>
#include <type_traits>

#include "emulator/lanes.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {

inline void put64(Wave& w, const Operand& o, uint64_t value) {
  w.sgpr[o.reg] = static_cast<uint32_t>(value);
  w.sgpr[o.reg + 1] = static_cast<uint32_t>(value >> 32);
}

template <class Ty>
inline typename Ty::T get(Wave& w, const Operand& o) {
  using T = typename Ty::T;
  if constexpr (kBits<Ty> == 64) {
    return cast<T>(scalar64(w, o));
  } else if constexpr (Ty::type == Type::kF16) {
    uint32_t bits = scalar(w, o) & 0xffff;
    bits = (o.abs ? bits & 0x7fff : bits) ^ (o.neg ? 0x8000 : 0);
    return half_to_float(w.modes & kFlushIn16 ? flush_half(bits) : bits);
  } else {
    uint32_t bits = scalar(w, o);
    bits = (o.abs ? bits & 0x7fffffff : bits) ^ (o.neg ? 0x80000000u : 0);
    return cast<T>(w.modes & kFlushIn<Ty> ? flush_single(bits) : bits);
  }
}
template <class Ty, class T>
inline void put(Wave& w, const Inst& in, T value) {
  if constexpr (kBits<Ty> == 64) {
    put64(w, in.dst, static_cast<uint64_t>(value));
  } else if constexpr (Ty::type == Type::kF16) {
    const uint32_t bits = float_to_half(value);
    w.sgpr[in.dst.reg] = w.modes & kFlushOut16 ? flush_half(bits) : bits;
  } else if constexpr (Ty::type == Type::kF32) {
    float result[kRow] = {static_cast<float>(value)};
    if (in.omod | (in.flags & kClamp)) modify_result(w, in, kOmod32, result);
    flush_result(w, result);
    w.sgpr[in.dst.reg] = cast<uint32_t>(result[0]);
  } else {
    w.sgpr[in.dst.reg] = static_cast<uint32_t>(value);
  }
}

template <class F, class D, class A>
void scalar1(Wave& w, const Inst& in) {
  uint32_t scc = w.sgpr[kScc];
  const auto a = get<A>(w, in.src[0]);
  const auto r = F{}(a, scc);
  put<D>(w, in, r);
  w.sgpr[kScc] = scc;
}
template <class F, class D, class A, class B>
void scalar2(Wave& w, const Inst& in) {
  uint32_t scc = w.sgpr[kScc];
  const auto a = get<A>(w, in.src[0]);
  const auto b = get<B>(w, in.src[1]);
  const auto r = F{}(a, b, scc);
  put<D>(w, in, r);
  w.sgpr[kScc] = scc;
}
template <class F, class D, class A, class B, class C>
void scalar3(Wave& w, const Inst& in) {
  uint32_t scc = w.sgpr[kScc];
  const auto r = F{}(get<A>(w, in.src[0]), get<B>(w, in.src[1]), get<C>(w, in.src[2]), scc);
  put<D>(w, in, r);
}
template <class F, class A, class B>
void scalar_compare(Wave& w, const Inst& in) {
  w.sgpr[kScc] = F{}(get<A>(w, in.src[0]), get<B>(w, in.src[1])) ? 1 : 0;
}

template <class D, class A, class F>
constexpr Operation salu1(const char* name, F) {
  return {name, &scalar1<F, D, A>, Class::kSalu, 1, 1, false, D::type, {A::type}};
}
template <class D, class A, class B, class F>
constexpr Operation salu2(const char* name, F) {
  return {name, &scalar2<F, D, A, B>, Class::kSalu, 1, 2, false, D::type, {A::type, B::type}};
}
template <class D, class A, class B, class C, class F>
constexpr Operation salu3(const char* name, F, bool accumulates = false) {
  return {name,
          &scalar3<F, D, A, B, C>,
          Class::kSalu,
          1,
          accumulates ? uint8_t{2} : uint8_t{3},
          accumulates,
          D::type,
          {A::type, B::type, C::type}};
}
template <class A, class B = A, class F>
constexpr Operation compare_entry(const char* name, F) {
  return {name, &scalar_compare<F, A, B>, Class::kSalu, 0, 2, false, Type::kNone, {A::type, B::type}};
}

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
