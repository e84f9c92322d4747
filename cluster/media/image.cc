#include "cluster/media/image.h"

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/media/image_file.h"
#include "cluster/media/image_pixels.h"

namespace onepiece::media {
namespace {

absl::Status CheckSize(const ImageFile& file) {
  if (file.width < 1 || file.height < 1) return BadImage("a side is 0");
  if (file.width > kMaxImageSide || file.height > kMaxImageSide ||
      file.width * file.height > kMaxImagePixels) {
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "IMAGE_TOO_LARGE",
        "the image has " + std::to_string(file.width) + "x" + std::to_string(file.height) +
            " pixels; at most " + std::to_string(kMaxImageSide) + " a side and " +
            std::to_string(kMaxImagePixels) + " together are taken: scale it down");
  }
  if (file.frame_count > 1) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "IMAGE_ANIMATED",
                           "the image has " + std::to_string(file.frame_count) +
                               " frames; send the one that is meant");
  }
  return absl::OkStatus();
}

/// Copies `bytes` into a packet, which has the zeros behind them that libav's bit readers need.
absl::StatusOr<Packet> MakePacket(const std::vector<std::uint8_t>& bytes) {
  Packet packet(av_packet_alloc());
  if (packet == nullptr || av_new_packet(packet.get(), static_cast<int>(bytes.size())) < 0)
    return OutOfMemory("image");
  std::memcpy(packet->data, bytes.data(), bytes.size());
  return packet;
}

absl::StatusOr<Frame> DecodePacket(AVCodecID codec_id, const AVPacket& packet) {
  const AVCodec* decoder = avcodec_find_decoder(codec_id);
  if (decoder == nullptr) {
    return base::MakeError(
        absl::StatusCode::kUnimplemented, "NO_DECODER",
        std::string("this libav has no decoder for ") + avcodec_get_name(codec_id));
  }
  CodecContext codec(avcodec_alloc_context3(decoder));
  Frame frame(av_frame_alloc());
  if (codec == nullptr || frame == nullptr) return OutOfMemory("image decoder");
  codec->thread_count = 1;
  codec->max_pixels = kMaxImagePixels;
  // Damage is an error, because half a picture would become a wrong video.
  codec->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
  int code = avcodec_open2(codec.get(), decoder, nullptr);
  if (code >= 0) code = avcodec_send_packet(codec.get(), &packet);
  if (code >= 0) code = avcodec_send_packet(codec.get(), nullptr);
  if (code >= 0) code = avcodec_receive_frame(codec.get(), frame.get());
  if (code == AVERROR(ENOMEM)) return OutOfMemory("image");
  if (code < 0 || (frame->flags & AV_FRAME_FLAG_CORRUPT) != 0 || frame->decode_error_flags != 0) {
    return BadImage(std::string("the ") + avcodec_get_name(codec_id) + " data are damaged");
  }
  return frame;
}

}  // namespace

absl::StatusOr<Image> DecodeImage(std::span<const std::byte> bytes) try {
  QuietAv();
  ONEPIECE_ASSIGN_OR_RETURN(const ImageFile file, ReadImageFile(bytes));
  ONEPIECE_RETURN_IF_ERROR(CheckSize(file));
  ONEPIECE_ASSIGN_OR_RETURN(const Packet packet, MakePacket(file.packet));
  ONEPIECE_ASSIGN_OR_RETURN(const Frame frame, DecodePacket(file.codec, *packet));
  if (frame->width != file.width || frame->height != file.height)
    return BadImage("the pixels have another size than the header says");
  const bool limited = file.codec == AV_CODEC_ID_WEBP;
  return ToRgb(*frame, limited ? YuvRange::kLimited : YuvRange::kFull, file.orientation);
} catch (const std::bad_alloc&) {
  return OutOfMemory("image");
}

}  // namespace onepiece::media
