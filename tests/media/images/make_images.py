"""Makes the images of this folder and, with Pillow, what they must decode to (NAME.rgb).

Not part of the build or the tests: run it by hand, in this folder, to add a kind of image.
"""
import struct
import zlib

from PIL import Image, ImageOps

WIDTH, HEIGHT = 24, 16


def color(x, y):
    """A gradient with a red corner: no symmetry, one hard edge."""
    return (250, 10, 20) if x < 6 and y < 5 else (x * 10, y * 15, (x + y) * 6)


def pixels():
    return [color(x, y) for y in range(HEIGHT) for x in range(WIDTH)]


def expect(name):
    image = ImageOps.exif_transpose(Image.open(name)).convert("RGB")
    open(name + ".rgb", "wb").write(image.tobytes())


def save(image, name, **options):
    image.save(name, **options)
    expect(name)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(name, depth, color_type, rows, expected):
    """Kinds of png that Pillow does not write."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, color_type, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    with open(name, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    open(name + ".rgb", "wb").write(bytes(expected))


def orientation(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


rgb = Image.new("RGB", (WIDTH, HEIGHT))
rgb.putdata(pixels())
rgba = Image.new("RGBA", (WIDTH, HEIGHT))
rgba.putdata([p + (i * 7 % 256,) for i, p in enumerate(pixels())])
palette = rgb.convert("P", palette=Image.ADAPTIVE, colors=32)

save(rgb, "rgb.png")
save(rgba, "rgba.png")
save(rgb.convert("L"), "gray.png")
save(rgba.convert("LA"), "gray_alpha.png")
save(palette, "palette.png", transparency=3)
save(rgb, "rgb_transparent.png", transparency=(250, 10, 20))
save(rgb.convert("1"), "one_bit.png")
save(rgb.crop((0, 0, 1, 1)), "one_pixel.png")
save(rgb.convert("CMYK"), "cmyk.jpg", quality=95)
save(rgb.convert("L"), "gray.jpg", quality=95)
for number, name in enumerate(["444", "422", "420"]):
    save(rgb, name + ".jpg", quality=95, subsampling=number)
save(rgb, "progressive.jpg", quality=95, progressive=True)
save(rgb.crop((0, 0, 23, 15)), "odd.jpg", quality=95)
save(rgb.crop((0, 0, 1, 1)), "one_pixel.jpg", quality=95)
save(rgb, "lossy.webp", quality=90)
save(rgb, "lossless.webp", lossless=True)
save(rgba, "alpha.webp", lossless=True, exact=True)
save(rgba, "alpha_lossy.webp", quality=90, exact=True)
save(palette, "still.gif")
save(palette, "transparent.gif", transparency=3)
save(rgb, "rgb.bmp")
save(palette, "palette.bmp")
for value in range(1, 9):
    save(rgb, f"orientation_{value}.jpg", quality=95, subsampling=0, exif=orientation(value))
save(rgb, "orientation_6.png", exif=orientation(6))
save(rgb, "orientation_6.webp", lossless=True, exif=orientation(6))

# 16 bits: the high byte counts. Pillow 9 cuts 16-bit grey off at 255 instead.
rows = [b"".join(struct.pack(">3H", *(v * 256 + 200 for v in color(x, y))) for x in range(WIDTH)) for y in range(HEIGHT)]
raw_png("rgb16.png", 16, 2, rows, [v for p in pixels() for v in p])
rows = [b"".join(struct.pack(">H", color(x, y)[0] * 256 + 200) for x in range(WIDTH)) for y in range(HEIGHT)]
raw_png("gray16.png", 16, 0, rows, [p[0] for p in pixels() for _ in range(3)])
rows = [bytes((x % 16) << 4 | (x + 1) % 16 for x in range(0, WIDTH, 2)) for _ in range(HEIGHT)]
raw_png("gray4.png", 4, 0, rows, [x % 16 * 17 for _ in range(HEIGHT) for x in range(WIDTH) for _ in range(3)])

# What is refused has no .rgb.
turned = [rgb.rotate(180), rgb.transpose(Image.FLIP_LEFT_RIGHT)]
for kind in ["gif", "webp", "png"]:
    rgb.save("animated." + kind, save_all=True, append_images=turned)
Image.new("1", (5000, 4000), 1).save("20_megapixels.png", optimize=True)
