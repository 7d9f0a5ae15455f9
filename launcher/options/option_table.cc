#include "launcher/options/option_table.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/message.h>

#include "hostio/datasets/dataset.h"
#include "launcher/options/hyper_parameters.h"
#include "launcher/options/option_values.h"
#include "replica/device/device.h"
#include "replica/ops/optimizers/optimizer.h"

namespace poprun::launcher {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Set = std::function<Refusal(Options&, const std::string&)>;
using Rows = std::vector<OptionRow>;

/// Reads a text as `kind` (option_values.h) does and gives the value to `store`.
template <typename Kind, typename Store>
Set set(Kind kind, Store store) {
  return [kind = std::move(kind), store = std::move(store)](Options& options,
                                                            const std::string& text) -> Refusal {
    const auto value = kind.read(text);
    if (!value) {
      return value.error();
    }
    store(options, *value);
    return std::nullopt;
  };
}

template <typename T>
auto into(T Options::*member) {
  return [=](Options& options, const auto& value) { options.*member = static_cast<T>(value); };
}

auto add_words(std::vector<std::string> Options::*member) {
  return [=](Options& options, const std::vector<std::string>& words) {
    auto& list = options.*member;
    list.insert(list.end(), words.begin(), words.end());
  };
}

/// The field of the configuration that has the name of a row: training.learning-rate goes into
/// RunConfig's training.learning_rate.
class Field {
 public:
  explicit Field(std::string name) {
    std::ranges::replace(name, '-', '_');
    const std::size_t dot = name.find('.');
    section_ = proto::RunConfig::descriptor()->FindFieldByName(name.substr(0, dot));
    POPRUN_CHECK(section_ != nullptr);
    field_ = section_->message_type()->FindFieldByName(name.substr(dot + 1));
    POPRUN_CHECK(field_ != nullptr);
  }

  void operator()(Options& options, bool value) const {
    const auto [section, fields] = open(options);
    fields->SetBool(section, field_, value);
  }
  void operator()(Options& options, double value) const {
    const auto [section, fields] = open(options);
    fields->SetDouble(section, field_, value);
  }
  void operator()(Options& options, const std::string& value) const {
    const auto [section, fields] = open(options);
    fields->SetString(section, field_, value);
  }
  void operator()(Options& options, std::uint64_t value) const {
    const auto [section, fields] = open(options);
    if (field_->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
      fields->SetUInt32(section, field_, static_cast<std::uint32_t>(value));
    } else {
      fields->SetUInt64(section, field_, value);
    }
  }

 private:
  [[nodiscard]] std::pair<Message*, const Reflection*> open(Options& options) const {
    Message* section = options.config.GetReflection()->MutableMessage(&options.config, section_);
    return {section, section->GetReflection()};
  }

