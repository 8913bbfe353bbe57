// From types that are known when the program runs to those that kernel bodies are templates of.
#pragma once

#include <array>

#include "base/dtype.hpp"
#include "composable_kernels/eight_bit.hpp"
#include "composable_kernels/types.hpp"

namespace rocm_sd {

template <class... T>
struct OneOf {};
// One OneOf for each of a body's types.
template <class... Lists>
struct Storages {};
using FloatStorage = OneOf<Half, Bf16, float>;
using EightBitStorage = OneOf<Int8, Fp8>;

template <class T>
inline constexpr DType kTypeOf = DType::kF32;
template <>
inline constexpr DType kTypeOf<Half> = DType::kF16;
template <>
inline constexpr DType kTypeOf<Bf16> = DType::kBF16;
template <>
inline constexpr DType kTypeOf<Int8> = DType::kI8;
template <>
inline constexpr DType kTypeOf<Fp8> = DType::kF8E4M3;

namespace storages {

template <class... Chosen, class Body>
void choose(const DType*, Storages<>, OneOf<Chosen...>, const Body& body) {
  body.template operator()<Chosen...>();
}
template <class... Options, class... Rest, class... Chosen, class Body>
void choose(const DType* types, Storages<OneOf<Options...>, Rest...>, OneOf<Chosen...>, const Body& body) {
  ((*types == kTypeOf<Options> ? choose(types + 1, Storages<Rest...>{}, OneOf<Chosen..., Options>{}, body)
                               : void()),
   ...);
}
template <class... T>
bool holds(OneOf<T...>, DType type) {
  return ((type == kTypeOf<T>) || ...);
}

}  // namespace storages

// Calls body.operator()<T...>() with the storage of each type; nothing where one is not in its list.
template <class... Lists, class Body>
void with_storages(Storages<Lists...> lists, const std::array<DType, sizeof...(Lists)>& types,
                   const Body& body) {
  storages::choose(types.data(), lists, OneOf<>{}, body);
}
// Whether with_storages() calls anything.
template <class... Lists>
bool has_storages(Storages<Lists...>, const std::array<DType, sizeof...(Lists)>& types) {
  [[maybe_unused]] const DType* type = types.data();
  return (storages::holds(Lists{}, *type++) && ...);
}

}  // namespace rocm_sd
