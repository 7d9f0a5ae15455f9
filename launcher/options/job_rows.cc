#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hostio/datasets/dataset.h"
#include "launcher/options/option_table.h"
#include "launcher/options/option_values.h"
#include "launcher/options/rules.h"
#include "replica/choices/choices.h"
#include "replica/device/calibration.h"
#include "replica/device/device.h"
#include "replica/ops/optimizers/optimizer.h"

namespace poprun::launcher {
namespace {

/// Joins the names into a list such as "mk1, mk2 or bow".
std::string one_of(const std::vector<std::string>& names) {
  const std::vector<std::string> first(names.begin(), names.end() - 1);
  return fmt::format("{}{}{}", fmt::join(first, ", "), first.empty() ? "" : " or ", names.back());
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  std::ranges::transform(all_optimizers(), std::back_inserter(names), &Optimizer::name);
  return names;
}

/// Returns rows for the sizes of the model. Only sizes that the user gives are put into the configuration, since every
/// model has its own defaults and rejects sizes that it does not use.
Rows model_sizes() {
  struct Size {
    std::string name;
    std::string help;
    std::uint64_t most = 1ULL << 32;
  };
  const Size sizes[] = {
      // The first two have smaller limits than the others: compilation time grows with the square of the number of
      // layers, and byte counts computed from the hidden size must not overflow.
      {"layers", "Number of layers or, in a transformer, of blocks", 1024},
      {"hidden", "Width of the hidden layers or, in a transformer, of the embeddings", 1 << 20},
      {"heads", "Number of attention heads; must divide the hidden size"},
      {"latent", "Width of the latent code of a vae", 1 << 20},
      {"kv-heads", "Number of heads of keys and values, shared by groups of heads; must divide the number of heads"},
      {"intermediate", "Width of the hidden layer of a transformer's feed-forward network", 1 << 22},
      {"head-features", "Width of an attention head, if it is not the hidden size divided by the heads", 1 << 20},
      {"decoder-layers", "Number of blocks of the decoder; model.layers is that of the encoder", 1024},
      {"experts", "Number of experts in a mixture of experts", 1024},
      {"active-experts", "Number of experts that process a token", 1024},
      {"capacity-percent",
       "Capacity of an expert, in percent of the tokens that it would get if all experts had equally many", 1 << 20},
      {"rope-theta", "Base of the wavelengths of rotary position embeddings"},
      {"rope-factor",
       "Factor by which long wavelengths of rotary position embeddings are stretched, as in Llama 3; 1: "
       "none"},
      {"vocabulary", "Number of distinct tokens or, in dlrm, the largest number of rows of an embedding table"},
      {"vocabulary-parts",
       "Number of tensors into which the rows of a Llama's embedding and head are divided, so that "
       "they can be on different IPUs",
       64},
      {"sequence-length", "Longest sequence, in tokens"},
      {"classes", "Number of classes"}};
  Rows rows;
  for (const auto& [name, help, most] : sizes) {
    const auto store = [name = name](Options& o, std::uint64_t v) {
      (*o.config.mutable_model()->mutable_sizes())[name] = static_cast<std::int64_t>(v);
    };
    rows.push_back(file_key("model." + name, "N", "", help + " (default: the model's own)", Integer{1, most}, store));
  }
  return rows;
}

Rows model() {
  return {
      file_key("model.name", "MODEL", "small-cnn", "Model; see poprun-emu models", Text{}),
      file_key("model.config", "FILE", "",
               "Take the model and its sizes from this config.json of Hugging Face; other keys override it", Text{},
               [](Options&, const std::string&) {}),  // parse.cc reads the file.
      file_key("model.precision", "NAME", word_of(Precision{}),
               "Type of weights, activations and gradients: float (32 bits) or half (16 bits)", OneOf<Precision>{}),
      file_key(
          "model.dropout", "X", "0",
          "Fraction of the elements that a built-in transformer, LSTM or EfficientNet drops at random during training",
          Real{0, 1, true, false}),
      file_key("model.normalisation", "NAME", word_of(Normalisation{}),
               "Normalisation in ResNets, EfficientNets and U-Nets: batch; or, over one image at a time, group (32 "
               "groups of "
               "channels), layer (all channels) or instance (each channel)",
               OneOf<Normalisation>{}),
      file_key("model.norm-span", "N", "1",
               "In training, batch norms use the statistics of N consecutive replicas. N must divide the replicas",
               Integer{1, 4096}),
      file_key("model.fold-batch-norm", "BOOL", "false",
               "In inference, fold batch norms into the convolutions before them; this saves memory and time, but "
               "outputs differ by rounding",
               Boolean{}),
      file_key(
          "model.mode", "NAME", word_of(Mode{}),
          "Mode: training, or inference, which writes the model's outputs for all test items, in order, to outputs.npy",
          OneOf<Mode>{}, [](Options& o, Mode mode) { o.config.set_inference(mode == Mode::kInference); }),
      file_key("model.onnx", "FILE", "", "Use this ONNX model instead of a built-in one", Text{}),
      file_key(
          "model.loss", "NAME", "",
          "Loss for an ONNX model: cross-entropy (default), mean-squared-error, binary-cross-entropy (of logits), "
          "contrastive (of similarities [N,N] of pairs, as in CLIP), global-contrastive (of embeddings [N,D] of pairs, "
          "over all replicas) or ctc (of logits [N,T,C]; class 0 is the blank)",
          OneOf<Loss>{}),
      file_key("model.trained-constants", "REGEX", "", "Also train an ONNX model's constants whose names match REGEX",
               Regex{}),
      file_key("model.initial-weights", "FILE", "",
               "Start from the weights in this .safetensors file, or in the files of this .safetensors.index.json",
               Text{}),
      file_key("model.initial-weights-partial", "BOOL", "false",
               "Keep the initialisation of weights that the file lacks, such as those of a new head", Boolean{})};
}

Rows data() {
  const auto parameter = [](const char* key) {
    return [key](Options& o, const auto& value) {
      std::erase_if(o.source_parameters, [&](const std::string& p) { return p.starts_with(std::string{key} + "="); });
      o.source_parameters.push_back(fmt::format("{}={}", key, value));
    };
  };
  return {
      file_key("data.source", "SOURCE", "fashion-mnist",
               fmt::format("Dataset: {}", fmt::join(hostio::dataset_forms(), ", ")), Text{}),
      file_key("data.task", "NAME", "",
               "Task for tokens: next-token (default), masked-lm as in BERT, or question-answering as in SQuAD",
               Choice{{"next-token", "masked-lm", "question-answering"}}, parameter("task")),
      file_key("data.sequence-length", "N", "", "Tokens per sample (default: 128)", Integer{1, 1 << 16},
               parameter("sequence-length")),
      file_key("data.masks", "N", "", "Masked positions per masked-lm sample (default: 15% of the tokens, rounded up)",
               Integer{1, 1 << 16}, parameter("masks")),
      file_key("data.mask-token", "ID", "", "ID of the mask token (default: the first ID that the data does not use)",
               Integer{0, (1ULL << 31) - 3}, parameter("mask-token")),
      file_key("data.channels", "NAME", "",
               "Layout of npz and npy images: channels first, [N,C,H,W] (default), or last, [N,H,W,C]",
               Choice{{"first", "last"}}, parameter("channels")),
      file_key("data.mean", "X", "",
               "Mean to subtract from images; uint8 values are divided by 255 first (default: 0.5 for "
               "uint8, 0 for floats)",
               Real{-1e9, 1e9}, parameter("mean")),
      file_key("data.deviation", "X", "",
               "Standard deviation to divide images by (default: 0.5 for uint8, 1 for floats)", Real{0, 1e9, false},
               parameter("deviation")),
      file_key("data.image-size", "HxW", "",
               "Height and width to which images and webdataset scale and cut images (default: that of all images)",
               Text{}, parameter("image-size")),
      file_key("data.label-column", "NAME", "", "Label of a csv file (default: column label or, without one, the last)",
               Text{}, parameter("label-column")),
      file_key("data.label-type", "NAME", "",
               "Labels of csv, jsonl and arrow: class or number (default: class for integers and names)",
               Choice{{"class", "number"}}, parameter("label-type")),
      file_key("data.test-fraction", "X", "",
               "Fraction of the items to use as the test part, if the source has none of its own (default: 0.05)",
               Real{0, 0.9}, parameter("test-fraction")),
      file_key("data.augment", "NAME", "", "Augmentation of training images: none (default), flip, crop or flip+crop",
               Choice{{"none", "flip", "crop", "flip+crop"}}, parameter("augment")),
      file_key("data.order", "NAME", word_of(ItemOrder{}),
               "Order of the training items: reshuffled in every epoch, or sequential, as stored", OneOf<ItemOrder>{},
               [](Options& o, ItemOrder order) {
                 o.config.mutable_data()->set_sequential(order == ItemOrder::kSequential);
               }),
      file_key("data.micro-batch-size", "N", "16", "Samples in one forward and backward pass of a replica",
               Integer{1, 1 << 20}),
      file_key("data.compute-batch-size", "N", "",
               "Samples that a replica processes at a time in training; must divide data.micro-batch-size. Smaller "
               "values keep fewer activations in memory; the gradients are accumulated (default: the micro-batch)",
               Integer{1, 1 << 20}),
      file_key("data.prefetch-batches", "N", "4", "Batches in flight to each replica", Integer{1, 1024})};
}

Rows training_schedule() {
  return {
      file_key("training.epochs", "N", "6", "Passes over the training data", Integer{1, 1000000}),
      file_key("training.steps", "N", "0", "Number of training steps; 0 means as many as training.epochs requires",
               Integer{0, 1ULL << 48}),
      file_key("training.optimizer", "NAME", "momentum", "Optimiser: " + one_of(optimizer_names()),
               Choice{optimizer_names()}),
      file_key("training.learning-rate", "X", "0.05", "Learning rate", Real{0, 1e6, false}),
      file_key("training.schedule", "NAME", word_of(RateSchedule{}),
               "Learning-rate schedule: constant; linear or cosine, which fall to zero over the run; or step, which "
               "drops every training.schedule-steps steps",
               OneOf<RateSchedule>{}),
      file_key("training.warmup-steps", "N", "0", "Steps over which the learning rate first rises to its full value",
               Integer{0, 1ULL << 48}),
      file_key("training.schedule-steps", "N", "0",
               "With the step schedule, number of steps between drops in the learning rate", Integer{0, 1ULL << 48}),
      file_key("training.schedule-decay", "X", "0.1",
               "With the step schedule, factor applied to the learning rate at each drop", Real{0, 1, false}),
      file_key("training.scale-learning-rate", "BASE_BATCH", "",
               "Multiply the learning rate by the global batch size / BASE_BATCH", Integer{1, 1ULL << 32},
               into(&Options::learning_rate_base_batch))};
}

Rows training_update() {
  return {
      file_key("training.clip-norm", "X", "0",
               "Scale the gradients down to this global norm if they exceed it; 0 means never", Real{0, 1e12}),
      file_key(
          "training.gradient-bucket", "MIB", "0",
          "Exchange gradients in buckets of at least this size during the backward pass; 0: exchange them after it",
          Real{0, 1e6},
          [](Options& o, double v) {
            o.config.mutable_training()->set_gradient_bucket_bytes(static_cast<std::uint64_t>(v * 0x1p20));
          }),
      file_key("training.weight-decay", "X", "0",
               "Weight decay of all weights, including biases and normalisations unless training.no-decay exempts "
               "them; added to the gradient or, by optimisers that decouple it, to the update",
               Real{0, 1e6}),
      file_key("training.no-decay", "REGEX", "",
               "No weight decay for weights whose name matches REGEX; the word 'vectors' stands for one-dimensional "
               "weights: biases and the scales of normalisations. With lars, they take the learning rate as it is",
               Regex{}),
      file_key("training.gradient-accumulation", "N", "1", "Micro-batches per replica and step", Integer{1, 1 << 20}),
      file_key("training.gradient-accumulation-kind", "NAME", "",
               "Values that gradient accumulators hold: mean (a sum that the update divides by the number of "
               "micro-batches), running-mean, or sum, which is never divided (default: mean; with half precision, "
               "running-mean)",
               OneOf<AccumulationKind>{}),
      file_key("training.accumulator-precision", "NAME", "",
               "Precision of gradient accumulators: float or half (default: that of the gradients)",
               OneOf<Precision>{}),
      file_key("training.optimizer-precision", "NAME", "float",
               "Precision of the optimiser's state: float, or half for the momentum, or for the mean of the gradients; "
               "the mean of their squares and master weights stay float; with lars, the momentum contains the learning "
               "rate, and "
               "small updates lose digits",
               OneOf<Precision>{}),
      file_key("training.gradient-reduction", "NAME", word_of(GradientReduction{}),
               "How gradients are reduced over the replicas: mean or sum, both once per step, or every-micro-batch, "
               "which averages them before they are accumulated",
               OneOf<GradientReduction>{}),
      file_key("training.loss-mean", "NAME", word_of(LossMean{}),
               "Average the loss over micro-batches (the mean of their mean losses, as in PopART) or over tokens (all "
               "counted labels of a step, on all replicas). With tokens, the gradient is that of the whole batch, "
               "regardless of how the batch is split into micro-batches and whether gradients are summed or averaged",
               OneOf<LossMean>{}),
      file_key("training.label-smoothing", "X", "0",
               "Train with cross-entropies in which a label stands for the probability 1 - X of its class plus X "
               "spread evenly over all classes, as in torch.nn.CrossEntropyLoss; evaluation does not smooth labels",
               Real{0, 1, true, false}),
      file_key("training.loss-scaling", "X|auto", "",
               "Multiply the loss by X so that small gradients do not vanish in half precision; auto finds X and skips "
               "steps that overflow (default: auto with half precision, else 1)",
               LossScale{}, into(&Options::loss_scaling)),
      file_key("training.master-weights", "BOOL", "false",
               "With half precision, keep a float copy of the weights for the optimiser", Boolean{}),
      file_key("training.stochastic-rounding", "BOOL", "false",
               "With half precision, round up or down at random so that the mean is preserved", Boolean{}),
      file_key("training.frozen", "REGEX", "",
               "Do not train weights whose name matches REGEX, and do not update running statistics that match",
               Regex{})};
}

Rows training_run() {
  return {file_key("training.check-finite", "BOOL", "true",
                   "Stop at the first operator that produces a NaN or an infinity, and name it", Boolean{}),
          file_key("training.seed", "N", "42", "Seed for initial weights, shuffling and dropout",
                   Integer{0, std::numeric_limits<std::uint64_t>::max()}),
          file_key("training.evaluate", "BOOL", "true", "Evaluate on the test data", Boolean{}),
          file_key("training.evaluate-every-epochs", "N", "1",
                   "Epochs between two evaluations; 0 means only after the last step", Integer{0, 1000000})};
}

Rows memory() {
  return {
      file_key("memory.poison-dead", "BOOL", "false", "For debugging: fill bytes with NaN once their tensor is dead",
               Boolean{}),
      file_key("memory.private", "BOOL", "false",
               "Give every replica its own copy of weights and optimiser state, also of those that are equal on all "
               "replicas; otherwise, the replicas of a host share one copy, and each updates a part of it. Takes more "
               "memory of this machine and more time, but changes no result",
               Boolean{}, [](Options& o, bool is) { o.config.mutable_memory()->set_private_images(is); }),
      file_key(
          "memory.in-place", "BOOL", "true",
          "Let results reuse the bytes of operands that are no longer needed, and let reshapes, slices and "
          "concatenations alias their operands if no data moves; changes memory and device time, but not the results",
          Boolean{}),
      file_key("memory.outlining", "NAME", word_of(Outlining{}),
               "Let repeated sequences of operations, such as transformer layers, share the code of a function; inputs "
               "are copied to the function, and results from it. on: everywhere; off: nowhere; auto: where this saves "
               "memory and takes at most 1 % of a step's device time, or everywhere if the job does not fit otherwise, "
               "but nowhere if tensors are dumped",
               OneOf<Outlining>{}),
      file_key("memory.tiles", "NAME", word_of(TileStorage{}),
               "How tensors are stored while kernels run: contiguous, each in one piece; exact, at their addresses "
               "on the tiles (slow: for small models and devices). Both give the same memory and device time",
               OneOf<TileStorage>{})};
}

/// Lists the frameworks: "none 0 s, popart 0.16 s, poptorch 3 ns per parameter".
std::string host_call_list() {
  std::string list;
  for (const FittedNumber& call : host_calls()) {
    list += fmt::format("{}{} ", list.empty() ? "" : ", ", call.name);
    list += call.seconds_per_parameter > 0 ? fmt::format("{:.1g} ns per parameter", call.seconds_per_parameter * 1e9)
                                           : fmt::format("{} s", call.seconds);
  }
  return list;
}

Rows device_report() {
  return {
      file_key("device.ipu", "NAME", "mk2", "IPU to emulate: " + one_of(device_names()), Choice{device_names()}),
      file_key("device.tiles", "N", "", "Number of tiles per IPU, to emulate a smaller IPU (default: all)",
               Integer{1, 1472}),
      file_key("device.io-tiles", "N", "0",
               "Tiles per IPU that do not compute, but transfer data to and from the host and Streaming Memory "
               "while the others compute (PopART's numIOTiles): an even number from 32 to 192",
               Integer{0, 192}),
      file_key("device.bytes-per-tile", "N", "", "Bytes of memory on each tile, a multiple of 8 (default: the IPU's)",
               Integer{1024, 1 << 24}),
      file_key("device.host-call", "FRAMEWORK|SECONDS", "none",
               "Extra host time for each training step: that of a framework (" + host_call_list() +
                   "), fitted to published results, or a number of seconds. In inference, frameworks take the "
                   "time of a call through PyTorch",
               HostCall{}),
      file_key("device.steps-per-call", "N", "1",
               "Training steps that share the host time of one call, like PopTorch's deviceIterations and "
               "TensorFlow's steps_per_execution",
               Integer{1, 1'000'000}),
      file_key("device.watts", "W", "0",
               "Power of an IPU, with its share of the Pod, for the energy that `poprun-emu scale` prints",
               Real{0, 1e6}),
      file_key("device.price", "X", "0",
               "Price of an IPU per hour, in any currency, for the cost that `poprun-emu scale` prints", Real{0, 1e6}),
      file_key("device.streaming-bytes", "N", "", "Bytes of Streaming Memory per IPU (default: the IPU's)",
               Integer{1, 1'000'000'000'000'000}),
      with_value({.name = "report.dump-tensors",
                  .section = "report",
                  .arity = Arity::kRepeated,
                  .placeholder = "REGEX@STEP",
                  .fallback = "",
                  .help = "Write replica 0's tensors whose name matches REGEX to dump-step-STEP.safetensors; for "
                          "several steps, write REGEX@1,5",
                  .set = {}},
                 Dumps{},
                 [](Options& o, const std::vector<proto::DumpRequest>& requests) {
                   auto& all = *o.config.mutable_report()->mutable_dump_tensors();
                   all.Add(requests.begin(), requests.end());
                 }),
      with_value({.name = "report.trace-steps",
                  .section = "report",
                  .placeholder = "FIRST-LAST",
                  .fallback = "",
                  .help = "Write trace.pftrace: what each replica does in these training steps, on the wall clock, "
                          "for ui.perfetto.dev",
                  .set = {}},
                 StepRange{}, [](Options& o, const StepRange::Value& steps) {
                   o.config.mutable_report()->set_trace_first(steps.first);
                   o.config.mutable_report()->set_trace_last(steps.last);
                 })};
}

/// Keys of the results of `poprun-emu validate`. Other subcommands accept and ignore them.
Rows published() {
  const auto key = [](const char* name, const char* placeholder, const char* fallback, const char* help, auto kind,
                      auto Published::*member) {
    return with_value({.name = name,
                       .section = "published",
                       .placeholder = placeholder,
                       .fallback = fallback,
                       .help = help,
                       .set = {}},
                      std::move(kind), [member](Options& o, const auto& value) { o.published.*member = value; });
  };
  return {key("published.value", "X", "", "Published value; with the unit s, the time of a step", Real{0, 1e18, false},
              &Published::value),
          key("published.unit", "NAME", "samples/s", "Unit of the value", Choice{{"samples/s", "s", "TFLOP/s", "GB/s"}},
              &Published::unit),
          key("published.items-per-sample", "X", "1",
              "Items that one sample stands for, such as the packed sequences, where the value counts items",
              Real{0, 1e6, false}, &Published::items_per_sample),
          key("published.options", "OPTIONS", "", "Options that complete the job, such as -n 16", Words{},
              &Published::options),
          key("published.family", "NAME", "", "Results of a family are averaged", Text{}, &Published::family),
          key("published.series", "NAME", "", "Results of a series are one job on different numbers of IPUs", Text{},
              &Published::series),
          key("published.reference", "TEXT", "", "Where the result was published", Text{}, &Published::reference),
          key("published.conditions", "TEXT", "", "Known differences between the published job and this one", Text{},
              &Published::conditions)};
}

}  // namespace

Rows job_rows() {
  return joined({model(), partials_rows(), serialisation_rows(), model_sizes(), data(), training_schedule(),
                 training_update(), training_run(), hyper_parameter_rows(), pipeline_rows(), memory(), phase_rows(),
                 location_rows(), memory_proportion_rows(), device_report(), published()});
}

}  // namespace poprun::launcher
