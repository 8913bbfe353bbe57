// A shared library found when the program runs.
#pragma once

#include <initializer_list>
#include <string>

namespace rocm_sd {

class DynamicLibrary {
 public:
  // Opens the first of the names that the loader finds. Not closed again: drivers leave threads behind.
  explicit DynamicLibrary(std::initializer_list<const char*> names);
  // The file that the environment's variable names, else as above.
  static DynamicLibrary chosen_by(const char* variable, std::initializer_list<const char*> names);

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& problem() const { return problem_; }  // why it could not be opened
  const std::string& name() const { return name_; }        // the one that was opened

  // Lets libraries that are opened later find its symbols, as Open MPI's plug-ins must.
  void make_global() const;

  void* symbol(const char* name) const;  // null if the library lacks it

 private:
  bool open(const char* name);

  void* handle_ = nullptr;
  std::string name_, problem_;
};

}  // namespace rocm_sd
