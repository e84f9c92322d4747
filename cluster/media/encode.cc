#include <cstring>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/media/av.h"

extern "C" {
#include <libavutil/crc.h>
}

namespace onepiece::media {
namespace {

absl::Status BadFrames(std::string message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_FRAMES", message);
}

absl::Status CheckFrames(const FramesView& frames) {
  for (const std::int64_t side : {frames.height, frames.width}) {
    if (side < kMinSide || side > kMaxSide) {
      return BadFrames("frames of " + std::to_string(frames.width) + "x" +
                       std::to_string(frames.height) + " cannot be encoded; sides go from " +
                       std::to_string(kMinSide) + " to " + std::to_string(kMaxSide));
    }
  }
  if (frames.count < 1 || frames.count > kMaxFrames) {
    return BadFrames(std::to_string(frames.count) + " frames cannot be encoded; 1 to " +
                     std::to_string(kMaxFrames) + " can");
  }
  const auto expected = static_cast<std::uint64_t>(frames.count * frames.height * frames.width * 3);
  if (frames.rgb.size() != expected) {
    return BadFrames("frames hold " + std::to_string(frames.rgb.size()) +
                     " bytes where their shape needs " + std::to_string(expected));
  }
  return absl::OkStatus();
}

const std::uint8_t* FrameBytes(const FramesView& frames, std::int64_t index) {
  return reinterpret_cast<const std::uint8_t*>(frames.rgb.data()) +
         index * frames.height * frames.width * 3;
}

absl::StatusOr<Frame> AllocateFrame(const AVCodecContext& codec) {
  Frame frame(av_frame_alloc());
  if (frame == nullptr) return OutOfMemory("frame");
  frame->format = codec.pix_fmt;
  frame->width = codec.width;
  frame->height = codec.height;
  frame->color_range = codec.color_range;
  frame->colorspace = codec.colorspace;
  if (const int code = av_frame_get_buffer(frame.get(), 0); code < 0) return AvError(code, "frame");
  return frame;
}

/// Opens a read handle on the bytes written so far. The mp4 muxer needs it to move its index to the
/// front.
int OpenForReading(AVFormatContext* muxer, AVIOContext** io, const char*, int flags,
                   AVDictionary**) {
  if ((flags & AVIO_FLAG_WRITE) != 0) return AVERROR(ENOSYS);
  auto& files = *static_cast<std::pair<MemoryWriter*, MemoryReader>*>(muxer->opaque);
  files.second = {std::as_bytes(std::span(files.first->bytes)), 0};
  *io = OpenReader(files.second).release();
  return *io == nullptr ? AVERROR(ENOMEM) : 0;
}

int CloseAfterReading(AVFormatContext*, AVIOContext* io) {
  if (io != nullptr) IoDeleter()(io);
  return 0;
}

void AppendBigEndian(std::string& bytes, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift);
}

/// Puts a tEXt chunk behind the header of a png (PNG specification, 11.3.4.3). libav's encoder
/// writes none.
std::string WithComment(std::string_view png, const std::string& comment) {
  constexpr std::size_t kHeaderBytes = 8 + 4 + 4 + 13 + 4;  // Signature, and the chunk IHDR.
  std::string chunk("tEXtComment");
  chunk += '\0';
  chunk += comment;
  const std::uint32_t crc =
      av_crc(av_crc_get_table(AV_CRC_32_IEEE_LE), UINT32_MAX,
             reinterpret_cast<const std::uint8_t*>(chunk.data()), chunk.size()) ^
      UINT32_MAX;
  std::string file(png.substr(0, kHeaderBytes));
  AppendBigEndian(file, static_cast<std::uint32_t>(chunk.size() - 4));
  file += chunk;
  AppendBigEndian(file, crc);
  file += png.substr(kHeaderBytes);
  return file;
}

/// Writes one mp4.
class Mp4Writer {
 public:
  absl::Status Open(int width, int height, int fps, const std::string& comment) {
    ONEPIECE_RETURN_IF_ERROR(OpenEncoder(width, height, fps));
    return OpenMuxer(comment);
  }

