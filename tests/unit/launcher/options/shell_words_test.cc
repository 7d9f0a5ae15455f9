#include "launcher/options/shell_words.h"

#include <gmock/gmock.h>

namespace poprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ShellWords, SplitAsAShellWould) {
  EXPECT_THAT(*split_shell_words("  a  'b c' \"d\\\"e\" f\\ g h''i '' "),
              ElementsAre("a", "b c", "d\"e", "f g", "hi", ""));
  EXPECT_THAT(*split_shell_words(" \t"), IsEmpty());
}

// boost::program_options::split_unix splits these words differently or refuses them.
TEST(ShellWords, KeepOtherQuotesAndBackslashesWithinQuotes) {
  EXPECT_THAT(*split_shell_words(R"("it's" 'a"b\c' 'd\e' \$HOME "")"),
              ElementsAre("it's", R"(a"b\c)", R"(d\e)", "$HOME", ""));
}

TEST(ShellWords, SayWhatIsNotClosed) {
  EXPECT_EQ(split_shell_words("a 'b").error().message, "the quote ' is not closed");
  EXPECT_EQ(split_shell_words("a \"b").error().message, "the quote \" is not closed");
  EXPECT_EQ(split_shell_words("a\\").error().message, "the text ends in a backslash");
}

TEST(ShellWords, QuotedReadBackAsTheyWere) {
  EXPECT_EQ(quote_shell_word("A=b,c:/d"), "A=b,c:/d");
  for (const char* word : {"", "a b", "it's", "$HOME", "a\"b\\c", "*;|&\n"}) {
    EXPECT_THAT(*split_shell_words(quote_shell_word(word)), ElementsAre(word));
  }
}

}  // namespace
}  // namespace poprun::launcher
