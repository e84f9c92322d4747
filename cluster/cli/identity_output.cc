#include "cluster/cli/identity_output.h"

#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cluster/base/status.h"
#include "cluster/terminal/exit_code.h"

namespace onepiece::cli {
namespace {

constexpr std::string_view kQuotaForm = "jobs=4,rate=2/s,worker-seconds=3600/h,bytes=10G, or none";

absl::Status BadQuota(std::string_view part, std::string_view why) {
  return terminal::UsageError(absl::StrCat("--quota: \"", base::AbslView(part.substr(0, 64)), "\" ",
                                           base::AbslView(why), " (", base::AbslView(kQuotaForm),
                                           ")"));
}

/// A number above 0. A quota of 0 reads as "nothing may be used" and would mean "no limit".
bool ReadLimit(absl::string_view text, double& limit) {
  return absl::SimpleAtod(text, &limit) && std::isfinite(limit) && limit > 0;
}

bool ReadBytes(absl::string_view text, double& bytes) {
  absl::ConsumeSuffix(&text, "iB") || absl::ConsumeSuffix(&text, "B");
  static constexpr absl::string_view kUnits = "KMGT";
  double factor = 1;
  if (!text.empty()) {
    const std::size_t unit = kUnits.find(text.back());
    if (unit != absl::string_view::npos) {
      factor = std::pow(1024.0, static_cast<double>(unit + 1));
      text.remove_suffix(1);
    }
  }
  if (!ReadLimit(text, bytes)) return false;
  bytes *= factor;
  return bytes >= 1 && bytes < 9e18;
}

absl::Status ReadPart(absl::string_view part, v1::Quota& quota) {
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(part, absl::MaxSplits('=', 1));
  auto [key, value] = pair;
  double limit = 0;
  bool good = false;
  if (key == "jobs") {
    std::int32_t jobs = 0;
    good = absl::SimpleAtoi(value, &jobs) && jobs > 0;
    quota.set_jobs_in_flight(jobs);
  } else if (key == "rate") {
    absl::ConsumeSuffix(&value, "/s");
    good = ReadLimit(value, limit);
    quota.set_jobs_per_s(limit);
  } else if (key == "worker-seconds") {
    absl::ConsumeSuffix(&value, "/h");
    good = ReadLimit(value, limit);
    quota.set_worker_seconds_per_h(limit);
  } else if (key == "bytes") {
    good = ReadBytes(value, limit);
    quota.set_stored_bytes(good ? static_cast<std::int64_t>(limit) : 0);
  } else {
    return BadQuota(base::View(part), "is no limit");
  }
  return good ? absl::OkStatus() : BadQuota(base::View(part), "needs a number above 0");
}

}  // namespace

absl::StatusOr<v1::Quota> ParseQuota(std::string_view text) {
  v1::Quota quota;
  if (text == "none") return quota;
  for (const absl::string_view part : absl::StrSplit(base::AbslView(text), ','))
    ONEPIECE_RETURN_IF_ERROR(ReadPart(part, quota));
  return quota;
}

std::string QuotaText(const v1::Quota& quota) {
  std::vector<std::string> parts;
  if (quota.jobs_in_flight() > 0) parts.push_back(absl::StrCat("jobs=", quota.jobs_in_flight()));
  if (quota.jobs_per_s() > 0) parts.push_back(absl::StrCat("rate=", quota.jobs_per_s(), "/s"));
  if (quota.worker_seconds_per_h() > 0)
    parts.push_back(absl::StrCat("worker-seconds=", quota.worker_seconds_per_h(), "/h"));
  if (quota.stored_bytes() > 0) {
    std::int64_t bytes = quota.stored_bytes();
    std::string unit;
    for (const char* larger : {"K", "M", "G", "T"}) {
      if (bytes % 1024 != 0) break;
      bytes /= 1024;
      unit = larger;
    }
    parts.push_back(absl::StrCat("bytes=", bytes, unit));
  }
  return parts.empty() ? "none" : absl::StrJoin(parts, ",");
}

Json QuotaDocument(const v1::Quota& quota) {
  const auto limit = [](auto value) { return value > 0 ? Json(value) : Json(nullptr); };
  return {{"jobs", limit(quota.jobs_in_flight())},
          {"jobs_per_s", limit(quota.jobs_per_s())},
          {"worker_seconds_per_h", limit(quota.worker_seconds_per_h())},
          {"bytes", limit(quota.stored_bytes())}};
}

std::string JoinLine(const std::string& address, const std::string& token) {
  return absl::StrCat("onepiece join ", address, " --token ", token);
}

}  // namespace onepiece::cli
