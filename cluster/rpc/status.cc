#include "cluster/rpc/status.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cluster/base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace onepiece::rpc {
namespace {

constexpr char kDomain[] = "onepiece";
// Peers refuse trailers above 8 KiB, and the caller then loses code and reason. Text is therefore
// cut well before. A byte of the message costs at most 3 + 4/3 bytes there, because it is
// percent-encoded and also in the details. A byte of the metadata costs 4/3.
constexpr std::size_t kMaxTextBytes = 1024;
constexpr std::size_t kMaxMetadataBytes = 1536;
constexpr std::size_t kMaxValueBytes = 512;

std::optional<std::int64_t> ParseMs(std::string_view text) {
  std::int64_t ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (error != std::errc() || end != text.data() + text.size() || ms < 0) return std::nullopt;
  return ms;
}

google::rpc::ErrorInfo MakeErrorInfo(const base::ErrorReason& reason) {
  google::rpc::ErrorInfo info;
  info.set_domain(kDomain);
  info.set_reason(base::ToUtf8(reason.reason, 64));
  std::size_t used = 0;
  for (const auto& [key, value] : reason.metadata) {
    const std::string clean_key = base::ToUtf8(key, 64);
    const std::string clean_value = base::ToUtf8(value, kMaxValueBytes);
    used += clean_key.size() + clean_value.size();
    if (used > kMaxMetadataBytes) break;
    (*info.mutable_metadata())[clean_key] = clean_value;
  }
  return info;
}

// "MISSING_SCOPE: …": the reason, or nothing.
std::string_view LeadingReason(std::string_view message) {
  const std::size_t colon = message.find(": ");
  if (colon == std::string_view::npos || colon < 3 || colon > 64) return {};
  const std::string_view word = message.substr(0, colon);
  const bool reason = std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  return reason ? word : std::string_view();
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());  // Both are google.rpc.Code.
  const std::string message = base::ToUtf8(base::View(status.message()), kMaxTextBytes);
  const base::ErrorReason reason = base::GetReason(status);
  if (reason.reason.empty()) return {code, message};

  google::rpc::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  details.add_details()->PackFrom(MakeErrorInfo(reason));
  if (const auto found = reason.metadata.find(kRetryAfterMs); found != reason.metadata.end()) {
    if (const auto ms = ParseMs(found->second)) {
      google::rpc::RetryInfo retry;
      retry.mutable_retry_delay()->set_seconds(*ms / 1000);
      retry.mutable_retry_delay()->set_nanos(static_cast<int>(*ms % 1000 * 1'000'000));
      details.add_details()->PackFrom(retry);
    }
  }
  if (const auto found = reason.metadata.find("field");
      found != reason.metadata.end() && status.code() == absl::StatusCode::kInvalidArgument) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(base::ToUtf8(found->second, kMaxValueBytes));
    violation->set_description(base::ToUtf8(message, 256));
    details.add_details()->PackFrom(bad);
  }
  return {code, message, details.SerializeAsString()};
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.error_details().empty()) {
    const std::string& message = status.error_message();
    if (const std::string_view reason = LeadingReason(message); !reason.empty()) {
      return base::MakeError(static_cast<absl::StatusCode>(status.error_code()), reason,
                             message.substr(reason.size() + 2));
    }
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return result;
  base::ErrorReason reason;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&info) && info.domain() == kDomain) {
      reason.reason = info.reason();
      reason.metadata.insert(info.metadata().begin(), info.metadata().end());
    } else if (detail.UnpackTo(&retry)) {
      const std::int64_t seconds = retry.retry_delay().seconds();
      // A server may send any delay. One that is negative or above a day is nonsense.
      if (seconds < 0 || seconds > 86400 || retry.retry_delay().nanos() < 0) continue;
      reason.metadata[kRetryAfterMs] =
          std::to_string(seconds * 1000 + retry.retry_delay().nanos() / 1'000'000);
    }
  }
  if (!reason.reason.empty()) base::SetReason(result, reason);
  return result;
}

}  // namespace onepiece::rpc
