#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/graph/graph.h"

namespace poprun {
namespace {

constexpr std::string_view kKeepsF32 = " keeps-f32";
constexpr std::string_view kStreaming = " streaming";
constexpr std::string_view kIpu = " ipu=";
constexpr std::string_view kCopyOf = " copy-of=";
constexpr std::string_view kResides = " resides=";
constexpr std::string_view kShardOf = " shard-of=";
constexpr std::string_view kUncounted = " uncounted";
constexpr std::array<std::string_view, 3> kDirections = {"forward", "recomputed", "backward"};

std::string names(const Graph& graph, const std::vector<TensorId>& ids) {
  std::string text;
  for (const TensorId id : ids) {
    text += (text.empty() ? "" : ", ") + graph.tensor(id).name;
  }
  return text;
}

/// Parses the lines of `parse_graph` one by one, and then resolves tensors that are named before their own lines.
class Parser {
 public:
  /// Parses one line. Requires: `text` outlives the parser.
  Status line(std::string_view text, int number) {
    line_ = number;
    return located(parse(text));
  }

  Status find_residences() {
    for (const auto& [id, where, number] : resides_) {
      line_ = number;
      const Result<Residence> found = residence(where);
      if (!found) {
        return located(tl::unexpected<Error>{found.error()});
      }
      graph.set_residence(id, *found);
    }
    return {};
  }

  Graph graph;

 private:
  /// A tensor's residence as written in the text.
  struct Resides {
    TensorId tensor;
    std::string_view where;
    int line;
  };

  [[nodiscard]] Status located(Status status) const {
    if (!status) {
      status.error().message.insert(0, fmt::format("line {}: ", line_));
    }
    return status;
  }

  Status parse(std::string_view text) {
    if (text.starts_with("tensor ")) {
      return tensor(text.substr(7));
    }
    if (text.starts_with("layer ")) {
      return layer(text.substr(6));
    }
    if (text.starts_with("function ")) {
      graph.functions.push_back({std::string{trimmed(text.substr(9))}, {}});
      return {};
    }
    if (text.starts_with("repeat ")) {
      return repeat(trimmed(text.substr(7)));
    }
    return operation(text);
  }

  Status layer(std::string_view text) {
    const bool counted = !text.ends_with(kUncounted);
    text.remove_suffix(counted ? 0 : kUncounted.size());
    graph.layers.push_back({std::string{trimmed(text)}, counted});
    return {};
  }

  /// Parses `NAME` or `NAME:ENTRY`.
  [[nodiscard]] Result<Residence> residence(std::string_view text) const {
    Residence where;
    if (!graph.has(text)) {
      const std::size_t colon = text.rfind(':');
      if (colon == std::string_view::npos) {
        return fail(ErrorCode::kUsage, fmt::format("there is no tensor '{}'", text));
      }
      POPRUN_ASSIGN(where.entry, number(text.substr(colon + 1), "an entry"));
      text = text.substr(0, colon);
    }
    if (!graph.has(text)) {
      return fail(ErrorCode::kUsage, fmt::format("there is no tensor '{}'", text));
    }
    where.tensor = graph.find(text);
    return where;
  }

