#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/fuzz.h"

/// Called by libFuzzer before it reads the corpus folder, its last argument: writes the seeds there.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string folder = (*argv)[*argc - 1];
  if (fuzz_seeds == nullptr || !std::filesystem::is_directory(folder)) {
    return 0;
  }
  std::size_t number = 0;
  for (const std::vector<std::uint8_t>& seed : fuzz_seeds()) {
    std::ofstream file(std::filesystem::path(folder) / ("seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
  }
  return 0;
}
