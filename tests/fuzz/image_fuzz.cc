// Gives any bytes to DecodeImage. A file that claims many pixels costs time by design, so only its
// header is read.
#include <cstddef>
#include <cstdint>
#include <span>

#include "cluster/base/check.h"
#include "cluster/media/image.h"
#include "cluster/media/image_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::media;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = ReadImageFile(bytes);
  if (file.ok() && (file->width > 1024 || file->height > 1024)) return 0;
  const auto image = DecodeImage(bytes);
  if (!image.ok()) return 0;
  ONEPIECE_CHECK(image->width > 0 && image->height > 0);
  ONEPIECE_CHECK(image->rgb.size() == static_cast<std::size_t>(image->width * image->height * 3));
  return 0;
}