  /// Encodes a frame whose rows are `stride` bytes apart.
  absl::Status Add(const std::uint8_t* rgb, int stride) {
    // The encoder may keep a reference to the last frame, so its pixels must not be overwritten.
    if (const int code = av_frame_make_writable(frame_.get()); code < 0)
      return AvError(code, "frame");
    sws_scale(scaler_.get(), &rgb, &stride, 0, codec_->height, frame_->data, frame_->linesize);
    frame_->pts = next_pts_++;
    return Send(frame_.get());
  }

  absl::StatusOr<std::string> Finish() {
    ONEPIECE_RETURN_IF_ERROR(Send(nullptr));
    if (const int code = av_write_trailer(muxer_.get()); code < 0)
      return AvError(code, "mp4 index");
    avio_flush(io_.get());
    if (io_->error < 0) return AvError(io_->error, "mp4");
    return std::move(file_.bytes);
  }

 private:
  absl::Status OpenEncoder(int width, int height, int fps) {
    const AVCodec* encoder = avcodec_find_encoder_by_name("libx264");
    if (encoder == nullptr) {
      return base::MakeError(absl::StatusCode::kUnimplemented, "NO_ENCODER",
                             "this libav has no libx264");
    }
    codec_.reset(avcodec_alloc_context3(encoder));
    if (codec_ == nullptr) return OutOfMemory("H.264 encoder");
    codec_->width = width;
    codec_->height = height;
    codec_->pix_fmt = AV_PIX_FMT_YUV420P;
    codec_->time_base = {1, fps};
    codec_->framerate = {fps, 1};
    codec_->sample_aspect_ratio = {1, 1};
    codec_->color_range = AVCOL_RANGE_MPEG;
    codec_->colorspace = AVCOL_SPC_BT709;
    codec_->color_primaries = AVCOL_PRI_BT709;
    codec_->color_trc = AVCOL_TRC_BT709;
    codec_->max_b_frames = 0;
    codec_->thread_count = 1;  // The bytes depend on the number of threads.
    codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER | AV_CODEC_FLAG_BITEXACT;
    AVDictionary* options = nullptr;
    av_dict_set(&options, "preset", "medium", 0);
    av_dict_set(&options, "crf", "10",
                0);  // Visually lossless, as small pictures show every block.
    const int code = avcodec_open2(codec_.get(), encoder, &options);
    av_dict_free(&options);
    if (code < 0) return AvError(code, "H.264 encoder");
    packet_.reset(av_packet_alloc());
    scaler_ = MakeScaler(width, height, AV_PIX_FMT_RGB24, AV_PIX_FMT_YUV420P);
    if (packet_ == nullptr || scaler_ == nullptr) return OutOfMemory("H.264 encoder");
    ONEPIECE_ASSIGN_OR_RETURN(frame_, AllocateFrame(*codec_));
    return absl::OkStatus();
  }

  absl::Status OpenMuxer(const std::string& comment) {
    AVFormatContext* muxer = nullptr;
    if (const int code = avformat_alloc_output_context2(&muxer, nullptr, "mp4", nullptr);
        code < 0) {
      return AvError(code, "mp4");
    }
    muxer_.reset(muxer);
    io_ = OpenWriter(file_);
    stream_ = avformat_new_stream(muxer_.get(), nullptr);
    if (io_ == nullptr || stream_ == nullptr) return OutOfMemory("mp4");
    muxer_->pb = io_.get();
    muxer_->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT;
    muxer_->opaque = &reading_;
    muxer_->io_open = &OpenForReading;
    muxer_->io_close2 = &CloseAfterReading;
    stream_->time_base = codec_->time_base;
    stream_->avg_frame_rate = codec_->framerate;
    if (const int code = avcodec_parameters_from_context(stream_->codecpar, codec_.get());
        code < 0) {
      return AvError(code, "mp4");
    }
    if (!comment.empty()) av_dict_set(&muxer_->metadata, "comment", comment.c_str(), 0);
    AVDictionary* options = nullptr;
    av_dict_set(&options, "movflags", "+faststart", 0);
    const int code = avformat_write_header(muxer_.get(), &options);
    av_dict_free(&options);
    return code < 0 ? AvError(code, "mp4 header") : absl::OkStatus();
  }

