#include "doctor/libraries.hpp"

#include "base/vendor_libraries.hpp"

namespace rocm_sd::doctor {

std::vector<Library> find_libraries() {
  std::vector<Library> found;
  for (const VendorLibrary& known : vendor_libraries()) {
    Library library{.product = known.product};
    const DynamicLibrary opened = open_vendor_library(known);
    if (!opened)
      library.problem = opened.problem();
    else if (library.file = opened.name(); opened.symbol(known.function) == nullptr)
      library.problem = library.file + " has no function " + known.function;
    found.push_back(library);
  }
  return found;
}

}  // namespace rocm_sd::doctor
