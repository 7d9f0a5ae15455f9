#include "replica/compiler/job/job_text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr std::string_view kGraphLine = "graph";

/// Prints the lines before the graph.
class JobWriter {
 public:
  explicit JobWriter(const Job& job) : graph_(job.graph) {
    line("stages", {{"ipus", integers(job.ipu_of_stage)}});
    for (const std::string& name : graph_.reserved()) {
      line("reserved", {{"name", name}});
    }
    if (job.training) {
      write(*job.training);
    }
    if (job.evaluation) {
      line("evaluation", {{"place", place(*job.evaluation)}});
    }
    for (const auto& [function, part] : job.parts) {
      line("part", {{"function", function},
                    {"stage", std::int64_t{part.stage}},
                    {"ipu", std::int64_t{part.ipu}},
                    {"backward", std::int64_t{part.is_backward}},
                    {"recomputes", std::int64_t{part.recomputes}}});
    }
    if (job.balancing) {
      write(*job.balancing);
    }
    for (const Note& note : job.notes) {
      write(note);
    }
    for (const std::string& location : job.locations) {
      line("location", {{"text", location}});
    }
  }

  std::string text;

 private:
  void line(std::string_view word, const Attributes& attributes) {
    text += fmt::format("{} {}\n", word, to_text(attributes));
  }

  static std::vector<std::int64_t> integers(const auto& values) { return {values.begin(), values.end()}; }

  [[nodiscard]] std::string name(TensorId id) const { return graph_.tensor(id).name; }

  [[nodiscard]] std::string place(Place place) const {
    return fmt::format("{}:{}", graph_.functions.at(place.function).name, place.region);
  }

  void write(const TrainingStep& step) {
    Attributes values{{"begin", place(step.begin)},      {"micro_batch", place(step.micro_batch)},
                      {"update", place(step.update)},    {"rate", name(step.scalars.rate)},
                      {"step", name(step.scalars.step)}, {"metrics", name(step.metrics)},
                      {"loss", name(step.loss)}};
    if (step.scalars.loss_scale) {
      values.set("loss_scale", name(*step.scalars.loss_scale));
    }
    if (step.scalars.factor) {
      values.set("factor", name(*step.scalars.factor));
    }
    line("training", values);
    for (const auto& [labels, mean] : step.scalars.mean_labels) {
      line("mean-labels", {{"labels", labels}, {"tensor", name(mean)}});
    }
    for (const LossTerm& term : step.terms) {
      line("loss-term", {{"loss", name(term.loss)}, {"count", name(term.count)}, {"labels", term.labels}});
    }
    for (const Place phase : step.phases) {
      line("phase", {{"place", place(phase)}});
    }
    for (const auto& [parameter, gradient] : step.gradients) {
      line("gradient", {{"parameter", name(parameter)}, {"tensor", name(gradient)}});
    }
  }

  void write(const Balancing& balancing) {
    line("balancing", {{"capacity", balancing.capacity.count()},
                       {"in_flight", balancing.in_flight},
                       {"recomputes", integers(balancing.recomputes)}});
    for (const LayerWeight& layer : balancing.layers) {
      line("balanced-layer", {{"cycles", layer.cycles.count()},
                              {"bytes", layer.bytes.count()},
                              {"activations", layer.activations.count()}});
    }
  }

  void write(const Note& note) {
    line("note", {{"code", note.code}, {"text", note.text}});
    for (const Fact& fact : note.facts) {
      const Attribute value = std::visit([](const auto& known) { return Attribute{known}; }, fact.value);
      line("fact", {{"name", fact.name}, {"value", value}});
    }
  }

  const Graph& graph_;
};

/// Reads the attributes of a line one by one. Remembers the first error: a missing or wrong attribute.
class Fields {
 public:
  Fields(const Graph& graph, const Attributes& attributes) : graph_(graph), values_(attributes.values()) {}

  [[nodiscard]] bool has(const std::string& name) const { return values_.contains(name); }
  [[nodiscard]] bool is_text(const std::string& name) const {
    return has(name) && std::holds_alternative<std::string>(values_.at(name));
  }

