#include "launcher/options/help.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "launcher/options/option_table.h"

namespace poprun::launcher {
namespace {

using ::testing::EndsWith;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(Help, NamesEveryOption) {
  const std::string help = help_text("all");
  for (const OptionRow& row : option_table()) {
    EXPECT_THAT(help, HasSubstr("--" + row.name));
  }
}

TEST(Help, ShowsOneSection) {
  const std::string help = help_text("model");
  EXPECT_THAT(help, StartsWith("Model:\n"));
  EXPECT_THAT(help, HasSubstr("--model.heads N"));
  EXPECT_THAT(help, Not(HasSubstr("--training.seed")));
  for (const std::string& topic : help_topics()) {
    EXPECT_THAT(help_text(topic), SizeIs(Gt(50U))) << topic;
  }
}

TEST(Help, OfCommonOptionsFitsAScreen) {
  const std::string help = help_text("");
  EXPECT_THAT(help, HasSubstr("--training.learning-rate X"));
  EXPECT_THAT(help, Not(HasSubstr("--training.beta1")));
  EXPECT_LE(std::ranges::count(help, '\n'), 60);
}

TEST(Help, HasAtMost80ColumnsAndBreaksNoWord) {
  const std::string help = help_text("all");
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
  std::istringstream shown(help);
  const std::set<std::string> words{std::istream_iterator<std::string>(shown), {}};
  for (const OptionRow& row : option_table()) {
    std::istringstream text(described(row));
    for (std::string word; text >> word;) {
      EXPECT_TRUE(words.contains(word)) << row.name << ": " << word;
    }
  }
}

TEST(Help, IsWrittenAlike) {
  for (const OptionRow& row : option_table()) {
    EXPECT_THAT(row.help, Not(EndsWith("."))) << row.name;
    EXPECT_THAT(row.help, Not(MatchesRegex("(Of|Likewise|The) .*"))) << row.name;
    const char first = row.help.at(0);
    EXPECT_TRUE(std::isupper(first) != 0 || first == '-') << row.name;
    EXPECT_TRUE(std::ranges::any_of(sections(), [&](const Section& section) { return section.name == row.section; }))
        << row.name;
  }
}

TEST(OptionTable, DefaultsAreAllowedAndNamesAreUnique) {
  std::vector<std::string> names;
  for (const OptionRow& row : option_table()) {
    Options options;
    if (!row.fallback.empty()) {
      EXPECT_EQ(row.set(options, row.fallback), std::nullopt) << row.name;
    }
    for (const std::string& choice : row.choices) {
      EXPECT_EQ(row.set(options, choice), std::nullopt) << row.name << " " << choice;
    }
    names.push_back(row.name);
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

}  // namespace
}  // namespace poprun::launcher
