// Compares our collectives with Open MPI's own, in turn and in the same processes. Open MPI also carries ours.
//
//   mpirun -n 16 collectives_bench SMALLEST LARGEST [wire interface]
//
// Rank 0 prints one JSON object per line: sizes in bytes of one replica's whole vector, times in microseconds, algbw =
// size / time, and busbw as nccl-tests defines it, so that different numbers of ranks can be compared. A wrong result
// ends the run with exit code 1.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>
#include <sys/resource.h>

#include "collectives/mpi/mpi_world.h"

namespace {

using poprun::Buffer;
using poprun::ElementType;
using poprun::Reduction;

constexpr double kSecondsEach = 0.4;
constexpr int kRounds = 5;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "collectives_bench: %s\n", why.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::exit(1);
}

void require(const poprun::Status& status) {
  if (!status) {
    give_up(status.error().message);
  }
}

/// Returns the processor time of this process.
double cpu_us() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

double now_us() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(time).count();
}

/// Returns the bytes that this host has sent over an interface; 0 if there is no interface of that name.
double bytes_sent(const std::string& interface) {
  std::ifstream file("/proc/net/dev");
  for (std::string line; !interface.empty() && std::getline(file, line);) {
    const std::size_t colon = line.find(interface + ":");
    if (colon != std::string::npos) {
      double field[9] = {};
      const char* at = line.c_str() + colon + interface.size() + 1;
      for (double& value : field) {
        char* end = nullptr;
        value = std::strtod(at, &end);
        at = end;
      }
      return field[8];
    }
  }
  return 0;
}

/// Returns a function of rank and index: whole numbers, so that sums are exact in any order.
float value(int rank, std::size_t index) {
  return static_cast<float>((rank + 1) * static_cast<int>(index % 7 + 1));
}

class Bench {
 public:
  Bench(poprun::Communicator& world, std::span<float> data, std::span<float> other, std::string interface)
      : world_(world), data_(data), other_(other), interface_(std::move(interface)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }

  void all_reduce(std::size_t count) {
    const std::span<float> data = data_.first(count);
    const std::span<float> other = other_.first(count);
    const auto fill = [&] {
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = other[i] = value(rank_, i);
      }
    };
    const auto check = [&](std::span<const float> result, const char* whose) {
      const float ranks = static_cast<float>(ranks_ * (ranks_ + 1)) / 2;
      for (std::size_t i = 0; i < count; ++i) {
        if (result[i] != ranks * static_cast<float>(i % 7 + 1)) {
          give_up(std::string(whose) + " all-reduce gives a wrong sum");
        }
      }
    };
    const auto ours = [&] {
      const Buffer buffer = Buffer::of(data);
      require(world_.all_reduce(Reduction::kSum, std::span(&buffer, 1)));
    };
    const auto theirs = [&] {
      MPI_Allreduce(MPI_IN_PLACE, other.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    fill();
    ours();
    theirs();
    check(data, "our");
    check(other, "Open MPI's");
    // Sums would grow with each round; zeros do not, and take the same time.
    std::ranges::fill(data, 0.0F);
    std::ranges::fill(other, 0.0F);
    report("all-reduce", count, 2.0 * (ranks_ - 1) / ranks_, ours, theirs);
  }

  void reduce_scatter(std::size_t count) {
    const std::size_t shard = count / static_cast<std::size_t>(ranks_);
    std::vector<float> mine(shard);
    std::vector<float> reference(shard);
    const std::span<float> data = data_.first(shard * static_cast<std::size_t>(ranks_));
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = value(rank_, i);
    }
    const auto ours = [&] {
      require(world_.reduce_scatter(Reduction::kSum, ElementType::kF32, std::as_bytes(data),
                                    std::as_writable_bytes(std::span(mine))));
    };
    const auto theirs = [&] {
      MPI_Reduce_scatter_block(data.data(), reference.data(), static_cast<int>(shard), MPI_FLOAT, MPI_SUM,
                               MPI_COMM_WORLD);
    };
    ours();
    theirs();
    if (mine != reference) {
      give_up("reduce-scatter gives a wrong sum");
    }
    report("reduce-scatter", data.size(), static_cast<double>(ranks_ - 1) / ranks_, ours, theirs);
  }