  Status tensor(std::string_view text) {
    if (const std::size_t at = text.rfind(kResides); at != std::string_view::npos) {
      resides_.push_back({static_cast<TensorId>(graph.tensors().size()), text.substr(at + kResides.size()), line_});
      text = text.substr(0, at);
    }
    std::optional<TensorType> shard_of;
    if (const std::size_t at = text.rfind(kShardOf); at != std::string_view::npos) {
      POPRUN_ASSIGN(shard_of, parse_type(text.substr(at + kShardOf.size())));
      text = text.substr(0, at);
    }
    std::optional<TensorId> copy_of;
    if (const std::size_t at = text.rfind(kCopyOf); at != std::string_view::npos) {
      const std::string_view original = text.substr(at + kCopyOf.size());
      if (!graph.has(original)) {
        return fail(ErrorCode::kUsage, fmt::format("there is no tensor '{}'", original));
      }
      copy_of = graph.find(original);
      text = text.substr(0, at);
    }
    std::int64_t ipu = 0;
    if (const std::size_t at = text.rfind(kIpu); at != std::string_view::npos) {
      POPRUN_ASSIGN(ipu, number(text.substr(at + kIpu.size()), "an IPU"));
      text = text.substr(0, at);
    }
    const bool streaming = text.ends_with(kStreaming);
    text.remove_suffix(streaming ? kStreaming.size() : 0);
    const bool keeps_f32 = text.ends_with(kKeepsF32);
    text.remove_suffix(keeps_f32 ? kKeepsF32.size() : 0);
    const std::size_t colon = text.find(" : ");
    const std::size_t space = text.rfind(' ');
    if (colon == std::string_view::npos || space <= colon + 2) {
      return fail(ErrorCode::kUsage,
                  "expected: tensor NAME : TYPE ROLE [keeps-f32] [streaming] [ipu=I] [copy-of=NAME] "
                  "[shard-of=TYPE] [resides=NAME[:ENTRY]]");
    }
    const std::string name{trimmed(text.substr(0, colon))};
    if (graph.has(name)) {
      return fail(ErrorCode::kUsage, fmt::format("tensor '{}' is defined twice", name));
    }
    POPRUN_ASSIGN(TensorType type, parse_type(trimmed(text.substr(colon + 3, space - colon - 3))));
    for (const Role role : {Role::kActivation, Role::kParameter, Role::kOptimizerState, Role::kBuffer, Role::kGradient,
                            Role::kStream, Role::kMetric, Role::kConstant}) {
      if (to_text(role) == text.substr(space + 1)) {
        graph.add_given({name, std::move(type), role, keeps_f32, static_cast<std::uint32_t>(ipu), copy_of,
                         streaming ? Memory::kStreaming : Memory::kInProcessor, shard_of});
        return {};
      }
    }
    return fail(ErrorCode::kUsage, fmt::format("'{}' is not a role", text.substr(space + 1)));
  }

  Status repeat(std::string_view count) {
    if (graph.functions.empty()) {
      return fail(ErrorCode::kUsage, "repeat must come after a function");
    }
    POPRUN_ASSIGN(const std::int64_t value, number(count, "a repeat count"));
    graph.functions.back().regions.push_back({value, {}});
    return {};
  }

  static Result<std::int64_t> number(std::string_view text, std::string_view what) {
    std::int64_t value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9' || value > 1'000'000'000) {
        return fail(ErrorCode::kUsage, fmt::format("'{}' is not {}", text, what));
      }
      value = value * 10 + (c - '0');
    }
    return value;
  }

  /// Parses `layer:stage:direction`.
  [[nodiscard]] Result<Origin> origin(std::string_view text) const {
    const std::size_t last = text.rfind(':');
    const std::size_t first = last == std::string_view::npos || last == 0 ? last : text.rfind(':', last - 1);
    if (first == std::string_view::npos) {
      return fail(ErrorCode::kUsage, "expected: @LAYER:STAGE:DIRECTION OPERATION");
    }
    Origin origin;
    const std::string_view name = text.substr(0, first);
    const auto layer = std::ranges::find(graph.layers, name, &Layer::name);
    const auto* const direction = std::ranges::find(kDirections, text.substr(last + 1));
    if ((!name.empty() && layer == graph.layers.end()) || direction == kDirections.end()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("'{}' is not LAYER:STAGE:DIRECTION with a layer defined above and a direction "
                              "forward, recomputed or backward",
                              text));
    }
    POPRUN_ASSIGN(const std::int64_t stage, number(text.substr(first + 1, last - first - 1), "a stage"));
    if (!name.empty()) {
      origin.layer = static_cast<std::int32_t>(layer - graph.layers.begin());
    }
    origin.stage = static_cast<std::uint32_t>(stage);
    origin.direction = static_cast<Direction>(direction - kDirections.begin());
    return origin;
  }

  Status operation(std::string_view text) {
    Operation parsed;
    if (text.starts_with('@')) {
      const std::size_t end = text.find(' ');
      POPRUN_ASSIGN(parsed.origin, origin(text.substr(1, end - 1)));
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    }
    const std::size_t open = text.find('(');
    const std::size_t close = text.find(')');
    const std::string_view head = text.substr(0, open);
    const std::size_t equals = head.find('=');
    const std::string_view kind = trimmed(equals == std::string_view::npos ? head : head.substr(equals + 1));
    if (close == std::string_view::npos || close < open || kind.empty() || kind.find_first_of("=@ ") < kind.size()) {
      return fail(ErrorCode::kUsage, "expected: OUTPUTS = KIND(INPUTS) ATTRIBUTES");
    }
    if (graph.functions.empty() || graph.functions.back().regions.empty()) {
      return fail(ErrorCode::kUsage, "an operation must come after a function and a repeat");
    }
    parsed.kind = kind;
    if (equals != std::string_view::npos) {
      POPRUN_ASSIGN(parsed.outputs, ids(head.substr(0, equals)));
    }
    POPRUN_ASSIGN(parsed.inputs, ids(text.substr(open + 1, close - open - 1)));
    POPRUN_ASSIGN(parsed.attributes, parse_attributes(trimmed(text.substr(close + 1))));
    graph.functions.back().regions.back().operations.push_back(std::move(parsed));
    return {};
  }

  [[nodiscard]] Result<std::vector<TensorId>> ids(std::string_view list) const {
    std::vector<TensorId> found;
    while (!trimmed(list).empty()) {
      const std::size_t comma = list.find(',');
      const std::string_view name = trimmed(list.substr(0, comma));
      if (!graph.has(name)) {
        return fail(ErrorCode::kUsage, fmt::format("there is no tensor '{}'", name));
      }
      found.push_back(graph.find(name));
      list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    }
    return found;
  }

  std::vector<Resides> resides_;
  int line_ = 0;
};

