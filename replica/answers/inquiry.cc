#include "replica/answers/inquiry.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "proto/coordinator.pb.h"
#include "proto/inquiry.pb.h"
#include "replica/answers/job_answers.h"
#include "replica/base/text.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compilation/pass_states.h"
#include "replica/compilation/profile.h"
#include "replica/models/layers/model.h"
#include "replica/program/picture.h"
#include "replica/report/out_of_memory.h"
#include "replica/search/memory_advice.h"
#include "replica/tables/ipu_table.h"

namespace poprun {
namespace {

struct ModelFigures {
  std::int64_t parameters = 0;
  std::int64_t forward_macs = 0;
};

/// Returns the figures of a forward pass of one sample, as in evaluation.
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

/// Returns "images u8[3,224,224], 1000 classes", without labels of one element.
std::string sample_text(const Sample& sample) {
  std::vector<std::string> parts;
  for (const SampleTensor& tensor : sample.tensors) {
    if (!tensor.shape.empty()) {
      parts.push_back(fmt::format("{} {}", tensor.name, to_text(TensorType{tensor.data, tensor.shape, {}})));
    }
  }
  if (sample.classes > 0) {
    parts.push_back(fmt::format("{} classes", sample.classes));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string sizes_text(const Model& model) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : model.sizes) {
    parts.push_back(value == kOfData ? name + "=the data's" : fmt::format("{}={}", name, value));
  }
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, " "));
}

Answer list_models() {
  Answer answer;
  const auto row = [&answer](const auto&... cells) {
    answer.text += fmt::format("{:<18} {:>13}  {:>14}  {:<72} {}\n", cells...);
  };
  row("model", "parameters", "forward GMAC", "sizes, with their defaults", "one sample");
  for (const Model& model : all_models()) {
    const auto figures = figures_of(model);
    if (!figures) {
      answer.status = tl::unexpected<Error>{figures.error()};
      return answer;
    }
    row(model.name, grouped(figures->parameters),
        fmt::format("{:.9f}", static_cast<double>(figures->forward_macs) / 1e9), sizes_text(model),
        sample_text(model.sample));
  }
  return answer;
}

void add_row(std::string& text, std::string_view name, const std::string& value) {
  text += fmt::format("{:<14} {}\n", name, value);
}

/// Adds the rows of a table of a replica's IPUs, with a line where some are left out.
template <typename Range, typename Key, typename Row>
void for_listed(const Range& ipus, Key key, bool all, std::string& text, Row row) {
  const std::vector<ListedRow> rows = all ? all_rows(static_cast<std::size_t>(ipus.size())) : listed_by(ipus, key);
  for (const ListedRow& listed : rows) {
    if (listed.left_out > 0) {
      add_row(text, "..", fmt::format("{}, listed with -vv", counted(listed.left_out, "IPU")));
    }
    row(static_cast<int>(listed.index), listed.stands_out);
  }
}

void describe_memory(const Program& program, bool all_ipus, std::string& text) {
  for_listed(program.memory(), &proto::IpuMemory::fullest_tile_peak, all_ipus, text, [&](int ipu, bool fullest) {
    const proto::IpuMemory& memory = program.memory(ipu);
    add_row(text, fmt::format("IPU {} memory", ipu),
            memory_text(memory.peak(), memory.capacity(), memory.always_live()) + ", planned" +
                (fullest ? kHasFullestTile : ""));
    add_row(
        text, "  tiles",
        tiles_text(memory.fullest_tile(), memory.fullest_tile_peak(), memory.bytes_per_tile(), memory.tile_classes()));
    if (memory.streaming_peak() > 0) {
      add_row(text, "  streaming",
              fmt::format("{} of {} of Streaming Memory", mebibytes_text(memory.streaming_peak()),
                          mebibytes_text(memory.streaming_capacity())));
    }
    if (memory.peak() > 0) {
      add_row(text, "  peak", "at " + place_text(program, memory.worst_step()));
    }
  });
}

