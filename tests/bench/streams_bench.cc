#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hostio/streams/client.h"
#include "hostio/streams/dataset_store.h"
#include "hostio/streams/server.h"
#include "hostio/streams/wire.h"
#include "proto/host_streams.grpc.pb.h"
#include "replica/base/host_limits.h"

/// Measures host streams against plain gRPC streams of the same samples: a server with one thread per stream, which has
/// the samples in memory, copies them into messages in order, without shuffling, and writes those; and clients that
/// read them. Both run in this process, over loopback, in alternating rounds.
///
///   streams_bench [REPLICAS=4] [MIB=1024] [ROUNDS=5] [MICRO_BATCH=64]
///   streams_bench --memory SOURCE [GIGABYTES=1]
///
/// The first form exits with 1 if the median from files is slower than the plain stream, or the synthetic source than
/// 0.95 x files; it also prints the processor time per gigabyte, of the server and all clients, which varies less on a
/// busy machine. The second form serves a data.source to four clients from a process of its own, and prints JSON for
/// stream_formats.py, with the peak memory of that process.
namespace poprun::hostio {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kSide = 64;
constexpr std::uint32_t kImageBytes = 3 * kSide * kSide;
constexpr std::uint32_t kItems = 16'384;
constexpr std::size_t kPlainBytes = std::size_t{256} << 20;  ///< Limit for the samples of the plain stream.

struct Load {
  std::uint32_t replicas = 4;
  std::uint32_t micro_batch = 64;
  std::uint64_t batches = 0;  ///< Per replica.
  std::uint64_t sample_bytes = kImageBytes + 4;

  [[nodiscard]] double gigabytes() const {
    return 1e-9 * static_cast<double>(batches * replicas * micro_batch * sample_bytes);
  }
};

/// Returns the processor time of this process, of all threads.
double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Cost {
  double rate = 0;       ///< GB/s.
  double processor = 0;  ///< Seconds of processor time per GB.
};

/// Runs `replica(r)` on a thread for each replica.
Cost measured(const Load& load, const std::function<void(std::uint32_t)>& replica) {
  const double processor = processor_seconds();
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < load.replicas; ++r) {
    threads.emplace_back(replica, r);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::chrono::duration<double> wall = Clock::now() - begin;
  return {.rate = load.gigabytes() / wall.count(), .processor = (processor_seconds() - processor) / load.gigabytes()};
}

class PlainService final : public proto::HostStreams::Service {
 public:
  explicit PlainService(const Load& load)
      : micro_batch_(load.micro_batch),
        items_(std::max<std::size_t>(std::min<std::size_t>(kItems, kPlainBytes / load.sample_bytes), micro_batch_)) {
    for (const std::uint64_t bytes : {load.sample_bytes - 4, std::uint64_t{4}}) {
      samples_.emplace_back(bytes * items_, 'x');
    }
  }

  grpc::Status Pull(grpc::ServerContext* /*context*/,
                    grpc::ServerReaderWriter<proto::Batch, proto::PullRequest>* stream) override {
    proto::PullRequest request;
    stream->Read(&request);
    std::size_t item = items_ / request.open().selection().replica_count() * request.open().selection().replica();
    proto::Batch batch;
    batch.set_fingerprint(std::string(32, 'f'));
    for (std::uint32_t i = 0; i < request.open().credits(); ++i) {
      item = item + micro_batch_ > items_ ? 0 : item;
      batch.set_sequence(i);
      batch.clear_tensors();
      for (const std::string& samples : samples_) {
        const std::size_t bytes = samples.size() / items_;
        batch.add_tensors(samples.data() + item * bytes, micro_batch_ * bytes);
      }
      item += micro_batch_;
      stream->Write(batch);
    }
    return grpc::Status::OK;
  }

