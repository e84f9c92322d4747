#include "cluster/cli/job_inputs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/workflow/input_check.h"

namespace onepiece::cli {
namespace {

absl::Status Bad(const std::string& pair, const std::string& why) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_INPUT_FILE",
                         "input " + base::ToUtf8(pair, 4096) + ": " + why);
}

/// At most `limit` bytes of the file; nothing when it has more.
absl::StatusOr<std::optional<std::string>> ReadFile(const std::string& path, std::size_t limit) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return absl::InvalidArgumentError("is a folder, not a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::InvalidArgumentError(std::string("cannot read: ") + std::strerror(errno));
  std::string bytes;
  std::array<char, 1 << 16> block;
  while (file.read(block.data(), block.size()), file.gcount() > 0) {
    bytes.append(block.data(), static_cast<std::size_t>(file.gcount()));
    if (bytes.size() > limit) return std::nullopt;
  }
  if (file.bad()) return absl::InvalidArgumentError("cannot read to its end");
  return bytes;
}

}  // namespace

absl::StatusOr<JobInputs> ReadInputs(const std::vector<std::string>& pairs) {
  JobInputs inputs;
  std::size_t left = workflow::kMaxInputBytes;
  for (const std::string& pair : pairs) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size() ||
        !base::IsUtf8(pair.substr(0, equals))) {
      return Bad(pair, "is not NAME=FILE");
    }
    const std::string path = pair.substr(equals + 1);
    auto bytes = ReadFile(path, left);
    if (!bytes.ok()) return Bad(pair, base::Message(bytes.status()));
    if (!bytes->has_value()) {
      return Bad(pair, "is too large; a job's inputs have at most " +
                           std::to_string(workflow::kMaxInputBytes) + " bytes together");
    }
    if ((*bytes)->empty()) return Bad(pair, "the file is empty");
    left -= (*bytes)->size();
    v1::JobInput& input = *inputs.Add();
    input.set_name(pair.substr(0, equals));
    input.set_media_type(std::string(MediaTypeOf(**bytes, path)));
    input.set_data(**std::move(bytes));
  }
  return inputs;
}

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

}  // namespace onepiece::cli
