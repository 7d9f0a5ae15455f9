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

#include "hostio/streams/client.h"
#include "hostio/streams/dataset_store.h"
#include "hostio/streams/server.h"
#include "hostio/streams/wire.h"
#include "proto/host_streams.grpc.pb.h"
#include "replica/base/host_limits.h"

/// Measures host streams against a plain gRPC stream of the same messages: a server with one thread per stream that
/// writes prepared batches, and clients that read them. Both run in this process, over loopback, in alternating rounds.
///
///   streams_bench [REPLICAS=4] [MIB=1024] [ROUNDS=5] [MICRO_BATCH=64]
///   streams_bench SOURCE [REPLICAS=4] [BATCHES=100] [MICRO_BATCH=64]
///
/// The first form exits with 1 if the median from files is slower than the plain stream, or the synthetic source than
/// 0.95 x files. The second form measures a data.source, and the peak memory of the process, which is that of the
/// server and all clients.
namespace poprun::hostio {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kSide = 64;
constexpr std::uint32_t kImageBytes = 3 * kSide * kSide;
constexpr std::uint32_t kItems = 16'384;

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

/// Runs `replica(r)` on a thread for each replica, and returns GB/s.
double rate(const Load& load, const std::function<void(std::uint32_t)>& replica) {
  const double p = processor_seconds();
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < load.replicas; ++r) {
    threads.emplace_back(replica, r);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  fmt::print(stderr, "cpu s/GB {:.3f}\n", (processor_seconds() - p) / load.gigabytes());
  return load.gigabytes() / std::chrono::duration<double>(Clock::now() - begin).count();
}

class PlainService final : public proto::HostStreams::Service {
 public:
  explicit PlainService(const Load& load) {
    batch_.set_fingerprint(std::string(32, 'f'));
    for (const std::uint32_t bytes : {kImageBytes, 4U}) {
      batch_.add_tensors(std::string(std::size_t{bytes} * load.micro_batch, 'x'));
    }
  }

  grpc::Status Pull(grpc::ServerContext* /*context*/,
                    grpc::ServerReaderWriter<proto::Batch, proto::PullRequest>* stream) override {
    proto::PullRequest request;
    stream->Read(&request);
    for (std::uint32_t i = 0; i < request.open().credits(); ++i) {
      stream->Write(batch_);
    }
    return grpc::Status::OK;
  }

 private:
  proto::Batch batch_;
};

double plain(const Load& load) {
  PlainService service(load);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  return rate(load, [&](std::uint32_t /*replica*/) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    proto::HostStreams::Stub stub(
        grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    const auto stream = stub.Pull(&context);
    proto::PullRequest request;
    request.mutable_open()->set_credits(static_cast<std::uint32_t>(load.batches));
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

double ours(const Load& load, const std::string& source, const std::string& fingerprint) {
  DatasetStore datasets{StoreLimits{}};
  const auto server = Server::start({}, datasets);
  POPRUN_CHECK(server);
  const auto streams = [&](std::uint64_t batches) {
    return [&, batches](std::uint32_t replica) {
      HostStreamOptions options;
      options.address = fmt::format("127.0.0.1:{}", (*server)->port());
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
  rate(load, streams(1));  // The server reads the dataset.
  return rate(load, streams(load.batches));
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

double peak_mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

int run_source(const std::string& source, Load load) {
  const auto begin = Clock::now();
  const proto::Dataset description = described(source);
  const double description_s = std::chrono::duration<double>(Clock::now() - begin).count();
  const double description_mebibytes = peak_mebibytes();
  load.sample_bytes = batch_bytes(description, 1);
  const double served = ours(load, source, description.fingerprint());
  fmt::print(
      "{} items, {} B each: described in {:.1f} s with {:.0f} MiB; {:.2f} GB served at {:.2f} GB/s; peak {:.0f} MiB\n",
      description.train_items() + description.test_items(), load.sample_bytes, description_s, description_mebibytes,
      load.gigabytes(), served, peak_mebibytes());
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  const auto number = [&](std::size_t i, std::uint64_t fallback) {
    return arguments.size() > i ? std::stoull(arguments[i]) : fallback;
  };
  if (!arguments.empty() && arguments[0].find(':') != std::string::npos) {
    return run_source(arguments[0], {.replicas = static_cast<std::uint32_t>(number(1, 4)),
                                     .micro_batch = static_cast<std::uint32_t>(number(3, 64)),
                                     .batches = number(2, 100)});
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
  fmt::print("GB/s    plain   files  synthetic\n");
  for (std::uint64_t round = 0; round < number(2, 5); ++round) {
    rates[0].push_back(plain(load));
    rates[1].push_back(ours(load, files_source, files_fingerprint));
    rates[2].push_back(ours(load, synthetic_source, synthetic_fingerprint));
    fmt::print("{:>13.2f} {:>7.2f} {:>10.2f}\n", rates[0].back(), rates[1].back(), rates[2].back());
  }
  std::filesystem::remove_all(pattern);
  const double plain_rate = median(rates[0]);
  const double files = median(rates[1]);
  const double synthetic = median(rates[2]);
  fmt::print("median {:>6.2f} {:>7.2f} {:>10.2f}; files / plain = {:.2f}, synthetic / files = {:.2f}\n", plain_rate,
             files, synthetic, files / plain_rate, synthetic / files);
  return files >= plain_rate && synthetic >= 0.95 * files ? 0 : 1;
}

}  // namespace
}  // namespace poprun::hostio

int main(int argc, char** argv) {
  poprun::keep_freed_memory();  // As the data server and the replicas do.
  return poprun::hostio::run({argv + 1, argv + argc});
}
