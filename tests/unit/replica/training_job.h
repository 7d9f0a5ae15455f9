#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/local/local_world.h"
#include "proto/run_config.pb.h"
#include "replica/base/half.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compiler/compile.h"
#include "replica/loops/training_loop.h"
#include "replica/models/layers/model.h"
#include "replica/ops/optimizers/optimizer.h"
#include "tests/unit/replica/compiled.h"

/// Whole jobs on replicas that are threads: small-cnn on made-up images.
namespace poprun::testing {

inline constexpr float kMean = 0.25F;
inline constexpr float kDeviation = 0.5F;

inline proto::Dataset dataset() {
  proto::Dataset dataset;
  proto::StreamTensor& images = *dataset.add_tensors();
  images.set_name("images");
  images.set_element("u8");
  for (const std::uint32_t d : {1U, 28U, 28U}) {
    images.add_sample_shape(d);
  }
  dataset.add_tensors()->set_name("labels");
  dataset.mutable_tensors(1)->set_element("i32");
  dataset.set_train_items(64);
  dataset.set_test_items(24);
  dataset.set_classes(10);
  dataset.set_mean(kMean);
  dataset.set_deviation(kDeviation);
  return dataset;
}

/// Returns the description of data like those that the model was published with.
inline proto::Dataset dataset_of(const Model& model) {
  proto::Dataset data = dataset();
  data.clear_tensors();
  data.set_classes(static_cast<std::uint32_t>(model.sample.classes));
  for (const SampleTensor& tensor : model.sample.tensors) {
    proto::StreamTensor& added = *data.add_tensors();
    added.set_name(tensor.name);
    added.set_element(std::string{element_name(tensor.data)});
    for (const std::int64_t d : tensor.shape) {
      added.add_sample_shape(static_cast<std::uint32_t>(d));
    }
  }
  return data;
}

/// Sets an optimiser, with its default values for hyper-parameters that are not given.
inline void set_optimizer(proto::RunConfig& config, const std::string& name,
                          const std::map<std::string, double>& given = {}) {
  proto::TrainingConfig& training = *config.mutable_training();
  training.set_optimizer(name);
  training.clear_hyper_parameters();
  for (const HyperParameter& own : find_optimizer(name)->hyper_parameters) {
    const auto value = given.find(own.name);
    const double fallback = own.range ? std::stod(own.fallback) : 0;
    (*training.mutable_hyper_parameters())[own.name] = value == given.end() ? fallback : value->second;
  }
}

inline proto::RunConfig config(std::uint32_t replicas, std::uint32_t micro_batch_size) {
  proto::RunConfig config;
  config.mutable_model()->set_name("small-cnn");
  config.mutable_data()->set_micro_batch_size(micro_batch_size);
  proto::TrainingConfig& training = *config.mutable_training();
  training.set_steps(3);
  set_optimizer(config, "momentum");
  training.set_learning_rate(0.1);
  training.set_gradient_accumulation(1);
  training.set_schedule("constant");
  training.set_seed(42);
  training.set_evaluate(true);
  training.set_loss_scaling(1);
  training.set_check_finite(true);
  config.mutable_device()->set_ipu("mk2");
  config.mutable_topology()->set_num_replicas(replicas);
  config.mutable_topology()->set_ipus_per_replica(1);
  return config;
}

/// Returns sample `index` of the made-up set: noise around a bright row whose position is the label.
inline std::pair<std::string, std::int32_t> sample(std::uint64_t index) {
  std::mt19937 random(static_cast<std::uint32_t>(index));
  const auto label = static_cast<std::int32_t>(random() % 10);
  std::string image(28 * 28, '\0');
  for (std::size_t i = 0; i < image.size(); ++i) {
    const bool bright = i / 28 == static_cast<std::size_t>(label) * 2 + 4;
    image[i] = static_cast<char>(random() % 64 + (bright ? 128 : 0));
  }
  return {image, label};
}

/// Batches of samples offset + ((k * replicas + replica) * micro_batch + j); labels beyond `items` are padding.
class SampleStream final : public HostStream {
 public:
  SampleStream(std::uint64_t offset, std::uint64_t items, std::uint64_t replica, std::uint64_t replicas,
               std::uint64_t micro_batch, std::uint64_t first = 0)
      : offset_(offset), items_(items), replica_(replica), replicas_(replicas), size_(micro_batch), sequence_(first) {}

  Result<HostBatch> next() override {
    std::string images;
    std::string labels;
    for (std::uint64_t j = 0; j < size_; ++j) {
      const std::uint64_t index = (sequence_ * replicas_ + replica_) * size_ + j;
      auto [image, label] = sample(offset_ + index);
      label = index < items_ ? label : -1;
      images += image;
      labels.append(reinterpret_cast<const char*>(&label), sizeof(label));
    }
    return HostBatch{sequence_++, {std::move(images), std::move(labels)}};
  }

 private:
  std::uint64_t offset_, items_, replica_, replicas_, size_;
  std::uint64_t sequence_;
};

inline constexpr std::uint64_t kToTheEnd = ~std::uint64_t{0};

/// Stops its replica after `last_part` parts.
class Progress final : public ProgressSink {
 public:
  explicit Progress(std::uint64_t last_part = kToTheEnd) : last_part_(last_part) {}