  void all_gather(std::size_t count) {
    const std::size_t shard = count / static_cast<std::size_t>(ranks_);
    const std::size_t total = shard * static_cast<std::size_t>(ranks_);
    const std::span<float> mine = data_.subspan(static_cast<std::size_t>(rank_) * shard, shard);
    const std::span<float> all = data_.first(total);
    const std::span<float> reference = other_.first(total);
    for (std::size_t i = 0; i < shard; ++i) {
      mine[i] = value(rank_, i);
    }
    const auto ours = [&] { require(world_.all_gather(std::as_bytes(mine), std::as_writable_bytes(all))); };
    const auto theirs = [&] {
      MPI_Allgather(mine.data(), static_cast<int>(shard), MPI_FLOAT, reference.data(), static_cast<int>(shard),
                    MPI_FLOAT, MPI_COMM_WORLD);
    };
    ours();
    theirs();
    if (!std::ranges::equal(all, reference)) {
      give_up("all-gather gives wrong data");
    }
    report("all-gather", total, static_cast<double>(ranks_ - 1) / ranks_, ours, theirs);
  }

 private:
  using Work = std::function<void()>;

  /// Returns the microseconds per call on the slowest rank, over `calls` calls.
  double time(const Work& work, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = now_us();
    for (int i = 0; i < calls; ++i) {
      work();
    }
    double mine = (now_us() - begin) / calls;
    double slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
  }

  int calls_of(const Work& work) {
    const double once = time(work, 1);
    return std::clamp(static_cast<int>(kSecondsEach * 1e6 / kRounds / once), 1, 200);
  }

  void report(const char* kind, std::size_t count, double bus_factor, const Work& ours, const Work& theirs) {
    const std::size_t bytes = count * sizeof(float);
    const Work copy = [&] { std::memcpy(other_.data(), data_.data(), bytes); };
    const int calls[3] = {calls_of(ours), calls_of(theirs), calls_of(copy)};
    const Work* const works[3] = {&ours, &theirs, &copy};
    std::vector<double> times[3];
    double cpu[3] = {};
    double sent = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < 3; ++i) {
        const double cpu_before = cpu_us();
        const double sent_before = bytes_sent(interface_);
        times[i].push_back(time(*works[i], calls[i]));
        cpu[i] += (cpu_us() - cpu_before) / (calls[i] * kRounds);
        sent += i == 0 ? bytes_sent(interface_) - sent_before : 0;
      }
    }
    double median[3];
    for (int i = 0; i < 3; ++i) {
      std::ranges::nth_element(times[i], times[i].begin() + kRounds / 2);
      median[i] = times[i][kRounds / 2];
    }
    double all_cpu[3];
    MPI_Allreduce(cpu, all_cpu, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double most_sent = 0;
    MPI_Allreduce(&sent, &most_sent, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank_ == 0) {
      const double gb_per_s = static_cast<double>(bytes) / median[0] / 1e3;
      std::printf(
          "{\"collective\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"us\": %.1f, "
          "\"openmpi_us\": %.1f, \"memcpy_us\": %.1f, \"cpu_us\": %.0f, \"openmpi_cpu_us\": %.0f, "
          "\"algbw_gb_s\": %.4f, \"busbw_gb_s\": %.4f, \"wire_bytes_a_host\": %.0f}\n",
          kind, ranks_, bytes, median[0], median[1], median[2], all_cpu[0], all_cpu[1], gb_per_s, gb_per_s * bus_factor,
          most_sent / (calls[0] * kRounds));
      std::fflush(stdout);
    }
  }

  poprun::Communicator& world_;
  std::span<float> data_;
  std::span<float> other_;
  std::string interface_;
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  if (argc < 3) {
    give_up("usage: collectives_bench SMALLEST LARGEST [wire interface]");
  }
  const std::size_t smallest = std::strtoull(argv[1], nullptr, 10);
  const std::size_t largest = std::strtoull(argv[2], nullptr, 10);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  {
    const auto world = poprun::MpiWorld::create({.replicas = static_cast<std::size_t>(ranks),
                                                 .first = static_cast<poprun::ReplicaId>(rank),
                                                 .host = std::nullopt});
    if (!world) {
      give_up(world.error().message);
    }
    poprun::Communicator& replica = (*world)->communicator(static_cast<poprun::ReplicaId>(rank));
    const auto memory = replica.allocate(poprun::Bytes{static_cast<std::int64_t>(largest)});
    if (!memory) {
      give_up(memory.error().message);
    }
    std::vector<float> other(largest / sizeof(float));
    Bench bench(replica, {reinterpret_cast<float*>(memory->data()), other.size()}, other, argc > 3 ? argv[3] : "");
    for (std::size_t bytes = smallest; bytes <= largest; bytes *= 4) {
      const std::size_t count = bytes / sizeof(float);
      bench.all_reduce(count);
      bench.reduce_scatter(count);
      bench.all_gather(count);
    }
  }
  MPI_Finalize();
}
