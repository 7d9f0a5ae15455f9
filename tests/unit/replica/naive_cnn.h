#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "training_job.h"

/// A second small-cnn, written from its description alone in double precision, with plain loops and without a library.
///
/// N is the number of images [N, C, H, W]. Every tensor is row-major.
namespace poprun::testing {

class NaiveCnn {
 public:
  using Tensor = std::vector<double>;
  std::map<std::string, Tensor> weights;    ///< By parameter name; set before `step`.
  std::map<std::string, Tensor> gradients;  ///< Gradients of the mean loss, after `step`.
  double loss = 0;
  int correct = 0;

  /// Runs forward and backward on N normalised images of 28 x 28.
  void step(const Tensor& images, const std::vector<int>& labels) {
    const int N = static_cast<int>(labels.size());
    const Tensor c1 = conv(images, N, 1, 28, 32, "conv1");
    const Tensor r1 = relu(c1);
    const Tensor p1 = pool(r1, N * 32, 28);
    const Tensor c2 = conv(p1, N, 32, 14, 64, "conv2");
    const Tensor r2 = relu(c2);
    const Tensor p2 = pool(r2, N * 64, 14);
    const Tensor h = dense(p2, N, 3136, 128, "fc1");
    const Tensor r3 = relu(h);
    const Tensor logits = dense(r3, N, 128, 10, "fc2");

    Tensor d = loss_gradient(logits, labels);
    d = dense_back(r3, d, N, 128, 10, "fc2");
    d = relu_back(h, d);
    d = dense_back(p2, d, N, 3136, 128, "fc1");
    d = pool_back(r2, d, N * 64, 14);
    d = relu_back(c2, d);
    d = conv_back(p1, d, N, 32, 14, 64, "conv2");
    d = pool_back(r1, d, N * 32, 28);
    d = relu_back(c1, d);
    conv_back(images, d, N, 1, 28, 32, "conv1");
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  /// Computes a 3 x 3 convolution with padding 1 on square images of side S.
  Tensor conv(const Tensor& x, int N, int C, int S, int O, const std::string& name) {
    const Tensor& w = weights.at(name + ".weight");
    Tensor y(at(N * O * S * S));
    for_each_tap(N, C, S, O, [&](int out, int in, int tap) { y[at(out)] += x[at(in)] * w[at(tap)]; });
    for (int i = 0; i < N * O * S * S; ++i) {
      y[at(i)] += weights.at(name + ".bias")[at(i / (S * S) % O)];
    }
    return y;
  }

  Tensor conv_back(const Tensor& x, const Tensor& dy, int N, int C, int S, int O, const std::string& name) {
    const Tensor& w = weights.at(name + ".weight");
    Tensor dx(x.size());
    Tensor dw(w.size());
    Tensor db(at(O));
    for_each_tap(N, C, S, O, [&](int out, int in, int tap) {
      dx[at(in)] += dy[at(out)] * w[at(tap)];
      dw[at(tap)] += dy[at(out)] * x[at(in)];
    });
    for (int i = 0; i < N * O * S * S; ++i) {
      db[at(i / (S * S) % O)] += dy[at(i)];
    }
    gradients[name + ".weight"] = dw;
    gradients[name + ".bias"] = db;
    return dx;
  }

  template <typename Visit>
  static void for_each_tap(int N, int C, int S, int O, Visit visit) {
    for (int n = 0; n < N; ++n) {
      for (int o = 0; o < O; ++o) {
        for (int c = 0; c < C; ++c) {
          for (int i = 0; i < S * S * 9; ++i) {
            const int row = i / (S * 9);
            const int column = i / 9 % S;
            const int h = row + i / 3 % 3 - 1;
            const int v = column + i % 3 - 1;
            if (h >= 0 && h < S && v >= 0 && v < S) {
              visit(((n * O + o) * S + row) * S + column, ((n * C + c) * S + h) * S + v, (o * C + c) * 9 + i % 9);
            }
          }
        }
      }
    }
  }

  static Tensor relu(const Tensor& x) {
    Tensor y = x;
    for (double& value : y) {
      value = value > 0 ? value : 0;
    }
    return y;
  }
  static Tensor relu_back(const Tensor& x, const Tensor& dy) {
    Tensor dx = dy;
    for (std::size_t i = 0; i < x.size(); ++i) {
      dx[i] = x[i] > 0 ? dy[i] : 0;
    }
    return dx;
  }

  /// Returns the index of the largest of the 2 x 2 elements of plane p that output (i, j) covers.
  static int largest(const Tensor& x, int p, int S, int i, int j) {
    int best = -1;
    for (int k = 0; k < 4; ++k) {
      const int index = (p * S + 2 * i + k / 2) * S + 2 * j + k % 2;
      best = best < 0 || x[at(index)] > x[at(best)] ? index : best;
    }
    return best;
  }
  static Tensor pool(const Tensor& x, int planes, int S) {
    Tensor y;
    for (int i = 0; i < planes * S * S / 4; ++i) {
      y.push_back(x[at(largest(x, i / (S * S / 4), S, i / (S / 2) % (S / 2), i % (S / 2)))]);
    }
    return y;
  }
  static Tensor pool_back(const Tensor& x, const Tensor& dy, int planes, int S) {
    Tensor dx(x.size());
    for (int i = 0; i < planes * S * S / 4; ++i) {
      dx[at(largest(x, i / (S * S / 4), S, i / (S / 2) % (S / 2), i % (S / 2)))] += dy[at(i)];
    }
    return dx;
  }

  Tensor dense(const Tensor& x, int N, int I, int O, const std::string& name) {
    Tensor y;
    for (int n = 0; n < N; ++n) {
      for (int o = 0; o < O; ++o) {
        double sum = weights.at(name + ".bias")[at(o)];
        for (int i = 0; i < I; ++i) {
          sum += x[at(n * I + i)] * weights.at(name + ".weight")[at(o * I + i)];
        }
        y.push_back(sum);
      }
    }
    return y;
  }
  Tensor dense_back(const Tensor& x, const Tensor& dy, int N, int I, int O, const std::string& name) {
    Tensor dx(x.size());
    Tensor& dw = gradients[name + ".weight"] = Tensor(at(O * I));
    Tensor& db = gradients[name + ".bias"] = Tensor(at(O));
    for (int n = 0; n < N; ++n) {
      for (int o = 0; o < O; ++o) {
        const double d = dy[at(n * O + o)];
        db[at(o)] += d;
        for (int i = 0; i < I; ++i) {
          dw[at(o * I + i)] += d * x[at(n * I + i)];
          dx[at(n * I + i)] += d * weights.at(name + ".weight")[at(o * I + i)];
        }
      }
    }
    return dx;
  }

  Tensor loss_gradient(const Tensor& logits, const std::vector<int>& labels) {
    const int N = static_cast<int>(labels.size());
    Tensor d(logits.size());
    loss = 0;
    correct = 0;
    for (int n = 0; n < N; ++n) {
      double sum = 0;
      int best = 0;
      for (int k = 0; k < 10; ++k) {
        sum += std::exp(logits[at(n * 10 + k)]);
        best = logits[at(n * 10 + k)] > logits[at(n * 10 + best)] ? k : best;
      }
      correct += best == labels[at(n)] ? 1 : 0;
      loss -= std::log(std::exp(logits[at(n * 10 + labels[at(n)])]) / sum) / N;
      for (int k = 0; k < 10; ++k) {
        const double p = std::exp(logits[at(n * 10 + k)]) / sum;
        d[at(n * 10 + k)] = (p - (k == labels[at(n)] ? 1 : 0)) / N;
      }
    }
    return d;
  }
};

/// Returns the network with these weights after a step on the first `items` samples of the made-up set.
inline NaiveCnn naive_step(const std::map<std::string, std::vector<float>>& weights, std::uint64_t items) {
  NaiveCnn naive;
  for (const auto& [name, values] : weights) {
    naive.weights[name].assign(values.begin(), values.end());
  }
  NaiveCnn::Tensor images;
  std::vector<int> labels;
  for (std::uint64_t i = 0; i < items; ++i) {
    const auto [image, label] = sample(i);
    for (const char pixel : image) {
      images.push_back((static_cast<unsigned char>(pixel) / 255.0 - 0.25) / 0.5);
    }
    labels.push_back(label);
  }
  naive.step(images, labels);
  return naive;
}

}  // namespace poprun::testing
