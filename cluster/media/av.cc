#include "cluster/media/av.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "cluster/base/status.h"

namespace onepiece::media {
namespace {

constexpr int kIoBufferBytes = 64 * 1024;

/// Returns the position to which SEEK_SET, SEEK_CUR and SEEK_END lead in a file of `size` bytes, or
/// -1 when that is before its start.
std::int64_t SeekTarget(std::int64_t offset, int whence, std::size_t position, std::size_t size) {
  switch (whence & ~AVSEEK_FORCE) {
    case SEEK_CUR:
      offset += static_cast<std::int64_t>(position);
      break;
    case SEEK_END:
      offset += static_cast<std::int64_t>(size);
      break;
    default:
      break;
  }
  return offset < 0 ? -1 : offset;
}

int WriteBytes(void* opaque, std::uint8_t* data, int size) {
  auto& writer = *static_cast<MemoryWriter*>(opaque);
  const std::size_t end = writer.position + static_cast<std::size_t>(size);
  try {
    if (end > writer.bytes.size()) writer.bytes.resize(end);
  } catch (const std::bad_alloc&) {
    return AVERROR(ENOMEM);
  }
  std::memcpy(writer.bytes.data() + writer.position, data, static_cast<std::size_t>(size));
  writer.position = end;
  return size;
}

int ReadBytes(void* opaque, std::uint8_t* data, int size) {
  auto& reader = *static_cast<MemoryReader*>(opaque);
  if (reader.position >= reader.bytes.size()) return AVERROR_EOF;
  const std::size_t count =
      std::min(static_cast<std::size_t>(size), reader.bytes.size() - reader.position);
  std::memcpy(data, reader.bytes.data() + reader.position, count);
  reader.position += count;
  return static_cast<int>(count);
}

template <typename File>
std::int64_t Seek(void* opaque, std::int64_t offset, int whence) {
  auto& file = *static_cast<File*>(opaque);
  if (whence == AVSEEK_SIZE) return static_cast<std::int64_t>(file.bytes.size());
  const std::int64_t target = SeekTarget(offset, whence, file.position, file.bytes.size());
  if (target < 0) return AVERROR(EINVAL);
  file.position = static_cast<std::size_t>(target);
  return target;
}

}  // namespace

void IoDeleter::operator()(AVIOContext* io) const {
  av_freep(&io->buffer);
  avio_context_free(&io);
}

absl::Status AvError(int code, std::string_view what) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(code, text, sizeof text);
  return base::MakeError(
      code == AVERROR(ENOMEM) ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
      "MEDIA_FAILED", std::string(what) + ": " + text);
}

absl::Status OutOfMemory(std::string_view what) { return AvError(AVERROR(ENOMEM), what); }

void QuietAv() { av_log_set_level(AV_LOG_FATAL); }

Io OpenWriter(MemoryWriter& writer) {
  auto* buffer = static_cast<unsigned char*>(av_malloc(kIoBufferBytes));
  if (buffer == nullptr) return nullptr;
  Io io(avio_alloc_context(buffer, kIoBufferBytes, 1, &writer, nullptr, &WriteBytes,
                           &Seek<MemoryWriter>));
  if (io == nullptr) av_free(buffer);
  return io;
}

Io OpenReader(MemoryReader& reader) {
  auto* buffer = static_cast<unsigned char*>(av_malloc(kIoBufferBytes));
  if (buffer == nullptr) return nullptr;
  Io io(avio_alloc_context(buffer, kIoBufferBytes, 0, &reader, &ReadBytes, nullptr,
                           &Seek<MemoryReader>));
  if (io == nullptr) av_free(buffer);
  return io;
}

Scaler MakeScaler(int width, int height, AVPixelFormat from, AVPixelFormat to) {
  Scaler scaler(
      sws_getContext(width, height, from, width, height, to,
                     SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP,
                     nullptr, nullptr, nullptr));
  if (scaler == nullptr) return nullptr;
  // libswscale's default matrix is BT.601, but our streams are marked BT.709, limited range.
  const int* bt709 = sws_getCoefficients(SWS_CS_ITU709);
  const int rgb_range = 1, yuv_range = 0;
  const bool to_rgb = to == AV_PIX_FMT_RGB24;
  sws_setColorspaceDetails(scaler.get(), bt709, to_rgb ? yuv_range : rgb_range, bt709,
                           to_rgb ? rgb_range : yuv_range, 0, 1 << 16, 1 << 16);
  return scaler;
}

}  // namespace onepiece::media
