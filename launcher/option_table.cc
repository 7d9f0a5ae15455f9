#include "launcher/option_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>

#include "launcher/shell_words.h"

namespace poprun::launcher {
namespace {

using Set = std::function<Refusal(Options&, const std::string&)>;

/// All of `text` as a T, or nothing.
template <typename T>
std::optional<T> number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) {
    return std::nullopt;
  }
  return value;
}

template <typename Store>
Set integer(std::uint64_t least, std::uint64_t most, Store store) {
  return [=](Options& options, const std::string& text) -> Refusal {
    const std::optional<std::uint64_t> value = number<std::uint64_t>(text);
    if (!value || *value < least || *value > most) {
      return fmt::format("an integer from {} to {}", least, most);
    }
    store(options, *value);
    return std::nullopt;
  };
}

struct Range {
  double least;
  double most;
  bool least_allowed = true;
  bool most_allowed = true;
};

template <typename Store>
Set real(Range range, Store store) {
  return [=](Options& options, const std::string& text) -> Refusal {
    const std::optional<double> value = number<double>(text);
    const bool low =
        value && (*value < range.least || (*value == range.least && !range.least_allowed));
    const bool high =
        value && (*value > range.most || (*value == range.most && !range.most_allowed));
    if (!value || !std::isfinite(*value) || low || high) {
      return fmt::format("a number {} {}, {} {}", range.least_allowed ? "from" : "above",
                         range.least, range.most_allowed ? "at most" : "below", range.most);
    }
    store(options, *value);
    return std::nullopt;
  };
}

template <typename Store>
Set boolean(Store store) {
  return [=](Options& options, const std::string& text) -> Refusal {
    const std::optional<bool> value = parse_boolean(text);
    if (!value) {
      return "yes, no, on, off, true, false, 1 or 0";
    }
    store(options, *value);
    return std::nullopt;
  };
}

template <typename Store>
Set choice(std::vector<std::string> choices, Store store) {
  return
      [choices = std::move(choices), store](Options& options, const std::string& text) -> Refusal {
        if (std::ranges::find(choices, text) == choices.end()) {
          return fmt::format("{}", fmt::join(choices, ", "));
        }
        store(options, text);
        return std::nullopt;
      };
}

/// Any text that can be printed on one line and sent (protobuf carries UTF-8 only), not empty.
template <typename Store>
Set text(Store store) {
  return [=](Options& options, const std::string& value) -> Refusal {
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
    if (value.empty() || value.size() > 4096 || std::ranges::any_of(value, control) ||
        !google::protobuf::internal::IsStructurallyValidUTF8(value)) {
      return "1 to 4096 printable characters in UTF-8";
    }
    store(options, value);
    return std::nullopt;
  };
}

/// `text`, read further by `read`.
Set text_as(Refusal (*read)(Options&, const std::string&)) {
  return [=](Options& options, const std::string& value) -> Refusal {
    const Refusal refusal = text([](Options&, const std::string&) {})(options, value);
    return refusal ? refusal : read(options, value);
  };
}

Set words(std::vector<std::string> Options::*member) {
  return [=](Options& options, const std::string& value) -> Refusal {
    Result<std::vector<std::string>> split = split_shell_words(value);
    if (!split) {
      return "words separated by blanks, quoted as in a shell (" + split.error().message + ")";
    }
    auto& list = options.*member;
    list.insert(list.end(), split->begin(), split->end());
    return std::nullopt;
  };
}

Set host_port() {
  return [](Options& options, const std::string& value) -> Refusal {
    const std::size_t colon = value.rfind(':');
    const std::optional<std::uint16_t> port =
        colon == std::string::npos ? std::nullopt : number<std::uint16_t>(value.substr(colon + 1));
    if (colon == 0 || !port || *port == 0) {
      return "HOST:PORT with a port from 1 to 65535";
    }
    options.hostio_address = value;
    return std::nullopt;
  };
}

constexpr std::uint32_t narrow(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}

