"""Random ONNX nets, in the forms that exporters write, and the same nets in PyTorch.

A net is a list of nodes, so that the same description is written as a file and evaluated by PyTorch. The nets are:
convolutional nets with squeeze-and-excitation, norms, residual and dense connections; transformers of features or
tokens; dense nets for classes or numbers. Sizes and names are deliberately awkward.
"""
import dataclasses
import io
import itertools
import random
import struct
import zipfile

import npy_file
from onnx_file import attribute, field, int64s, node, tensor, value_info

# Names that the compiler might also generate, that options or datasets use, or that need escaping.
AWKWARD = ["W.gradient", "W.shard", "W.momentum", "gradient-factor", "loss", "labels", "learning-rate",
           "W.accumulator", "a b", "W#1", "été", "a/b:0", "W.gradient.1", "images", "", "0", "mean", "logits~",
           "batch_norm", "x.1", "W.copy", "update", "W%d", "'W'", "W.half", "stash", "forward", "loss~"]


@dataclasses.dataclass
class Node:
    op: str
    inputs: list
    outputs: list
    attributes: dict


@dataclasses.dataclass
class Tensor:
    shape: list
    values: list

    @property
    def floats(self):
        return not self.values or isinstance(self.values[0], float)


def exact(value):
    """Returns the nearest float32, so that the file and PyTorch's float64 start from the same number."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def product(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


class Net:
    """A net drawn from `seed`. Shapes of values exclude the batch."""

    def __init__(self, seed):
        self.draw = random.Random(f"net {seed}")
        self.nodes, self.parameters, self.buffers, self.constants = [], {}, {}, {}
        self.names = self.draw.choice(["plain", "folders", "awkward"])
        self.taken, self.numbers = set(), itertools.count()
        self.constants_as = self.draw.choice(["nodes", "nodes", "initialisers"])
        self.has_batch_norm = False
        self.batch = self.draw.choice([1, 2, 3, 4, 5])
        self.regression = self.draw.random() < 0.25
        self.classes = self.draw.choice([1, 2, 3, 5]) if self.regression else self.draw.choice([2, 3, 5, 10])
        self.kind = self.draw.choice(["images", "images", "images", "features", "tokens", "vectors"])
        self.input = "input_ids" if self.kind == "tokens" else self.name("x", "data")  # The dataset's name for tokens.
        getattr(self, self.kind)()

    # Names and values.

    def name(self, hint, role):
        number = next(self.numbers)
        if self.names == "awkward" and role != "value" and self.draw.random() < 0.6:
            name = self.draw.choice(AWKWARD) or f"{hint} "
            if name not in self.taken:
                self.taken.add(name)
                return name
        name = f"/blocks.{number // 7}/{hint}/{hint}_output_{number}" if self.names == "folders" and role == "value" \
            else f"blocks.{number // 7}.{hint}.{number}" if self.names == "folders" else f"{hint}{number}"
        self.taken.add(name)
        return name

    def floats(self, shape, centre, spread):
        return Tensor(list(shape), [exact(centre + self.draw.uniform(-spread, spread)) for _ in range(product(shape))])

    def weight(self, hint, shape, fan_in=None, centre=0.0, spread=None):
        name = self.name(hint, "weight")
        self.parameters[name] = self.floats(shape, centre, spread or (3.0 / max(fan_in or 1, 1)) ** 0.5)
        return name

    def constant(self, values, shape=()):
        """Adds numbers that are part of the net's definition. Single numbers are always Constant nodes here, because
        files with them as initialisers do not say whether they are trained."""
        values = [exact(v) if isinstance(v, float) else v for v in values]
        as_node = self.constants_as == "nodes" or isinstance(values[0], float)
        if as_node:
            name = self.name("constant", "value")
            self.nodes.append(Node("Constant", [], [name], {"value": Tensor(list(shape), values)}))
        else:
            name = self.name("constant", "constant")
            self.constants[name] = Tensor(list(shape), values)
        return name

    def add(self, op, *inputs, **attributes):
        output = self.name(op.lower(), "value")
        self.nodes.append(Node(op, list(inputs), [output], attributes))
        return output

    def some(self, *choices):
        return self.draw.choice(choices)

    # Parts that several nets use.

    def activation(self, x):
        kind = self.some("Relu", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Softplus", "gelu", "silu",
                         "HardSwish", "hardswish", "relu6", "HardSigmoid")
        if kind == "gelu":
            scaled = self.add("Div", x, self.constant([2.0 ** 0.5]))
            grown = self.add("Add", self.add("Erf", scaled), self.constant([1.0]))
            return self.add("Mul", self.add("Mul", x, grown), self.constant([0.5]))
        if kind == "silu":
            return self.add("Mul", x, self.add("Sigmoid", x))
        if kind == "hardswish":
            return self.add("Mul", x, self.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))
        if kind == "relu6":
            return self.add("Clip", x, self.constant([0.0]), self.constant([6.0]))
        return self.add(kind, x)

    def dense(self, x, features, outputs, bias=True):
        """Maps [N,...,features] to [N,...,outputs], as PyTorch writes linear layers with many axes."""
        y = self.add("MatMul", x, self.weight("weight", [features, outputs], features))
        return self.add("Add", y, self.weight("bias", [outputs], spread=0.1)) if bias else y

    def head(self, x, features):
        """Maps [N,features] to the input of the loss."""
        if self.draw.random() < 0.5:
            y = self.add("Gemm", x, self.weight("weight", [self.classes, features], features),
                         self.weight("bias", [self.classes], spread=0.1), transB=1)
        else:
            y = self.dense(x, features, self.classes, self.some(True, False))
        self.output, self.output_shape = y, [self.classes]

    def layer_norm(self, x, features, after=1):
        """Normalises over the last axis; `after` is its number, counting the batch."""
        weight = self.weight("norm.weight", [features], centre=1.0, spread=0.2)
        kind = self.some("op", "parts", "rms")
        if kind == "op":
            return self.add("LayerNormalization", x, weight, self.weight("norm.bias", [features], spread=0.1),
                            axis=-1, epsilon=1e-5)
        if kind == "parts":
            x = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1]))
        squares = self.add("ReduceMean", self.add("Pow", x, self.constant([2.0])), axes=[-1])
        deviation = self.add("Sqrt", self.add("Add", squares, self.constant([1e-5])))
        y = self.add("Mul", self.add("Div", x, deviation), weight)
        return self.add("Add", y, self.weight("norm.bias", [features], spread=0.1)) if kind == "parts" else y

    # Images [C,H,W].

    def images(self):
        self.size = [self.some(1, 2, 3, 4), self.some(7, 8, 9, 12), self.some(7, 8, 10, 13)]
        self.input_shape = list(self.size)
        x = self.conv(self.input, self.some(3, 4, 6, 8), 3)
        for _ in range(self.draw.randint(1, 4)):
            x = self.image_block(x)
        C, H, W = self.size
        if self.draw.random() < 0.15 and not self.regression:  # Classes of pixels.
            self.output = self.conv(x, self.classes, 1, bias=True)
            self.output_shape = [self.classes, H, W]
        elif self.draw.random() < 0.5:
            self.head(self.add("Flatten", self.add("GlobalAveragePool", x)), C)
        elif self.draw.random() < 0.5:
            self.head(self.add("ReduceMean", x, axes=[2, 3], keepdims=0), C)
        else:
            self.head(self.add("Flatten", x), C * H * W)

    def image_block(self, x):
        kind = self.some("plain", "plain", "residual", "dense", "squeeze", "squeeze", "inverted", "pool", "up")
        C, H, W = self.size
        if kind == "residual":
            y = self.activation(self.image_norm(self.conv(x, C, 3)))
            return self.activation(self.add("Add", x, self.image_norm(self.conv(y, C, self.some(1, 3)))))
        if kind == "dense":
            y = self.activation(self.conv(x, self.some(1, 3, 4), 3))
            self.size[0] += C
            return self.add("Concat", x, y, axis=1)
        if kind == "squeeze":
            return self.squeeze(self.activation(self.image_norm(self.conv(x, C, 3))))
        if kind == "inverted":
            y = self.activation(self.image_norm(self.conv(x, 2 * C, 1)))
            y = self.activation(self.image_norm(self.conv(y, 2 * C, 3, group=2 * C)))
            y = self.squeeze(y) if self.draw.random() < 0.6 else y
            return self.add("Add", x, self.image_norm(self.conv(y, C, 1)))
        if kind == "pool" and min(H, W) >= 4:
            self.size = [C, (H - 2) // 2 + 1, (W - 2) // 2 + 1]
            return self.add(self.some("MaxPool", "AveragePool"), x, kernel_shape=[2, 2], strides=[2, 2])
        if kind == "up" and max(H, W) <= 8:
            self.size = [C, 2 * H, 2 * W]
            return self.add("ConvTranspose", x, self.weight("up", [C, C, 2, 2], C), strides=[2, 2],
                            kernel_shape=[2, 2])
        return self.activation(self.image_norm(self.conv(x, self.some(C, C, 5, 6), 3, stride=self.some(1, 1, 2))))

    def conv(self, x, outputs, kernel, group=1, stride=1, bias=None):
        C, H, W = self.size
        stride = stride if min(H, W) >= 4 else 1
        inputs = [x, self.weight("weight", [outputs, C // group, kernel, kernel], C // group * kernel * kernel)]
        if self.some(True, False) if bias is None else bias:
            inputs.append(self.weight("bias", [outputs], spread=0.1))
        self.size = [outputs, (H - 1) // stride + 1, (W - 1) // stride + 1]
        return self.add("Conv", *inputs, kernel_shape=[kernel, kernel], pads=[kernel // 2] * 4, group=group,
                        strides=[stride, stride])

    def squeeze(self, x):
        C, _, _ = self.size
        inner = max(1, C // self.some(2, 4))
        size = self.size
        means = self.some("GlobalAveragePool", "ReduceMean")
        y = self.add(means, x, **({"axes": [2, 3], "keepdims": 1} if means == "ReduceMean" else {}))
        self.size = [C, 1, 1]
        y = self.activation(self.conv(y, inner, 1, bias=True))
        y = self.conv(y, C, 1, bias=True)
        self.size = size
        gate = self.add("Sigmoid", y) if self.some(True, False) else self.add("HardSigmoid", y, alpha=1 / 6, beta=0.5)
        return self.add("Mul", *self.some([x, gate], [gate, x]))

    def image_norm(self, x):
        C, H, W = self.size
        kinds = ["none", "group", "instance", "channels"]
        if self.batch * H * W >= 24:
            kinds += ["batch"] * 3
        kind = self.draw.choice(kinds)
        if kind == "batch":
            self.has_batch_norm = True
            return self.batch_norm(x, C)
        if kind == "group" and H * W >= 6:  # As PyTorch exports it up to opset 17.
            groups = self.draw.choice([g for g in range(1, C + 1) if C % g == 0])
            folded = self.add("Reshape", x, self.constant([0, groups, -1], [3]))
            ones, zeros = self.constant([1.0] * groups, [groups]), self.constant([0.0] * groups, [groups])
            y = self.add("InstanceNormalization", folded, ones, zeros, epsilon=1e-5)
            y = self.add("Reshape", y, self.constant([-1, C, H, W], [4]))
            y = self.add("Mul", y, self.weight("norm.weight", [C, 1, 1], centre=1.0, spread=0.2))
            return self.add("Add", y, self.weight("norm.bias", [C, 1, 1], spread=0.1))
        if kind == "instance" and H * W >= 6:
            return self.add("InstanceNormalization", x, self.weight("norm.weight", [C], centre=1.0, spread=0.2),
                            self.weight("norm.bias", [C], spread=0.1), epsilon=1e-5)
        if kind == "channels" and C >= 3:  # As in ConvNeXt.
            y = self.layer_norm(self.add("Transpose", x, perm=[0, 2, 3, 1]), C)
            return self.add("Transpose", y, perm=[0, 3, 1, 2])
        return x

    def batch_norm(self, x, C):
        mean, variance = self.name("running_mean", "weight"), self.name("running_var", "weight")
        self.buffers[mean], self.buffers[variance] = self.floats([C], 0.0, 0.1), self.floats([C], 1.0, 0.1)
        return self.add("BatchNormalization", x, self.weight("norm.weight", [C], centre=1.0, spread=0.2),
                        self.weight("norm.bias", [C], spread=0.1), mean, variance, epsilon=1e-5, momentum=0.9)

    # Sequences [T,F].

    def features(self):
        self.length, self.width = self.some(2, 3, 5, 8), self.some(4, 6, 12)
        features = self.some(3, 5, 8)
        self.input_shape = [self.length, features]
        self.transformer(self.dense(self.input, features, self.width))

    def tokens(self):
        self.length, self.width, self.vocabulary = self.some(2, 3, 5, 8), self.some(4, 6, 12), self.some(7, 16, 23)
        self.input_shape = [self.length]
        table = self.weight("embedding", [self.vocabulary, self.width], spread=0.8)
        x = self.add("Gather", table, self.input, axis=0)
        if self.some(True, False):
            x = self.add("Add", x, self.weight("positions", [self.length, self.width], spread=0.3))
        self.transformer(x, table)

    def transformer(self, x, table=None):
        T, F = self.length, self.width
        for _ in range(self.draw.randint(1, 3)):
            x = self.add("Add", x, self.attention(self.layer_norm(x, F)))
            y = self.activation(self.dense(self.layer_norm(x, F), F, 2 * F))
            if self.draw.random() < 0.3:  # Gated.
                y = self.add("Mul", y, self.dense(x, F, 2 * F, bias=False))
            x = self.add("Add", x, self.dense(y, 2 * F, F))
        how = self.some("mean", "first", "every" if not self.regression else "mean", "tied" if table else "mean")
        if how == "every":
            self.output, self.output_shape = self.dense(x, F, self.classes), [T, self.classes]
        elif how == "tied" and not self.regression:
            y = self.add("MatMul", x, self.add("Transpose", table, perm=[1, 0]))
            self.classes = self.vocabulary
            self.output, self.output_shape = y, [T, self.classes]
        elif how == "first":
            self.head(self.add("Gather", x, self.constant([0]), axis=1), F)
        else:
            self.head(self.add("ReduceMean", x, axes=[1], keepdims=0), F)

    def attention(self, x):
        T, F = self.length, self.width
        heads = self.draw.choice([h for h in (1, 2, 3) if F % h == 0])
        D = F // heads
        parts = []
        for _ in range(3):
            y = self.add("Reshape", self.dense(x, F, F, self.some(True, False)), self.constant([0, T, heads, D], [4]))
            parts.append(self.add("Transpose", y, perm=[0, 2, 1, 3]))
        scores = self.add("MatMul", parts[0], self.add("Transpose", parts[1], perm=[0, 1, 3, 2]))
        scores = self.add("Mul", scores, self.constant([D ** -0.5]))
        if self.some(True, False):
            mask = [0.0 if column <= row else -1e4 for row in range(T) for column in range(T)]
            scores = self.add("Add", scores, self.constant(mask, [T, T]))
        y = self.add("MatMul", self.add("Softmax", scores, axis=-1), parts[2])
        y = self.add("Reshape", self.add("Transpose", y, perm=[0, 2, 1, 3]), self.constant([0, T, F], [3]))
        return self.dense(y, F, F)

    # Vectors [F].

    def vectors(self):
        width = self.some(1, 3, 6, 10)
        self.input_shape = [width]
        x = self.input
        for _ in range(self.draw.randint(1, 4)):
            following = self.some(1, 2, 5, 7, 12)
            y = self.dense(x, width, following, self.some(True, False))
            if following > 2 and self.draw.random() < 0.4:
                y = self.layer_norm(y, following)
            elif self.batch >= 4 and self.draw.random() < 0.3:
                self.has_batch_norm = True
                y = self.batch_norm(y, following)
            y = self.activation(y)
            x = self.add("Add", x, y) if following == width and self.some(True, False) else y
            width = following
        self.head(x, width)

    # The file, its data, and its options.

    def onnx(self):
        """Returns the file as torch.onnx.export writes it, opset 17."""
        written = [field(1, node(n.op, n.inputs, *n.outputs, attributes=[
            attribute(name, self.content("", v) if isinstance(v, Tensor) else v) for name, v in n.attributes.items()]))
            for n in self.nodes]
        stored = {**self.parameters, **self.buffers, **self.constants}
        is_token = self.kind == "tokens"
        graph = b"".join([
            *written, field(2, "net"), *(field(5, self.content(name, t)) for name, t in stored.items()),
            field(11, value_info(self.input, ["N", *self.input_shape], 7 if is_token else 1)),
            field(12, value_info(self.output, ["N", *self.output_shape]))])
        return (field(1, 8) + field(2, "pytorch") + field(3, "2.0") + field(7, graph)
                + field(8, field(1, "") + field(2, 17)))

    @staticmethod
    def content(name, t):
        if not t.floats:
            return int64s(name, t.shape, t.values)
        return tensor(name, t.shape, t.values)

    def data(self, items):
        """Returns `items` inputs and labels, in row-major order."""
        draw = random.Random(f"data {items}")
        per_item = product(self.input_shape)
        if self.kind == "tokens":
            x = [draw.randrange(self.vocabulary) for _ in range(items * per_item)]
        else:
            x = [exact(draw.gauss(0, 1)) for _ in range(items * per_item)]
        if self.regression:
            y_shape = [items, *self.output_shape]
            y = [exact(draw.gauss(0, 1)) for _ in range(product(y_shape))]
        else:
            axes = [e for e in self.output_shape]
            axes.remove(self.classes)
            y_shape = [items, *axes]
            y = [draw.randrange(self.classes) for _ in range(product(y_shape))]
        return Tensor([items, *self.input_shape], x), Tensor(y_shape, y)

    def npz(self, x, y):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, t in (("input_ids", x), ("labels", y)) if self.kind == "tokens" else \
                    (("x_train", x), ("y_train", y), ("x_test", x), ("y_test", y)):
                code = "f" if t.floats else "q"
                content = npy_file.content("<f4" if t.floats else "<i8", tuple(t.shape),
                                           struct.pack(f"<{len(t.values)}{code}", *t.values))
                archive.writestr(f"{name}.npy", content)
        return file.getvalue()

    def techniques(self, replicas, accumulation):
        """Returns options that must not change the results."""
        draw = random.Random(f"techniques {self.draw.random()}")
        words = []

        def chance(percent, name, *choices):
            if draw.random() * 100 < percent:
                words.extend([f"--{name}", draw.choice(choices)])

        chance(80, "memory.outlining", "on", "on", "auto", "off")
        chance(60, "pipeline.recomputation", "none", "standard", "layer", "all", "all")
        chance(70, "device.tiles", "8", "24", "64")
        if draw.random() < 0.4:
            words += ["--ipus-per-replica", draw.choice(["2", "2", "3"])]
            chance(60, "pipeline.schedule", "grouped", "interleaved", "sequential")
        elif draw.random() < 0.15:
            words += ["--memory.phases", "2"]
        for kind in ("weights", "optimizer-state", "accumulators", "activations"):
            chance(30, f"memory.{kind}", "off-chip", "off-chip", "auto")
        chance(40, "memory.off-chip-min-elements", "1", "20")
        if replicas > 1 and draw.random() < 0.6:
            words += ["--memory.replicated-tensor-sharding",
                      draw.choice(["weights", "optimizer-state", "weights optimizer-state"])]
            chance(90, "memory.sharding-min-elements", "1", "2", "40")
        chance(15, "memory.in-place", "false")
        chance(10, "memory.tiles", "exact")
        chance(15, "memory.available-memory-proportion", "0.1", "0.3", "1")
        return words

    # The same net in PyTorch.

    def trained_by_torch(self, torch, x, y, steps, accumulation, learning_rate):
        """Returns losses and final parameters of SGD in float64, from micro-batches of `batch` items in order."""
        def of(t):
            return torch.tensor(t.values, dtype=torch.float64 if t.floats else torch.int64).reshape(t.shape)

        parameters = {name: of(t).requires_grad_() for name, t in self.parameters.items()}
        fixed = {name: of(t) for name, t in {**self.buffers, **self.constants}.items()}
        inputs, labels = of(x), of(y)
        losses, at = [], 0
        for _ in range(steps):
            total = 0.0
            for _ in range(accumulation):
                rows = slice(at, at + self.batch)
                at += self.batch
                output = self.evaluated_by_torch(torch, {**parameters, **fixed, self.input: inputs[rows]}, of)
                loss = self.loss_of(torch, output, labels[rows]) / accumulation
                loss.backward()
                total += loss.item()
            losses.append(total)
            with torch.no_grad():
                for p in parameters.values():
                    if p.grad is not None:
                        p -= learning_rate * p.grad
                        p.grad = None
        return losses, {name: p.detach() for name, p in parameters.items()}

    def loss_of(self, torch, output, labels):
        if self.regression:
            return torch.nn.functional.mse_loss(output, labels)
        if self.kind != "images" and output.dim() == 3:  # [N,T,K]; PyTorch expects classes second.
            output = output.transpose(1, 2)
        return torch.nn.functional.cross_entropy(output, labels)

    def evaluated_by_torch(self, torch, values, of):
        for n in self.nodes:
            if n.op == "Constant":
                values[n.outputs[0]] = of(n.attributes["value"])
            else:
                arguments = [values[name] for name in n.inputs]
                values[n.outputs[0]] = TORCH[n.op](torch, n.attributes, *arguments)
        return values[self.output]


def _conv(torch, a, x, w, b=None):
    return torch.nn.functional.conv2d(x, w, b, stride=a["strides"], padding=a["pads"][:2], groups=a["group"])


def _batch_norm(torch, a, x, w, b, mean, variance):
    return torch.nn.functional.batch_norm(x, mean.clone(), variance.clone(), w, b, True, 0.1, a["epsilon"])


def _layer_norm(torch, a, x, w, b):
    return torch.nn.functional.layer_norm(x, w.shape, w, b, a["epsilon"])


def _instance_norm(torch, a, x, w, b):
    return torch.nn.functional.instance_norm(x, None, None, w, b, True, 0.0, a["epsilon"])


def _pool(name):
    return lambda torch, a, x: getattr(torch.nn.functional, name)(x, a["kernel_shape"], a["strides"])


def _reshape(torch, a, x, shape):
    return x.reshape([x.shape[i] if extent == 0 else extent for i, extent in enumerate(shape.tolist())])


def _gemm(torch, a, x, w, b):
    return torch.addmm(b, x, w.T if a.get("transB") else w)


def _hard_sigmoid(torch, a, x):
    return (x * exact(a.get("alpha", 0.2)) + exact(a.get("beta", 0.5))).clamp(0, 1)


def _gather(torch, a, x, indices):
    return x[indices] if a["axis"] == 0 else x.select(a["axis"], int(indices))


# ONNX operator -> its meaning: f(torch, attributes, *inputs).
TORCH = {
    "Add": lambda t, a, x, y: x + y, "Sub": lambda t, a, x, y: x - y, "Mul": lambda t, a, x, y: x * y,
    "Div": lambda t, a, x, y: x / y, "Pow": lambda t, a, x, y: x ** y, "MatMul": lambda t, a, x, y: x @ y,
    "Gemm": _gemm, "Conv": _conv, "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm, "MaxPool": _pool("max_pool2d"), "AveragePool": _pool("avg_pool2d"),
    "ConvTranspose": lambda t, a, x, w: t.nn.functional.conv_transpose2d(x, w, stride=a["strides"]),
    "GlobalAveragePool": lambda t, a, x: x.mean((2, 3), keepdim=True), "Flatten": lambda t, a, x: x.flatten(1),
    "ReduceMean": lambda t, a, x: x.mean(a["axes"], keepdim=a.get("keepdims", 1) == 1),
    "Concat": lambda t, a, *x: t.cat(x, a["axis"]), "Reshape": _reshape,
    "Transpose": lambda t, a, x: x.permute(a["perm"]), "Gather": _gather,
    "Softmax": lambda t, a, x: t.softmax(x, a["axis"]), "Sqrt": lambda t, a, x: t.sqrt(x),
    "Erf": lambda t, a, x: t.erf(x), "Relu": lambda t, a, x: t.relu(x), "Sigmoid": lambda t, a, x: t.sigmoid(x),
    "Tanh": lambda t, a, x: t.tanh(x), "Elu": lambda t, a, x: t.nn.functional.elu(x),
    "LeakyRelu": lambda t, a, x: t.nn.functional.leaky_relu(x, exact(0.01)),
    "Softplus": lambda t, a, x: t.nn.functional.softplus(x), "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda t, a, x: t.nn.functional.hardswish(x), "Clip": lambda t, a, x, low, high: x.clamp(low, high),
}
