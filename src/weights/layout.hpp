// Which components a file holds, under which prefixes and naming styles.
#pragma once

#include <string>
#include <vector>

#include "weights/name_map.hpp"
#include "weights/tensor_set.hpp"

namespace rocm_sd {

struct LayoutPart {
  Component component;
  NameStyle style;
  std::string prefix;  // "model.diffusion_model.", or empty
};

// The components in the file, at most one part each (TAESD: one per half), in the order of kComponents. Empty
// where none is recognised. Where a file holds two candidates for a component the first in the order of the
// known prefixes is taken and a line is added to notes.
std::vector<LayoutPart> find_parts(const TensorSet& tensors, std::vector<std::string>* notes = nullptr);

// The tensors of one part; those under the prefixes of other parts are left out where the part's own prefix
// is empty.
std::vector<NamedTensor> tensors_of(const TensorSet& tensors, const LayoutPart& part,
                                    std::span<const LayoutPart> all);

// What a file without a known component seems to be: "a LoRA", "a Stable Diffusion 3 checkpoint"; empty where
// unknown.
std::string describe_foreign(const TensorSet& tensors);

// Names outside all parts, told apart.
void sort_leftovers(const TensorSet& tensors, std::span<const LayoutPart> parts, KeyReport& report);

}  // namespace rocm_sd