  template <typename T>
  T take(const std::string& name) {
    const auto found = values_.find(name);
    const T* value = found == values_.end() ? nullptr : std::get_if<T>(&found->second);
    if (value == nullptr) {
      complain(fmt::format("needs {}=, followed by {}", name, example<T>()));
      return {};
    }
    T taken = *value;
    values_.erase(found);
    return taken;
  }

  std::string text(const std::string& name) { return take<std::string>(name); }

  std::uint32_t count(const std::string& name) { return checked(name, take<std::int64_t>(name)); }

  std::vector<std::uint32_t> counts(const std::string& name) {
    std::vector<std::uint32_t> all;
    for (const std::int64_t value : take<std::vector<std::int64_t>>(name)) {
      all.push_back(checked(name, value));
    }
    return all;
  }

  TensorId tensor(const std::string& name) {
    const std::string tensor = text(name);
    if (!graph_.has(tensor)) {
      complain(fmt::format("{}: there is no tensor '{}'", name, tensor));
      return {};
    }
    return graph_.find(tensor);
  }

  std::optional<TensorId> tensor_if_any(const std::string& name) {
    return has(name) ? std::optional(tensor(name)) : std::nullopt;
  }

  /// Returns the place that is written as `FUNCTION:REGION`.
  Place place(const std::string& name) {
    const std::string place = text(name);
    for (std::size_t f = 0; f < graph_.functions.size(); ++f) {
      for (std::size_t r = 0; r < graph_.functions[f].regions.size(); ++r) {
        if (place == fmt::format("{}:{}", graph_.functions[f].name, r)) {
          return {f, r};
        }
      }
    }
    complain(fmt::format("{}: there is no region '{}'", name, place));
    return {};
  }

  Status status() {
    if (!values_.empty()) {
      complain(fmt::format("has an unknown attribute {}=", values_.begin()->first));
    }
    return status_;
  }

 private:
  template <typename T>
  static constexpr std::string_view example() {
    return std::is_same_v<T, std::string>    ? "text in quotes"
           : std::is_same_v<T, std::int64_t> ? "an integer"
                                             : "a list of integers such as [0,1]";
  }

  std::uint32_t checked(const std::string& name, std::int64_t value) {
    if (!std::in_range<std::uint32_t>(value)) {
      complain(fmt::format("{}: {} is not a number from 0 to 4294967295", name, value));
      return 0;
    }
    return static_cast<std::uint32_t>(value);
  }

  void complain(std::string what) {
    if (status_) {
      status_ = fail(ErrorCode::kUsage, std::move(what));
    }
  }

  const Graph& graph_;
  std::map<std::string, Attribute> values_;
  Status status_;
};

/// Parses the lines before the graph, and adds their content to a job that already contains its graph.
class JobReader {
 public:
  explicit JobReader(Job& job) : job_(job) {}

