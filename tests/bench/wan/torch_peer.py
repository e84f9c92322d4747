"""The Wan components in Python torch, written as the reference writes them.

A child of `onepiece bench wan`: torch_peer.py MODEL_DIR COMPONENT INPUTS THREADS. Reads commands
from stdin, a line each (run N, output FILE, memory), and answers each with one line.
"""
import json
import math
import os
import struct
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"F32": torch.float32, "I64": torch.int64, "BF16": torch.bfloat16, "F16": torch.float16}


def load(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        start = 8 + size
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            file.seek(start + begin)
            data = torch.frombuffer(bytearray(file.read(end - begin)), dtype=DTYPES[entry["dtype"]])
            tensor = data.view(entry["shape"])
            tensors[name] = tensor.float() if tensor.is_floating_point() else tensor
    return tensors


class Model:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as file:
            self.config = json.load(file)
        (weights,) = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
        self.w = load(os.path.join(folder, weights))

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))


def attention(q, k, v, scale, bias=None):
    scores = torch.matmul(q, k.transpose(-2, -1)) * scale
    if bias is not None:
        scores = scores + bias
    return torch.matmul(torch.softmax(scores, -1), v)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class Transformer(Model):
    def rotary(self, frames, height, width):
        head, reach = self.config["attention_head_dim"], self.config["rope_max_seq_len"]
        side = 2 * (head // 6)
        dims = (head - 2 * side, side, side)
        tables = []
        for axis, (dim, extent) in enumerate(zip(dims, (frames, height, width))):
            inverse = 1.0 / torch.pow(10000.0, torch.arange(0, dim, 2, dtype=torch.float64) / dim)
            table = torch.outer(torch.arange(reach, dtype=torch.float64), inverse)[:extent]
            shape = [1, 1, 1, -1]
            shape[axis] = extent
            tables.append(table.view(shape).expand(frames, height, width, dim // 2))
        angles = torch.cat(tables, -1).reshape(1, 1, frames * height * width, -1)
        return angles.cos().float(), angles.sin().float()

    @staticmethod
    def rotate(x, rotary):
        cos, sin = rotary
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        out = torch.empty_like(x)
        out[..., 0::2] = first * cos - second * sin
        out[..., 1::2] = first * sin + second * cos
        return out

    def attend(self, name, x, context, rotary=None):
        heads, eps = self.config["num_attention_heads"], self.config["eps"]
        q = rms_norm(self.linear(name + ".to_q", x), self.w[name + ".norm_q.weight"], eps)
        k = rms_norm(self.linear(name + ".to_k", context), self.w[name + ".norm_k.weight"], eps)
        v = self.linear(name + ".to_v", context)
        q, k, v = (y.unflatten(2, (heads, -1)).transpose(1, 2) for y in (q, k, v))
        if rotary is not None:
            q, k = self.rotate(q, rotary), self.rotate(k, rotary)
        out = attention(q, k, v, 1.0 / math.sqrt(q.shape[-1]))
        return self.linear(name + ".to_out.0", out.transpose(1, 2).flatten(2, 3))

    def norm(self, x, weight=None, bias=None):
        return F.layer_norm(x.float(), (x.shape[-1],), weight, bias, self.config["eps"])

    def block(self, name, hidden, text, time_projection, rotary):
        parts = (self.w[name + ".scale_shift_table"] + time_projection.float()).chunk(6, 1)
        normed = self.norm(hidden) * (1 + parts[1]) + parts[0]
        hidden = hidden.float() + self.attend(name + ".attn1", normed, normed, rotary) * parts[2]
        normed = self.norm(hidden, self.w[name + ".norm2.weight"], self.w[name + ".norm2.bias"])
        hidden = hidden + self.attend(name + ".attn2", normed, text)
        normed = self.norm(hidden) * (1 + parts[4]) + parts[3]
        inner = F.gelu(self.linear(name + ".ffn.net.0.proj", normed), approximate="tanh")
        return hidden.float() + self.linear(name + ".ffn.net.2", inner).float() * parts[5]

    def __call__(self, inputs):
        hidden, text = inputs["hidden_states"], inputs["encoder_hidden_states"]
        timestep = inputs["timestep"]
        pt, ph, pw = self.config["patch_size"]
        batch, _, t, h, w = hidden.shape
        t, h, w = t // pt, h // ph, w // pw
        rotary = self.rotary(t, h, w)
        x = F.conv3d(hidden, self.w["patch_embedding.weight"], self.w["patch_embedding.bias"],
                     stride=(pt, ph, pw)).flatten(2).transpose(1, 2)
        half = self.config["freq_dim"] // 2
        exponent = torch.arange(half, dtype=torch.float32) * (-math.log(10000.0) / half)
        angles = timestep.float()[:, None] * exponent.exp()[None]
        wave = torch.cat([angles.cos(), angles.sin()], -1)
        embedder = "condition_embedder."
        temb = self.linear(embedder + "time_embedder.linear_2",
                           F.silu(self.linear(embedder + "time_embedder.linear_1", wave)))
        projection = self.linear(embedder + "time_proj", F.silu(temb)).unflatten(1, (6, -1))
        text = self.linear(embedder + "text_embedder.linear_2",
                           F.gelu(self.linear(embedder + "text_embedder.linear_1", text),
                                  approximate="tanh"))
        for i in range(self.config["num_layers"]):
            x = self.block(f"blocks.{i}", x, text, projection, rotary)
        shift, scale = (self.w["scale_shift_table"] + temb.unsqueeze(1)).chunk(2, 1)
        x = self.linear("proj_out", self.norm(x) * (1 + scale) + shift)
        x = x.reshape(batch, t, h, w, pt, ph, pw, -1).permute(0, 7, 1, 4, 2, 5, 3, 6)
        return x.flatten(6, 7).flatten(4, 5).flatten(2, 3)


class Encoder(Model):
    def __call__(self, inputs):
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        c, eps, tokens = self.config, self.config["layer_norm_epsilon"], ids.shape[1]
        half = c["relative_attention_num_buckets"] // 2
        exact = half // 2
        hidden = F.embedding(ids, self.w["shared.weight"])
        hide = (1.0 - mask.float()).view(ids.shape[0], 1, 1, tokens) * torch.finfo(torch.float32).min
        for i in range(c["num_layers"]):
            block = f"encoder.block.{i}.layer."
            own, dense = block + "0.SelfAttention.", block + "1.DenseReluDense."
            positions = torch.arange(tokens)
            relative = positions[None, :] - positions[:, None]
            distance = relative.abs()
            far = exact + (torch.log(distance.float() / exact)
                           / math.log(c["relative_attention_max_distance"] / exact)
                           * (half - exact)).clamp_min(0).long()
            far = torch.min(far, torch.full_like(far, half - 1))
            buckets = (relative > 0).long() * half + torch.where(distance < exact, distance, far)
            bias = F.embedding(buckets, self.w[own + "relative_attention_bias.weight"])
            bias = bias.permute(2, 0, 1).unsqueeze(0) + hide
            normed = rms_norm(hidden, self.w[block + "0.layer_norm.weight"], eps)
            q, k, v = (self.linear(own + n, normed).view(ids.shape[0], tokens, c["num_heads"], -1)
                       .transpose(1, 2) for n in "qkv")
            out = attention(q, k, v, 1.0, bias).transpose(1, 2).contiguous().flatten(2)
            hidden = hidden + self.linear(own + "o", out)
            normed = rms_norm(hidden, self.w[block + "1.layer_norm.weight"], eps)
            gate = F.gelu(self.linear(dense + "wi_0", normed), approximate="tanh")
            hidden = hidden + self.linear(dense + "wo", gate * self.linear(dense + "wi_1", normed))
        return rms_norm(hidden, self.w["encoder.final_layer_norm.weight"], eps)


class Vae(Model):
    def __init__(self, folder):
        super().__init__(folder)
        self.cache, self.next = [], 0

    def slot(self):
        if self.next == len(self.cache):
            self.cache.append({"frames": None, "seen": False})
        self.next += 1
        return self.cache[self.next - 1]

    def conv(self, name, x, before=None, stride=1, padded=True):
        weight = self.w[name + ".weight"]
        t, h, w = (weight.shape[2] - 1, weight.shape[3] // 2, weight.shape[4] // 2) if padded else (0, 0, 0)
        if before is not None and t > 0:
            x = torch.cat([before, x], 2)
            t -= before.shape[2]
        return F.conv3d(F.pad(x, (w, w, h, h, t, 0)), weight, self.w[name + ".bias"], stride=stride)

    @staticmethod
    def last_two(x, remembered):
        last = x[:, :, -2:].clone()
        if last.shape[2] < 2 and remembered is not None:
            last = torch.cat([remembered[:, :, -1:], last], 2)
        return last

    def cached(self, name, x):
        slot = self.slot()
        last = self.last_two(x, slot["frames"])
        y = self.conv(name, x, slot["frames"])
        slot["frames"] = last
        return y

    def norm(self, name, x):
        return F.normalize(x, dim=1) * x.shape[1] ** 0.5 * self.w[name + ".gamma"] + 0.0

    def residual(self, name, x):
        shortcut = name + ".conv_shortcut"
        h = self.conv(shortcut, x) if shortcut + ".weight" in self.w else x
        x = self.cached(name + ".conv1", F.silu(self.norm(name + ".norm1", x)))
        return self.cached(name + ".conv2", F.silu(self.norm(name + ".norm2", x))) + h

    @staticmethod
    def to_frames(x):
        b, c, t, h, w = x.shape
        return x.permute(0, 2, 1, 3, 4).reshape(b * t, c, h, w)

    @staticmethod
    def from_frames(x, batch):
        return x.view(batch, -1, *x.shape[1:]).permute(0, 2, 1, 3, 4)

    def middle(self, name, x):
        x = self.residual(name + ".resnets.0", x)
        own = name + ".attentions.0"
        frames = self.to_frames(x)
        qkv = F.conv2d(self.norm(own + ".norm", frames), self.w[own + ".to_qkv.weight"],
                       self.w[own + ".to_qkv.bias"])
        qkv = qkv.reshape(frames.shape[0], 1, 3 * frames.shape[1], -1).permute(0, 1, 3, 2).contiguous()
        q, k, v = qkv.chunk(3, -1)
        out = attention(q, k, v, 1.0 / math.sqrt(frames.shape[1]))
        out = out.squeeze(1).permute(0, 2, 1).reshape(frames.shape)
        out = F.conv2d(out, self.w[own + ".proj.weight"], self.w[own + ".proj.bias"])
        return self.residual(name + ".resnets.1", self.from_frames(out, x.shape[0]) + x)

    def upsample(self, name, x):
        b, c = x.shape[:2]
        if name + ".time_conv.weight" in self.w:
            slot = self.slot()
            if slot["seen"]:
                remembered = slot["frames"]
                last = self.last_two(x, torch.zeros_like(x) if remembered is None else remembered)
                x = self.conv(name + ".time_conv", x, remembered)
                slot["frames"] = last
                x = x.reshape(b, 2, c, *x.shape[2:])
                x = torch.stack((x[:, 0], x[:, 1]), 3).flatten(2, 3)
            slot["seen"] = True
        frames = F.interpolate(self.to_frames(x).float(), scale_factor=2.0, mode="nearest-exact")
        frames = F.conv2d(frames, self.w[name + ".resample.1.weight"],
                          self.w[name + ".resample.1.bias"], padding=1)
        return self.from_frames(frames, b)

    def downsample(self, name, x):
        frames = F.conv2d(F.pad(self.to_frames(x), (0, 1, 0, 1)), self.w[name + ".resample.1.weight"],
                          self.w[name + ".resample.1.bias"], stride=2)
        x = self.from_frames(frames, x.shape[0])
        if name + ".time_conv.weight" not in self.w:
            return x
        slot = self.slot()
        if slot["frames"] is None:
            slot["frames"] = x.clone()
            return x
        last = x[:, :, -1:].clone()
        x = self.conv(name + ".time_conv", torch.cat([slot["frames"][:, :, -1:], x], 2),
                      stride=(2, 1, 1), padded=False)
        slot["frames"] = last
        return x


class VaeDecode(Vae):
    def chunk(self, x):
        x = self.middle("decoder.mid_block", self.cached("decoder.conv_in", x))
        levels = len(self.config["dim_mult"])
        for i in range(levels):
            level = f"decoder.up_blocks.{i}"
            for block in range(self.config["num_res_blocks"] + 1):
                x = self.residual(f"{level}.resnets.{block}", x)
            if i + 1 < levels:
                x = self.upsample(level + ".upsamplers.0", x)
        return self.cached("decoder.conv_out", F.silu(self.norm("decoder.norm_out", x)))

    def __call__(self, inputs):
        self.cache = []
        x, out = self.conv("post_quant_conv", inputs["z"]), None
        for i in range(x.shape[2]):
            self.next = 0
            chunk = self.chunk(x[:, :, i:i + 1])
            out = chunk if out is None else torch.cat([out, chunk], 2)
        return out.clamp(-1.0, 1.0)


class VaeEncode(Vae):
    def chunk(self, x):
        x = self.cached("encoder.conv_in", x)
        levels, index = len(self.config["dim_mult"]), 0
        for i in range(levels):
            for _ in range(self.config["num_res_blocks"]):
                x = self.residual(f"encoder.down_blocks.{index}", x)
                index += 1
            if i + 1 < levels:
                x = self.downsample(f"encoder.down_blocks.{index}", x)
                index += 1
        x = self.middle("encoder.mid_block", x)
        return self.cached("encoder.conv_out", F.silu(self.norm("encoder.norm_out", x)))

    def __call__(self, inputs):
        self.cache = []
        video, out = inputs["video"], None
        for i in range(1 + (video.shape[2] - 1) // 4):
            self.next = 0
            chunk = self.chunk(video[:, :, :1] if i == 0 else video[:, :, 4 * i - 3:4 * i + 1])
            out = chunk if out is None else torch.cat([out, chunk], 2)
        return self.conv("quant_conv", out).chunk(2, 1)[0]


COMPONENTS = {"transformer": Transformer, "text_encode": Encoder, "vae_decode": VaeDecode,
              "vae_encode": VaeEncode}


def memory(field):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field):
                return int(line.split()[1])
    return 0


def main():
    folder, component, inputs, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    base = memory("VmRSS")
    with torch.inference_mode():
        tensors = load(inputs)
        model = COMPONENTS[component](folder)
        print("ready", flush=True)
        for line in sys.stdin:
            command, _, argument = line.strip().partition(" ")
            if command == "run":
                begin = time.perf_counter()
                for _ in range(int(argument)):
                    model(tensors)
                print((time.perf_counter() - begin) / int(argument), flush=True)
            elif command == "output":
                with open(argument, "wb") as file:
                    file.write(model(tensors).contiguous().numpy().tobytes())
                print("ok", flush=True)
            elif command == "memory":
                print((memory("VmHWM") - base) * 1024, flush=True)


main()
