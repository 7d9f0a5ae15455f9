#include "launcher/job/waiting_line.h"

#include <gtest/gtest.h>

namespace poprun::launcher::waiting_line_test {
namespace {

TEST(WaitingLine, HasTheTimeLeftIfItIsKnown) {
  EXPECT_EQ(waiting_text({.doing = "compiling"}, 12), "compiling  0:12");
  EXPECT_EQ(waiting_text({.doing = "2 of 4: x", .seconds = 80}, 15), "2 of 4: x  0:15  ETA 1:05");
  EXPECT_EQ(waiting_text({.doing = "2 of 4: x", .seconds = 80}, 79.9), "2 of 4: x  1:20  ETA 0:01");
  EXPECT_EQ(waiting_text({.doing = "2 of 4: x", .seconds = 80}, 85), "2 of 4: x  1:25") << "longer than expected";
}

TEST(WaitingLine, ExpectsTheNextPiecesToTakeAsLongAsTheFirst) {
  EXPECT_EQ(seconds_left(30, 0, 4), 0);
  EXPECT_EQ(seconds_left(30, 1, 4), 90);
  EXPECT_EQ(seconds_left(30, 3, 4), 10);
}

}  // namespace
}  // namespace poprun::launcher::waiting_line_test
