// DEPS: poprun::replica_compiler
#include <string>
#include <string_view>
#include <vector>

#include "replica/compiler/job/job_text.h"
#include "tests/fuzz/fuzz.h"

using poprun::Job;
using poprun::Result;

/// Parses the input as a job. A job that is accepted prints as text with the same meaning.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<Job> job = poprun::parse_job({reinterpret_cast<const char*>(data), size});
  if (!job) {
    POPRUN_CHECK(job.error().code == poprun::ErrorCode::kUsage);
    POPRUN_CHECK(job.error().message.find('\n') == std::string::npos);
    return 0;
  }
  const std::string text = to_text(*job);
  const Result<Job> again = poprun::parse_job(text);
  POPRUN_CHECK(again && to_text(*again) == text);
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  constexpr std::string_view kJob =
      "stages ipus=[0,2]\n"
      "reserved name=\"conv 1\"\n"
      "training begin=\"train:0\" loss=\"loss\" metrics=\"loss\" micro_batch=\"train:1\" rate=\"rate\" step=\"rate\" "
      "update=\"train:1\"\n"
      "gradient parameter=\"w\" tensor=\"g\"\n"
      "part backward=1 function=\"load\" ipu=2 recomputes=0 stage=1\n"
      "balancing capacity=1024 in_flight=[2,1] recomputes=[0,1]\n"
      "balanced-layer activations=3 bytes=2 cycles=1\n"
      "note code=\"a.b\" text=\"w: \\\"x\\\"\"\n"
      "fact name=\"bytes\" value=7\n"
      "graph\n"
      "layer fc\n"
      "tensor w : f32[2] parameter resides=r:3\n"
      "tensor r : f32[4,2] parameter streaming ipu=1 shard-of=f32[4,3]\n"
      "tensor rate : f32[] stream\n"
      "tensor loss : f32[] activation keeps-f32\n"
      "tensor g : f32[2] gradient copy-of=w\n"
      "function train\n"
      "repeat 1\n"
      "repeat 4\n"
      "@fc:1:backward g = copy(w) scale=0.5 pad=[1,2]\n";
  constexpr std::string_view kEmpty = "graph\n";
  return {{kJob.begin(), kJob.end()}, {kEmpty.begin(), kEmpty.end()}};
}
