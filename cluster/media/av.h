// Owning pointers for libav's objects, its errors as statuses, and I/O in memory. Private to
// cluster/media.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cluster/media/media.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

namespace onepiece::media {

struct CodecContextDeleter {
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }
};
struct FrameDeleter {
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
};
struct PacketDeleter {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
};
struct ScalerDeleter {
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
};
struct IoDeleter {
  void operator()(AVIOContext* io) const;
};
struct MuxerDeleter {
  void operator()(AVFormatContext* muxer) const { avformat_free_context(muxer); }
};
struct DemuxerDeleter {
  void operator()(AVFormatContext* demuxer) const { avformat_close_input(&demuxer); }
};
struct DictionaryDeleter {
  void operator()(AVDictionary* dictionary) const { av_dict_free(&dictionary); }
};

using CodecContext = std::unique_ptr<AVCodecContext, CodecContextDeleter>;
using Frame = std::unique_ptr<AVFrame, FrameDeleter>;
using Packet = std::unique_ptr<AVPacket, PacketDeleter>;
using Scaler = std::unique_ptr<SwsContext, ScalerDeleter>;
using Io = std::unique_ptr<AVIOContext, IoDeleter>;
using Muxer = std::unique_ptr<AVFormatContext, MuxerDeleter>;
using Demuxer = std::unique_ptr<AVFormatContext, DemuxerDeleter>;

/// Turns libav's error into INTERNAL with the message "what: libav's text". ENOMEM becomes
/// RESOURCE_EXHAUSTED.
absl::Status AvError(int code, std::string_view what);
absl::Status OutOfMemory(std::string_view what);
/// Keeps libav's log off stderr. What matters comes back as a status.
void QuietAv();

/// A file in memory that libav writes.
struct MemoryWriter {
  std::string bytes;
  std::size_t position = 0;
};
/// A file in memory that libav reads.
///
/// Ownership: borrows `bytes`.
struct MemoryReader {
  std::span<const std::byte> bytes;
  std::size_t position = 0;
};
/// These return null when memory is short.
///
/// Lifetime: the writer or reader must outlive the result.
Io OpenWriter(MemoryWriter& writer);
Io OpenReader(MemoryReader& reader);

/// Makes a converter between RGB24 and yuv420p (BT.709, limited range) without scaling. Returns
/// null when there is none.
Scaler MakeScaler(int width, int height, AVPixelFormat from, AVPixelFormat to);

}  // namespace onepiece::media
