#include "launcher/screen/validation_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::launcher {
namespace {

using ::testing::HasSubstr;

validation::Row row(const std::string& name, double published) {
  validation::Row row;
  row.name = name;
  row.published.family = "f";
  row.published.value = published;
  row.published.unit = "samples/s";
  return row;
}

TEST(ValidationTable, PrintsWhatCannotBeComparedAndWhatDoesNotFit) {
  validation::Row failed = row("broken", 100);
  failed.failure = "cannot be compared";
  validation::Row large = row("large", 1000);
  large.ours = 1100;
  large.shortage = "out of memory";

  const std::string text = validation_table({failed, large});

  EXPECT_THAT(text, HasSubstr("broken                             100 samples/s  cannot be compared\n"));
  EXPECT_THAT(text, HasSubstr("large                            1,000 samples/s     1,100 samples/s  1.100  no\n"));
  EXPECT_THAT(text, HasSubstr("f                                  1      10.0 %      10.0 %     +10.0 %\n"));
  EXPECT_THAT(text, HasSubstr("poptorch                  3 ns per parameter\n"));
}

}  // namespace
}  // namespace poprun::launcher
