#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "replica/base/random.h"
#include "tests/fuzz/fuzz.h"

/// Runs a fuzz target if libFuzzer is not available: mutates the seeds for a limited time.
///
///   idx_fuzz --seconds 60 --seed 7     inputs of seed 7 for 60 s
///   idx_fuzz FILE...                   these inputs, once each
///
/// Input n of a seed is the same on every machine: the corpus does not grow. An input that crashes, or takes longer
/// than kSecondsPerInput, is written to <program>.crash before the process dies.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

using Input = std::vector<std::uint8_t>;

constexpr unsigned kSecondsPerInput = 10;
constexpr std::size_t kInputBytesMax = 1 << 16;

// Globals, because a signal handler takes no argument.
const Input* current_input = nullptr;
std::string crash_file;

/// Uses only calls that are safe in a signal handler.
void save_current_input() {
  if (current_input == nullptr) {
    return;
  }
  const int file = open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const bool saved = write(file, current_input->data(), current_input->size()) >= 0;
  close(file);
  const char* message = saved ? "fuzz: the input is in " : "fuzz: could not write ";
  for (const std::string_view part :
       {std::string_view(message), std::string_view(crash_file), std::string_view("\n")}) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, part.data(), part.size());
  }
  current_input = nullptr;
}

void on_signal(int signal) {
  save_current_input();
  _exit(128 + signal);
}

/// The random numbers of one input.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t input) : seed_(seed), input_(input) {}

  /// Uniform in [0, sides). Requires: sides > 0.
  std::size_t roll(std::size_t sides) { return poprun::philox(seed_, input_, counter_++)[0] % sides; }

 private:
  std::uint64_t seed_;
  std::uint64_t input_;
  std::uint64_t counter_ = 0;
};

void mutate_once(Input& input, const std::vector<Input>& corpus, Dice& dice) {
  const std::size_t at = dice.roll(input.size() + 1);
  const bool inside = at < input.size();
  const auto here = input.begin() + static_cast<std::ptrdiff_t>(at);
  constexpr std::uint8_t kEdges[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, 0x20, 0x0A, 0x22};
  switch (dice.roll(7)) {
    case 0:  // Flip a bit.
      if (inside) {
        *here ^= static_cast<std::uint8_t>(1U << dice.roll(8));
      }
      break;
    case 1:  // Another byte.
      if (inside) {
        *here = static_cast<std::uint8_t>(dice.roll(256));
      }
      break;
    case 2:  // A boundary value.
      if (inside) {
        *here = kEdges[dice.roll(std::size(kEdges))];
      }
      break;
    case 3:  // Truncate.
      input.resize(at);
      break;
    case 4:  // Remove a piece.
      input.erase(here, here + static_cast<std::ptrdiff_t>(dice.roll(input.size() - at + 1)));
      break;
    case 5:  // Insert a byte, once or often.
      input.insert(here, dice.roll(4) == 0 ? dice.roll(200) : 1, static_cast<std::uint8_t>(dice.roll(256)));
      break;
    case 6: {  // Continue with the rest of another input.
      const Input& other = corpus[dice.roll(corpus.size())];
      const std::size_t from = dice.roll(other.size() + 1);
      input.resize(at);
      input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      break;
    }
  }
  input.resize(std::min(input.size(), kInputBytesMax));
}

Input input_number(std::uint64_t number, std::uint64_t seed, const std::vector<Input>& corpus) {
  if (number < corpus.size()) {
    return corpus[number];
  }
  Dice dice(seed, number);
  Input input = corpus[dice.roll(corpus.size())];
  for (std::size_t mutations = 1 + dice.roll(6); mutations > 0; --mutations) {
    mutate_once(input, corpus, dice);
  }
  return input;
}

void run(const Input& input) {
  current_input = &input;
  alarm(kSecondsPerInput);
  LLVMFuzzerTestOneInput(input.data(), input.size());
  alarm(0);
  current_input = nullptr;
}

std::uint64_t run_for(std::chrono::duration<double> time, std::uint64_t seed) {
  std::vector<Input> corpus = {Input{}};
  if (fuzz_seeds != nullptr) {
    for (Input& input : fuzz_seeds()) {
      corpus.push_back(std::move(input));
    }
  }
  const auto end = std::chrono::steady_clock::now() + time;
  std::uint64_t number = 0;
  // Every seed runs unmutated, even if there is too little time.
  while (number < corpus.size() || std::chrono::steady_clock::now() < end) {
    run(input_number(number, seed, corpus));
    ++number;
  }
  return number;
}

}  // namespace

int main(int argc, char** argv) {
  crash_file = std::string(argv[0]) + ".crash";
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) {
    std::signal(signal, on_signal);
  }
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(save_current_input);
  }
  double seconds = 2;
  std::uint64_t seed = 1;
  bool files = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::ifstream file(argv[i], std::ios::binary);
      run(Input(std::istreambuf_iterator<char>(file), {}));
      files = true;
    }
  }
  if (!files) {
    const std::uint64_t inputs = run_for(std::chrono::duration<double>(seconds), seed);
    std::printf("%llu inputs of seed %llu\n", static_cast<unsigned long long>(inputs),
                static_cast<unsigned long long>(seed));
  }
  return 0;
}
