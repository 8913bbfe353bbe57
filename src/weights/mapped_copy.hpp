// Copying out of a memory-mapped file that another process may truncate meanwhile.
#pragma once

#include <cstddef>

namespace rocm_sd {

// memcpy that returns false where a page of src is gone (SIGBUS) or unreadable by the disk; dst is then
// partly written. Installs a SIGBUS handler on first use; a SIGBUS from elsewhere goes to the handler that
// was there before.
bool mapped_copy(void* dst, const void* src, size_t bytes);

}  // namespace rocm_sd
