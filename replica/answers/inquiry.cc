#include "replica/answers/inquiry.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "proto/answers.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/answers/job_answers.h"
#include "replica/answers/micro.h"
#include "replica/answers/scaling.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compilation/pass_states.h"
#include "replica/compilation/profile.h"
#include "replica/compilation/timed_job.h"
#include "replica/models/layers/model.h"
#include "replica/program/stage_schedule.h"
#include "replica/report/out_of_memory.h"
#include "replica/search/memory_advice.h"

namespace poprun {
namespace {

struct ModelFigures {
  std::int64_t parameters = 0;
  std::int64_t forward_macs = 0;
};

/// Returns the figures of a forward pass over one sample, as in evaluation.
Result<ModelFigures> figures_of(const Model& model) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"evaluate", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  ModelInputs inputs;
  inputs.classes = model.sample.classes;
  inputs.training = false;
  inputs.sizes = model.sizes;
  for (const SampleTensor& tensor : model.sample.tensors) {
    Shape shape{1};
    shape.insert(shape.end(), tensor.shape.begin(), tensor.shape.end());
    inputs.names.push_back(tensor.name);
    inputs.tensors.push_back(
        graph.add_tensor({tensor.name, {tensor.data, std::move(shape), Layout::kRowMajor}, Role::kStream}));
  }
  model.build(builder, inputs);
  POPRUN_TRY(builder.status());
  ModelFigures figures;
  for (const Tensor& tensor : graph.tensors()) {
    figures.parameters += tensor.role == Role::kParameter ? tensor.type.elements() : 0;
  }
  for (const Operation& operation : builder.operations()) {
    figures.forward_macs += find_operator(operation.kind)->work(signature_of(graph, operation)).macs;
  }
  return figures;
}

Result<proto::ListedModel> listed(const Model& model) {
  POPRUN_ASSIGN(const ModelFigures figures, figures_of(model));
  proto::ListedModel listed;
  listed.set_name(model.name);
  listed.set_parameters(static_cast<std::uint64_t>(figures.parameters));
  listed.set_forward_macs(static_cast<std::uint64_t>(figures.forward_macs));
  for (const auto& [name, value] : model.sizes) {
    proto::ModelSize& size = *listed.add_sizes();
    size.set_name(name);
    size.set_value(value == kOfData ? 0 : static_cast<std::uint64_t>(value));
  }
  for (const SampleTensor& tensor : model.sample.tensors) {
    if (!tensor.shape.empty()) {  // A label that is a single number is left out.
      proto::SampleTensor& added = *listed.add_sample();
      added.set_name(tensor.name);
      added.set_type(to_text(TensorType{tensor.data, tensor.shape, {}}));
    }
  }
  listed.set_classes(static_cast<std::uint64_t>(model.sample.classes));
  return listed;
}

Status list_models(proto::ModelList& list) {
  for (const Model& model : all_models()) {
    POPRUN_ASSIGN(*list.add_models(), listed(model));
  }
  return {};
}

/// Adds memory and locations to the answer, and also device time and schedule if the length of the job is known. The
/// device time is that of `timed` if it is given.
void add_device(const Program& program, const proto::RunConfig& config, const Result<JobLength>& length,
                proto::CompiledJob& answer, const TimedJob* timed = nullptr) {
  for (const proto::IpuMemory& memory : program.memory()) {
    *answer.add_memory() = without_layout(memory);
    answer.add_peaks(place_text(program, memory.worst_step()));
  }
  *answer.mutable_locations() = program.locations();
  if (!length) {
    return;
  }
  *answer.mutable_device() = timed == nullptr ? device_time(program, config, *length) : timed->device_time(*length);
  if (std::ranges::any_of(program.functions(), [](const proto::Function& f) { return f.part().stage() > 0; })) {
    const JobFunction function = config.inference() ? JobFunction::kEvaluate : JobFunction::kTrain;
    *answer.mutable_schedule() = stage_schedule(program, *find_function(program, name_of(function)));
  }
}

Status describe_job(const proto::CompileQuestion& job, proto::CompileAnswer& answer) {
  const proto::RunConfig& config = job.config();
  const proto::Dataset& dataset = job.dataset();
  POPRUN_ASSIGN(const auto onnx, onnx_model_of(config.model(), job.onnx_model()));
  const JobInputs inputs{config, dataset, onnx};
  POPRUN_ASSIGN(CompileOptions options, compile_options(config, dataset, onnx));
  CompileObserver observer;
  if (job.show_graphs()) {
    *answer.mutable_passes() = options_text(config, dataset);
    observer.after_pass = [&answer](std::string_view pass, const Job& after) {
      answer.mutable_passes()->append(state_text(pass, after));
      return Status{};
    };
  }
  options.layout_if_too_large = true;
  POPRUN_ASSIGN(Program program, compile_job(inputs, options, observer));
  proto::CompiledJob& compiled = *answer.mutable_job();
  compiled.set_parameter_count(program.parameter_count());
  compiled.set_operator_count(program.operator_count());
  *compiled.mutable_batch_sizes() = batch_sizes(config);
  const Result<JobLength> measured = job_length(config, dataset);
  const auto advice = [&] {
    MemoryAdvice found = memory_advice(program, config, dataset, onnx, {{job.command().begin(), job.command().end()}});
    compiled.mutable_remedies()->Assign(found.remedies.begin(), found.remedies.end());
    return found;
  };
  const Status fits = check_fits(program, advice);
  if (!fits && !config.memory().allow_out_of_memory()) {
    *compiled.mutable_notes() = program.notes();
    add_device(program, config, measured, compiled);
    return fits;
  }
  POPRUN_ASSIGN(const JobLength length, measured);
  POPRUN_ASSIGN(const WeightMatch weights, match_weights_of(job, program));
  POPRUN_TRY(take_match(weights, inputs, options, program));
  if (!fits) {
    allow_out_of_memory(fits.error(), config, program);
  }
  if (!config.inference()) {
    POPRUN_ASSIGN(const TrainingOptions training, training_options(config, dataset));
    POPRUN_TRY(plan_dumps(program, training.dumps, training.total_steps));
  }
  POPRUN_ASSIGN(const std::unique_ptr<TimedJob> timed, TimedJob::compile(inputs, options.initialised_here));
  if (timed != nullptr) {
    *program.add_notes() = to_proto(timed->note(config.topology().num_replicas()));
  }
  const proto::JobShape shape = job_shape(program, config, length);
  compiled.set_total_steps(shape.total_steps());
  compiled.set_steps_per_epoch(shape.steps_per_epoch());
  *compiled.mutable_notes() = program.notes();
  add_device(program, config, length, compiled, timed.get());
  if (!fits) {
    compiled.set_shortage(fits.error().message);
  }
  return {};
}

template <typename Question>
Result<Question> read_question(std::istream& input) {
  Question question;
  if (!question.ParseFromIstream(&input)) {
    return fail(ErrorCode::kUsage,
                fmt::format("the question needs a serialised {} on standard input", Question::descriptor()->name()));
  }
  return question;
}

/// Reads a `Question` from `input` and answers it with the message that `respond` fills.
template <typename Question, typename Message>
Answer answer_with(std::istream& input, Status (*respond)(const Question& question, Message& answer)) {
  Message message;
  const Status status =
      read_question<Question>(input).and_then([&](const Question& question) { return respond(question, message); });
  return {message.SerializeAsString(), status};
}

Answer list_models() {
  proto::ModelList list;
  const Status status = list_models(list);
  return {list.SerializeAsString(), status};
}

Answer check_model(std::istream& input) {
  const auto model = read_question<proto::ModelQuestion>(input).and_then(
      [](const auto& question) { return onnx_model_of(question.model(), question.onnx_model()); });
  return {"", model ? Status{} : tl::unexpected<Error>{model.error()}};
}

}  // namespace

Answer answer_inquiry(const std::vector<std::string>& arguments, std::istream& input) {
  if (arguments.size() == 1 && arguments[0] == "--compile") {
    return answer_with(input, describe_job);
  }
  if (arguments.size() == 1 && arguments[0] == "--estimate") {
    return answer_with(input, answer_estimate);
  }
  if (arguments.size() == 1 && arguments[0] == "--scale") {
    return answer_with(input, answer_scale);
  }
  if (arguments.size() == 1 && arguments[0] == "--profile") {
    return answer_with(input, answer_profile);
  }
  if (arguments.size() == 1 && arguments[0] == "--micro") {
    return answer_with(input, answer_micro);
  }
  if (arguments.size() == 1 && arguments[0] == "--check-model") {
    return check_model(input);
  }
  if (arguments.size() == 1 && arguments[0] == "--list-models") {
    return list_models();
  }
  return {"",
          fail(ErrorCode::kUsage, fmt::format("poprun-emu-replica: unknown question '{}'; available: --list-models, "
                                              "--compile, --estimate, --profile, --scale, --micro, --check-model",
                                              fmt::join(arguments, " ")))};
}

}  // namespace poprun
