#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/models/onnx/importer.h"

/// Runs ONNX models on given inputs, and compares their outputs with known ones.
namespace poprun {

/// Runs a model once through the ordinary compiler and engine, on one replica of a `device`, and returns its outputs in
/// order: reals as floats, integers as int64, bools as floats 0 and 1. `inputs` go to OnnxModel::inputs in order.
/// Errors: those of the importer, the compiler and the engine; kUsage for input types that no device tensor can have;
/// kData for a wrong number of inputs.
Result<std::vector<onnx_import::Constant>> run_onnx(const onnx_import::OnnxModel& model,
                                                    const std::vector<onnx_import::Constant>& inputs,
                                                    const std::string& device);

/// Runs all cases below a directory, in the order of their paths. A case is a folder with:
///
///   model.onnx, test_data_set_*/{input,output}_N.pb    as in ONNX's backend tests; or
///   model.onnx, output_0.pb                            a network whose n-element input is arange(n) / n
///
/// Prints one line per case (`pass`, `FAIL` with the largest deviation, or `unsupported` with the operator or feature),
/// and then a total. Outputs may deviate by 1e-3 of their size plus 1e-7 (1e-5 for networks), as in ONNX's own test
/// runner; integers and bools must be identical. Errors: kData if there is no case; kBug if any case failed.
Status check_onnx(const std::string& directory, const std::function<void(std::string_view)>& print);

}  // namespace poprun
