#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hostio/datasets/dataset.h"
#include "launcher/options/hyper_parameters.h"
#include "launcher/options/option_values.h"
#include "launcher/options/rows.h"
#include "replica/device/device.h"
#include "replica/ops/optimizers/optimizer.h"

namespace poprun::launcher {
namespace {

/// "mk1, mk2 or bow".
std::string one_of(const std::vector<std::string>& names) {
  const std::vector<std::string> first(names.begin(), names.end() - 1);
  return fmt::format("{}{}{}", fmt::join(first, ", "), first.empty() ? "" : " or ", names.back());
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  std::ranges::transform(all_optimizers(), std::back_inserter(names), &Optimizer::name);
  return names;
}

/// Sizes of the model. Only rows that are given reach the configuration: every model has its own
/// defaults, and refuses sizes that it does not have.
Rows model_sizes() {
  struct Size {
    std::string name;
    std::string help;
    std::uint64_t most = 1ULL << 32;
  };
  const Size sizes[] = {
      {"layers", "Blocks of a transformer", 1024},  // The compiler's time grows with their square.
      {"hidden", "Features of a transformer's tokens",
       1 << 20},  // Its square, in bytes, is a size.
      {"heads", "Attention heads; must divide the hidden size"},
      {"vocabulary", "Different tokens"},
      {"sequence-length", "Most tokens of a sequence"},
      {"classes", "Classes of a classifier"}};
  Rows rows;
  for (const auto& [name, help, most] : sizes) {
    const auto store = [name = name](Options& o, std::uint64_t v) {
      (*o.config.mutable_model()->mutable_sizes())[name] = static_cast<std::int64_t>(v);
    };
    rows.push_back(job("model." + name, "N", "", help + " (default: the model's own)",
                       Integer{1, most}, store));
  }
  return rows;
}

Rows model() {
  return {
      job("model.name", "NAME", "small-cnn", "Built-in model", Text{}),
      job("model.precision", "NAME", "float",
          "Weights, activations and gradients are stored in float (32 bits) or half (16 bits)",
          Choice{{"float", "half"}}),
      job("model.partials", "NAME", "float",
          "Partial sums of products, with half precision: float or half",
          Choice{{"float", "half"}}),
      job("model.dropout", "X", "0",
          "Share of elements dropped at random in training, where gpt2 and bert have dropout",
          Real{0, 1, true, false}),
      job("model.mode", "NAME", "training",
          "training; or inference: the model's outputs for every test item, in order, to "
          "outputs.npy",
          Choice{{"training", "inference"}},
          [](Options& o, const std::string& v) { o.config.set_inference(v == "inference"); }),
      job("model.onnx", "FILE", "", "An ONNX model in the place of a built-in one", Text{}),
      job("model.loss", "NAME", "",
          "What an ONNX model is trained with: cross-entropy (default) or mean-squared-error",
          Choice{{"cross-entropy", "mean-squared-error"}}),
      job("model.initial-weights", "FILE", "", "Start from these weights (.safetensors)", Text{}),
      job("model.initial-weights-partial", "BOOL", "false",
          "Weights that the file lacks, as those of a new head, keep their initialisation",
          Boolean{})};
}

Rows data() {
  const auto parameter = [](const char* key) {
    return [key](Options& o, const auto& value) {
      std::erase_if(o.source_parameters,
                    [&](const std::string& p) { return p.starts_with(std::string{key} + "="); });
      o.source_parameters.push_back(fmt::format("{}={}", key, value));
    };
  };
  return {
      job("data.source", "SOURCE", "fashion-mnist", "Dataset: " + one_of(hostio::dataset_forms()),
          Text{}),
      job("data.task", "NAME", "",
          "What becomes of tokens: next-token (default), or masked-lm as BERT",
          Choice{{"next-token", "masked-lm"}}, parameter("task")),
      job("data.sequence-length", "N", "", "Tokens of one sample (default: 128)",
          Integer{1, 1 << 16}, parameter("sequence-length")),
      job("data.masks", "N", "",
          "Mask slots of a masked-lm sample (default: 15 % of its tokens, rounded up)",
          Integer{1, 1 << 16}, parameter("masks")),
      job("data.mask-token", "ID", "",
          "Token that masks (default: the first id that the data does not use)",
          Integer{0, (1ULL << 31) - 3}, parameter("mask-token")),
      job("data.channels", "NAME", "",
          "Images of npz and npy: channels first [N,C,H,W] (default) or last [N,H,W,C]",
          Choice{{"first", "last"}}, parameter("channels")),
      job("data.mean", "X", "",
          "Mean of npz and npy images: of x / 255 (uint8, default 0.5), of x (floats, 0)",
          Real{-1e9, 1e9}, parameter("mean")),
      job("data.deviation", "X", "",
          "Likewise, what they are divided by then (uint8, default 0.5; floats, 1)",
          Real{0, 1e9, false}, parameter("deviation")),
      job("data.augment", "NAME", "", "Training images: none (default), flip, crop or flip+crop",
          Choice{{"none", "flip", "crop", "flip+crop"}}, parameter("augment")),
      job("data.order", "NAME", "shuffled",
          "Training items: shuffled anew in every epoch, or sequential, as the data has them",
          Choice{{"shuffled", "sequential"}},
          [](Options& o, const std::string& v) {
            o.config.mutable_data()->set_sequential(v == "sequential");
          }),
      job("data.micro-batch-size", "N", "16", "Samples a replica computes at once",
          Integer{1, 1 << 20}),
      job("data.prefetch-batches", "N", "4", "Batches in flight to one replica", Integer{1, 1024})};
}

Rows training_schedule() {
  return {
      job("training.epochs", "N", "6", "Passes over the training data", Integer{1, 1000000}),
      job("training.steps", "N", "0",
          "Stop after this many steps instead; 0: as many as the epochs need",
          Integer{0, 1ULL << 48}),
      job("training.optimizer", "NAME", "momentum", one_of(optimizer_names()),
          Choice{optimizer_names()}),
      job("training.learning-rate", "X", "0.05", "Step size", Real{0, 1e6, false}),
      job("training.schedule", "NAME", "constant",
          "Schedule of the learning rate: constant, linear or cosine (fall to zero over the run), "
          "step (training.schedule-steps)",
          Choice{{"constant", "linear", "cosine", "step"}}),
      job("training.warmup-steps", "N", "0",
          "Steps over which the learning rate rises to its full value first",
          Integer{0, 1ULL << 48}),
      job("training.schedule-steps", "N", "0",
          "Steps between two falls of the learning rate; for schedule step",
          Integer{0, 1ULL << 48}),
      job("training.schedule-decay", "X", "0.1",
          "Factor of each fall of the learning rate; for schedule step", Real{0, 1, false}),
      job("training.scale-learning-rate", "BASE_BATCH", "",
          "The learning rate is for this global batch: multiply it by the job's global batch / "
          "BASE_BATCH",
          Integer{1, 1ULL << 32}, into(&Options::learning_rate_base_batch))};
}

Rows training_update() {
  return {
      job("training.clip-norm", "X", "0",
          "Largest norm of all gradients together, they are scaled down to it; 0: any",
          Real{0, 1e12}),
      job("training.gradient-bucket", "MIB", "0",
          "Exchange gradients in buckets of this size while backward goes on; 0: all of them "
          "together behind it",
          Real{0, 1e6},
          [](Options& o, double v) {
            o.config.mutable_training()->set_gradient_bucket_bytes(
                static_cast<std::uint64_t>(v * 0x1p20));
          }),
      job("training.weight-decay", "X", "0",
          "Times the weight, added to the gradient, or to the update where the optimizer decouples "
          "it",
          Real{0, 1e6}),
      job("training.gradient-accumulation", "N", "1", "Micro-batches of one replica in one step",
          Integer{1, 1 << 20}),
      job("training.loss-scaling", "X|auto", "",
          "The loss is multiplied by X, so that small gradients do not vanish in half precision; "
          "auto finds X and skips steps that overflow (default: auto with half precision, else 1)",
          LossScale{}, into(&Options::loss_scaling)),
      job("training.master-weights", "BOOL", "false",
          "With half precision: the optimizer keeps float weights of its own", Boolean{}),
      job("training.stochastic-rounding", "BOOL", "false",
          "With half precision: round at random, so that the mean is kept", Boolean{}),
      job("training.frozen", "REGEX", "", "Weights in whose name it has a match are not trained",
          Regex{})};
}

Rows training_run() {
  return {job("training.check-finite", "BOOL", "true",
              "Stop at the first operator that makes a NaN or an infinity, and name it", Boolean{}),
          job("training.seed", "N", "42", "Seed of initial weights and shuffling",
              Integer{0, std::numeric_limits<std::uint64_t>::max()}),
          job("training.evaluate", "BOOL", "true", "Evaluate on the test data", Boolean{}),
          job("training.evaluate-every-epochs", "N", "1", "0: only after the last step",
              Integer{0, 1000000})};
}

Rows memory_device_report() {
  return {job("memory.poison-dead", "BOOL", "false", "Debug: fill dead bytes with NaN", Boolean{}),
          job("memory.available-memory-proportion", "X", "",
              "Accepted; no effect yet, convolutions are not planned by memory in this version",
              Real{0, 1},
              [](Options& o, double v) {
                o.notes.push_back(fmt::format(
                    "available-memory-proportion = {} has no effect: this version has no "
                    "convolution planner",
                    v));
              }),
          job("device.ipu", "NAME", "mk2", one_of(device_names()), Choice{device_names()}),
          {"report.dump-tensors", 0, Group::kJob, Arity::kRepeated, "REGEX@STEP", "",
           "Write replica 0's tensors of training steps (REGEX@1,5) whose names match to "
           "dump-step-N.safetensors",
           set(Dumps{}, [](Options& o, const std::vector<proto::DumpRequest>& requests) {
             auto& all = *o.config.mutable_report()->mutable_dump_tensors();
             all.Add(requests.begin(), requests.end());
           })}};
}

}  // namespace

Rows job_rows() {
  return joined({model_sizes(), model(), data(), training_schedule(), training_update(),
                 training_run(), hyper_parameter_rows(), memory_device_report()});
}

}  // namespace poprun::launcher