void add_general(std::vector<OptionRow>& rows) {
  const auto flag = [](bool Options::*member) {
    return boolean([member](Options& o, bool v) { o.*member = v; });
  };
  rows.push_back(
      {"help", 'h', Group::kGeneral, Arity::kFlag, "", "", "This text", flag(&Options::help)});
  rows.push_back({"version", 0, Group::kGeneral, Arity::kFlag, "", "", "The version",
                  flag(&Options::version)});
  rows.push_back(
      {"dry-run", 0, Group::kGeneral, Arity::kFlag, "", "",
       "Show topology, resolved configuration, mpirun line and environment, compile the job "
       "and show its figures; start no replica",
       flag(&Options::dry_run)});
  rows.push_back({"list-models", 0, Group::kGeneral, Arity::kFlag, "", "",
                  "Every built-in model with its parameters, work and sizes",
                  boolean([](Options&, bool) {})});
  rows.push_back({"check-onnx", 0, Group::kGeneral, Arity::kValue, "DIR", "",
                  "Run every ONNX test case in or below DIR and compare with its outputs",
                  text([](Options&, const std::string&) {})});
  rows.push_back({"verbose", 'v', Group::kGeneral, Arity::kFlag, "", "0",
                  "-v: what is started and mpirun's own lines; -vv: replicas' debug lines too",
                  [](Options& o, const std::string& value) -> Refusal {
                    const std::optional<bool> said = parse_boolean(value);
                    if (!said && value != "2") {
                      return "0, 1 or 2";
                    }
                    o.verbosity = said ? static_cast<std::uint32_t>(*said) : 2;
                    return std::nullopt;
                  }});
}

void add_placement(std::vector<OptionRow>& rows) {
  rows.push_back({"num-replicas", 'n', Group::kPlacement, Arity::kValue, "N", "1",
                  "Replicas of the whole job", integer(1, 4096, [](Options& o, std::uint64_t v) {
                    o.config.mutable_topology()->set_num_replicas(narrow(v));
                  })});
  rows.push_back({"num-instances", 0, Group::kPlacement, Arity::kValue, "N", "",
                  "Processes; replicas are divided evenly among them (default: one per replica)",
                  integer(1, 4096, [](Options& o, std::uint64_t v) {
                    o.config.mutable_topology()->set_num_instances(narrow(v));
                  })});
  rows.push_back({"ipus-per-replica", 0, Group::kPlacement, Arity::kValue, "N", "1",
                  "IPUs of one replica", integer(1, 64, [](Options& o, std::uint64_t v) {
                    o.config.mutable_topology()->set_ipus_per_replica(narrow(v));
                  })});
  rows.push_back({"print-topology", 0, Group::kPlacement, Arity::kFlag, "", "",
                  "Print which host, instance and replica is where",
                  boolean([](Options& o, bool v) { o.print_topology = v; })});
}

void add_hosts(std::vector<OptionRow>& rows) {
  rows.push_back({"host", 'H', Group::kHosts, Arity::kRepeated, "LIST", "",
                  "Hosts, as in node0,node1:4 or node[0-2,4]; `:4` is a number of slots",
                  text([](Options& o, const std::string& v) { o.host_lists.push_back(v); })});
  rows.push_back({"hostfile", 0, Group::kHosts, Arity::kValue, "FILE", "",
                  "One host a line, optionally with slots=N; not together with --host",
                  text([](Options& o, const std::string& v) { o.hostfile = v; })});
  rows.push_back({"host-subnet", 0, Group::kHosts, Arity::kValue, "CIDR", "",
                  "Network between the hosts, for example 10.1.0.0/16",
                  text([](Options& o, const std::string& v) { o.host_subnet = v; })});
  rows.push_back({"mpi-global-args", 0, Group::kHosts, Arity::kArguments, "ARGS", "",
                  "Added to mpirun's options once", words(&Options::mpi_global_args)});
  rows.push_back({"mpi-local-args", 0, Group::kHosts, Arity::kArguments, "ARGS", "",
                  "Added to mpirun's options of every instance, for example \"-x NAME=VALUE\"",
                  words(&Options::mpi_local_args)});
}

void add_data_server(std::vector<OptionRow>& rows) {
  rows.push_back({"hostio-address", 0, Group::kDataServer, Arity::kValue, "HOST:PORT", "",
                  "A running poprun-emu-hostio (default: start one); its token is taken from the "
                  "environment variable POPRUN_EMU_TOKEN",
                  host_port()});
  rows.push_back({"hostio-timeout", 0, Group::kDataServer, Arity::kValue, "SECONDS", "60",
                  "How long to try to reach the data server",
                  integer(1, 86400, [](Options& o, std::uint64_t v) {
                    o.hostio_timeout_seconds = narrow(v);
                  })});
}

