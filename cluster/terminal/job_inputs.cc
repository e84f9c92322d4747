#include "cluster/terminal/job_inputs.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/workflow/input_check.h"
#include "cluster/workflow/media_type.h"

namespace onepiece::terminal {
namespace {

absl::Status Bad(const std::string& pair, const std::string& why) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_INPUT_FILE",
                         "input " + base::ToUtf8(pair, 4096) + ": " + why);
}

/// Reads the file. Returns nullopt when it has more than `limit` bytes.
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
    input.set_media_type(std::string(workflow::MediaTypeOf(**bytes, path)));
    input.set_data(**std::move(bytes));
  }
  return inputs;
}

}  // namespace onepiece::terminal
