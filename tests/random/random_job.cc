#include "random_job.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "random_onnx.h"
#include "replica/base/random.h"

namespace poprun::testing {
namespace {

/// Draws the random choices of a job.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t number) : key_(random_key(seed, "job")), job_(number) {}

  /// Returns a number from 0 to n - 1. Requires: n > 0.
  std::uint64_t below(std::uint64_t n) { return philox(key_, job_, count_++)[0] % n; }

  bool chance(std::uint64_t percent) { return below(100) < percent; }

  std::string one_of(std::initializer_list<std::string_view> choices) {
    return std::string{choices.begin()[below(choices.size())]};
  }

  /// Returns some of the choices, at least one, in random order.
  std::vector<std::string> some_of(std::initializer_list<std::string_view> choices) {
    std::vector<std::string> all(choices.begin(), choices.end());
    for (std::size_t i = all.size(); i > 1; --i) {
      std::swap(all[i - 1], all[below(i)]);
    }
    all.resize(1 + below(all.size()));
    return all;
  }

 private:
  std::uint64_t key_;
  std::uint64_t job_;
  std::uint64_t count_ = 0;
};

/// Properties of the model that techniques depend on.
struct Shape {
  std::uint64_t counted = 0;        ///< Layers that pipeline.layers-per-ipu counts.
  bool is_transformer = false;      ///< It has embeddings and a head, which `counted` leaves out.
  std::vector<std::string> layers;  ///< Names of layers at which it can be split, without the first.
};

struct Drawn {
  RandomJob job;
  Shape shape;

