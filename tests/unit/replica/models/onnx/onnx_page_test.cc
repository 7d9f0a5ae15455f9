/// OPERATORS.md, the page of ONNX's operators: its first two columns follow from the code, the third is written by
/// hand. `POPRUN_EMU_WRITE=1 replica_models_test --gtest_filter='OnnxPage.*'` brings it up to date.

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "replica/models/onnx/importer.h"
#include "replica/models/onnx/schemas.h"

namespace poprun::onnx_page_test {
namespace {

constexpr const char* kPage = POPRUN_ROOT "/replica/models/onnx/OPERATORS.md";
constexpr std::string_view kRule = "|---|---|---|\n";

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the opsets in which an operator exists, such as "7" or "9 to 28".
std::string opsets_of(const std::string& op) {
  std::int64_t first = 0;
  std::int64_t last = 0;
  for (std::int64_t opset = 1; opset <= onnx_import::kNewestOpset; ++opset) {
    const auto* schema = onnx_import::schemas().GetSchema(op, static_cast<int>(opset), "");
    if (schema != nullptr && !schema->Deprecated()) {
      first = first == 0 ? opset : first;
      last = opset;
    }
  }
  EXPECT_GT(first, 0) << op << " has no schema";
  return first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last);
}

/// Returns the last column of the page, by operator.
std::map<std::string, std::string> notes_of(const std::string& page) {
  std::map<std::string, std::string> notes;
  std::istringstream lines(page.substr(page.find(kRule) + kRule.size()));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find('|', 1);
    const std::size_t second = line.find('|', first + 1);
    const std::size_t last = line.rfind('|');
    if (line.starts_with("| ") && second < last) {
      notes[line.substr(2, first - 3)] = line.substr(second + 2, last - second - 2);
    }
  }
  return notes;
}

TEST(OnnxPage, NamesEveryOperatorWithItsOpsets) {
  const std::string page = read(kPage);
  ASSERT_NE(page.find(kRule), std::string::npos) << kPage << " has no table";
  const auto notes = notes_of(page);
  std::string wanted = page.substr(0, page.find(kRule) + kRule.size());
  for (const std::string& op : onnx_import::supported_operators()) {
    const auto note = notes.find(op);
    wanted += fmt::format("| {} | {} | {}|\n", op, opsets_of(op), note == notes.end() ? "" : note->second);
  }
  if (std::getenv("POPRUN_EMU_WRITE") != nullptr) {
    std::ofstream(kPage) << wanted;
    return;
  }
  EXPECT_EQ(page, wanted) << "OPERATORS.md is out of date; run this test with POPRUN_EMU_WRITE=1, then add notes on "
                             "what is not supported";
}

}  // namespace
}  // namespace poprun::onnx_page_test
