// Whether two C functions are called alike: what a prototype of ours must share with the library's header.
#pragma once

#include <type_traits>

namespace rocm_sd::testing_support {

// Passed in the same way on every ABI that we build for: same size, both pointers or both numbers.
template <class A, class B>
constexpr bool same_argument() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>)
    return std::is_void_v<A> && std::is_void_v<B>;
  else
    return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
           std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}

template <class A, class B>
struct SameCall : std::false_type {};
template <class R, class... As, class S, class... Bs>
  requires(sizeof...(As) == sizeof...(Bs))
struct SameCall<R (*)(As...), S (*)(Bs...)>
    : std::bool_constant<same_argument<R, S>() && (same_argument<As, Bs>() && ...)> {};

template <class A, class B>
inline constexpr bool kSameCall = SameCall<A, B>::value;

}  // namespace rocm_sd::testing_support
