#include "stages/tensor/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"

namespace onepiece::tensor {
namespace {

// The data begins at a multiple of this.
// Aligned tensors can be read in place from a mapping (ViewTensor).
constexpr std::size_t kAlignment = 64;

absl::StatusOr<std::string> Header(const std::map<std::string, at::Tensor>& tensors,
                                   const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.scalar_type() != at::kFloat) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_TENSOR",
                             "tensor \"" + name + "\" is not F32");
    }
    const std::uint64_t end = offset + tensor.nbytes();
    header[name] = {
        {"dtype", "F32"}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  const std::size_t length = sizeof(std::uint64_t) + text.size();
  text.append((kAlignment - length % kAlignment) % kAlignment, ' ');
  return text;
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool WriteBody(int fd, const std::string& header,
               const std::map<std::string, at::Tensor>& tensors) {
  const std::uint64_t length = header.size();
  std::string start(sizeof length, '\0');
  std::memcpy(start.data(), &length, sizeof length);
  if (!WriteAll(fd, start + header)) return false;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor data = tensor.detach().to(at::kCPU).contiguous();
    if (!WriteAll(fd, {static_cast<const char*>(data.data_ptr()), data.nbytes()})) return false;
  }
  return ::fsync(fd) == 0;
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path,
                              const std::map<std::string, at::Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string header, Header(tensors, metadata));
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && WriteBody(fd, header, tensors);
  // This is read before close, which may change it.
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (written) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "CANNOT_WRITE",
                         "cannot write " + path + ": " + std::strerror(error), {{"file", path}});
}

}  // namespace onepiece::tensor