void add_output(std::vector<OptionRow>& rows) {
  rows.push_back({"output-dir", 0, Group::kOutput, Arity::kValue, "DIR", "poprun-emu-out",
                  "For weights.safetensors, metrics.csv, profile.json, logs/",
                  text([](Options& o, const std::string& v) { o.output_dir = v; })});
  rows.push_back({"overwrite", 0, Group::kOutput, Arity::kFlag, "", "",
                  "Replace the results of an earlier run in --output-dir",
                  boolean([](Options& o, bool v) { o.overwrite = v; })});
  rows.push_back({"only-output-from-instance", 0, Group::kOutput, Arity::kValue, "I", "",
                  "Show the lines of this instance only, and of one that fails",
                  integer(0, 4095, [](Options& o, std::uint64_t v) {
                    o.only_output_from_instance = static_cast<std::int64_t>(v);
                  })});
}

void add_timeouts(std::vector<OptionRow>& rows) {
  rows.push_back({"timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "0",
                  "End the job with code 75 after this time; 0: never",
                  real({0, 1e8}, [](Options& o, double v) { o.timeout_seconds = v; })});
  rows.push_back(
      {"heartbeat-interval", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "0.5",
       "Between two life signs of an instance",
       real({0.05, 60}, [](Options& o, double v) { o.heartbeat_interval_seconds = v; })});
  rows.push_back(
      {"heartbeat-timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "30",
       "An instance silent for this long is named and the job ended",
       real({0.5, 86400}, [](Options& o, double v) { o.heartbeat_timeout_seconds = v; })});
  rows.push_back({"collective-timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "120",
                  "How long replicas wait for one another",
                  integer(1, 86400, [](Options& o, std::uint64_t v) {
                    o.collective_timeout_seconds = narrow(v);
                  })});
}

/// Sizes of the model. Only rows that are given reach the configuration: every model has its own
/// defaults, and refuses sizes that it does not have.
void add_model_sizes(std::vector<OptionRow>& rows) {
  struct Size {
    std::string name;
    std::string help;
    std::uint64_t most = 1ULL << 32;
  };
  const std::vector<Size> sizes = {
      {"layers", "Blocks of a transformer", 1024},  // The compiler's time grows with their square.
      {"hidden", "Features of a transformer's tokens",
       1 << 20},  // Its square, in bytes, is a size.
      {"heads", "Of attention; divide the features"},
      {"vocabulary", "Different tokens"},
      {"sequence-length", "Most tokens of a sequence"},
      {"classes", "Of a classifier"}};
  for (const auto& [name, help, most] : sizes) {
    rows.push_back({"model." + name, 0, Group::kJob, Arity::kValue, "N", "",
                    help + " (default: the model's own)",
                    integer(1, most, [name = name](Options& o, std::uint64_t v) {
                      (*o.config.mutable_model()->mutable_sizes())[name] =
                          static_cast<std::int64_t>(v);
                    })});
  }
}

