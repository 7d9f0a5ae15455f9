#include "replica/answers/micro.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/choices/choices.h"
#include "replica/compilation/job_inputs.h"
#include "replica/compiler/planner/product_options.h"
#include "replica/compiler/tiles/operation_time.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/device/calibration.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/program/program.h"

namespace poprun {
namespace {

/// One use of an operator.
struct Use {
  const char* kind;
  Signature signature;
};

Use use_of(const proto::MatmulWork& work) {
  const TensorType a{DataType::kF32, {work.rows(), work.inner()}, Layout::kRowMajor};
  const TensorType b{DataType::kF32, {work.inner(), work.columns()}, Layout::kRowMajor};
  return {kinds::kMatmul, {{a, b}, {}, {}}};
}

Status check_extent(std::string_view what, std::int64_t kernel, std::int64_t image) {
  if (kernel <= image) {
    return {};
  }
  return fail(ErrorCode::kUsage, fmt::format("--convolution: a kernel of {0} {1} needs at least {0} {1} with padding, "
                                             "but the image has {2}; use a larger image or padding",
                                             kernel, what, image));
}

Result<Use> use_of(const proto::ConvolutionWork& work) {
  const std::int64_t padding = work.padding();
  POPRUN_TRY(check_extent("rows", work.kernel_height(), work.height() + 2 * padding));
  POPRUN_TRY(check_extent("columns", work.kernel_width(), work.width() + 2 * padding));
  const TensorType x{
      DataType::kF32, {work.batch(), work.channels(), work.height(), work.width()}, Layout::kChannelsLast};
  const TensorType w{DataType::kF32,
                     {work.outputs(), work.channels() / work.groups(), work.kernel_height(), work.kernel_width()},
                     Layout::kRowMajor};
  const Attributes attributes{{"stride", std::vector<std::int64_t>(2, work.stride())},
                              {"pad", std::vector<std::int64_t>(4, padding)},
                              {"dilation", std::vector<std::int64_t>{1, 1}},
                              {"groups", work.groups()}};
  return Use{kinds::kConv2d, {{x, w}, {}, attributes}};
}

/// Returns the product of the use, in the configured precision.
Result<Product> product_of(Use use, const proto::RunConfig& config) {
  const Operator& op = *find_operator(use.kind);
  POPRUN_ASSIGN(use.signature.outputs, op.shape(use.signature));
  if (choice_of<Precision>(config.model().precision()) == Precision::kHalf) {
    for (auto* types : {&use.signature.inputs, &use.signature.outputs}) {
      std::ranges::for_each(*types, [](TensorType& type) { type.data = DataType::kF16; });
    }
  }
  const PlannerOptions options = planner_options(config);
  set_options(use.signature.attributes,
              {.permille = permille_everywhere(options), .partials = partials_everywhere(options)});
  return op.product(use.signature);
}

void set_time(const Device& device, const DeviceTime& time, proto::MicroAnswer& answer) {
  *answer.mutable_cost() = to_proto(time);
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
  POPRUN_ASSIGN(const Use use,
                question.has_matmul() ? Result<Use>(use_of(question.matmul())) : use_of(question.convolution()));
  POPRUN_ASSIGN(const Product product, product_of(use, config));
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
  return {};
}

}  // namespace poprun
