/// optimizer_trace KIND: prints the weights after 20 steps of an update operator, one per line, for
/// optimizer_torch_test.py, which gives the settings.

#include <cmath>
#include <cstdio>
#include <string>

#include "tests/unit/replica/update_runner.h"

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const bool adaptive = kind == "adam" || kind == "adamw";
  poprun::Attributes attributes{{"scale", 1.0}, {"weight_decay", 0.1}};
  if (adaptive) {
    attributes.set("beta1", 0.9);
    attributes.set("beta2", 0.99);
    attributes.set("epsilon", 1e-6);
  } else if (kind != "sgd") {
    attributes.set("momentum", 0.9);
    attributes.set("nesterov", std::int64_t{kind == "nesterov" ? 1 : 0});
  }
  std::vector<float> weights(100);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<float>(std::sin(static_cast<double>(i) + 1));
  }
  poprun::testing::UpdateRunner runner(kind == "nesterov" ? "momentum" : kind, attributes, weights,
                                       adaptive        ? std::size_t{2}
                                       : kind == "sgd" ? std::size_t{0}
                                                       : std::size_t{1},
                                       adaptive ? std::size_t{1} : std::size_t{0});
  for (int t = 1; t <= 20; ++t) {
    std::vector<float> gradient(weights.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = static_cast<float>(std::cos(3 * static_cast<double>(i) + t)) + 0.5F * runner.weights()[i];
    }
    std::vector<float> scalars = {0.01F};
    if (adaptive) {
      scalars.push_back(static_cast<float>(t));
    }
    runner.step(gradient, scalars);
  }
  for (const float weight : runner.weights()) {
    std::printf("%.9g\n", static_cast<double>(weight));
  }
  return 0;
}