void add_model_and_data(std::vector<OptionRow>& rows) {
  rows.push_back(
      {"model.name", 0, Group::kJob, Arity::kValue, "NAME", "small-cnn", "Built-in model",
       text([](Options& o, const std::string& v) { o.config.mutable_model()->set_name(v); })});
  rows.push_back(
      {"model.precision", 0, Group::kJob, Arity::kValue, "NAME", "float",
       "Weights, activations and gradients are stored in float (32 bits) or half (16 bits)",
       choice({"float", "half"}, [](Options& o, const std::string& v) {
         o.config.mutable_model()->set_precision(v);
       })});
  rows.push_back({"model.partials", 0, Group::kJob, Arity::kValue, "NAME", "float",
                  "Partial sums of products, with half precision: float or half",
                  choice({"float", "half"}, [](Options& o, const std::string& v) {
                    o.config.mutable_model()->set_partials(v);
                  })});
  rows.push_back(
      {"model.dropout", 0, Group::kJob, Arity::kValue, "X", "0",
       "Share of elements dropped at random in training, where gpt2 and bert have dropout",
       real({0, 1, true, false},
            [](Options& o, double v) { o.config.mutable_model()->set_dropout(v); })});
  rows.push_back({"model.mode", 0, Group::kJob, Arity::kValue, "NAME", "training",
                  "training; or inference: the model's outputs for every test item, in order, to "
                  "outputs.npy",
                  choice({"training", "inference"}, [](Options& o, const std::string& v) {
                    o.config.set_inference(v == "inference");
                  })});
  rows.push_back(
      {"model.onnx", 0, Group::kJob, Arity::kValue, "FILE", "",
       "An ONNX model in the place of a built-in one",
       text([](Options& o, const std::string& v) { o.config.mutable_model()->set_onnx(v); })});
  rows.push_back(
      {"model.loss", 0, Group::kJob, Arity::kValue, "NAME", "",
       "What an ONNX model is trained with: cross-entropy (default) or mean-squared-error",
       choice({"cross-entropy", "mean-squared-error"},
              [](Options& o, const std::string& v) { o.config.mutable_model()->set_loss(v); })});
  rows.push_back({"model.initial-weights", 0, Group::kJob, Arity::kValue, "FILE", "",
                  "Start from these weights (.safetensors)",
                  text([](Options& o, const std::string& v) {
                    o.config.mutable_model()->set_initial_weights(v);
                  })});
  rows.push_back(
      {"data.source", 0, Group::kJob, Arity::kValue, "SOURCE", "fashion-mnist",
       "Dataset: fashion-mnist, idx:DIR, npz:FILE, npy:DIR, text:FILE, tokens:FILE, "
       "tokens-u32:FILE, "
       "synthetic:images=CxHxW,classes=N,items=N or synthetic:tokens,vocabulary=N,items=N",
       text([](Options& o, const std::string& v) { o.config.mutable_data()->set_source(v); })});
  const auto parameter = [](const char* key) {
    return [key](Options& o, const auto& value) {
      std::erase_if(o.source_parameters,
                    [&](const std::string& p) { return p.starts_with(std::string{key} + "="); });
      o.source_parameters.push_back(fmt::format("{}={}", key, value));
    };
  };
  rows.push_back({"data.task", 0, Group::kJob, Arity::kValue, "NAME", "",
                  "What becomes of tokens: next-token (default), or masked-lm as BERT",
                  choice({"next-token", "masked-lm"}, parameter("task"))});
  rows.push_back({"data.sequence-length", 0, Group::kJob, Arity::kValue, "N", "",
                  "Tokens of one sample (default: 128)",
                  integer(1, 1 << 16, parameter("sequence-length"))});
  rows.push_back({"data.masks", 0, Group::kJob, Arity::kValue, "N", "",
                  "Mask slots of a masked-lm sample (default: 15 % of its tokens, rounded up)",
                  integer(1, 1 << 16, parameter("masks"))});
  rows.push_back({"data.mask-token", 0, Group::kJob, Arity::kValue, "ID", "",
                  "Token that masks (default: the first id that the data does not use)",
                  integer(0, (1ULL << 31) - 3, parameter("mask-token"))});
  rows.push_back({"data.channels", 0, Group::kJob, Arity::kValue, "NAME", "",
                  "Images of npz and npy: channels first [N,C,H,W] (default) or last [N,H,W,C]",
                  choice({"first", "last"}, parameter("channels"))});
  rows.push_back({"data.mean", 0, Group::kJob, Arity::kValue, "X", "",
                  "Of npz and npy images: mean of x / 255 (uint8, default 0.5), of x (floats, 0)",
                  real({-1e9, 1e9}, parameter("mean"))});
  rows.push_back({"data.deviation", 0, Group::kJob, Arity::kValue, "X", "",
                  "Likewise, what they are divided by then (uint8, default 0.5; floats, 1)",
                  real({0, 1e9, false}, parameter("deviation"))});
  rows.push_back({"data.augment", 0, Group::kJob, Arity::kValue, "NAME", "",
                  "Training images: none (default), flip, crop or flip+crop",
                  choice({"none", "flip", "crop", "flip+crop"}, parameter("augment"))});
  rows.push_back(
      {"data.order", 0, Group::kJob, Arity::kValue, "NAME", "shuffled",
       "Training items: shuffled anew in every epoch, or sequential, as the data has them",
       choice({"shuffled", "sequential"}, [](Options& o, const std::string& v) {
         o.config.mutable_data()->set_sequential(v == "sequential");
       })});
  rows.push_back({"data.micro-batch-size", 0, Group::kJob, Arity::kValue, "N", "16",
                  "Samples a replica computes at once",
                  integer(1, 1 << 20, [](Options& o, std::uint64_t v) {
                    o.config.mutable_data()->set_micro_batch_size(narrow(v));
                  })});
  rows.push_back({"data.prefetch-batches", 0, Group::kJob, Arity::kValue, "N", "4",
                  "Batches in flight to one replica",
                  integer(1, 1024, [](Options& o, std::uint64_t v) {
                    o.config.mutable_data()->set_prefetch_batches(narrow(v));
                  })});
}

