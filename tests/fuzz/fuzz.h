#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// A fuzz target is one file `<name>_fuzz.cc` that defines LLVMFuzzerTestOneInput and may define fuzz_seeds.
/// CMakeLists.txt describes how it is built.

/// Feeds one input to the code under test. A wrong result fails a POPRUN_CHECK. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// Returns valid inputs, from which libFuzzer starts.
[[gnu::weak]] std::vector<std::vector<std::uint8_t>> fuzz_seeds();
