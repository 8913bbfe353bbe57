#include "kernels/family/kernel_map.hpp"

#include "base/error.hpp"
#include "kernels/family/kernel_tables.hpp"

namespace rocm_sd {

std::string to_text(const Range& range) {
  if (range == kAny) return "any";
  if (range.first == range.last) return concat(range.first);
  if (range.last == kAny.last) return concat("from ", range.first);
  if (range.first <= 0) return concat("at most ", range.last);
  return concat(range.first, " to ", range.last);
}

std::string to_text(FamilySet families) {
  if (families.bits == kAllFamilies.bits) return "all";
  std::string text;
  for (const KernelTables& family : all_kernel_tables())
    if (families.has(family.index)) text += concat(text.empty() ? "" : ", ", family.name);
  return text;
}

}  // namespace rocm_sd