void add_training(std::vector<OptionRow>& rows) {
  const auto training = [](Options& o) { return o.config.mutable_training(); };
  rows.push_back(
      {"training.epochs", 0, Group::kJob, Arity::kValue, "N", "6", "Passes over the training data",
       integer(1, 1000000,
               [=](Options& o, std::uint64_t v) { training(o)->set_epochs(narrow(v)); })});
  rows.push_back(
      {"training.steps", 0, Group::kJob, Arity::kValue, "N", "0",
       "Stop after this many steps instead; 0: as many as the epochs need",
       integer(0, 1ULL << 48, [=](Options& o, std::uint64_t v) { training(o)->set_steps(v); })});
  rows.push_back(
      {"training.optimizer", 0, Group::kJob, Arity::kValue, "NAME", "momentum",
       "sgd, momentum, adam, adamw or lamb",
       choice({"sgd", "momentum", "adam", "adamw", "lamb"},
              [=](Options& o, const std::string& v) { training(o)->set_optimizer(v); })});
  rows.push_back(
      {"training.learning-rate", 0, Group::kJob, Arity::kValue, "X", "0.05", "Step size",
       real({0, 1e6, false}, [=](Options& o, double v) { training(o)->set_learning_rate(v); })});
  rows.push_back({"training.schedule", 0, Group::kJob, Arity::kValue, "NAME", "constant",
                  "Of the learning rate: constant, linear or cosine (fall to zero over the run), "
                  "step (training.schedule-steps)",
                  choice({"constant", "linear", "cosine", "step"},
                         [=](Options& o, const std::string& v) { training(o)->set_schedule(v); })});
  rows.push_back(
      {"training.momentum", 0, Group::kJob, Arity::kValue, "X", "0.9", "Of the momentum optimizer",
       real({0, 1, true, false}, [=](Options& o, double v) { training(o)->set_momentum(v); })});
  rows.push_back({"training.warmup-steps", 0, Group::kJob, Arity::kValue, "N", "0",
                  "Steps over which the learning rate rises to its full value first",
                  integer(0, 1ULL << 48,
                          [=](Options& o, std::uint64_t v) { training(o)->set_warmup_steps(v); })});
  rows.push_back({"training.schedule-steps", 0, Group::kJob, Arity::kValue, "N", "0",
                  "Of schedule step: steps between two falls of the learning rate",
                  integer(0, 1ULL << 48, [=](Options& o, std::uint64_t v) {
                    training(o)->set_schedule_steps(v);
                  })});
  rows.push_back(
      {"training.schedule-decay", 0, Group::kJob, Arity::kValue, "X", "0.1",
       "Of schedule step: what the learning rate is multiplied by",
       real({0, 1, false}, [=](Options& o, double v) { training(o)->set_schedule_decay(v); })});
  rows.push_back({"training.scale-learning-rate", 0, Group::kJob, Arity::kValue, "BASE_BATCH", "",
                  "The learning rate is for this global batch: multiply it by the job's global "
                  "batch / BASE_BATCH",
                  integer(1, 1ULL << 32,
                          [](Options& o, std::uint64_t v) { o.learning_rate_base_batch = v; })});
  rows.push_back({"training.clip-norm", 0, Group::kJob, Arity::kValue, "X", "0",
                  "Largest norm of all gradients together, they are scaled down to it; 0: any",
                  real({0, 1e12}, [=](Options& o, double v) { training(o)->set_clip_norm(v); })});
  rows.push_back({"training.gradient-bucket", 0, Group::kJob, Arity::kValue, "MIB", "0",
                  "Exchange gradients in buckets of this size while backward goes on; 0: all of "
                  "them together behind it",
                  real({0, 1e6}, [=](Options& o, double v) {
                    training(o)->set_gradient_bucket_bytes(static_cast<std::uint64_t>(v * 0x1p20));
                  })});
  rows.push_back({"training.nesterov", 0, Group::kJob, Arity::kValue, "BOOL", "false",
                  "Nesterov's form of the momentum optimizer",
                  boolean([=](Options& o, bool v) { training(o)->set_nesterov(v); })});
  rows.push_back(
      {"training.beta1", 0, Group::kJob, Arity::kValue, "X", "0.9",
       "Decay of the mean gradient of adam, adamw and lamb",
       real({0, 1, true, false}, [=](Options& o, double v) { training(o)->set_beta1(v); })});
  rows.push_back(
      {"training.beta2", 0, Group::kJob, Arity::kValue, "X", "0.999",
       "Decay of the mean squared gradient of adam, adamw and lamb",
       real({0, 1, true, false}, [=](Options& o, double v) { training(o)->set_beta2(v); })});
  rows.push_back({"training.epsilon", 0, Group::kJob, Arity::kValue, "X", "1e-8",
                  "Added to the root of the mean squared gradient of adam, adamw and lamb",
                  real({0, 1, false}, [=](Options& o, double v) { training(o)->set_epsilon(v); })});
  rows.push_back({"training.weight-decay", 0, Group::kJob, Arity::kValue, "X", "0",
                  "Times the weight, added to the gradient; with adamw and lamb to the update",
                  real({0, 1e6}, [=](Options& o, double v) { training(o)->set_weight_decay(v); })});
  rows.push_back({"training.gradient-accumulation", 0, Group::kJob, Arity::kValue, "N", "1",
                  "Micro-batches of one replica in one step",
                  integer(1, 1 << 20, [=](Options& o, std::uint64_t v) {
                    training(o)->set_gradient_accumulation(narrow(v));
                  })});
  rows.push_back(
      {"training.loss-scaling", 0, Group::kJob, Arity::kValue, "X|auto", "",
       "The loss is multiplied by X, so that small gradients do not vanish in half precision; auto "
       "finds X and skips steps that overflow (default: auto with half precision, else 1)",
       [](Options& o, const std::string& text) -> Refusal {
         const std::optional<double> value = text == "auto" ? 0.0 : number<double>(text);
         if (!value || !std::isfinite(*value) || (text != "auto" && *value <= 0)) {
           return "a number above 0, or auto";
         }
         o.loss_scaling = *value;
         return std::nullopt;
       }});
  rows.push_back({"training.master-weights", 0, Group::kJob, Arity::kValue, "BOOL", "false",
                  "With half precision: the optimizer keeps float weights of its own",
                  boolean([=](Options& o, bool v) { training(o)->set_master_weights(v); })});
  rows.push_back({"training.stochastic-rounding", 0, Group::kJob, Arity::kValue, "BOOL", "false",
                  "With half precision: round at random, so that the mean is kept",
                  boolean([=](Options& o, bool v) { training(o)->set_stochastic_rounding(v); })});
  rows.push_back({"training.check-finite", 0, Group::kJob, Arity::kValue, "BOOL", "true",
                  "Stop at the first operator that makes a NaN or an infinity, and name it",
                  boolean([=](Options& o, bool v) { training(o)->set_check_finite(v); })});
  rows.push_back({"training.seed", 0, Group::kJob, Arity::kValue, "N", "42",
                  "Of initial weights and shuffling",
                  integer(0, std::numeric_limits<std::uint64_t>::max(),
                          [=](Options& o, std::uint64_t v) { training(o)->set_seed(v); })});
  rows.push_back({"training.evaluate", 0, Group::kJob, Arity::kValue, "BOOL", "true",
                  "Evaluate on the test data",
                  boolean([=](Options& o, bool v) { training(o)->set_evaluate(v); })});
  rows.push_back({"training.evaluate-every-epochs", 0, Group::kJob, Arity::kValue, "N", "1",
                  "0: only after the last step",
                  integer(0, 1000000, [=](Options& o, std::uint64_t v) {
                    training(o)->set_evaluate_every_epochs(narrow(v));
                  })});
}

