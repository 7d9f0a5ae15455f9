#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// A fuzz target is one file `<name>_fuzz.cc` that defines LLVMFuzzerTestOneInput and may define fuzz_seeds.
/// CMakeLists.txt says how it is built.

/// Feeds one input to the code under test. Wrong answers are a POPRUN_CHECK that fails. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Valid inputs to start from. Only driver.cc asks for them; libFuzzer finds its own.
[[gnu::weak]] std::vector<std::vector<std::uint8_t>> fuzz_seeds();