  void arithmetic(std::string name, std::string value) {
    job.arithmetic.push_back({std::move(name), std::move(value)});
  }
  void technique(std::string name, std::string value) { job.techniques.push_back({std::move(name), std::move(value)}); }
};

void draw_images(Draw& draw, Drawn& drawn, const std::string& model) {
  const bool is_cnn = model == "small-cnn";
  drawn.arithmetic("model.name", model);
  drawn.arithmetic("data.source", fmt::format("synthetic:images={},classes=10,items=512",
                                              is_cnn           ? "1x28x28"
                                              : model == "mlp" ? draw.one_of({"1x6x6", "1x6x7", "1x1x1"})
                                                               : draw.one_of({"3x16x16", "3x32x32"})));
  if (is_cnn) {
    drawn.shape = {4, false, {"conv2", "fc1", "fc2"}};
  } else if (model == "mlp") {
    const std::uint64_t layers = 1 + draw.below(5);
    drawn.arithmetic("model.layers", std::to_string(layers));
    drawn.arithmetic("model.hidden", draw.one_of({"8", "24", "37", "42", "1", "2"}));
    drawn.shape = {layers + 1, false, {}};
    for (std::uint64_t k = 2; k <= layers + 1; ++k) {
      drawn.shape.layers.push_back(fmt::format("fc{}", k));
    }
  } else {
    drawn.shape = {10, false, {"layer1.0", "layer2.0", "layer3.1", "fc"}};
    if (draw.chance(20)) {
      drawn.arithmetic("model.normalisation", draw.one_of({"group", "layer", "instance"}));
    }
    if (draw.chance(40)) {
      drawn.arithmetic("model.norm-span", draw.one_of({"2", "4"}));
    }
  }
}

void draw_transformer(Draw& draw, Drawn& drawn, const std::string& model) {
  const bool bert = model != "gpt2";
  const bool squad = model == "bert-base-squad";
  const std::uint64_t layers = draw.chance(60) ? 4 : 1 + draw.below(4);
  const std::string vocabulary = draw.one_of({"61", "96", "256"});
  const std::string length = draw.one_of({"8", "12"});
  drawn.arithmetic("model.name", model);
  drawn.arithmetic("model.layers", std::to_string(layers));
  drawn.arithmetic("model.hidden", draw.one_of({"16", "32"}));
  drawn.arithmetic("model.heads", draw.one_of({"2", "4"}));
  drawn.arithmetic("model.vocabulary", vocabulary);
  drawn.arithmetic("model.sequence-length", length);
  drawn.arithmetic("data.source", fmt::format("synthetic:tokens,vocabulary={},items=512", vocabulary));
  drawn.arithmetic("data.sequence-length", length);
  if (squad) {
    drawn.arithmetic("data.task", "question-answering");
  } else if (bert) {
    drawn.arithmetic("data.task", "masked-lm");
    drawn.arithmetic("data.masks", draw.one_of({"1", "3"}));
  }
  if (draw.chance(30)) {
    drawn.arithmetic("model.dropout", draw.one_of({"0.1", "0.5", "0.9999"}));
  }
  drawn.shape = {layers, true, {}};
  for (std::uint64_t k = bert ? 0 : 1; k < layers; ++k) {
    drawn.shape.layers.push_back((bert ? "bert.encoder.layer." : "transformer.h.") + std::to_string(k));
  }
  drawn.shape.layers.emplace_back(squad ? "qa_outputs" : bert ? "cls" : "lm_head");
  if (draw.chance(20)) {
    drawn.arithmetic("model.embedding-serialisation-factor", draw.one_of({"2", "3", "4"}));
  }
  if (draw.chance(20)) {
    drawn.arithmetic("model.serialised-matmuls", bert ? draw.one_of({"intermediate=2", "attention=4", "output.dense=3"})
                                                      : draw.one_of({"c_fc=3", "mlp=2", "c_attn=4 c_proj=2"}));
  }
  if (draw.chance(20)) {
    drawn.arithmetic("model.serialised-sequence", bert ? draw.one_of({"intermediate=2", "decoder=3", "output.dense=5"})
                                                       : draw.one_of({"lm_head=3", "mlp=2", "lm_head=5 c_attn=4"}));
  }
}

/// Draws a file of tiny layers with awkward names, which learns classes or numbers.
void draw_onnx(Draw& draw, Drawn& drawn) {
  const bool is_regression = draw.chance(50);
  drawn.arithmetic("model.onnx", "random.onnx");
  drawn.arithmetic("model.loss", is_regression ? "mean-squared-error" : "cross-entropy");
  drawn.arithmetic("data.source", "synthetic:images=1x3x5,classes=10,items=512");
  const std::int64_t outputs = is_regression && draw.chance(50) ? 1 : 10;
  drawn.job.onnx = random_onnx([&draw](std::uint64_t n) { return draw.below(n); }, 15, outputs);
  drawn.shape = {1, false, {}};
}

void draw_built_in(Draw& draw, Drawn& drawn) {
  const std::string model =
      draw.chance(4) ? "resnet18" : draw.one_of({"small-cnn", "mlp", "gpt2", "bert-base", "gpt2", "bert-base-squad"});
  model == "gpt2" || model.starts_with("bert") ? draw_transformer(draw, drawn, model) : draw_images(draw, drawn, model);
  drawn.arithmetic("data.micro-batch-size",
                   model == "resnet18" && draw.chance(90) ? "2" : draw.one_of({"1", "2", "3"}));
}

void draw_model(Draw& draw, Drawn& drawn) {
  if (draw.chance(25)) {
    draw_onnx(draw, drawn);
    drawn.arithmetic("data.micro-batch-size", draw.one_of({"1", "2", "3"}));
  } else {
    draw_built_in(draw, drawn);
  }
  if (draw.chance(6)) {
    drawn.arithmetic("model.mode", "inference");
    if (draw.chance(50)) {
      drawn.arithmetic("model.fold-batch-norm", "true");
    }
  }
}

void draw_precision(Draw& draw, Drawn& drawn) {
  const bool half = draw.chance(45);
  if (half) {
    drawn.arithmetic("model.precision", "half");
  }
  if (draw.chance(half ? 40 : 3)) {
    drawn.arithmetic("training.stochastic-rounding", "true");
  }
  if (draw.chance(half ? 40 : 3)) {
    drawn.arithmetic("training.master-weights", "true");
  }
  if (draw.chance(half ? 30 : 3)) {
    drawn.arithmetic("model.partials", "half");
  }
  if (draw.chance(30)) {
    drawn.arithmetic("training.accumulator-precision", draw.one_of({"float", half ? "half" : "float"}));
  }
  if (draw.chance(half ? 30 : 3)) {
    drawn.arithmetic("training.optimizer-precision", "half");
  }
  if (draw.chance(30)) {
    drawn.arithmetic("training.loss-scaling", draw.one_of({"auto", "1", "128"}));
  }
}

void draw_training(Draw& draw, Drawn& drawn) {
  const std::string optimizer =
      draw.one_of({"sgd", "momentum", "adam", "adamw", "lamb", "lars", "lion", "adafactor", "muon"});
  drawn.arithmetic("training.optimizer", optimizer);
  if (draw.chance(optimizer == "momentum" ? 30 : 2)) {
    drawn.arithmetic("training.nesterov", "true");
  }
  drawn.arithmetic("training.steps", "2");
  drawn.arithmetic("training.check-finite", "false");
  drawn.arithmetic("training.learning-rate", draw.one_of({"0.01", "0.001"}));
  drawn.arithmetic("training.evaluate", draw.chance(30) ? "true" : "false");
  drawn.arithmetic("training.gradient-accumulation", draw.one_of({"1", "2", "3", "4", "8"}));
  if (draw.chance(30)) {
    drawn.arithmetic("training.gradient-accumulation-kind", draw.one_of({"sum", "mean", "running-mean"}));
  }
  if (draw.chance(60)) {
    drawn.arithmetic("training.gradient-reduction",
                     draw.one_of({"mean", "sum", "every-micro-batch", "every-micro-batch", "every-micro-batch"}));
  }
  if (draw.chance(30)) {
    drawn.arithmetic("training.loss-mean", "tokens");
  }
  if (draw.chance(20)) {
    drawn.arithmetic("training.label-smoothing", "0.1");
  }
  if (draw.chance(30)) {
    drawn.arithmetic("training.clip-norm", draw.one_of({"0.1", "1"}));
  }
  if (draw.chance(25)) {
    drawn.arithmetic("training.weight-decay", "0.01");
    if (draw.chance(50)) {
      drawn.arithmetic("training.no-decay", draw.one_of({"vectors", "bias"}));
    }
  }
  if (draw.chance(12)) {
    drawn.arithmetic("training.frozen", drawn.shape.is_transformer
                                            ? draw.one_of({"bias", "weight", "embed|wte", "layer|h.0"})
                                        : drawn.job.onnx.empty() ? draw.one_of({"bias", "weight", "fc"})
                                                                 : draw.one_of({"W2$", "W2[.]", "gradient"}));
  }
}

std::string list_of(Draw& draw, std::uint64_t count, std::uint64_t below) {
  std::vector<std::uint64_t> numbers(count);
  std::ranges::generate(numbers, [&] { return draw.below(below); });
  return fmt::format("{}", fmt::join(numbers, " "));
}

/// Splits the model's number of layers, sometimes a wrong number, into `stages` parts. Embeddings and head may have a
/// stage of their own.
std::string layers_of(Draw& draw, const Shape& shape, std::uint64_t stages) {
  std::vector<std::int64_t> counts(stages);
  std::uint64_t begin = shape.is_transformer && draw.chance(25) ? 1 : 0;
  std::uint64_t end = shape.is_transformer && draw.chance(25) ? stages - 1 : stages;
  if (begin >= end) {
    begin = 0;
    end = stages;
  }
  for (std::uint64_t k = 0; k < shape.counted; ++k) {
    ++counts[begin + (k < end - begin ? k : draw.below(end - begin))];
  }
  std::int64_t& one = counts[begin + draw.below(end - begin)];
  one = draw.chance(30) ? -1 : one + (draw.chance(4) ? 1 : 0);
  return fmt::format("{}", fmt::join(counts, " "));
}

/// Returns some of the layers at which the model can be split, in order; fewer if it does not have enough.
std::string split_of(Draw& draw, const Shape& shape, std::uint64_t stages) {
  std::vector<std::string> names = shape.layers;
  while (names.size() + 1 > stages) {
    names.erase(names.begin() + static_cast<std::ptrdiff_t>(draw.below(names.size())));
  }
  return fmt::format("{}", fmt::join(names, " "));
}

/// Draws how the model is split into this many stages.
void draw_cuts(Draw& draw, Drawn& drawn, std::uint64_t stages) {
  if (draw.chance(50)) {
    drawn.technique("pipeline.layers-per-ipu", layers_of(draw, drawn.shape, stages));
  } else {
    drawn.technique("pipeline.split", split_of(draw, drawn.shape, stages));
  }
}

void draw_pipeline(Draw& draw, Drawn& drawn) {
  const std::uint64_t ipus = draw.chance(25) ? 1 : 2 + draw.below(3);
  drawn.technique("ipus-per-replica", std::to_string(ipus));
  const std::uint64_t most = std::min<std::uint64_t>(6, drawn.shape.layers.size() + 1);
  const std::uint64_t stages = 1 + draw.below(most);
  if (stages > 1 && (stages > ipus ? draw.chance(90) : draw.chance(50))) {
    draw_cuts(draw, drawn, stages);
    if (stages > ipus ? draw.chance(95) : draw.chance(40)) {
      drawn.technique("pipeline.device-mapping", list_of(draw, stages, ipus));
    }
  } else if (draw.chance(5)) {
    drawn.technique("pipeline.device-mapping", list_of(draw, ipus, ipus));
  }
  if (draw.chance(60)) {
    drawn.technique("pipeline.schedule", draw.one_of({"grouped", "interleaved", "sequential"}));
  }
}

void draw_phases(Draw& draw, Drawn& drawn) {
  const std::uint64_t ipus = 1 + draw.below(2);
  const std::uint64_t most = draw.chance(5) ? 7 : std::min<std::uint64_t>(7, drawn.shape.layers.size() + 1);
  const std::uint64_t phases = std::max<std::uint64_t>(2, 1 + draw.below(most));
  drawn.technique("memory.phases", std::to_string(phases));
  drawn.technique("memory.phase-ipus", std::to_string(ipus));
  drawn.technique("ipus-per-replica", std::to_string(draw.chance(95) ? ipus : 1 + draw.below(4)));
  if (draw.chance(25)) {
    draw_cuts(draw, drawn, phases);
  }
  if (draw.chance(5)) {
    drawn.technique("pipeline.device-mapping", list_of(draw, phases, ipus));
  }
  if (draw.chance(10)) {
    drawn.technique("pipeline.schedule", draw.one_of({"interleaved", "sequential"}));
  }
}

void draw_recomputation(Draw& draw, Drawn& drawn) {
  if (draw.chance(60)) {
    drawn.technique("pipeline.recomputation", draw.one_of({"none", "standard", "layer", "pipeline", "all"}));
  }
  if (draw.chance(10)) {
    drawn.technique("pipeline.recomputation-memory", draw.one_of({"0.01", "0.2", "1"}));
  }
  if (draw.chance(10)) {
    drawn.technique("pipeline.recomputation-checkpoints", draw.one_of({"r", "1", "."}));
  }
  if (draw.chance(10)) {
    drawn.technique("pipeline.recompute", draw.one_of({"r", "0", "."}));
  }
}

void draw_locations(Draw& draw, Drawn& drawn) {
  for (const char* kind : {"weights", "optimizer-state", "accumulators", "activations"}) {
    if (draw.chance(45)) {
      drawn.technique(fmt::format("memory.{}", kind),
                      draw.one_of({"off-chip", "off-chip", "off-chip", "auto", "on-chip"}));
    }
  }
  if (draw.chance(30)) {
    drawn.technique("memory.off-chip-min-elements", draw.one_of({"1", "20", "1000"}));
  }
  if (draw.chance(20)) {
    drawn.technique("memory.location", draw.one_of({"weight=off-chip", "bias=off-chip weight=on-chip", "stash=off-chip",
                                                    "accumulator=off-chip", "0=off-chip 1=on-chip", ".=on-chip"}));
  }
}

void draw_sharding(Draw& draw, Drawn& drawn) {
  if (draw.chance(55)) {
    const bool can_all = std::ranges::any_of(
        drawn.job.arithmetic, [](const Setting& setting) { return setting.value == "every-micro-batch"; });
    const std::vector<std::string> kinds = can_all || draw.chance(3)
                                               ? draw.some_of({"accumulators", "weights", "optimizer-state"})
                                               : draw.some_of({"weights", "optimizer-state"});
    drawn.technique("memory.replicated-tensor-sharding", fmt::format("{}", fmt::join(kinds, " ")));
    drawn.technique("memory.sharding-min-elements", draw.one_of({"1", "2", "40", "500"}));
    if (draw.chance(30)) {
      drawn.technique("memory.sharding-group", draw.chance(3) ? "3" : draw.one_of({"0", "1", "2", "2", "4"}));
    }
  }
}

void draw_memory(Draw& draw, Drawn& drawn) {
  drawn.technique("device.tiles", draw.one_of({"8", "24", "64"}));
  if (draw.chance(15)) {
    drawn.technique("device.bytes-per-tile", draw.one_of({"20000", "60000", "200000"}));
  }
  if (draw.chance(10)) {
    drawn.technique("device.ipu", draw.one_of({"mk1", "bow"}));
  }
  if (draw.chance(75)) {
    drawn.technique("memory.outlining", draw.one_of({"on", "on", "auto", "off"}));
  }
  if (draw.chance(20)) {
    drawn.technique("memory.in-place", "false");
  }
  if (draw.chance(10)) {
    drawn.technique("memory.tiles", "exact");
  }
  if (draw.chance(15)) {
    drawn.technique("memory.available-memory-proportion", draw.one_of({"0.1", "0.3", "1"}));
  }
  if (draw.chance(8)) {
    drawn.technique("training.gradient-bucket", draw.one_of({"0.001", "0.1"}));
  }
}

void draw_replicas(Draw& draw, Drawn& drawn) {
  const std::string replicas = draw.chance(10) ? "16" : draw.one_of({"1", "2", "2", "4", "4"});
  drawn.arithmetic("num-replicas", replicas);
  drawn.technique("num-instances", draw.chance(98) ? std::to_string(std::min(2UL, std::stoul(replicas))) : "3");
}

}  // namespace