void add_memory_and_device(std::vector<OptionRow>& rows) {
  rows.push_back({"memory.poison-dead", 0, Group::kJob, Arity::kValue, "BOOL", "false",
                  "Debug: fill dead bytes with NaN", boolean([](Options& o, bool v) {
                    o.config.mutable_memory()->set_poison_dead(v);
                  })});
  rows.push_back({"memory.available-memory-proportion", 0, Group::kJob, Arity::kValue, "X", "",
                  "Accepted; no effect yet, convolutions are not planned by memory in this version",
                  real({0, 1}, [](Options& o, double v) {
                    o.notes.push_back(
                        fmt::format("available-memory-proportion = {} has no effect: this version "
                                    "has no convolution planner",
                                    v));
                  })});
  rows.push_back({"device.ipu", 0, Group::kJob, Arity::kValue, "NAME", "mk2", "mk1, mk2 or bow",
                  choice({"mk1", "mk2", "bow"}, [](Options& o, const std::string& v) {
                    o.config.mutable_device()->set_ipu(v);
                  })});
}

/// REGEX@STEP[,STEP...]; the steps stand behind the last @.
Refusal add_dumps(Options& options, const std::string& value) {
  const char* allowed =
      "REGEX@STEP or REGEX@STEP,STEP,..., with an ECMAScript regular expression "
      "and steps from 1";
  const std::size_t at = value.rfind('@');
  if (at == std::string::npos || at == 0) {
    return allowed;
  }
  try {
    const std::regex pattern(value.substr(0, at));
  } catch (const std::regex_error& error) {
    return fmt::format("{} ({})", allowed, error.what());
  }
  std::istringstream steps(value.substr(at + 1) + ',');
  for (std::string text; std::getline(steps, text, ',');) {
    const std::optional<std::uint64_t> step = number<std::uint64_t>(text);
    if (!step || *step == 0) {
      return allowed;
    }
    proto::DumpRequest& request = *options.config.mutable_report()->add_dump_tensors();
    request.set_pattern(value.substr(0, at));
    request.set_step(*step);
  }
  return std::nullopt;
}

