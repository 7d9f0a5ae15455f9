#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/models/onnx/importer.h"

/// Running ONNX models on given inputs, and checking them against outputs that are known.
namespace poprun {

/// Runs a model once through the ordinary compiler and engine, on one replica of a `device`, and gives its outputs in
/// order: real ones as floats, integers as int64, bools as floats 0 and 1. `inputs` go to OnnxModel::inputs in order.
///
/// Errors: those of importer, compiler and engine; kUsage, inputs of types that no device tensor holds; kData, too few
/// inputs.
Result<std::vector<onnx_import::Constant>> run_onnx(const onnx_import::OnnxModel& model,
                                                    const std::vector<onnx_import::Constant>& inputs,
                                                    const std::string& device);

/// Runs every case below a directory, in the order of their paths. A case is a folder with
///
///   model.onnx, test_data_set_*/{input,output}_N.pb    as ONNX's backend tests; or
///   model.onnx, output_0.pb                            a network that is fed arange(n) / n, n the
///                                                      elements of its input
///
/// and prints a line each, `pass`, `FAIL` with the largest deviation, or `unsupported` with the operator or feature,
/// then a total. Outputs must be equal within 1e-3 of their size, and 1e-7 (1e-5 for networks); integers and bools
/// exactly. As ONNX's own test runner has it.
///
/// Errors: kData, there is no case; kBug, some failed.
Status check_onnx(const std::string& directory, const std::function<void(std::string_view)>& print);

}  // namespace poprun