void describe_time(const Program& program, const proto::RunConfig& config, const JobLength& length, bool all_ipus,
                   std::string& text) {
  const proto::DeviceTime device = device_time(program, config, length);
  add_row(text, config.inference() ? "device batch" : "device step",
          fmt::format("{}, {} samples/s (device clock, {}, modelled)", duration_text(device.step_seconds()),
                      grouped(std::llround(device.samples_per_second())), program.device().name()));
  add_row(text, "  host",
          host_text({.bytes_to_device = device.host().bytes_to_device(),
                     .bytes_from_device = device.host().bytes_from_device(),
                     .stream_seconds = device.host().stream_seconds(),
                     .calls = device.host().calls(),
                     .call_seconds = device.host().call_seconds()}));
  if (device.io_seconds() > 0) {
    add_row(text, "  I/O tiles", io_text(device.io_seconds(), device.io_waited_seconds()));
  }
  if (device.ipus_size() == 1) {
    return;
  }
  add_row(text, "utilisation", fmt::format("{:.1f} % of {} IPUs", 100 * device.utilisation(), device.ipus_size()));
  for_listed(device.ipus(), &proto::IpuTime::busy_seconds, all_ipus, text, [&](int ipu, bool busiest) {
    const proto::IpuTime& time = device.ipus(ipu);
    add_row(text, fmt::format("IPU {} time", ipu),
            time_text(time.busy_seconds(), time.idle_seconds()) + (busiest ? ": the busiest" : ""));
  });
}

bool share_an_ipu(const Program& program) {
  std::map<std::uint32_t, std::uint32_t> stage_on;
  return std::ranges::any_of(program.functions(), [&](const proto::Function& function) {
    return function.has_part() &&
           stage_on.emplace(function.part().ipu(), function.part().stage()).first->second != function.part().stage();
  });
}

/// Appends the schedule, if it is requested and there are several stages.
void describe_schedule(const Program& program, const proto::CompileQuestion& job, std::string& text) {
  const bool has_stages =
      std::ranges::any_of(program.functions(), [](const proto::Function& f) { return f.part().stage() > 0; });
  if (job.show_schedule() && has_stages) {
    const JobFunction function = job.config().inference() ? JobFunction::kEvaluate : JobFunction::kTrain;
    text += fmt::format(
        "# schedule by cycle: {}{}\n",
        job.config().inference() ? "A forward, by micro-batch" : "A forward, R recomputation, G backward, U update",
        share_an_ipu(program) ? "; several stages on one IPU, in their order" : "");
    text += picture(program, *find_function(program, name_of(function)),
                    {.width = job.screen_width(), .all_ipus = job.show_all_ipus()});
  }
}

/// If requested, appends where tensors are kept, and why.
void describe_locations(const Program& program, const proto::CompileQuestion& job, std::string& text) {
  if (job.show_all_ipus() && !program.locations().empty()) {
    text += fmt::format("# locations\n{}\n", fmt::join(program.locations(), "\n"));
  }
}

/// Appends memory and locations, and, if the length of the job is known, time and schedule.
void describe_device(const Program& program, const proto::CompileQuestion& job, const Result<JobLength>& length,
                     std::string& text) {
  describe_memory(program, job.show_all_ipus(), text);
  describe_locations(program, job, text);
  if (length) {
    describe_time(program, job.config(), *length, job.show_all_ipus(), text);
    describe_schedule(program, job, text);
  }
}

