#pragma once

#include <cstdint>
#include <string>

#include "replica/models/layers/model.h"
#include "replica/ops/builder/builder.h"

/// Layers. The initial values of the parameters NAME.weight and NAME.bias are those of PyTorch: uniform in
/// +-1/sqrt(fan-in) (kaiming_uniform_ with a = sqrt(5)). Group normalisation (Wu and He, 2018) brings each group of an
/// image's channels to mean 0 and variance 1, then scales and shifts each channel. With one group per channel, it is
/// instance normalisation; with a single group, it is layer normalisation.
namespace poprun::layers {

/// Converts the dataset's images to floats: u8 images become (x / 255 - mean) / deviation; f32 images stay unchanged.
/// [N,C,H,W] is returned in the layout of convolutions. f32 features [N,F] stay rows; u8 features become [N,F,1,1].
TensorId normalize(Builder& builder, TensorId images, double mean, double deviation);

/// Requirements of a classifier on its images.
struct ImageNeeds {
  bool planes = true;           ///< Whether images must be [N,C,H,W]; if false, features [N,F] suffice.
  std::int64_t least_size = 1;  ///< Smallest allowed height and width.
};

/// Returns the dataset's "images", normalised. Makes the builder refuse (kUsage) images that do not meet `needs`.
TensorId images(Builder& builder, const ModelInputs& inputs, const ImageNeeds& needs);

/// Adds the end of a classifier: a `linear` layer whose outputs are the classes and, if the model is scored, the loss
/// against "labels". The number of classes is the size "classes" if given, or else comes from the data. Makes the
/// builder refuse (kUsage) labels that are not i32[N] or are too large for the number of classes.
ModelOutputs classify(Builder& builder, const std::string& name, TensorId x, const ModelInputs& inputs);

/// Returns the number of classes: the size "classes" if given, or else that of the data. Makes the builder refuse
/// (kUsage) a number that is too small for the labels.
std::int64_t classes_of(Builder& builder, const ModelInputs& inputs);

/// Makes the logits the model's prediction. If the model is scored, also adds their cross entropy against the dataset's
/// "labels", in a tensor whose name is `loss`.
ModelOutputs score(Builder& builder, TensorId logits, const ModelInputs& inputs, const std::string& loss);

/// A convolution with a square kernel.
struct Convolution {
  std::int64_t channels = 0;  ///< Output channels.
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t pad = 0;  ///< Padding on each side.
  std::int64_t groups = 1;
  bool bias = true;
  bool kaiming_normal = false;  ///< Initial weights are normal with variance 2 / (channels *
                                ///< kernel^2), PyTorch's kaiming_normal_ with fan-out for relu.
};

TensorId conv2d(Builder& builder, const std::string& name, TensorId x, const Convolution& c);

/// Adds torch.nn.ConvTranspose2d, which spreads each element of x over a kernel: (H - 1) stride - 2 pad + kernel rows.
/// NAME.weight is [input channels, channels / groups, kernel, kernel].
TensorId conv2d_transpose(Builder& builder, const std::string& name, TensorId x, const Convolution& c);

/// Adds torch.nn.BatchNorm2d with its defaults (eps 1e-5, momentum 0.1): parameters NAME.weight (1) and NAME.bias (0),
/// buffers NAME.running_mean (0) and NAME.running_var (1). Training normalises with the statistics of the replica's
/// micro-batch and updates the buffers from them. There is no NAME.num_batches_tracked: PyTorch needs it only if
/// momentum is None.
TensorId batch_norm(Builder& builder, const std::string& name, TensorId x, bool training);

TensorId relu(Builder& builder, const std::string& name, TensorId x);

/// Returns x * sigmoid(x), known as SiLU or swish.
TensorId silu(Builder& builder, const std::string& name, TensorId x);

/// Adds max pooling over adjacent squares of `size`.
TensorId maxpool2d(Builder& builder, const std::string& name, TensorId x, std::int64_t size);

/// Adds max pooling over squares of `size`, `stride` apart, with `pad` on each side.
TensorId maxpool2d(Builder& builder, const std::string& name, TensorId x, std::int64_t size, std::int64_t stride,
                   std::int64_t pad);

/// Averages each channel: [N,C,H,W] to [N,C,1,1].
TensorId global_average(Builder& builder, const std::string& name, TensorId x);

/// Flattens [N, ...] to [N, features].
TensorId flatten(Builder& builder, const std::string& name, TensorId x);

/// Changes the shape of x and keeps the row-major order of its elements.
TensorId reshape(Builder& builder, const std::string& name, TensorId x, Shape shape, Layout layout = Layout::kRowMajor);

TensorId add(Builder& builder, const std::string& name, TensorId a, TensorId b);

TensorId linear(Builder& builder, const std::string& name, TensorId x, std::int64_t features);

/// Normalises x, f32[N,C,...] in any layout, over `groups` groups of channels, then scales it by w and shifts it by b,
/// both f32[C]. The number of groups must divide C.
TensorId group_norm(Builder& builder, const std::string& name, TensorId x, TensorId w, TensorId b, std::int64_t groups,
                    double epsilon);

/// Adds torch.nn.GroupNorm with its defaults: parameters NAME.weight (1) and NAME.bias (0), epsilon 1e-5.
TensorId group_norm(Builder& builder, const std::string& name, TensorId x, std::int64_t groups);

}  // namespace poprun::layers
