#include "cluster/base/status.h"

#include "absl/strings/cord.h"
#include "cluster/base/check.h"
#include "nlohmann/json.hpp"

namespace onepiece::base {
namespace {

constexpr char kReasonUrl[] = "onepiece/error_reason";

}  // namespace

absl::Status MakeError(absl::StatusCode code, std::string_view reason, std::string_view message,
                       std::map<std::string, std::string> metadata) {
  ONEPIECE_CHECK(code != absl::StatusCode::kOk);
  absl::Status status(code, AbslView(message));
  SetReason(status, {std::string(reason), std::move(metadata)});
  return status;
}

ErrorReason GetReason(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  if (!payload) return {};
  const auto json =
      nlohmann::json::parse(std::string(*payload), nullptr, /*allow_exceptions=*/false);
  if (!json.is_array() || json.size() != 2) return {};
  return {json[0].get<std::string>(), json[1].get<std::map<std::string, std::string>>()};
}

void SetReason(absl::Status& status, const ErrorReason& reason) {
  // Invalid UTF-8 is replaced: a reason may quote bytes that a stranger sent.
  status.SetPayload(
      kReasonUrl, absl::Cord(nlohmann::json::array({reason.reason, reason.metadata})
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), AbslView(std::string(context) + ": " + Message(status)));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

}  // namespace onepiece::base
