#include "launcher/job/compile_question.h"

#include <functional>
#include <string>
#include <utility>

#include "launcher/job/dataset_of.h"
#include "launcher/job/inputs.h"

namespace poprun::launcher {

Result<proto::CompileQuestion> compile_question(const Options& options, Console& console) {
  proto::CompileQuestion job;
  *job.mutable_config() = options.config;
  POPRUN_ASSIGN(*job.mutable_dataset(), dataset_of(options, console));
  POPRUN_ASSIGN(ModelInputs inputs, read_inputs(options.config.model()));
  job.set_onnx_model(std::move(inputs.onnx.bytes));
  job.mutable_command()->Assign(options.command.begin(), options.command.end());
  for (const Tensor& tensor : inputs.initial_weights) {
    proto::TensorDescription& description = *job.add_initial_weights();
    description.set_name(tensor.name);
    description.set_type(element_type(tensor.dtype));
    description.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    description.set_digest(std::hash<std::string>{}(tensor.data));
  }
  return job;
}

}  // namespace poprun::launcher