 private:
  std::size_t micro_batch_;
  std::size_t items_;
  std::vector<std::string> samples_;  ///< The samples of all items, for each tensor.
};

Cost plain(const Load& load) {
  PlainService service(load);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  return measured(load, [&](std::uint32_t replica) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    proto::HostStreams::Stub stub(
        grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    const auto stream = stub.Pull(&context);
    proto::PullRequest request;
    request.mutable_open()->set_credits(static_cast<std::uint32_t>(load.batches));
    request.mutable_open()->mutable_selection()->set_replica(replica);
    request.mutable_open()->mutable_selection()->set_replica_count(load.replicas);
    stream->Write(request);
    stream->WritesDone();
    proto::Batch batch;
    std::uint64_t got = 0;
    while (stream->Read(&batch)) {
      ++got;
    }
    POPRUN_CHECK(got == load.batches && stream->Finish().ok());
  });
}

/// Serves a source that is at `port`. Batches are copied into one piece of memory, as the plain stream's are.
Cost served(const Load& load, int port, const std::string& source, const std::string& fingerprint) {
  const auto streams = [&](std::uint64_t batches) {
    return [&, batches](std::uint32_t replica) {
      HostStreamOptions options;
      options.address = fmt::format("127.0.0.1:{}", port);
      options.selection.set_source(source);
      options.selection.set_fingerprint(fingerprint);
      options.selection.set_split(proto::SPLIT_TRAIN);
      options.selection.set_replica(replica);
      options.selection.set_replica_count(load.replicas);
      options.selection.set_micro_batch_size(load.micro_batch);
      options.selection.set_micro_batches_per_step(1);
      const auto stream = open_host_stream(options);
      std::vector<std::byte> memory(load.micro_batch * load.sample_bytes);
      for (std::uint64_t i = 0; i < batches; ++i) {
        const Result<HostBatch> batch = stream->next();
        if (!batch) {
          fmt::print(stderr, "{}\n", batch.error().message);
          std::exit(65);
        }
        std::size_t at = 0;
        for (const HostBytes& tensor : batch->tensors) {
          tensor.copy(0, std::span(memory).subspan(at, tensor.size()));
          at += tensor.size();
        }
      }
    };
  };
  measured(load, streams(1));  // The server reads the dataset.
  return measured(load, streams(load.batches));
}

Cost ours(const Load& load, const std::string& source, const std::string& fingerprint) {
  DatasetStore datasets{StoreLimits{}};
  const auto server = Server::start({}, datasets);
  POPRUN_CHECK(server);
  return served(load, (*server)->port(), source, fingerprint);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Writes a dataset for `npy:FOLDER`, images and labels of zeros with a counter.
void write_arrays(const std::filesystem::path& folder) {
  const auto write = [&](const char* name, const std::string& type, const std::string& shape, std::size_t bytes) {
    const std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
    std::ofstream file(folder / name, std::ios::binary);
    file << "\x93NUMPY\x01" << '\0' << static_cast<char>(header.size()) << '\0' << header;
    std::string data(bytes, '\0');
    for (std::size_t i = 0; type == "|u1" && i < bytes; ++i) {
      data[i] = static_cast<char>(i * 31 >> 3);
    }
    file << data;
  };
  write("images.npy", "|u1", fmt::format("({}, 3, {}, {})", kItems, kSide, kSide), std::size_t{kItems} * kImageBytes);
  write("labels.npy", "<i4", fmt::format("({},)", kItems), std::size_t{kItems} * 4);
}

/// Describes a source as a job does.
proto::Dataset described(const std::string& source) {
  const auto description = describe_dataset(source);
  if (!description) {
    fmt::print(stderr, "{}\n", description.error().message);
    std::exit(65);
  }
  return *description;
}

double mebibytes(std::int64_t kibibytes) {
  return static_cast<double>(kibibytes) / 1024;
}

/// Message from the server process to its clients.
struct Offer {
  int port = 0;
  std::int64_t described_kibibytes = 0;  ///< Peak memory after the description.
  std::uint64_t items = 0;
  std::uint64_t sample_bytes = 0;
  char fingerprint[65] = {};
};

/// Describes a source and serves it until `questions` ends.
[[noreturn]] void serve(const std::string& source, int offers, int questions) {
  const proto::Dataset description = described(source);
  DatasetStore datasets{StoreLimits{}};
  const auto server = Server::start({}, datasets);
  POPRUN_CHECK(server && description.fingerprint().size() < sizeof(Offer::fingerprint));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Offer offer{.port = (*server)->port(),
              .described_kibibytes = usage.ru_maxrss,
              .items = description.train_items() + description.test_items(),
              .sample_bytes = batch_bytes(description, 1)};
  std::ranges::copy(description.fingerprint(), offer.fingerprint);
  POPRUN_CHECK(write(offers, &offer, sizeof(offer)) == sizeof(offer));
  char unused = 0;
  POPRUN_CHECK(read(questions, &unused, 1) == 0);
  _exit(0);
}

int run_memory(const std::string& source, double gigabytes) {
  constexpr std::uint64_t kBatchBytes = 768 << 10;
  int offers[2] = {};
  int questions[2] = {};
  POPRUN_CHECK(pipe(offers) == 0 && pipe(questions) == 0);
  const pid_t process = fork();  // No other thread runs yet.
  if (process == 0) {
    close(questions[1]);
    close(offers[0]);
    serve(source, offers[1], questions[0]);
  }
  close(questions[0]);
  close(offers[1]);
  Offer offer;
  if (read(offers[0], &offer, sizeof(offer)) != sizeof(offer)) {
    int status = 0;
    waitpid(process, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  Load load{.sample_bytes = offer.sample_bytes};
  load.micro_batch = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kBatchBytes / load.sample_bytes, 1, offer.items / load.replicas / 2));
  const double batch_gigabytes = 1e-9 * static_cast<double>(load.replicas * load.micro_batch * load.sample_bytes);
  load.batches = static_cast<std::uint64_t>(gigabytes / batch_gigabytes) + 1;
  const Cost cost = served(load, offer.port, source, offer.fingerprint);
  close(questions[1]);
  rusage usage{};
  int status = 0;
  wait4(process, &status, 0, &usage);
  fmt::print(R"({{"samples": {:.1f}, "described": {:.1f}, "peak": {:.1f}, "gigabytes": {:.3f}, "rate": {:.3f}, )"
             R"("plain": {:.3f}}})"
             "\n",
             1e-6 * static_cast<double>(offer.items * offer.sample_bytes) / 1.048576,
             mebibytes(offer.described_kibibytes), mebibytes(usage.ru_maxrss), load.gigabytes(), cost.rate,
             plain(load).rate);
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  const auto number = [&](std::size_t i, std::uint64_t fallback) {
    return arguments.size() > i ? std::stoull(arguments[i]) : fallback;
  };
  if (!arguments.empty() && arguments[0] == "--memory") {
    POPRUN_CHECK(arguments.size() > 1);
    return run_memory(arguments[1], arguments.size() > 2 ? std::stod(arguments[2]) : 1);
  }
  Load load{.replicas = static_cast<std::uint32_t>(number(0, 4)),
            .micro_batch = static_cast<std::uint32_t>(number(3, 64))};
  load.batches = std::max<std::uint64_t>(1, (number(1, 1024) << 20) / load.replicas / load.micro_batch / kImageBytes);
  std::string pattern = (std::filesystem::temp_directory_path() / "poprun-emu-XXXXXX").string();
  POPRUN_CHECK(mkdtemp(pattern.data()) != nullptr);
  write_arrays(pattern);
  const std::string images = fmt::format("images=3x{}x{},items={}", kSide, kSide, kItems);
  const std::string files_source = "npy:" + pattern;
  const std::string synthetic_source = "synthetic:" + images;
  const std::string files_fingerprint = described(files_source).fingerprint();
  const std::string synthetic_fingerprint = described(synthetic_source).fingerprint();
  std::vector<std::vector<double>> rates(3);
  std::vector<std::vector<double>> processor(3);
  fmt::print("GB/s    plain   files  synthetic   processor s/GB    plain   files  synthetic\n");
  for (std::uint64_t round = 0; round < number(2, 5); ++round) {
    const Cost costs[] = {plain(load), ours(load, files_source, files_fingerprint),
                          ours(load, synthetic_source, synthetic_fingerprint)};
    for (std::size_t i = 0; i < rates.size(); ++i) {
      rates[i].push_back(costs[i].rate);
      processor[i].push_back(costs[i].processor);
    }
    fmt::print("{:>13.2f} {:>7.2f} {:>10.2f} {:>25.2f} {:>7.2f} {:>10.2f}\n", costs[0].rate, costs[1].rate,
               costs[2].rate, costs[0].processor, costs[1].processor, costs[2].processor);
  }
  std::filesystem::remove_all(pattern);
  const double plain_rate = median(rates[0]);
  const double files = median(rates[1]);
  const double synthetic = median(rates[2]);
  fmt::print("median {:>6.2f} {:>7.2f} {:>10.2f} {:>25.2f} {:>7.2f} {:>10.2f}\n", plain_rate, files, synthetic,
             median(processor[0]), median(processor[1]), median(processor[2]));
  fmt::print("files / plain = {:.2f}, synthetic / files = {:.2f}\n", files / plain_rate, synthetic / files);
  return files >= plain_rate && synthetic >= 0.95 * files ? 0 : 1;
}

}  // namespace
}  // namespace poprun::hostio

int main(int argc, char** argv) {
  poprun::keep_freed_memory();  // As the data server and the replicas do.
  return poprun::hostio::run({argv + 1, argv + argc});
}
