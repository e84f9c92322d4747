#include "cluster/media/image_pixels.h"

#include <algorithm>
#include <array>
#include <string>

#include "cluster/media/image_file.h"

extern "C" {
#include <libavutil/pixdesc.h>
}

namespace onepiece::media {
namespace {

using Line = std::vector<std::uint16_t>;

std::uint8_t Clip(double value) {
  return static_cast<std::uint8_t>(std::clamp(value + 0.5, 0.0, 255.0));
}

/// Places the stored picture in the upright one. Pixel (x, y) goes to base + x·dx + y·dy, in
/// pixels.
struct Placement {
  std::int64_t width, height, base, dx, dy;
};

Placement Place(std::int64_t w, std::int64_t h, int orientation) {
  switch (orientation) {
    case 2:  // The picture is mirrored.
      return {w, h, w - 1, -1, w};
    case 3:  // The picture is upside down.
      return {w, h, w * h - 1, -1, -w};
    case 4:
      return {w, h, (h - 1) * w, 1, -w};
    case 5:  // From here on, rows become columns.
      return {h, w, 0, h, 1};
    case 6:
      return {h, w, h - 1, h, -1};
    case 7:
      return {h, w, w * h - 1, -h, -1};
    case 8:
      return {h, w, (w - 1) * h, -h, 1};
    default:
      return {w, h, 0, 1, w};
  }
}

/// Reads a frame row by row.
///
/// Ownership: borrows the frame and its format.
/// Threading: used by one thread.
class RowReader {
 public:
  RowReader(const AVFrame& frame, const AVPixFmtDescriptor& format, YuvRange range)
      : frame_(frame), format_(format), limited_(range == YuvRange::kLimited) {
    for (auto& line : lines_) line.resize(static_cast<std::size_t>(frame.width));
    chroma_width_ = AV_CEIL_RSHIFT(frame.width, format.log2_chroma_w);
    chroma_height_ = AV_CEIL_RSHIFT(frame.height, format.log2_chroma_h);
    for (auto& line : chroma_) line.resize(static_cast<std::size_t>(chroma_width_));
  }

  void Read(int y, std::vector<std::uint8_t>& rgb) {
    if ((format_.flags & AV_PIX_FMT_FLAG_PAL) != 0) {
      ReadPalette(y, rgb);
    } else if (format_.nb_components < 3) {
      ReadComponent(0, y, frame_.width, lines_[0]);
      for (std::size_t x = 0; x < lines_[0].size(); ++x)
        std::fill_n(&rgb[3 * x], 3, static_cast<std::uint8_t>(lines_[0][x]));
    } else if ((format_.flags & AV_PIX_FMT_FLAG_RGB) != 0) {
      for (int c = 0; c < 3; ++c) {
        ReadComponent(c, y, frame_.width, lines_[0]);
        for (std::size_t x = 0; x < lines_[0].size(); ++x)
          rgb[3 * x + static_cast<std::size_t>(c)] = static_cast<std::uint8_t>(lines_[0][x]);
      }
    } else {
      ReadYuv(y, rgb);
    }
  }

 private:
  /// Reads one row of one component as 8 bits. Of 16 bits it keeps the high byte. Fewer than 8 bits
  /// are spread to 0 … 255.
  void ReadComponent(int component, int y, int width, Line& line) {
    const auto** data = const_cast<const std::uint8_t**>(frame_.data);
    av_read_image_line2(line.data(), data, frame_.linesize, &format_, 0, y, component, width, 0,
                        sizeof(std::uint16_t));
    const int depth = format_.comp[component].depth;
    if (depth == 8) return;
    const int most = (1 << depth) - 1;
    for (auto& value : line) {
      value = static_cast<std::uint16_t>(depth > 8 ? value >> (depth - 8) : value * 255 / most);
    }
  }

  void ReadPalette(int y, std::vector<std::uint8_t>& rgb) {
    const auto* row = frame_.data[0] + std::ptrdiff_t{y} * frame_.linesize[0];
    const auto* palette = reinterpret_cast<const std::uint32_t*>(frame_.data[1]);  // 0xAARRGGBB
    for (std::size_t x = 0; x < static_cast<std::size_t>(frame_.width); ++x) {
      const std::uint32_t color = palette[row[x]];
      rgb[3 * x] = static_cast<std::uint8_t>(color >> 16);
      rgb[3 * x + 1] = static_cast<std::uint8_t>(color >> 8);
      rgb[3 * x + 2] = static_cast<std::uint8_t>(color);
    }
  }

