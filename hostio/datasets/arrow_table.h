#pragma once

#include <filesystem>
#include <vector>

#include "hostio/datasets/tables.h"

namespace poprun::hostio {

/// Reads the metadata of Arrow files that together form a table, and the lengths of their lists. Columns of integers,
/// floats and booleans are tensors, and so are lists of them, nested to any depth; strings are read as labels and as
/// text. Other columns are left out, with a note. Errors: those of list_arrow, and kData if a value is null, lists
/// below the outermost differ in length, or the files do not have the same columns.
Result<TablePtr> scan_arrow(const std::vector<std::filesystem::path>& files, const Source& source);

}  // namespace poprun::hostio