  void progress(ReplicaId /*replica*/, std::uint64_t /*step*/, std::string_view /*activity*/) override {}
  void operators(ReplicaId /*replica*/, std::uint64_t /*steps*/, double /*seconds*/) override {}
  void begin_parts(ReplicaId /*replica*/, std::uint64_t /*parts*/) override {}
  [[nodiscard]] bool begin_part(ReplicaId /*replica*/) override { return parts_++ < last_part_; }

 private:
  std::uint64_t last_part_;
  std::uint64_t parts_ = 0;
};

class Record final : public Reporter {
 public:
  void step(const StepReport& report) override { steps.push_back(report); }
  void evaluation(const EvaluationReport& report) override { evaluations.push_back(report); }
  void note(const proto::Note& note) override { notes.push_back(note.text()); }
  void weights(std::string_view name, std::string_view type, std::span<const std::int64_t> /*shape*/,
               std::span<const std::byte> data) override {
    std::vector<float>& tensor = tensors[std::string{name}];
    types[std::string{name}] = type;
    if (type == "f16") {
      std::vector<Half> halves(data.size() / sizeof(Half));
      std::memcpy(halves.data(), data.data(), data.size());
      tensor.resize(halves.size());
      std::ranges::transform(halves, tensor.begin(), to_float);
      return;
    }
    tensor.resize(data.size() / sizeof(float));
    std::memcpy(tensor.data(), data.data(), data.size());
  }

  void dump(std::uint64_t step, std::string_view name, std::string_view /*type*/, std::span<const std::int64_t> shape,
            std::span<const std::byte> data) override {
    Dumped& dumped = dumps[step][std::string{name}];
    dumped.shape.assign(shape.begin(), shape.end());
    dumped.bytes.assign(data.begin(), data.end());
  }

  struct Dumped {
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
    friend bool operator==(const Dumped&, const Dumped&) = default;

    [[nodiscard]] std::vector<float> floats() const {
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    }
  };

  std::map<std::uint64_t, std::map<std::string, Dumped>> dumps;
  std::vector<StepReport> steps;
  std::vector<EvaluationReport> evaluations;
  std::vector<std::string> notes;
  std::map<std::string, std::vector<float>> tensors;  ///< float16 tensors are widened.
  std::map<std::string, std::string> types;
};

struct Outcome {
  std::vector<Record> records;  ///< One per replica.
  std::vector<LoopResult> results;
  Program program;
};

using Forward = decltype(CompileOptions::forward);

/// Where a job stores checkpoints, what it resumes from, and who watches it; nothing by default.
struct LoopSetup {
  std::function<CheckpointStore*(std::uint32_t replica)> store = nullptr;
  CheckpointSource* state = nullptr;  ///< Given to the first replica only.
  std::function<StepWatcher*(std::uint32_t replica)> watcher = nullptr;
  std::optional<proto::HostState> resume = {};
  std::size_t early_batch_bytes = 1;  ///< EngineOptions: here, every gradient is reduced as soon as it is complete.
};

/// Runs a job's Program, for at most `last_part` of its micro-batches and batches of evaluation.
inline Outcome run_program(const proto::RunConfig& config, Program program, const HostWeights& initial = {},
                           std::uint64_t last_part = kToTheEnd, const LoopSetup& setup = {}) {
  Outcome outcome;
  const std::uint32_t replicas = config.topology().num_replicas();
  outcome.program = std::move(program);
  auto training = training_options(config, dataset());
  EXPECT_TRUE(training) << training.error().message;
  training->resume = setup.resume;
  training->engine.early_batch_bytes = setup.early_batch_bytes;
  auto world = LocalWorld::create({.replicas = replicas});
  EXPECT_TRUE(world);
  outcome.records = std::vector<Record>(replicas);
  outcome.results.resize(replicas);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < replicas; ++r) {
    threads.emplace_back([&, r] {
      Progress progress(last_part);
      const std::uint64_t micro = config.data().micro_batch_size();
      TrainingLoop loop(outcome.program, *training,
                        {.communicator = (*world)->communicator(ReplicaId{r}),
                         .progress = progress,
                         .reporter = &outcome.records[r],
                         .initial_weights = initial,
                         .streams =
                             [&, r](JobStream stream, std::uint64_t first) {
                               const bool train = stream == JobStream::kTrain;
                               return std::make_unique<SampleStream>(
                                   train ? 0 : 1'000'000, train ? ~std::uint64_t{0} : 24, r, replicas, micro, first);
                             },
                         .peer_stream =
                             [&](ReplicaId peer, std::uint64_t first) {
                               return std::make_unique<SampleStream>(0, ~std::uint64_t{0}, index_of(peer), replicas,
                                                                     micro, first);
                             },
                         .watcher = setup.watcher ? setup.watcher(r) : nullptr,
                         .checkpoints = setup.store ? setup.store(r) : nullptr,
                         .state = r == 0 ? setup.state : nullptr});
      auto result = loop.run();
      ASSERT_TRUE(result) << result.error().message;
      outcome.results[r] = *result;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return outcome;
}

/// Runs a job, with `forward` instead of the configuration's model if given.
inline Outcome run(const proto::RunConfig& config, const HostWeights& initial = {}, std::uint64_t last_part = kToTheEnd,
                   const Forward& forward = nullptr) {
  auto options = compile_options(config, dataset());
  EXPECT_TRUE(options);
  options->initial_weights_from_host = !initial.empty();
  options->forward = forward ? forward : options->forward;
  auto program = compile(*options);
  EXPECT_TRUE(program) << program.error().message;
  return run_program(config, std::move(*program), initial, last_part);
}

}  // namespace poprun::testing