void add_report(std::vector<OptionRow>& rows) {
  rows.push_back({"report.dump-tensors", 0, Group::kJob, Arity::kRepeated, "REGEX@STEP", "",
                  "Write replica 0's tensors of training steps (REGEX@1,5) whose names match to "
                  "dump-step-N.safetensors",
                  text_as(add_dumps)});
}

/// poprun's options for real Pods: users' scripts have them, nothing here can act on them.
void add_compatibility(std::vector<OptionRow>& rows) {
  const auto note = [](std::string name) {
    return [name = std::move(name)](Options& options, const auto&) {
      options.notes.push_back(
          fmt::format("--{} has no effect here: there is no IPU hardware to act on", name));
    };
  };
  for (const char* name :
       {"vipu-server-host", "vipu-server-port", "vipu-server-timeout", "vipu-partition",
        "vipu-partition-attempts", "vipu-allocation", "vipu-cluster", "sync-type",
        "executable-cache-path", "process-placement", "num-ilds"}) {
    rows.push_back(
        {name, 0, Group::kCompatibility, Arity::kRepeated, "X", "", "", text(note(name))});
  }
  for (const char* name : {"update-partition", "reset-partition", "remove-partition", "numa-aware",
                           "offline-mode", "allow-run-as-root", "synchronise-python-venv",
                           "synchronise-poplar-sdk", "distribute-ssh-key"}) {
    rows.push_back(
        {name, 0, Group::kCompatibility, Arity::kFlag, "BOOL", "", "", boolean(note(name))});
  }
}

}  // namespace

std::span<const OptionRow> option_table() {
  static const std::vector<OptionRow> table = [] {
    std::vector<OptionRow> rows;
    add_general(rows);
    add_placement(rows);
    add_hosts(rows);
    add_data_server(rows);
    add_output(rows);
    add_timeouts(rows);
    add_model_sizes(rows);
    add_model_and_data(rows);
    add_training(rows);
    add_memory_and_device(rows);
    add_report(rows);
    add_compatibility(rows);
    return rows;
  }();
  return table;
}

const OptionRow* find_row(std::string_view name) {
  const auto row = std::ranges::find(option_table(), name, &OptionRow::name);
  return row == option_table().end() ? nullptr : &*row;
}

std::optional<bool> parse_boolean(std::string_view text) {
  if (text == "yes" || text == "on" || text == "true" || text == "1") {
    return true;
  }
  if (text == "no" || text == "off" || text == "false" || text == "0") {
    return false;
  }
  return std::nullopt;
}

}  // namespace poprun::launcher