  /// The two samples around pixel `at` of a plane that is subsampled by 2^shift. `weight` is the
  /// second sample's weight, out of 2^(shift+1).
  struct Between {
    int first, second, weight;
  };
  static Between Locate(int at, int shift, int count) {
    const int position = 2 * at + 1 - (1 << shift);
    const int first = position >> (shift + 1);
    return {std::clamp(first, 0, count - 1), std::clamp(first + 1, 0, count - 1),
            position & ((2 << shift) - 1)};
  }

  /// Reads chroma `component` of row y in full width.
  void ReadChroma(int component, int y, Line& out) {
    const Between rows = Locate(y, format_.log2_chroma_h, chroma_height_);
    const int row_shift = format_.log2_chroma_h + 1, column_shift = format_.log2_chroma_w + 1;
    ReadComponent(component, rows.first, chroma_width_, chroma_[0]);
    ReadComponent(component, rows.second, chroma_width_, chroma_[1]);
    for (std::size_t i = 0; i < chroma_[0].size(); ++i) {
      chroma_[0][i] = static_cast<std::uint16_t>(chroma_[0][i] * ((1 << row_shift) - rows.weight) +
                                                 chroma_[1][i] * rows.weight);
    }
    const int shift = row_shift + column_shift;
    for (int x = 0; x < frame_.width; ++x) {
      const Between columns = Locate(x, format_.log2_chroma_w, chroma_width_);
      const int sum = chroma_[0][static_cast<std::size_t>(columns.first)] *
                          ((1 << column_shift) - columns.weight) +
                      chroma_[0][static_cast<std::size_t>(columns.second)] * columns.weight;
      out[static_cast<std::size_t>(x)] =
          static_cast<std::uint16_t>((sum + (1 << (shift - 1))) >> shift);
    }
  }

  void ReadYuv(int y, std::vector<std::uint8_t>& rgb) {
    ReadComponent(0, y, frame_.width, lines_[0]);
    ReadChroma(1, y, lines_[1]);
    ReadChroma(2, y, lines_[2]);
    const double luma_scale = limited_ ? 255.0 / 219 : 1, chroma_scale = limited_ ? 255.0 / 224 : 1;
    const int black = limited_ ? 16 : 0;
    for (std::size_t x = 0; x < lines_[0].size(); ++x) {
      const double luma = (lines_[0][x] - black) * luma_scale;
      const double cb = (lines_[1][x] - 128) * chroma_scale,
                   cr = (lines_[2][x] - 128) * chroma_scale;
      rgb[3 * x] = Clip(luma + 1.402 * cr);
      rgb[3 * x + 1] = Clip(luma - 0.344136 * cb - 0.714136 * cr);
      rgb[3 * x + 2] = Clip(luma + 1.772 * cb);
    }
  }

  const AVFrame& frame_;
  const AVPixFmtDescriptor& format_;
  const bool limited_;
  int chroma_width_ = 0, chroma_height_ = 0;
  std::array<Line, 3> lines_;
  std::array<Line, 2> chroma_;
};

bool IsReadable(const AVPixFmtDescriptor& format) {
  constexpr std::uint64_t kOther =
      AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_BAYER | AV_PIX_FMT_FLAG_FLOAT;
  if ((format.flags & kOther) != 0) return false;
  const bool yuv = format.nb_components >= 3 && (format.flags & AV_PIX_FMT_FLAG_RGB) == 0;
  // Chroma is interpolated in 16 bits, which suffices for components of 8 bits only.
  return !yuv || (format.comp[0].depth == 8 && (format.flags & AV_PIX_FMT_FLAG_PLANAR) != 0);
}

}  // namespace

absl::StatusOr<Image> ToRgb(const AVFrame& frame, YuvRange range, int orientation) {
  const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(frame.format));
  if (format == nullptr || !IsReadable(*format)) {
    return BadImage(std::string("pixel format ") + (format == nullptr ? "?" : format->name) +
                    " is not supported");
  }
  const Placement place = Place(frame.width, frame.height, orientation);
  Image image{place.width, place.height, {}};
  image.rgb.resize(static_cast<std::size_t>(place.width * place.height * 3));
  RowReader reader(frame, *format, range);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(frame.width) * 3);
  for (int y = 0; y < frame.height; ++y) {
    reader.Read(y, row);
    std::byte* out = image.rgb.data() + 3 * (place.base + y * place.dy);
    for (std::size_t x = 0; x < row.size(); x += 3) {
      std::transform(&row[x], &row[x] + 3, out,
                     [](std::uint8_t value) { return std::byte{value}; });
      out += 3 * place.dx;
    }
  }
  return image;
}

}  // namespace onepiece::media
