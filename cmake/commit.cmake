# Writes OUT, a C++ file with the commit of the tree SOURCE, where it differs from what stands there:
#   cmake -DSOURCE=... -DOUT=... -P cmake/commit.cmake
# Run at each build (src/measurement): a commit that a configuration remembers would be an old one.
set(commit unknown)
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=10 HEAD OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET RESULT_VARIABLE failed)
if(NOT failed)
  set(commit "${head}")
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
  if(NOT changes STREQUAL "")
    string(APPEND commit " with uncommitted changes")
  endif()
endif()
set(text "namespace rocm_sd::measurement {\nextern const char* const kBuiltFromCommit;\nconst char* const kBuiltFromCommit = \"${commit}\";\n}\n")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
