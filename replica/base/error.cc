#include "replica/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace poprun {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "poprun-emu: bug: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace poprun
