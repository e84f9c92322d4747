#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/media/av.h"

namespace onepiece::media {
namespace {

absl::Status BadVideo(std::string_view message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_VIDEO", message);
}

absl::Status BadVideo(std::string_view what, int code) {
  return BadVideo(base::Message(AvError(code, what)));
}

/// One video file being read.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_{file, 0} {}

  absl::Status Open() {
    io_ = OpenReader(file_);
    AVFormatContext* demuxer = avformat_alloc_context();
    if (io_ == nullptr || demuxer == nullptr) {
      avformat_free_context(demuxer);
      return OutOfMemory("demuxer");
    }
    demuxer->pb = io_.get();
    demuxer->flags |= AVFMT_FLAG_CUSTOM_IO;
    if (const int code = avformat_open_input(&demuxer, nullptr, nullptr, nullptr); code < 0) {
      return BadVideo("not a video", code);  // libav has freed the demuxer.
    }
    demuxer_.reset(demuxer);
    if (const int code = avformat_find_stream_info(demuxer, nullptr); code < 0)
      return BadVideo("no streams", code);
    const AVCodec* decoder = nullptr;
    stream_index_ = av_find_best_stream(demuxer, AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
    if (stream_index_ < 0) return BadVideo("no video stream", stream_index_);
    const AVStream& stream = *demuxer->streams[stream_index_];
    frames_.fps =
        av_q2d(stream.avg_frame_rate.num > 0 ? stream.avg_frame_rate : stream.r_frame_rate);
    codec_.reset(avcodec_alloc_context3(decoder));
    packet_.reset(av_packet_alloc());
    frame_.reset(av_frame_alloc());
    if (codec_ == nullptr || packet_ == nullptr || frame_ == nullptr) return OutOfMemory("decoder");
    if (const int code = avcodec_parameters_to_context(codec_.get(), stream.codecpar); code < 0) {
      return BadVideo("decoder", code);
    }
    codec_->thread_count = 1;
    if (const int code = avcodec_open2(codec_.get(), decoder, nullptr); code < 0)
      return BadVideo("decoder", code);
    return absl::OkStatus();
  }

  /// Keeps the frames from `first` on, as long as their pixels fit into `max_bytes`.
  void Limit(std::int64_t first, std::size_t max_bytes, std::stop_token stop) {
    first_ = first;
    max_bytes_ = max_bytes;
    stop_ = std::move(stop);
  }
  [[nodiscard]] std::int64_t first() const { return first_; }
  /// Returns the number of frames seen, or the container's number if that is larger.
  [[nodiscard]] std::int64_t total() const {
    return std::max(seen_, std::min(kMaxFrames, demuxer_->streams[stream_index_]->nb_frames));
  }

  absl::StatusOr<Frames> ReadAll() {
    int code = 0;
    while (!full_ && (code = av_read_frame(demuxer_.get(), packet_.get())) >= 0) {
      if (stop_.stop_requested()) return absl::CancelledError("nobody waits for the frames");
      absl::Status status;
      if (packet_->stream_index == stream_index_) status = Send(packet_.get());
      av_packet_unref(packet_.get());
      ONEPIECE_RETURN_IF_ERROR(status);
    }
    if (!full_ && code != AVERROR_EOF) return BadVideo("damaged file", code);
    if (!full_) ONEPIECE_RETURN_IF_ERROR(Send(nullptr));
    if (frames_.count == 0 && last_ != nullptr) {
      first_ = seen_ - 1;
      Store(*last_);
    }
    if (frames_.count == 0) return BadVideo("no frames in the video");
    return std::move(frames_);
  }

 private:
  /// Decodes a packet and keeps every frame that is ready. Null means the end of the stream.
  absl::Status Send(const AVPacket* packet) {
    if (const int code = avcodec_send_packet(codec_.get(), packet); code < 0)
      return BadVideo("damaged video", code);
    while (true) {
      const int code = avcodec_receive_frame(codec_.get(), frame_.get());
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return absl::OkStatus();
      if (code < 0) return BadVideo("damaged video", code);
      ONEPIECE_RETURN_IF_ERROR(Keep());
      if (full_) return absl::OkStatus();
    }
  }

  absl::Status Keep() {
    if (seen_ == 0) {
      frames_.width = frame_->width;
      frames_.height = frame_->height;
      if (frames_.width > kMaxSide || frames_.height > kMaxSide)
        return BadVideo("the video is too large");
      scaler_ = MakeScaler(frame_->width, frame_->height,
                           static_cast<AVPixelFormat>(frame_->format), AV_PIX_FMT_RGB24);
      if (scaler_ == nullptr) return BadVideo("unknown pixel format");
      format_ = frame_->format;
    }
    if (frame_->width != frames_.width || frame_->height != frames_.height ||
        frame_->format != format_) {
      return BadVideo("the picture's size changes inside the video");
    }
    if (++seen_ > kMaxFrames) return BadVideo("the video has too many frames");
    if (seen_ > first_) {
      Store(*frame_);
      const std::size_t frame_bytes = frames_.rgb.size() / static_cast<std::size_t>(frames_.count);
      full_ = frames_.rgb.size() > max_bytes_ - std::min(max_bytes_, frame_bytes);
    } else {
      last_.reset(av_frame_clone(frame_.get()));
      if (last_ == nullptr) return OutOfMemory("frame");
    }
    return absl::OkStatus();
  }

  void Store(const AVFrame& frame) {
    ++frames_.count;
    const auto frame_bytes = static_cast<std::size_t>(frames_.width * frames_.height * 3);
    frames_.rgb.resize(frames_.rgb.size() + frame_bytes);
    auto* rgb =
        reinterpret_cast<std::uint8_t*>(frames_.rgb.data() + frames_.rgb.size() - frame_bytes);
    const int stride = frame.width * 3;
    sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, &rgb, &stride);
  }

  MemoryReader file_;
  Io io_;  // Declared before demuxer_, which uses it until it is closed.
  Demuxer demuxer_;
  int stream_index_ = -1;
  CodecContext codec_;
  Packet packet_;
  Frame frame_;
  Scaler scaler_;
  int format_ = -1;
  std::int64_t first_ = 0, seen_ = 0;
  std::size_t max_bytes_ = std::numeric_limits<std::size_t>::max();
  std::stop_token stop_;
  bool full_ = false;
  Frame last_;  // The last frame before first_.
  Frames frames_;
};

}  // namespace

absl::StatusOr<Frames> Decode(std::span<const std::byte> file) {
  QuietAv();
  Reader reader(file);
  ONEPIECE_RETURN_IF_ERROR(reader.Open());
  return reader.ReadAll();
}

absl::StatusOr<Clip> DecodeClip(std::span<const std::byte> file, std::int64_t first,
                                std::size_t max_bytes, const std::stop_token& stop) {
  QuietAv();
  Reader reader(file);
  ONEPIECE_RETURN_IF_ERROR(reader.Open());
  reader.Limit(std::max<std::int64_t>(first, 0), max_bytes, stop);
  ONEPIECE_ASSIGN_OR_RETURN(Frames frames, reader.ReadAll());
  return Clip{std::move(frames), reader.first(), reader.total()};
}

}  // namespace onepiece::media
