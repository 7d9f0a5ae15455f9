#include <algorithm>
#include <iterator>

#include "tests/unit/replica/ops/case.h"

namespace poprun::testing {

#define POPRUN_FAMILY(stem) std::vector<Case> stem##_cases();
#include "tests/unit/replica/ops/cases/families.inc"
#undef POPRUN_FAMILY

const std::vector<Case>& all_cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> cases;
    const auto take = [&cases](std::vector<Case> family) { std::ranges::move(family, std::back_inserter(cases)); };
#define POPRUN_FAMILY(stem) take(stem##_cases());
#include "tests/unit/replica/ops/cases/families.inc"
#undef POPRUN_FAMILY
    return cases;
  }();
  return all;
}

}  // namespace poprun::testing
