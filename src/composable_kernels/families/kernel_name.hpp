// A kernel's name, put together while compiling: the same function names it for the host, which looks it up
// in the archive, and for the build, which writes its entry point.
#pragma once

namespace rocm_sd {

class KernelName {
 public:
  template <class... Parts>
  constexpr explicit KernelName(const Parts&... parts) {
    (add(parts), ...);
  }
  constexpr const char* c_str() const { return text_; }
  constexpr bool operator==(const char* other) const {
    int i = 0;
    while (text_[i] != '\0' && text_[i] == other[i]) ++i;
    return text_[i] == other[i];
  }

 private:
  constexpr void add(const char* part) {
    while (*part != '\0') add_letter(*part++);
  }
  constexpr void add(int number) {
    if (number >= 10) add(number / 10);
    add_letter(static_cast<char>('0' + number % 10));
  }
  constexpr void add_letter(char letter) { text_[size_++] = letter; }  // past the end: no constant expression

  char text_[80] = {};
  int size_ = 0;
};

}  // namespace rocm_sd