  /// Sends a frame and writes every packet that is ready. Null means the end of the stream.
  absl::Status Send(const AVFrame* frame) {
    if (const int code = avcodec_send_frame(codec_.get(), frame); code < 0)
      return AvError(code, "H.264");
    while (true) {
      const int code = avcodec_receive_packet(codec_.get(), packet_.get());
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return absl::OkStatus();
      if (code < 0) return AvError(code, "H.264");
      packet_->duration = 1;  // A last frame without a duration has no length, and players drop it.
      packet_->stream_index = stream_->index;
      av_packet_rescale_ts(packet_.get(), codec_->time_base, stream_->time_base);
      if (const int written = av_interleaved_write_frame(muxer_.get(), packet_.get());
          written < 0) {
        return AvError(written, "mp4 data");
      }
    }
  }

  MemoryWriter file_;
  std::pair<MemoryWriter*, MemoryReader> reading_{&file_, {}};
  Io io_;  // Declared before muxer_, which uses it until it is freed.
  Muxer muxer_;
  AVStream* stream_ = nullptr;  // Owned by muxer_.
  CodecContext codec_;
  Scaler scaler_;
  Frame frame_;
  Packet packet_;
  std::int64_t next_pts_ = 0;
};

}  // namespace

absl::StatusOr<std::string> EncodeMp4(const FramesView& frames, int fps,
                                      const std::string& comment) {
  ONEPIECE_RETURN_IF_ERROR(CheckFrames(frames));
  if (fps < 1 || fps > kMaxFps) {
    return BadFrames("fps is " + std::to_string(fps) + ", not 1 to " + std::to_string(kMaxFps));
  }
  QuietAv();
  Mp4Writer writer;
  ONEPIECE_RETURN_IF_ERROR(writer.Open(static_cast<int>(frames.width & ~1),
                                       static_cast<int>(frames.height & ~1), fps, comment));
  for (std::int64_t i = 0; i < frames.count; ++i) {
    ONEPIECE_RETURN_IF_ERROR(writer.Add(FrameBytes(frames, i), static_cast<int>(frames.width * 3)));
  }
  return writer.Finish();
}

absl::StatusOr<std::string> EncodePng(const FramesView& frames, std::int64_t index,
                                      const std::string& comment) {
  ONEPIECE_RETURN_IF_ERROR(CheckFrames(frames));
  if (index < 0 || index >= frames.count) {
    return base::MakeError(absl::StatusCode::kOutOfRange, "BAD_FRAMES",
                           "there is no frame " + std::to_string(index));
  }
  QuietAv();
  const AVCodec* encoder = avcodec_find_encoder(AV_CODEC_ID_PNG);
  if (encoder == nullptr) {
    return base::MakeError(absl::StatusCode::kUnimplemented, "NO_ENCODER",
                           "this libav has no png encoder");
  }
  CodecContext codec(avcodec_alloc_context3(encoder));
  Packet packet(av_packet_alloc());
  if (codec == nullptr || packet == nullptr) return OutOfMemory("png encoder");
  codec->width = static_cast<int>(frames.width);
  codec->height = static_cast<int>(frames.height);
  codec->pix_fmt = AV_PIX_FMT_RGB24;
  codec->time_base = {1, 1};
  codec->thread_count = 1;
  if (const int code = avcodec_open2(codec.get(), encoder, nullptr); code < 0)
    return AvError(code, "png encoder");
  ONEPIECE_ASSIGN_OR_RETURN(const Frame frame, AllocateFrame(*codec));
  const auto row_bytes = static_cast<std::size_t>(frames.width * 3);
  for (int y = 0; y < codec->height; ++y) {
    std::memcpy(frame->data[0] + static_cast<std::ptrdiff_t>(y) * frame->linesize[0],
                FrameBytes(frames, index) + static_cast<std::size_t>(y) * row_bytes, row_bytes);
  }
  if (const int code = avcodec_send_frame(codec.get(), frame.get()); code < 0)
    return AvError(code, "png");
  if (const int code = avcodec_send_frame(codec.get(), nullptr); code < 0)
    return AvError(code, "png");
  if (const int code = avcodec_receive_packet(codec.get(), packet.get()); code < 0)
    return AvError(code, "png");
  std::string file(reinterpret_cast<const char*>(packet->data),
                   static_cast<std::size_t>(packet->size));
  return comment.empty() ? file : WithComment(file, comment);
}

}  // namespace onepiece::media
