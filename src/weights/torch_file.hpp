// Files of torch.save (.ckpt, .pt, .pth, .bin): tensors by name, without running what the file may hold.
#pragma once

#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd {

struct TorchFile {
  SafetensorsHeader header;  // begin: bytes from the start of the file
  // By entry: the values of a tensor that does not lie contiguously in the file (a transposed view),
  // gathered; empty for the others.
  std::vector<std::vector<char>> gathered;
};

// True for a zip archive or one of torch.save's pickles, by the file's first bytes.
bool is_torch_file(std::string_view head);

// Reads the zip form (PyTorch 1.6 and later) and the older one of pickles followed by raw storages
// (torch/serialization.py). The tensors are those of the dictionary under "state_dict", "params_ema" or
// "params", the first that is there, else of the whole object; names of nested dictionaries are joined by
// dots ("string_to_param.*"). A tensor that is the whole object is named "tensor". Throws FormatError, naming
// the place, for everything that read_zip_records, check_contents and read_pickle refuse, for tensors outside
// their storage, and for big-endian and TorchScript archives.
TorchFile read_torch_file(const InputFile& file, std::string_view what);

}  // namespace rocm_sd