/// Appends the Program's figures to `text`; text before an error stays.
Status describe_job(const proto::CompileQuestion& job, std::string& text) {
  const proto::RunConfig& config = job.config();
  const proto::Dataset& dataset = job.dataset();
  const auto row = [&text](std::string_view name, const std::string& value) { add_row(text, name, value); };
  POPRUN_ASSIGN(const auto onnx, onnx_model_of(config.model(), job.onnx_model()));
  const JobInputs inputs{config, dataset, onnx};
  POPRUN_ASSIGN(CompileOptions options, compile_options(config, dataset, onnx));
  CompileObserver observer;
  if (job.show_graphs()) {
    text += options_text(config, dataset);
    observer.after_pass = [&text](std::string_view pass, const Job& after) {
      text += state_text(pass, after);
      return Status{};
    };
  }
  options.layout_if_too_large = true;
  POPRUN_ASSIGN(Program program, compile_job(inputs, options, observer));
  text += "# compiled\n";
  row("parameters", grouped(program.parameter_count()));
  row("operators", grouped(program.operator_count()));
  const proto::BatchSizes sizes = batch_sizes(config);
  row("batch sizes", fmt::format("compute {}, micro {}, replica {}, global {} samples",
                                 grouped(sizes.compute_batch_size()), grouped(sizes.micro_batch_size()),
                                 grouped(sizes.replica_batch_size()), grouped(sizes.global_batch_size())));
  const Result<JobLength> measured = job_length(config, dataset);
  const auto advice = [&] {
    return memory_advice(program, config, dataset, onnx, {{job.command().begin(), job.command().end()}});
  };
  const Status fits = check_fits(program, advice);
  if (!fits && !config.memory().allow_out_of_memory()) {
    for (const proto::Note& note : program.notes()) {
      row("note", note.text());
    }
    describe_device(program, job, measured, text);
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
  const proto::JobShape shape = job_shape(program, config, length);
  const std::string an_epoch =
      config.inference() ? "" : fmt::format(" ({} per epoch)", grouped(shape.steps_per_epoch()));
  row(config.inference() ? "batches" : "steps",
      fmt::format("{} of {} samples{}", grouped(shape.total_steps()), shape.samples_per_step(), an_epoch));
  for (const proto::Note& note : program.notes()) {
    row("note", note.text());
  }
  describe_device(program, job, length, text);
  if (!fits) {
    text += fmt::format("# {}\n", fits.error().message);
  }
  return {};
}

template <typename Question>
Result<Question> read_question(std::istream& input) {
  Question question;
  if (!question.ParseFromIstream(&input)) {
    return fail(ErrorCode::kUsage,
                fmt::format("the question needs a serialised {} as its input", Question::descriptor()->name()));
  }
  return question;
}

Answer compile_job(std::istream& input) {
  Answer answer;
  answer.status = read_question<proto::CompileQuestion>(input).and_then(
      [&answer](const auto& job) { return describe_job(job, answer.text); });
  return answer;
}

Answer estimate_jobs(std::istream& input) {
  Answer answer;
  answer.status = read_question<proto::EstimateQuestion>(input).and_then(
      [&answer](const auto& question) { return answer_estimate(question, answer.text); });
  return answer;
}

Answer profile_job(std::istream& input) {
  Answer answer;
  answer.status = read_question<proto::ProfileQuestion>(input).and_then(
      [&answer](const auto& question) { return answer_profile(question, answer.text); });
  return answer;
}

Answer check_model(std::istream& input) {
  const auto model = read_question<proto::ModelQuestion>(input).and_then(
      [](const auto& question) { return onnx_model_of(question.model(), question.onnx_model()); });
  return {"", model ? Status{} : tl::unexpected<Error>{model.error()}};
}

}  // namespace

Answer answer_inquiry(const std::vector<std::string>& arguments, std::istream& input) {
  if (arguments.size() == 1 && arguments[0] == "--compile") {
    return compile_job(input);
  }
  if (arguments.size() == 1 && arguments[0] == "--estimate") {
    return estimate_jobs(input);
  }
  if (arguments.size() == 1 && arguments[0] == "--profile") {
    return profile_job(input);
  }
  if (arguments.size() == 1 && arguments[0] == "--check-model") {
    return check_model(input);
  }
  if (arguments.size() == 1 && arguments[0] == "--list-models") {
    return list_models();
  }
  return {"", fail(ErrorCode::kUsage,
                   fmt::format("'{}' is not a question for poprun-emu-replica; available: --list-models, "
                               "--compile, --estimate, --profile, --check-model",
                               fmt::join(arguments, " ")))};
}

}  // namespace poprun
