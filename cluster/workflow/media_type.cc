#include "cluster/workflow/media_type.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"

namespace onepiece::workflow {

std::string_view MediaTypeOf(std::string_view bytes, std::string_view path) {
  using std::string_view_literals::operator""sv;
  if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) return "image/png";
  if (bytes.starts_with("\xff\xd8\xff"sv)) return "image/jpeg";
  if (bytes.starts_with("RIFF"sv) && bytes.substr(8).starts_with("WEBP"sv)) return "image/webp";
  if (bytes.starts_with("GIF87a"sv) || bytes.starts_with("GIF89a"sv)) return "image/gif";
  if (bytes.starts_with("BM"sv)) return "image/bmp";
  if (bytes.size() > 12 && bytes.substr(4).starts_with("ftyp"sv)) return "video/mp4";
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kByExtension = {{
      {".png", "image/png"},
      {".jpg", "image/jpeg"},
      {".jpeg", "image/jpeg"},
      {".webp", "image/webp"},
      {".gif", "image/gif"},
      {".bmp", "image/bmp"},
      {".mp4", "video/mp4"},
      {".wav", "audio/wav"},
      {".json", "application/json"},
      {".txt", "text/plain"},
  }};
  const std::string lower = absl::AsciiStrToLower(absl::string_view(path.data(), path.size()));
  const auto found = std::find_if(kByExtension.begin(), kByExtension.end(),
                                  [&](const auto& entry) { return lower.ends_with(entry.first); });
  return found == kByExtension.end() ? "application/octet-stream" : found->second;
}

}  // namespace onepiece::workflow
