#include "replica/compilation/pass_states.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "proto/inquiry.pb.h"
#include "replica/base/text.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compiler/job/job_text.h"
#include "replica/compiler/passes.h"

namespace poprun {
namespace {

constexpr std::string_view kOptions = "# options";
constexpr std::string_view kJob = "# job";
constexpr std::string_view kAfterPass = "# job after pass ";
constexpr std::string_view kEnd = "# compiled";

/// Returns the position of a pass in the order of all passes, or -1 if no pass has that name.
int number_of(std::string_view pass) {
  const auto found = std::ranges::find(all_passes(), pass, &Pass::name);
  return found == all_passes().end() ? -1 : static_cast<int>(found - all_passes().begin());
}

/// The lines after a heading.
struct Section {
  std::string_view heading;
  std::string_view text;
  int line = 0;  ///< The first line after the heading.

  /// Returns the number of the pass that made this job, or -1 if no pass did.
  [[nodiscard]] int pass() const {
    return heading.starts_with(kAfterPass) ? number_of(heading.substr(kAfterPass.size())) : -1;
  }

  [[nodiscard]] bool is_job() const { return heading == kJob || pass() >= 0; }
};

std::vector<Section> sections_of(std::string_view text) {
  std::vector<Section> sections;
  std::size_t begin = 0;
  bool is_open = false;
  for (int number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = std::min(end + 1, text.size());
    const Section section{line, text.substr(begin, 0), number + 1};
    if (line == kEnd || line == kOptions || section.is_job()) {
      is_open = line != kEnd;
      if (is_open) {
        sections.push_back(section);
      }
    } else if (is_open) {
      std::string_view& last = sections.back().text;
      last = {last.data(), static_cast<std::size_t>(text.data() + begin - last.data())};
    }
  }
  return sections;
}

/// Returns the last job that the first compilation printed before the pass with this number.
std::optional<Section> job_before(const std::vector<Section>& sections, int pass) {
  std::optional<Section> last;
  for (const Section& section : sections) {
    if (!section.is_job()) {
      continue;
    }
    if (section.pass() >= pass || (last && section.pass() <= last->pass())) {
      break;
    }
    last = section;
  }
  return last;
}

/// Keeps the first error of the Protobuf parser.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(int first_line) : first_line_(first_line) {}

  void AddError(int line, int /*column*/, const std::string& message) override {
    if (text.empty()) {
      text = fmt::format("line {}: {}", first_line_ + line, message);
    }
  }

  std::string text;

 private:
  int first_line_;
};

Result<proto::CompileQuestion> parse_options(const std::vector<Section>& sections) {
  const auto section = std::ranges::find(sections, kOptions, &Section::heading);
  if (section == sections.end()) {
    return fail(ErrorCode::kUsage, fmt::format("the options, which begin with a line '{}', are missing", kOptions));
  }
  proto::CompileQuestion question;
  FirstError error(section->line);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(std::string{section->text}, &question)) {
    return fail(ErrorCode::kUsage, std::move(error.text));
  }
  const proto::RunConfig& config = question.config();
  const std::array<std::pair<std::string_view, std::uint64_t>, 4> counts = {
      {{"data.micro_batch_size", config.data().micro_batch_size()},
       {"training.gradient_accumulation", config.training().gradient_accumulation()},
       {"topology.num_replicas", config.topology().num_replicas()},
       {"topology.ipus_per_replica", config.topology().ipus_per_replica()}}};
  for (const auto& [name, count] : counts) {
    if (count == 0) {
      return fail(ErrorCode::kUsage,
                  fmt::format("line {}: these options must set config.{} to at least 1", section->line, name));
    }
  }
  return question;
}

Result<CompileOptions> options_of(const proto::CompileQuestion& question, const ReadModel& read) {
  const proto::ModelConfig& model = question.config().model();
  POPRUN_ASSIGN(const std::string bytes, model.onnx().empty() ? Result<std::string>{""} : read(model.onnx()));
  POPRUN_ASSIGN(const auto onnx, onnx_model_of(model, bytes));
  return compile_options(question.config(), question.dataset(), onnx);
}