  Status line(std::string_view text) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    POPRUN_ASSIGN(const Attributes attributes, parse_attributes(text.substr(space)));
    Fields fields(job_.graph, attributes);
    POPRUN_TRY(read(word, fields));
    if (const Status status = fields.status(); !status) {
      return fail(ErrorCode::kUsage, fmt::format("{} {}", word, status.error().message));
    }
    return {};
  }

 private:
  Status read(std::string_view word, Fields& fields) {
    if (word == "stages") {
      job_.ipu_of_stage = fields.counts("ipus");
    } else if (word == "reserved") {
      job_.graph.reserve({fields.text("name")});
    } else if (word == "training") {
      job_.training = training(fields);
    } else if (word == "evaluation") {
      job_.evaluation = fields.place("place");
    } else if (word == "part") {
      job_.parts[fields.text("function")] = {fields.count("stage"), fields.count("ipu"), fields.count("backward") != 0,
                                             fields.count("recomputes") != 0};
    } else if (word == "balancing") {
      const std::vector<std::uint32_t> recomputes = fields.counts("recomputes");
      job_.balancing = {.layers = {},
                        .in_flight = fields.take<std::vector<std::int64_t>>("in_flight"),
                        .capacity = Bytes{fields.take<std::int64_t>("capacity")},
                        .recomputes = {recomputes.begin(), recomputes.end()}};
    } else if (word == "balanced-layer" && job_.balancing) {
      job_.balancing->layers.push_back({.cycles = Cycles{fields.take<std::int64_t>("cycles")},
                                        .bytes = Bytes{fields.take<std::int64_t>("bytes")},
                                        .activations = Bytes{fields.take<std::int64_t>("activations")}});
    } else if (word == "note") {
      job_.notes.push_back({fields.text("code"), fields.text("text")});
    } else if (word == "fact" && !job_.notes.empty()) {
      job_.notes.back().facts.push_back(fact(fields));
    } else if (word == "location") {
      job_.locations.push_back(fields.text("text"));
    } else if (!job_.training || !read_of_training(word, fields)) {
      return fail(ErrorCode::kUsage,
                  fmt::format("a line cannot begin with '{}' here; job_text.h lists the valid lines", word));
    }
    return {};
  }

  /// Reads a line of the training step. Returns false if `word` does not begin such a line.
  bool read_of_training(std::string_view word, Fields& fields) {
    TrainingStep& step = *job_.training;
    if (word == "mean-labels") {
      step.scalars.mean_labels[fields.text("labels")] = fields.tensor("tensor");
    } else if (word == "loss-term") {
      step.terms.push_back({fields.tensor("loss"), fields.tensor("count"), fields.text("labels")});
    } else if (word == "phase") {
      step.phases.push_back(fields.place("place"));
    } else if (word == "gradient") {
      step.gradients.push_back({fields.tensor("parameter"), fields.tensor("tensor")});
    } else {
      return false;
    }
    return true;
  }

  static TrainingStep training(Fields& fields) {
    return {.begin = fields.place("begin"),
            .micro_batch = fields.place("micro_batch"),
            .update = fields.place("update"),
            .scalars = {.rate = fields.tensor("rate"),
                        .step = fields.tensor("step"),
                        .loss_scale = fields.tensor_if_any("loss_scale"),
                        .factor = fields.tensor_if_any("factor")},
            .metrics = fields.tensor("metrics"),
            .loss = fields.tensor("loss")};
  }

  static Fact fact(Fields& fields) {
    const std::string name = fields.text("name");
    return fields.is_text("value") ? Fact(name, fields.text("value")) : Fact(name, fields.take<std::int64_t>("value"));
  }

  Job& job_;
};

/// Checks that the job has every stage that its operations and parts refer to.
Status verify_stages(const Job& job) {
  const auto known = [&job](const std::string& function, std::string_view what, std::uint32_t stage) -> Status {
    if (stage < job.ipu_of_stage.size()) {
      return {};
    }
    return fail(ErrorCode::kUsage,
                fmt::format("function {}: {} belongs to stage {}, but the line 'stages' lists IPUs for only {}",
                            function, what, stage, counted(job.ipu_of_stage.size(), "stage")));
  };
  for (const auto& [function, part] : job.parts) {
    POPRUN_TRY(known(function, "the part", part.stage));
  }
  for (const Function& function : job.graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        POPRUN_TRY(known(function.name, operation.kind, operation.origin.stage));
      }
    }
  }
  return {};
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

std::string to_text(const Job& job) {
  return fmt::format("{}{}\n{}", JobWriter(job).text, kGraphLine, to_text(job.graph));
}

Result<Job> parse_job(std::string_view text, int first_line) {
  std::vector<std::string_view> lines;
  while (!text.empty() && (lines.empty() || lines.back() != kGraphLine)) {
    lines.push_back(take_line(text));
  }
  const int graph_line = first_line + static_cast<int>(lines.size());
  if (lines.empty() || lines.back() != kGraphLine) {
    return fail(ErrorCode::kUsage, fmt::format("line {}: the job ends without a line '{}'", graph_line, kGraphLine));
  }
  lines.pop_back();
  Job job;
  POPRUN_ASSIGN(job.graph, parse_graph(text, graph_line));
  JobReader reader(job);
  for (std::size_t k = 0; k < lines.size(); ++k) {
    if (lines[k].empty() || lines[k].starts_with('#')) {
      continue;
    }
    if (const Status status = reader.line(lines[k]); !status) {
      return fail(ErrorCode::kUsage,
                  fmt::format("line {}: {}", first_line + static_cast<int>(k), status.error().message));
    }
  }
  POPRUN_TRY(verify_stages(job));
  return job;
}

}  // namespace poprun