std::vector<Setting> RandomJob::all() const {
  std::vector<Setting> both = arithmetic;
  both.insert(both.end(), techniques.begin(), techniques.end());
  return both;
}

RandomJob draw_job(std::uint64_t seed, std::uint64_t number) {
  Draw draw(seed, number);
  Drawn drawn;
  draw_model(draw, drawn);
  draw_precision(draw, drawn);
  draw_training(draw, drawn);
  draw_replicas(draw, drawn);
  draw.chance(25) ? draw_phases(draw, drawn) : draw_pipeline(draw, drawn);
  draw_recomputation(draw, drawn);
  draw_locations(draw, drawn);
  draw_sharding(draw, drawn);
  draw_memory(draw, drawn);
  return drawn.job;
}

std::vector<std::string> words_of(const std::vector<Setting>& settings) {
  std::vector<std::string> words;
  for (const auto& [name, value] : settings) {
    words.push_back("--" + name);
    words.push_back(value);
  }
  return words;
}

std::string shell_text(const std::vector<Setting>& settings) {
  std::vector<std::string> words = words_of(settings);
  for (std::string& word : words) {
    const bool is_plain = std::ranges::all_of(word, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
             std::string_view("-_.=:,").find(c) != std::string_view::npos;
    });
    word = is_plain ? word : fmt::format("'{}'", word);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace poprun::testing