Result<const Pass*> find_pass(std::string_view name) {
  if (const int number = number_of(name); number >= 0) {
    return &all_passes()[static_cast<std::size_t>(number)];
  }
  std::vector<std::string> names;
  for (const Pass& pass : all_passes()) {
    names.emplace_back(pass.name);
  }
  return fail(ErrorCode::kUsage, fmt::format("--pass {}: unknown pass; {}", name, suggestion(name, names)));
}

/// Parses a job and checks that passes and proofs can work on it.
Result<Job> parse_valid(const Section& section) {
  POPRUN_ASSIGN(Job job, parse_job(section.text, section.line));
  if (const Status status = verify_operations(job.graph); !status) {
    return fail(ErrorCode::kUsage,
                fmt::format("line {}: this job is not valid: {}", section.line, status.error().message));
  }
  return job;
}

/// Returns the job before the pass. Before the first pass, this is an empty job.
Result<Job> parse_job_before(const std::vector<Section>& sections, const Pass& pass, const CompileOptions& options) {
  const auto section = job_before(sections, number_of(pass.name));
  if (!section && number_of(pass.name) == 0) {
    return Job{};
  }
  if (!section) {
    return fail(ErrorCode::kUsage, fmt::format("--pass {}: there is no job before this pass; a job begins with a line "
                                               "'{}' or, for example, '{}{}'",
                                               pass.name, kJob, kAfterPass, all_passes().front().name));
  }
  POPRUN_ASSIGN(Job job, parse_valid(*section));
  if (in_training(options) ? !job.training : !job.evaluation) {
    return fail(ErrorCode::kUsage, fmt::format("line {}: the job before pass {} has no line '{}'", section->line,
                                               pass.name, in_training(options) ? "training" : "evaluation"));
  }
  return job;
}

}  // namespace

std::string options_text(const proto::RunConfig& config, const proto::Dataset& dataset) {
  proto::CompileQuestion question;
  *question.mutable_config() = config;
  *question.mutable_dataset() = dataset;
  std::string text;
  POPRUN_CHECK(google::protobuf::TextFormat::PrintToString(question, &text));
  return fmt::format("{}\n{}\n", kOptions, text);
}

std::string state_text(std::string_view pass, const Job& job) {
  return fmt::format("{}{}\n{}\n", kAfterPass, pass, to_text(job));
}

Status run_alone(std::string_view pass, std::string_view states, const ReadModel& read, std::string& text) {
  POPRUN_ASSIGN(const Pass* const found, find_pass(pass));
  const std::vector<Section> sections = sections_of(states);
  POPRUN_ASSIGN(const proto::CompileQuestion question, parse_options(sections));
  POPRUN_ASSIGN(const CompileOptions options, options_of(question, read));
  if (!found->applies(options)) {
    return fail(ErrorCode::kUsage, fmt::format("--pass {}: the options do not enable this pass", pass));
  }
  POPRUN_ASSIGN(Job job, parse_job_before(sections, *found, options));
  const int last_of_arithmetic = number_of(kLastOfArithmetic);
  const bool keeps_values = number_of(pass) > last_of_arithmetic;
  const auto settled = keeps_values ? job_before(sections, last_of_arithmetic + 1) : std::nullopt;
  Job plain;
  if (settled) {
    POPRUN_ASSIGN(plain, parse_valid(*settled));
  }
  const CompileObserver observer{.after_pass = [&text](std::string_view name, const Job& after) {
    text += state_text(name, after);
    return Status{};
  }};
  POPRUN_TRY(run_pass(*found, options, observer, settled ? &plain.graph : nullptr, job));
  if (keeps_values && !settled) {
    text += fmt::format("# not proven to keep every value: the proof needs a job from pass {} or an earlier pass\n",
                        kLastOfArithmetic);
  }
  return {};
}

}  // namespace poprun