  const FieldDescriptor* section_;
  const FieldDescriptor* field_;
};

/// A row `section.key` with one value, for the field of its name unless `store` does otherwise.
template <typename Kind, typename Store>
OptionRow job(const std::string& name, const char* placeholder, const char* fallback,
              const std::string& help, Kind kind, Store store) {
  return {.name = name,
          .group = Group::kJob,
          .placeholder = placeholder,
          .fallback = fallback,
          .help = help,
          .set = set(std::move(kind), std::move(store))};
}

template <typename Kind>
OptionRow job(const std::string& name, const char* placeholder, const char* fallback,
              const std::string& help, Kind kind) {
  return job(name, placeholder, fallback, help, std::move(kind), Field(name));
}

Rows general() {
  // Questions are answered before any row is set.
  const auto nothing = [](Options&, const auto&) {};
  return {{"help", 'h', Group::kGeneral, Arity::kFlag, "", "", "This text",
           set(Boolean{}, into(&Options::help))},
          {"version", 0, Group::kGeneral, Arity::kFlag, "", "", "The version",
           set(Boolean{}, into(&Options::version))},
          {"dry-run", 0, Group::kGeneral, Arity::kFlag, "", "",
           "Show topology, resolved configuration, mpirun line and environment, compile the job "
           "and show its figures; start no replica",
           set(Boolean{}, into(&Options::dry_run))},
          {"list-models", 0, Group::kGeneral, Arity::kFlag, "", "",
           "Every built-in model with its parameters, work and sizes", set(Boolean{}, nothing)},
          {"check-onnx", 0, Group::kGeneral, Arity::kValue, "DIR", "",
           "Run every ONNX test case in or below DIR and compare with its outputs",
           set(Text{}, nothing)},
          {"verbose", 'v', Group::kGeneral, Arity::kFlag, "", "0",
           "-v: what is started and mpirun's own lines; -vv: replicas' debug lines too",
           set(Verbosity{}, into(&Options::verbosity))},
          {"debug", 0, Group::kGeneral, Arity::kFlag, "", "", "The same as -vv",
           set(Boolean{}, [](Options& o, bool v) { o.verbosity = v ? 2 : o.verbosity; })}};
}

Rows placement() {
  return {{"num-replicas", 'n', Group::kPlacement, Arity::kValue, "N", "1",
           "Replicas of the whole job", set(Integer{1, 4096}, Field("topology.num-replicas"))},
          {"num-instances", 0, Group::kPlacement, Arity::kValue, "N", "",
           "Processes; replicas are divided evenly among them (default: one per replica)",
           set(Integer{1, 4096}, Field("topology.num-instances"))},
          {"ipus-per-replica", 0, Group::kPlacement, Arity::kValue, "N", "1", "IPUs of one replica",
           set(Integer{1, 64}, Field("topology.ipus-per-replica"))},
          {"print-topology", 0, Group::kPlacement, Arity::kFlag, "", "",
           "Print which host, instance and replica is where",
           set(Boolean{}, into(&Options::print_topology))}};
}

Rows hosts() {
  return {{"host", 'H', Group::kHosts, Arity::kRepeated, "LIST", "",
           "Hosts, as in node0,node1:4 or node[0-2,4]; `:4` is a number of slots",
           set(Text{}, [](Options& o, const std::string& v) { o.host_lists.push_back(v); })},
          {"hostfile", 0, Group::kHosts, Arity::kValue, "FILE", "",
           "One host a line, optionally with slots=N; not together with --host",
           set(Text{}, into(&Options::hostfile))},
          {"host-subnet", 0, Group::kHosts, Arity::kValue, "CIDR", "",
           "Network between the hosts, for example 10.1.0.0/16",
           set(Text{}, into(&Options::host_subnet))},
          {"mpi-global-args", 0, Group::kHosts, Arity::kArguments, "ARGS", "",
           "Added to mpirun's options once", set(Words{}, add_words(&Options::mpi_global_args))},
          {"mpi-local-args", 0, Group::kHosts, Arity::kArguments, "ARGS", "",
           "Added to mpirun's options of every instance, for example \"-x NAME=VALUE\"",
           set(Words{}, add_words(&Options::mpi_local_args))},
          {"instance-mpi-local-args", 0, Group::kHosts, Arity::kArguments, "I:ARGS", "",
           "Likewise, of instance I alone, behind those of every instance",
           set(InstanceWords{}, [](Options& o, const auto& v) {
             auto& words = o.instance_mpi_local_args[v.first];
             words.insert(words.end(), v.second.begin(), v.second.end());
           })}};
}

Rows data_server() {
  return {{"hostio-address", 0, Group::kDataServer, Arity::kValue, "HOST:PORT", "",
           "A running poprun-emu-hostio (default: start one); its token is taken from the "
           "environment variable POPRUN_EMU_TOKEN",
           set(HostPort{}, into(&Options::hostio_address))},
          {"hostio-timeout", 0, Group::kDataServer, Arity::kValue, "SECONDS", "60",
           "How long to try to reach the data server",
           set(Integer{1, 86400}, into(&Options::hostio_timeout_seconds))}};
}

Rows output() {
  return {{"output-dir", 0, Group::kOutput, Arity::kValue, "DIR", "poprun-emu-out",
           "For weights.safetensors, metrics.csv, profile.json, logs/",
           set(Text{}, into(&Options::output_dir))},
          {"overwrite", 0, Group::kOutput, Arity::kFlag, "", "",
           "Replace the results of an earlier run in --output-dir",
           set(Boolean{}, into(&Options::overwrite))},
          {"only-output-from-instance", 0, Group::kOutput, Arity::kValue, "I", "",
           "Show the lines of this instance only, and of one that fails",
           set(Integer{0, 4095}, into(&Options::only_output_from_instance))}};
}

Rows timeouts() {
  return {{"timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "0",
           "End the job with code 75 after this time; 0: never",
           set(Real{0, 1e8}, into(&Options::timeout_seconds))},
          {"heartbeat-interval", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "0.5",
           "Between two life signs of an instance",
           set(Real{0.05, 60}, into(&Options::heartbeat_interval_seconds))},
          {"heartbeat-timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "30",
           "An instance silent for this long is named and the job ended",
           set(Real{0.5, 86400}, into(&Options::heartbeat_timeout_seconds))},
          {"collective-timeout", 0, Group::kTimeouts, Arity::kValue, "SECONDS", "120",
           "How long replicas wait for one another",
           set(Integer{1, 86400}, into(&Options::collective_timeout_seconds))}};
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
      {"heads", "Of attention; divide the features"},
      {"vocabulary", "Different tokens"},
      {"sequence-length", "Most tokens of a sequence"},
      {"classes", "Of a classifier"}};
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
      job("model.initial-weights", "FILE", "", "Start from these weights (.safetensors)", Text{})};
}

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
          "Of npz and npy images: mean of x / 255 (uint8, default 0.5), of x (floats, 0)",
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

