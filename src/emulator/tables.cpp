#include "emulator/tables.hpp"

#include <cstdlib>
#include <unordered_map>

#include "emulator/operations.hpp"

namespace rocm_sd::emu {

// The lists of each x86 level (see rocm_sd_emulator_levels in CMakeLists.txt).
#define DECLARE_LEVEL(level) \
  namespace level {          \
  Operations valu_float();   \
  Operations valu_integer(); \
  Operations valu_convert(); \
  Operations valu_compare(); \
  Operations valu_packed();  \
  Operations valu_lane();    \
  Operations matrix_wmma();  \
  Operations matrix_mfma();  \
  }
DECLARE_LEVEL(isa_baseline)
#ifdef ROCM_SD_X86_LEVELS
DECLARE_LEVEL(isa_v3)
#endif

namespace {

using Table = std::unordered_map<std::string_view, const Operation*>;

void add(Table& table, const Operations& operations) {
  for (size_t i = 0; i < operations.count; ++i) table.emplace(operations.first[i].name, operations.first + i);
}

#define ADD_LEVEL(level)                                                                                   \
  add(table, level::valu_float()), add(table, level::valu_integer()), add(table, level::valu_convert()),   \
      add(table, level::valu_compare()), add(table, level::valu_packed()), add(table, level::valu_lane()), \
      add(table, level::matrix_wmma()), add(table, level::matrix_mfma())

Table make_table() {
  Table table;
  add(table, scalar_operations());
  add(table, scalar_float_operations());
  add(table, control_operations());
  add(table, scalar_memory_operations());
  add(table, vector_memory_operations());
  add(table, atomic_operations());
  add(table, lds_operations());
  add(table, indexed_operations());
#ifdef ROCM_SD_X86_LEVELS
  const char* asked = std::getenv("ROCM_SD_ISA");  // as the host device reads it
  if (__builtin_cpu_supports("x86-64-v3") && !(asked && std::string_view(asked) == "baseline")) {
    ADD_LEVEL(isa_v3);
    return table;
  }
#endif
  ADD_LEVEL(isa_baseline);
  return table;
}

}  // namespace

const Operation* find_operation(std::string_view name) {
  static const Table table = make_table();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace rocm_sd::emu
