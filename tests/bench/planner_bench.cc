#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "replica/compiler/planner/planner.h"
#include "tests/unit/replica/compiler/planner/products.h"

/// Measures the planner's time for all products of ResNet-50 training, on one core (limit: 2 s), and the quality of its
/// plans.
///
/// usage: planner_bench [--list]      --list: every product with its time and its fastest plan
namespace {

using poprun::Arithmetic;
using poprun::Product;

/// Returns the processor time of this process so far: other load on the machine does not count.
double seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double plan_all(std::int64_t batch, Arithmetic arithmetic, bool list) {
  const poprun::Device device = *poprun::find_device("mk2");
  poprun::planner::Planner planner(device);
  const double start = seconds();
  double slowest = 0;
  std::size_t points = 0;
  std::int64_t cycles = 0;
  std::int64_t macs = 0;
  const std::vector<Product> products =
      poprun::testing::training_products(poprun::testing::resnet_50(batch, arithmetic));
  for (const Product& product : products) {
    const double begin = seconds();
    const auto& plans = planner.plans(product);
    const double taken = seconds() - begin;
    slowest = std::max(slowest, taken);
    points += plans.size();
    const auto& plan = *planner.choose(product, 600).plan;
    cycles += plan.cycles().count();
    macs += product.useful_macs();
    if (list) {
      fmt::print("{:7.1f} ms {:4} plans  {}\n{:23}{}\n", taken * 1e3, plans.size(), to_text(product), "",
                 to_line(plan));
    }
  }
  const double total = seconds() - start;
  const auto target = planner.target(arithmetic);
  fmt::print(
      "batch {:3}: {} products in {:.2f} s, slowest {:.0f} ms, {} plans kept; {:.1f} % of peak at "
      "0.6\n",
      batch, products.size(), total, slowest * 1e3, points,
      100.0 * static_cast<double>(macs) / static_cast<double>(cycles * target.tiles * target.macs_per_cycle));
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  const bool list = argc > 1 && std::string_view(argv[1]) == "--list";
  double worst = 0;
  for (const Arithmetic arithmetic : {Arithmetic::kF16PartialsF16, Arithmetic::kF16, Arithmetic::kF32}) {
    for (const std::int64_t batch : {4, 20}) {
      worst = std::max(worst, plan_all(batch, arithmetic, list));
    }
  }
  return worst < 2 ? 0 : 1;
}
