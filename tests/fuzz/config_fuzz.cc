// DEPS: poprun::launcher_placement
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/util/message_differencer.h>

#include "launcher/options/parse.h"
#include "launcher/placement/hosts.h"
#include "tests/fuzz/fuzz.h"

using poprun::launcher::Options;

/// Parses the input as a train.cfg and as a hostfile, and its lines as a command line.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const poprun::Result<Options> options = poprun::launcher::parse_options(std::vector<std::string>{"train.cfg"}, text);
  if (options) {
    // Accepted options print as a train.cfg with the same meaning.
    const auto again = poprun::launcher::parse_options(std::vector<std::string>{"train.cfg"},
                                                       poprun::launcher::resolved_config(*options));
    using google::protobuf::util::MessageDifferencer;  // Bytes depend on the order of a map.
    POPRUN_CHECK(again && MessageDifferencer::Equals(again->config, options->config));
  } else {
    POPRUN_CHECK(options.error().code == poprun::ErrorCode::kUsage);
    POPRUN_CHECK(!options.error().message.empty() && !options.error().message.ends_with('\n'));
  }
  std::vector<std::string> args;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    args.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  (void)poprun::launcher::parse_options(args, "");
  (void)poprun::launcher::parse_hostfile("hosts", text);
  return 0;
}

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  std::vector<std::vector<std::uint8_t>> seeds;
  for (const std::string_view text :
       {"[training]\nepochs = 2\nlearning-rate = 0.05 # rate\noptimizer = momentum\nevaluate = "
        "no\n",
        "[model]\nname = small-cnn\n[data]\nsource=idx:/data\nmicro-batch-size=16\n[device]\nipu = "
        "bow\n",
        "-n\n16\n--host\nnode[00-03,7]:4\n--dry-run\n-vv\n--training.seed=9\ntrain.cfg\n",
        "node0 slots=4\n# comment\nnode[1-3]\n"}) {
    seeds.emplace_back(text.begin(), text.end());
  }
  return seeds;
}
