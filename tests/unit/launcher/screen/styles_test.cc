#include "launcher/screen/styles.h"

#include <gmock/gmock.h>

namespace poprun::launcher::styles_test {
namespace {

TEST(Styles, EmphasiseTheVerdictAndHeadings) {
  EXPECT_EQ(emphasised("fits: 1 of 2\n# train.cfg\nname  1\n"),
            "\x1b[1;32mfits\x1b[0m: 1 of 2\n\x1b[1m# train.cfg\x1b[0m\nname  1\n");
  EXPECT_EQ(emphasised("does not fit: too large"), "\x1b[1;31mdoes not fit\x1b[0m: too large");
  EXPECT_EQ(emphasised("Usage: x\n\nOptions:\n  -v:\n"), "\x1b[1mUsage:\x1b[0m x\n\n\x1b[1mOptions:\x1b[0m\n  -v:\n");
}

TEST(Styles, LeaveJsonAlone) {
  const std::string json = "{\n \"fits\": true,\n \"list\":\n [1]\n}\n";
  EXPECT_EQ(emphasised(json), json);
}

}  // namespace
}  // namespace poprun::launcher::styles_test
