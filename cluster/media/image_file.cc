#include "cluster/media/image_file.h"

#include <algorithm>
#include <climits>
#include <string>
#include <string_view>

#include "cluster/base/status.h"

namespace onepiece::media {
namespace {

constexpr int kOrientationTag = 0x0112;
constexpr int kShort = 3;
/// Each scan of a progressive JPEG visits every pixel again. Ordinary files have about ten scans.
constexpr int kMaxJpegScans = 64;

/// A view of bytes. Reads past the end give 0, and callers check Has() where that matters.
///
/// Ownership: borrows the bytes.
class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] bool Has(std::size_t at, std::size_t count) const {
    return at <= size() && count <= size() - at;
  }
  /// Returns the bytes from `at` on, at most `count`.
  [[nodiscard]] Bytes Part(std::size_t at, std::size_t count = SIZE_MAX) const {
    const std::size_t first = std::min(at, size());
    return Bytes(bytes_.subspan(first, std::min(count, size() - first)));
  }
  [[nodiscard]] bool Is(std::size_t at, std::string_view text) const {
    return Has(at, text.size()) &&
           std::equal(text.begin(), text.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(at),
                      [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
  }
  [[nodiscard]] std::uint32_t U8(std::size_t at) const { return at < size() ? bytes_[at] : 0; }
  [[nodiscard]] std::uint32_t Le(std::size_t at, int count) const {
    std::uint32_t value = 0;
    for (int i = count - 1; i >= 0; --i) value = value << 8 | U8(at + static_cast<std::size_t>(i));
    return value;
  }
  [[nodiscard]] std::uint32_t Be(std::size_t at, int count) const {
    std::uint32_t value = 0;
    for (int i = 0; i < count; ++i) value = value << 8 | U8(at + static_cast<std::size_t>(i));
    return value;
  }
  void AppendTo(std::vector<std::uint8_t>& out) const {
    out.insert(out.end(), bytes_.begin(), bytes_.end());
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

absl::Status CutShort() { return BadImage("the file is cut short"); }

void AppendText(std::string_view text, std::vector<std::uint8_t>& out) {
  out.insert(out.end(), text.begin(), text.end());
}

/// Returns the orientation in a TIFF header with its first directory, or 1 when there is none or it
/// is wrong.
int Orientation(Bytes exif) {
  if (exif.Is(0, {"Exif\0\0", 6})) exif = exif.Part(6);
  const bool little = exif.Is(0, {"II*\0", 4});
  if (!little && !exif.Is(0, {"MM\0*", 4})) return 1;
  const auto number = [&](std::size_t at, int count) {
    return little ? exif.Le(at, count) : exif.Be(at, count);
  };
  const std::size_t directory = number(4, 4);
  const std::size_t entries = number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (!exif.Has(entry, 12)) return 1;
    if (number(entry, 2) != kOrientationTag) continue;
    const std::uint32_t value = number(entry + 8, 2);
    return number(entry + 2, 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

absl::StatusOr<ImageFile> ReadPng(Bytes file) {
  ImageFile image{.codec = AV_CODEC_ID_PNG};
  file.Part(0, 8).AppendTo(image.packet);
  if (!file.Is(12, "IHDR") || file.Be(8, 4) != 13) return BadImage("a png without its header");
  image.width = file.Be(16, 4);
  image.height = file.Be(20, 4);
  for (std::size_t at = 8; file.Has(at, 12);) {
    const std::size_t length = file.Be(at, 4);
    if (!file.Has(at, length + 12)) return CutShort();
    const bool end = file.Is(at + 4, "IEND");
    if (end || file.Is(at + 4, "IHDR") || file.Is(at + 4, "PLTE") || file.Is(at + 4, "IDAT")) {
      file.Part(at, length + 12).AppendTo(image.packet);
    } else if (file.Is(at + 4, "eXIf")) {
      image.orientation = Orientation(file.Part(at + 8, length));
    } else if (file.Is(at + 4, "acTL")) {
      image.frame_count = file.Be(at + 8, 4);
    }
    if (end) return image;
    at += length + 12;
  }
  return CutShort();
}

/// Returns where the entropy-coded data that begin at `at` end. They end at a marker that is not
/// part of them.
std::size_t EndOfScan(const Bytes& file, std::size_t at) {
  for (; file.Has(at, 2); ++at) {
    if (file.U8(at) != 0xff) continue;
    const std::uint32_t next = file.U8(at + 1);
    if (next != 0 && next != 0xff && (next < 0xd0 || next > 0xd7)) return at;
  }
  return file.size();
}

absl::Status ReadJpegSize(const Bytes& segment, std::uint32_t marker, ImageFile& image) {
  if (marker > 0xc2) return BadImage("this kind of jpeg (lossless or arithmetic) is not supported");
  if (image.width != 0) return BadImage("a jpeg with two headers");
  if (segment.U8(4) != 8) return BadImage("a jpeg of other than 8 bits is not supported");
  image.height = segment.Be(5, 2);
  image.width = segment.Be(7, 2);
  return absl::OkStatus();
}

/// Frame headers are SOF0 to SOF15. The codes left out between them are tables.
bool IsFrameHeader(std::uint32_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/// The decoder needs tables, the frame header, scans, the restart interval, and Adobe's note on the
/// colour space.
bool DecoderNeeds(std::uint32_t marker, const Bytes& segment) {
  return IsFrameHeader(marker) || marker == 0xc4 || marker == 0xda || marker == 0xdb ||
         marker == 0xdd || (marker == 0xee && segment.Is(4, "Adobe"));
}

absl::StatusOr<ImageFile> ReadJpeg(Bytes file) {
  ImageFile image{.codec = AV_CODEC_ID_MJPEG};
  file.Part(0, 2).AppendTo(image.packet);
  int scans = 0;
  bool oriented = false;
  for (std::size_t at = 2; file.Has(at, 2);) {
    const std::uint32_t marker = file.U8(at + 1);
    if (file.U8(at) != 0xff) return BadImage("the jpeg is damaged between its segments");
    if (marker == 0xff) {  // This is a fill byte.
      ++at;
      continue;
    }
    if (marker == 0xd9) {
      file.Part(at, 2).AppendTo(image.packet);
      if (scans == 0) return BadImage("a jpeg without a picture");
      return image;
    }
    const std::size_t length = file.Be(at + 2, 2);
    if (length < 2) return BadImage("the jpeg is damaged between its segments");
    if (!file.Has(at, length + 2)) return CutShort();
    const Bytes segment = file.Part(at, length + 2);
    if (IsFrameHeader(marker)) ONEPIECE_RETURN_IF_ERROR(ReadJpegSize(segment, marker, image));
    if (marker == 0xe1 && !oriented && segment.Is(4, {"Exif\0\0", 6})) {
      image.orientation = Orientation(segment.Part(4));
      oriented = true;
    }
    std::size_t end = at + length + 2;
    if (marker == 0xda) {
      if (++scans > kMaxJpegScans) return BadImage("a jpeg of too many scans");
      end = EndOfScan(file, end);
    }
    if (DecoderNeeds(marker, segment)) file.Part(at, end - at).AppendTo(image.packet);
    at = end;
  }
  return CutShort();
}

/// Reads the size with which VP8 or VP8L data begin.
void ReadVp8Size(const Bytes& data, bool lossless, ImageFile& image) {
  if (lossless) {
    const std::uint32_t sizes = data.Le(1, 4);
    image.width = (sizes & 0x3fff) + 1;
    image.height = (sizes >> 14 & 0x3fff) + 1;
  } else {
    image.width = data.Le(6, 2) & 0x3fff;
    image.height = data.Le(8, 2) & 0x3fff;
  }
}

absl::StatusOr<ImageFile> ReadWebp(Bytes file) {
  ImageFile image{.codec = AV_CODEC_ID_WEBP};
  std::int64_t animation_frames = 0;
  for (std::size_t at = 12; file.Has(at, 8);) {
    const std::size_t length = file.Le(at + 4, 4);
    if (!file.Has(at + 8, length)) return CutShort();
    const Bytes data = file.Part(at + 8, length);
    const bool lossless = file.Is(at, "VP8L");
    if ((lossless || file.Is(at, "VP8 ")) && image.packet.empty()) {
      ReadVp8Size(data, lossless, image);
      // The packet is a file with this one chunk only, which leaves out an alpha plane.
      const std::size_t riff = 4 + 8 + length + length % 2;
      AppendText("RIFF", image.packet);
      for (int i = 0; i < 4; ++i)
        image.packet.push_back(static_cast<std::uint8_t>(riff >> (8 * i)));
      AppendText("WEBP", image.packet);
      file.Part(at, 8 + length).AppendTo(image.packet);
      if (length % 2 != 0) image.packet.push_back(0);
    } else if (file.Is(at, "EXIF")) {
      image.orientation = Orientation(data);
    }
    // A frame of an animation has 16 bytes, followed by chunks like those of a still image.
    const bool frame = file.Is(at, "ANMF") && length >= 16;
    if (frame) ++animation_frames;
    at += frame ? 8 + 16 : 8 + length + length % 2;
  }
  if (image.packet.empty()) return CutShort();
  image.frame_count = std::max<std::int64_t>(1, animation_frames);
  return image;
}

/// Returns where the sub-blocks that begin at `at` end, or 0 when the file ends before.
std::size_t EndOfSubBlocks(const Bytes& file, std::size_t at) {
  while (file.Has(at, 1)) {
    const std::size_t length = file.U8(at);
    at += 1 + length;
    if (length == 0) return at;
  }
  return 0;
}

std::size_t GifPaletteBytes(std::uint32_t flags) {
  return (flags & 0x80) != 0 ? std::size_t{3} << ((flags & 7) + 1) : 0;
}

absl::StatusOr<ImageFile> ReadGif(Bytes file) {
  ImageFile image{.codec = AV_CODEC_ID_GIF, .frame_count = 0};
  image.width = file.Le(6, 2);
  image.height = file.Le(8, 2);
  std::size_t at = 13 + GifPaletteBytes(file.U8(10));
  if (!file.Has(0, at)) return CutShort();
  file.Part(0, at).AppendTo(image.packet);
  while (file.Has(at, 1) && file.U8(at) != ';') {
    const std::uint32_t kind = file.U8(at);
    std::size_t end = 0;
    if (kind == '!') {  // Extensions are left out, also the one that names a transparent colour.
      end = EndOfSubBlocks(file, at + 2);
    } else if (kind == ',') {
      end = EndOfSubBlocks(file, at + 11 + GifPaletteBytes(file.U8(at + 9)));
      if (end != 0 && ++image.frame_count == 1) file.Part(at, end - at).AppendTo(image.packet);
    } else {
      return BadImage("the gif is damaged between its blocks");
    }
    if (end == 0) return CutShort();
    at = end;
  }
  if (image.frame_count == 0 || !file.Has(at, 1)) return CutShort();
  image.packet.push_back(';');
  return image;
}

absl::StatusOr<ImageFile> ReadBmp(Bytes file) {
  ImageFile image{.codec = AV_CODEC_ID_BMP};
  if (!file.Has(0, 26)) return CutShort();
  const bool old = file.Le(14, 4) == 12;
  image.width = old ? file.Le(18, 2) : static_cast<std::int32_t>(file.Le(18, 4));
  image.height = old ? file.Le(20, 2) : static_cast<std::int32_t>(file.Le(22, 4));
  image.height = std::abs(image.height);  // A negative height means rows from top to bottom.
  file.AppendTo(image.packet);
  return image;
}

}  // namespace

absl::Status BadImage(std::string_view message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_IMAGE",
                         "not an image that can be decoded: " + std::string(message));
}

absl::StatusOr<ImageFile> ReadImageFile(std::span<const std::byte> bytes) {
  if (bytes.empty()) return BadImage("the file is empty");
  // libav counts bytes in int.
  if (bytes.size() > std::size_t{INT_MAX} / 2) return BadImage("the file is too large");
  const Bytes file({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  if (file.Is(0, {"\x89PNG\r\n\x1a\n", 8})) return ReadPng(file);
  if (file.Is(0, "\xff\xd8\xff")) return ReadJpeg(file);
  if (file.Is(0, "RIFF") && file.Is(8, "WEBP")) return ReadWebp(file);
  if (file.Is(0, "GIF87a") || file.Is(0, "GIF89a")) return ReadGif(file);
  if (file.Is(0, "BM")) return ReadBmp(file);
  return BadImage("it is neither png, jpeg, webp, gif nor bmp");
}

}  // namespace onepiece::media
