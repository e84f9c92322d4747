#include "cluster/base/status.h"

#include <charconv>
#include <limits>
#include <optional>

#include "absl/strings/cord.h"
#include "cluster/base/check.h"
#include "cluster/base/utf8.h"

namespace onepiece::base {
namespace {

// The payload: the reason, then keys and values, each as its length in bytes, ":" and its text.
// A refusal under overload writes and reads one: it must cost next to nothing.
constexpr char kReasonUrl[] = "onepiece/error_reason";

void Append(std::string& payload, std::string_view text) {
  // A reason may quote bytes that a stranger sent.
  const std::string clean = ToUtf8(text, std::numeric_limits<std::size_t>::max());
  payload += std::to_string(clean.size());
  payload += ':';
  payload += clean;
}

/// Takes the first text off `payload`; nothing when there is none.
std::optional<std::string> Take(std::string_view& payload) {
  std::size_t size = 0;
  const char* const end = payload.data() + payload.size();
  const auto [colon, error] = std::from_chars(payload.data(), end, size);
  if (error != std::errc() || colon == end || *colon != ':') return std::nullopt;
  payload.remove_prefix(static_cast<std::size_t>(colon + 1 - payload.data()));
  if (size > payload.size()) return std::nullopt;
  std::string text(payload.substr(0, size));
  payload.remove_prefix(size);
  return text;
}

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
  const std::string text(*payload);
  std::string_view rest(text);
  auto name = Take(rest);
  if (!name) return {};
  ErrorReason reason{*std::move(name), {}};
  while (!rest.empty()) {
    auto key = Take(rest), value = Take(rest);
    if (!key || !value) return {};
    reason.metadata.emplace_hint(reason.metadata.end(), *std::move(key), *std::move(value));
  }
  return reason;
}

void SetReason(absl::Status& status, const ErrorReason& reason) {
  std::string payload;
  Append(payload, reason.reason);
  for (const auto& [key, value] : reason.metadata) {
    Append(payload, key);
    Append(payload, value);
  }
  status.SetPayload(kReasonUrl, absl::Cord(std::move(payload)));
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