Rows training() {
  return {
      job("training.epochs", "N", "6", "Passes over the training data", Integer{1, 1000000}),
      job("training.steps", "N", "0",
          "Stop after this many steps instead; 0: as many as the epochs need",
          Integer{0, 1ULL << 48}),
      job("training.optimizer", "NAME", "momentum", one_of(optimizer_names()),
          Choice{optimizer_names()}),
      job("training.learning-rate", "X", "0.05", "Step size", Real{0, 1e6, false}),
      job("training.schedule", "NAME", "constant",
          "Of the learning rate: constant, linear or cosine (fall to zero over the run), "
          "step (training.schedule-steps)",
          Choice{{"constant", "linear", "cosine", "step"}}),
      job("training.warmup-steps", "N", "0",
          "Steps over which the learning rate rises to its full value first",
          Integer{0, 1ULL << 48}),
      job("training.schedule-steps", "N", "0",
          "Of schedule step: steps between two falls of the learning rate", Integer{0, 1ULL << 48}),
      job("training.schedule-decay", "X", "0.1",
          "Of schedule step: what the learning rate is multiplied by", Real{0, 1, false}),
      job("training.scale-learning-rate", "BASE_BATCH", "",
          "The learning rate is for this global batch: multiply it by the job's global batch / "
          "BASE_BATCH",
          Integer{1, 1ULL << 32}, into(&Options::learning_rate_base_batch)),
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
          Regex{}),
      job("training.check-finite", "BOOL", "true",
          "Stop at the first operator that makes a NaN or an infinity, and name it", Boolean{}),
      job("training.seed", "N", "42", "Of initial weights and shuffling",
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

/// poprun's options for real Pods: users' scripts have them, nothing here can act on them.
Rows compatibility() {
  constexpr const char* kHardware = "there is no IPU hardware to act on";
  constexpr const char* kSync = "copy the programs to the hosts yourself";
  const auto row = [](const char* name, Arity arity, const char* why) -> OptionRow {
    const auto note = [=](Options& options, const auto&) {
      options.notes.push_back(fmt::format("--{} has no effect here: {}", name, why));
    };
    const bool flag = arity == Arity::kFlag;
    return {name,
            0,
            Group::kCompatibility,
            arity,
            flag ? "BOOL" : "X",
            "",
            "",
            flag ? set(Boolean{}, note) : set(Text{}, note)};
  };
  Rows rows;
  for (const char* name :
       {"vipu-server-host", "vipu-server-port", "vipu-server-timeout", "vipu-partition",
        "vipu-partition-attempts", "vipu-allocation", "vipu-cluster", "sync-type", "num-ilds"}) {
    rows.push_back(row(name, Arity::kRepeated, kHardware));
  }
  rows.push_back(
      row("executable-cache-path", Arity::kRepeated, "compiling takes moments and is not cached"));
  rows.push_back(row("process-placement", Arity::kRepeated,
                     "processes are not bound; --mpi-global-args can bind them"));
  for (const char* name :
       {"update-partition", "reset-partition", "remove-partition", "offline-mode"}) {
    rows.push_back(row(name, Arity::kFlag, kHardware));
  }
  rows.push_back(
      row("numa-aware", Arity::kFlag, "processes are not bound; --mpi-global-args can bind them"));
  rows.push_back(row("allow-run-as-root", Arity::kFlag, "root is always allowed"));
  for (const char* name :
       {"synchronise-python-venv", "synchronise-poplar-sdk", "distribute-ssh-key"}) {
    rows.push_back(row(name, Arity::kFlag, kSync));
  }
  return rows;
}

}  // namespace

std::span<const OptionRow> option_table() {
  static const Rows table = [] {
    Rows all;
    for (const Rows& rows : {general(), placement(), hosts(), data_server(), output(), timeouts(),
                             model_sizes(), model(), data(), training(), hyper_parameter_rows(),
                             memory_device_report(), compatibility()}) {
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }();
  return table;
}

std::optional<std::string> why_refused(std::string_view name) {
  if (name == "import-config") {
    return "is poprun's; here a job's settings stand in train.cfg and its placement on the command "
           "line";
  }
  if (name == "export-config" || name == "overwrite-config") {
    return "is poprun's; here --dry-run prints every resolved setting, in the form of a train.cfg";
  }
  if (name == "version-format") {
    return "is poprun's; here --version prints one form, and profile.json of a run has the "
           "libraries' versions";
  }
  return std::nullopt;
}

const OptionRow* find_row(std::string_view name) {
  const auto row = std::ranges::find(option_table(), name, &OptionRow::name);
  return row == option_table().end() ? nullptr : &*row;
}

}  // namespace poprun::launcher
