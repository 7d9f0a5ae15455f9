#include "replica/answers/micro.h"

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "replica/choices/choices.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compiler/planner/product_options.h"
#include "replica/compiler/tiles/operation_time.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/device/calibration.h"

namespace poprun {
namespace {

Product product_of(const proto::MatmulWork& work) {
  Product product;
  product.kind = ProductKind::kMatmul;
  product.batch = work.rows();
  product.input_channels = work.inner();
  product.output_channels = work.columns();
  return product;
}

Result<FieldDimension> field_of(std::string_view name, std::int64_t size, std::int64_t kernel,
                                const proto::ConvolutionWork& work) {
  const std::int64_t rest = size + 2 * work.padding() - kernel;
  if (rest < 0) {
    return fail(ErrorCode::kUsage,
                fmt::format("--convolution: a kernel of {0} {1} needs at least {0} {1} with padding, "
                            "but the image has {2}; use a larger image or padding",
                            kernel, name, size + 2 * work.padding()));
  }
  return FieldDimension{.input = size,
                        .kernel = kernel,
                        .output = rest / work.stride() + 1,
                        .stride = work.stride(),
                        .padding = work.padding()};
}

Result<Product> product_of(const proto::ConvolutionWork& work) {
  Product product;
  product.groups = work.groups();
  product.batch = work.batch();
  product.input_channels = work.channels() / work.groups();
  product.output_channels = work.outputs() / work.groups();
  POPRUN_ASSIGN(product.field[0], field_of("rows", work.height(), work.kernel_height(), work));
  POPRUN_ASSIGN(product.field[1], field_of("columns", work.width(), work.kernel_width(), work));
  return product;
}

Arithmetic arithmetic_of(const proto::RunConfig& config) {
  if (choice_of<Precision>(config.model().precision()) == Precision::kFloat) {
    return Arithmetic::kF32;
  }
  return partials_everywhere(planner_options(config)) == Precision::kHalf ? Arithmetic::kF16PartialsF16
                                                                          : Arithmetic::kF16;
}

void set_time(const Device& device, const DeviceTime& time, proto::MicroAnswer& answer) {
  const auto cycles = [](Cycles c) { return static_cast<std::uint64_t>(c.count()); };
  answer.mutable_cost()->set_compute_cycles(cycles(time.compute));
  answer.mutable_cost()->set_exchange_cycles(cycles(time.exchange));
  answer.mutable_cost()->set_link_cycles(cycles(time.link));
  answer.mutable_cost()->set_sync_cycles(cycles(time.sync));
  answer.set_seconds(static_cast<double>(time.total().count()) / device.clock_hz);
}

}  // namespace

Status answer_micro(const proto::MicroQuestion& question, proto::MicroAnswer& answer) {
  const proto::RunConfig& config = question.config();
  POPRUN_ASSIGN(const Device device, device_of(config.device()));
  if (question.work_case() == proto::MicroQuestion::kAllReduceBytes) {
    const std::uint64_t bytes = question.all_reduce_bytes();
    if (config.topology().num_replicas() < 2) {
      return fail(ErrorCode::kUsage, "--all-reduce needs at least 2 replicas to reduce over, but there is 1; use -n");
    }
    set_time(device,
             time_of_all_reduce(device, Bytes{static_cast<std::int64_t>(bytes)}, config.topology().num_replicas(),
                                config.topology().ipus_per_replica()),
             answer);
    answer.set_bytes(bytes);
    return {};
  }
  Product product;
  if (question.has_matmul()) {
    product = product_of(question.matmul());
  } else {
    POPRUN_ASSIGN(product, product_of(question.convolution()));
  }
  product.arithmetic = arithmetic_of(config);
  const planner::Choice choice = plan_product(product, permille_everywhere(planner_options(config)), device);
  const Bytes input = element_bytes(product.arithmetic) * product.input_elements();
  set_time(device, time_of_plan(device, *choice.plan, input), answer);
  answer.set_table(to_table(*choice.plan, planner::target_of(device, product.arithmetic)));
  if (question.has_matmul() && product.arithmetic == Arithmetic::kF32) {
    answer.set_compared_error(compared_error("matmul"));
  }
  if (!choice.target_met) {
    answer.set_table(fmt::format("{}{}\n", answer.table(), planner::kMemoryTargetWarning));
  }
  answer.mutable_cost()->set_flops(static_cast<std::uint64_t>(2 * product.macs()));
  return {};
}

}  // namespace poprun
