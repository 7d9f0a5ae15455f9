#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "hostio/datasets/arrow_table.h"
#include "hostio/datasets/dataset.h"
#include "hostio/datasets/tables.h"

/// "arrow:DIR": a dataset that Hugging Face's `save_to_disk` has written, or "arrow:FILE": a single Arrow file.
///
///   DIR/*.arrow                            one part
///   DIR/train/*.arrow, DIR/test/*.arrow    a DatasetDict; `validation` if there is no `test`
///
/// tables.h says what the columns mean. Memory use depends on the numbers that are served.
namespace poprun::hostio::families {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kArrowPrefix = "arrow:";

/// Returns the Arrow files in a folder in ascending order. Results that the library `datasets` has cached are left out.
Result<std::vector<fs::path>> files_in(const fs::path& folder, const FileScope& scope) {
  POPRUN_TRY(scope.admits(folder));
  std::error_code failed;
  if (!fs::is_directory(folder, failed)) {
    return std::vector<fs::path>{folder};
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator at(folder, failed); !failed && at != fs::directory_iterator(); at.increment(failed)) {
    if (at->path().extension() == ".arrow" && !at->path().filename().string().starts_with("cache-")) {
      files.push_back(at->path());
    }
  }
  if (failed || files.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: expected a folder written by save_to_disk(), with .arrow files: {}",
                                              folder.string(), failed ? failed.message() : "it contains none"));
  }
  std::ranges::sort(files);
  return files;
}

Result<Tables> arrow_tables(const Source& source) {
  const fs::path place = source.text.substr(kArrowPrefix.size());
  Tables tables;
  POPRUN_TRY(source.scope.admits(place));
  std::error_code ignored;
  const bool is_dict = fs::is_directory(place / "train", ignored);
  POPRUN_ASSIGN(const auto train, files_in(is_dict ? place / "train" : place, source.scope));
  POPRUN_ASSIGN(tables.train, scan_arrow(train, source));
  for (const char* name : {"test", "validation"}) {
    if (is_dict && tables.test == nullptr && fs::is_directory(place / name, ignored)) {
      POPRUN_ASSIGN(const auto test, files_in(place / name, source.scope));
      POPRUN_ASSIGN(tables.test, scan_arrow(test, source));
    }
  }
  return tables;
}

}  // namespace

const DatasetFamily& arrow() {
  static constexpr DatasetFamily kFamily = {
      .form = "arrow:DIR",
      .parameters = kTableParameters,
      .stored = kStoredTableParameters,
      .accepts = [](std::string_view text) { return text.starts_with(kArrowPrefix); },
      .describe = [](const Source& source) { return describe_tables(arrow_tables(source), source); },
      .read = [](const Source& source) { return read_tables(arrow_tables(source), source); },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
