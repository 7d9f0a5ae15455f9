#pragma once

#include <cstdint>
#include <string>

#include "replica/models/model.h"
#include "replica/ops/builder/builder.h"

/// Layers with parameters, as models use them. Parameters are called NAME.weight and NAME.bias and
/// start as PyTorch's do: uniform in +-1/sqrt(fan-in) (its kaiming_uniform_ with a = sqrt(5)).
namespace poprun::layers {

/// What the dataset calls images, as floats: u8 ones become (x / 255 - mean) / deviation, f32 ones
/// are as they are. [N,C,H,W] in the layout of convolutions; features [N,F] stay in rows, u8 ones
/// as [N,F,1,1].
TensorId normalize(Builder& builder, TensorId images, double mean, double deviation);

/// What a classifier asks of its images.
struct ImageNeeds {
  bool planes = true;           ///< [N,C,H,W]; false: features [N,F] will do.
  std::int64_t least_size = 1;  ///< Of height and width.
};

/// The dataset's "images", normalised. Makes the builder refuse (kUsage) what does not fit.
TensorId images(Builder& builder, const ModelInputs& inputs, const ImageNeeds& needs);

/// The end of a classifier: `linear` to the classes, then where it is scored its loss against the
/// dataset's "labels". There are as many classes as the size "classes" says, else as the data has.
/// Makes the builder refuse (kUsage) labels that are not i32[N] or do not fit the classes.
ModelOutputs classify(Builder& builder, const std::string& name, TensorId x,
                      const ModelInputs& inputs);

/// Logits as outputs, with their cross entropy, called `loss`, against the dataset's "labels" where
/// they are scored.
ModelOutputs score(Builder& builder, TensorId logits, const ModelInputs& inputs,
                   const std::string& loss);

/// A convolution with a square kernel.
struct Convolution {
  std::int64_t channels = 0;  ///< Of the output.
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t pad = 0;  ///< On each side.
  std::int64_t groups = 1;
  bool bias = true;
  bool kaiming_normal = false;  ///< Weights start normal with variance 2 / (channels * kernel^2),
                                ///< PyTorch's kaiming_normal_ by fan-out for relu.
};

TensorId conv2d(Builder& builder, const std::string& name, TensorId x, const Convolution& c);

/// Batch normalisation as torch.nn.BatchNorm2d does by default (eps 1e-5, momentum 0.1): parameters
/// NAME.weight (1) and NAME.bias (0), buffers NAME.running_mean (0) and NAME.running_var (1). In
/// training, statistics are those of the replica's micro-batch, and the buffers follow them. There
/// is no NAME.num_batches_tracked: an integer that PyTorch needs only where momentum is None.
TensorId batch_norm(Builder& builder, const std::string& name, TensorId x, bool training);

TensorId relu(Builder& builder, const std::string& name, TensorId x);

/// Max pooling of squares of `size`, side by side.
TensorId maxpool2d(Builder& builder, const std::string& name, TensorId x, std::int64_t size);

/// Max pooling of squares of `size`, `stride` apart, with `pad` on each side.
TensorId maxpool2d(Builder& builder, const std::string& name, TensorId x, std::int64_t size,
                   std::int64_t stride, std::int64_t pad);

/// The mean of each channel: [N,C,H,W] to [N,C,1,1].
TensorId global_average(Builder& builder, const std::string& name, TensorId x);

/// [N, ...] to [N, features].
TensorId flatten(Builder& builder, const std::string& name, TensorId x);

/// x's elements in another shape, in the order of a row-major one.
TensorId reshape(Builder& builder, const std::string& name, TensorId x, Shape shape,
                 Layout layout = Layout::kRowMajor);

TensorId add(Builder& builder, const std::string& name, TensorId a, TensorId b);

TensorId linear(Builder& builder, const std::string& name, TensorId x, std::int64_t features);

}  // namespace poprun::layers
