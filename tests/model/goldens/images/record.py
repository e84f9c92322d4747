# Records io.safetensors with Pillow and numpy: python3 record.py
import json
import struct

import numpy
from PIL import Image

random = numpy.random.RandomState(7)
tensors = {}


def picture(width, height):
    """Noise on a gradient: every sum of the filters is exercised, clipping included."""
    x, y = numpy.meshgrid(numpy.linspace(0, 255, width), numpy.linspace(0, 255, height))
    smooth = numpy.stack([x, y, 255 - x], -1)
    return numpy.clip(smooth + random.randint(-90, 90, smooth.shape), 0, 255).astype(numpy.uint8)


def shortest_edge(width, height, edge):
    short, long = min(width, height), max(width, height)
    along = int(edge * long / short)
    return (edge, along) if width <= height else (along, edge)


def centre_crop(image, height, width):
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    above, before = max(0, -top), max(0, -left)
    framed = numpy.zeros((max(height, image.shape[0]), max(width, image.shape[1]), 3), numpy.uint8)
    framed[above:above + image.shape[0], before:before + image.shape[1]] = image
    top, left = top + above, left + before
    return framed[top:top + height, left:left + width]


def process(image, config):
    size = config.get("size", {"shortest_edge": 224})
    if config.get("do_resize", True):
        height, width = image.shape[:2]
        to = shortest_edge(width, height, size["shortest_edge"]) if "shortest_edge" in size else (
            size["width"], size["height"])
        image = numpy.array(Image.fromarray(image).resize(to, config.get("resample", 3)))
    if config.get("do_center_crop", True):
        image = centre_crop(image, config["crop_size"]["height"], config["crop_size"]["width"])
    if config.get("do_rescale", True):
        image = (image * config.get("rescale_factor", 1 / 255)).astype(numpy.float32)
    image = image.astype(numpy.float32)
    if config.get("do_normalize", True):
        mean = config.get("image_mean", [0.48145466, 0.4578275, 0.40821073])
        std = config.get("image_std", [0.26862954, 0.26130258, 0.27577711])
        image = (image - numpy.array(mean, numpy.float32)) / numpy.array(std, numpy.float32)
    return image.transpose(2, 0, 1)[None]


def frame(image, width, height):
    resized = numpy.array(Image.fromarray(image).resize((width, height), Image.LANCZOS))
    return (2 * (resized.astype(numpy.float32) / 255) - 1).transpose(2, 0, 1)[None]


SIZES = {(1, 1): [(5, 4), (1, 1)], (7, 5): [(3, 11), (14, 10), (7, 4), (9, 5), (1, 1)],
         (16, 16): [(7, 7), (16, 31), (32, 32)], (33, 20): [(8, 8), (40, 13)],
         (3, 90): [(5, 6), (6, 100)], (64, 48): [(9, 7), (32, 24), (61, 5)]}
CONFIGS = [
    {"size": {"shortest_edge": 8}, "crop_size": {"height": 8, "width": 8}},
    {"size": {"shortest_edge": 9}, "crop_size": {"height": 6, "width": 7}, "resample": 2},
    {"size": {"height": 7, "width": 10}, "crop_size": {"height": 12, "width": 9}, "resample": 1},
    {"do_resize": False, "crop_size": {"height": 10, "width": 11}, "do_normalize": False},
    {"size": {"height": 5, "width": 6}, "do_center_crop": False, "do_rescale": False,
     "image_mean": [1, 2, 3], "image_std": [0.5, 2, 4]},
]
for (width, height), targets in SIZES.items():
    image = picture(width, height)
    name = f"{width}x{height}"
    tensors["image." + name] = image
    for to in targets:
        for method in (1, 2, 3):
            resized = Image.fromarray(image).resize(to, method)
            tensors[f"resized.{name}.{method}.{to[0]}x{to[1]}"] = numpy.array(resized)
    tensors["frame." + name] = frame(image, 16, 8)
    for number, config in enumerate(CONFIGS):
        tensors[f"processed.{name}.{number}"] = process(image, config)

header, body = {"__metadata__": {f"config.{i}": json.dumps(c) for i, c in enumerate(CONFIGS)}}, b""
for name, tensor in tensors.items():
    data = numpy.ascontiguousarray(tensor).tobytes()
    header[name] = {"dtype": "U8" if tensor.dtype == numpy.uint8 else "F32",
                    "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(data)]}
    body += data
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open("io.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + body)