std::string residence_text(const Graph& graph, const Residence& where) {
  return fmt::format("{}{}{}", kResides, graph.tensor(where.tensor).name,
                     where.entry == Residence::kWhole ? "" : fmt::format(":{}", where.entry));
}

std::string to_text(const Graph& graph, const Origin& origin) {
  if (origin == Origin{}) {
    return {};
  }
  return fmt::format("@{}:{}:{} ",
                     origin.layer == kNoLayer ? "" : graph.layers.at(static_cast<std::size_t>(origin.layer)).name,
                     origin.stage, kDirections.at(static_cast<std::size_t>(origin.direction)));
}

}  // namespace

std::string_view to_text(Role role) {
  constexpr std::array<std::string_view, 8> kNames = {"activation", "parameter", "optimizer-state", "buffer",
                                                      "gradient",   "stream",    "metric",          "constant"};
  return kNames.at(static_cast<std::size_t>(role));
}

std::string to_text(const Graph& graph) {
  std::string text;
  for (const Layer& layer : graph.layers) {
    text += fmt::format("layer {}{}\n", layer.name, layer.counted ? "" : kUncounted);
  }
  for (const Tensor& tensor : graph.tensors()) {
    text += fmt::format("tensor {} : {} {}{}{}{}{}{}{}\n", tensor.name, to_text(tensor.type), to_text(tensor.role),
                        tensor.keeps_f32 ? kKeepsF32 : "", tensor.is_remote() ? kStreaming : "",
                        tensor.ipu == 0 ? "" : fmt::format("{}{}", kIpu, tensor.ipu),
                        tensor.copy_of ? fmt::format("{}{}", kCopyOf, graph.tensor(*tensor.copy_of).name) : "",
                        tensor.shard_of ? fmt::format("{}{}", kShardOf, to_text(*tensor.shard_of)) : "",
                        tensor.residence ? residence_text(graph, *tensor.residence) : "");
  }
  for (const Function& function : graph.functions) {
    text += fmt::format("function {}\n", function.name);
    for (const Region& region : function.regions) {
      text += fmt::format("repeat {}\n", region.repeat);
      for (const Operation& operation : region.operations) {
        const std::string outputs = names(graph, operation.outputs);
        const std::string attributes = to_text(operation.attributes);
        text +=
            fmt::format("{}{}{}{}({}){}{}\n", to_text(graph, operation.origin), outputs, outputs.empty() ? "" : " = ",
                        operation.kind, names(graph, operation.inputs), attributes.empty() ? "" : " ", attributes);
      }
    }
  }
  return text;
}

Result<Graph> parse_graph(std::string_view text, int first_line) {
  Parser parser;
  for (int number = first_line; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view whole = text.substr(0, end);
    const std::string_view line = trimmed(whole.substr(0, whole.find('#')));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (!line.empty()) {
      POPRUN_TRY(parser.line(line, number));
    }
  }
  POPRUN_TRY(parser.find_residences());
  return std::move(parser.graph);
}

}  // namespace poprun
