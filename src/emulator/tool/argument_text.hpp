// The arguments of a kernel as a user writes them: "in:a.npy", "out:f32[1024]:b.npy", "i32:5",
// "{in:a.npy,i32:5}".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/npy.hpp"

namespace rocm_sd::emu {

// An element type by its name in arguments: f64 f32 f16 bf16, i8 ... i64, u8 ... u64, bool.
struct ElementType {
  std::string name;
  NpyType npy;  // bf16 is stored as NumPy stores it: two opaque bytes
};
ElementType element_type(std::string_view name);  // throws UsageError

// One argument, or one member of a struct.
//   TYPE:VALUE            a scalar; u64:0 or null for a pointer that leads nowhere
//   in:FILE.npy           a buffer with the file's data
//   inout:FILE.npy[:TO]   the same, written back to TO [FILE] after the run
//   out:TYPE[SHAPE][:TO]  a buffer that starts with bytes 0xff, written to TO after the run
//   zeros:TYPE[SHAPE][:TO]  a buffer that starts with zeros, likewise
//   pad:BYTES             unused bytes of a struct
//   {A,B,...}             a struct, its members aligned as C++ aligns them
struct ArgumentText {
  enum class Kind { kScalar, kBuffer, kPadding, kStruct };
  Kind kind = Kind::kScalar;
  std::string text;              // as given
  std::vector<std::byte> value;  // of a scalar
  bool poisoned = false;         // of a buffer: it starts with 0xff, not with its data
  std::string from, to;          // of a buffer: files; empty: none
  ElementType type;              // of a buffer; in and inout take it from the file
  std::vector<uint64_t> shape;
  uint64_t padding = 0;
  std::vector<ArgumentText> members;
};

// Throws UsageError that shows the argument and what was expected.
ArgumentText parse_argument(std::string_view text);

}  // namespace rocm_sd::emu
