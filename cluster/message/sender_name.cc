#include "cluster/message/sender_name.h"

#include <span>

#include "absl/strings/str_cat.h"
#include "cluster/base/crc32c.h"
#include "cluster/message/layout.h"

namespace onepiece::message {
namespace {

constexpr std::size_t kMaxSenderBytes = kNameBytes - 1;
constexpr std::size_t kHashBytes = 9;  // '~' and 8 digits.

}  // namespace

std::string SenderName(const std::string& node_id) {
  if (node_id.size() <= kMaxSenderBytes) return node_id;
  std::string name = node_id.substr(0, kMaxSenderBytes - kHashBytes);
  const std::uint32_t crc = base::Crc32c(std::as_bytes(std::span(node_id)));
  absl::StrAppend(&name, "~", absl::Hex(crc, absl::kZeroPad8));
  return name;
}

}  // namespace onepiece::message
