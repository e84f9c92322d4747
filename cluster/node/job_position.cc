#include "cluster/node/job_position.h"

#include <charconv>

#include "cluster/base/ids.h"

namespace onepiece::node {

JobPosition JobPosition::Of(const v1::Job& job) {
  const google::protobuf::Timestamp& time = job.create_time();
  return {.create_unix_ns = time.seconds() * 1'000'000'000 + time.nanos(), .uid = job.uid()};
}

std::optional<JobPosition> JobPosition::Parse(std::string_view page_token) {
  // The search starts at 1, because a negative time begins with a dash of its own.
  const std::size_t dash = page_token.find('-', 1);
  if (dash == std::string_view::npos) return std::nullopt;
  JobPosition position;
  const char* const end = page_token.data() + dash;
  const auto [parsed_to, error] = std::from_chars(page_token.data(), end, position.create_unix_ns);
  if (error != std::errc() || parsed_to != end) return std::nullopt;
  const std::optional<base::Uid> uid = base::Uid::Parse(page_token.substr(dash + 1));
  if (!uid.has_value()) return std::nullopt;
  position.uid = uid->ToString();
  return position;
}

std::string JobPosition::ToToken() const { return std::to_string(create_unix_ns) + "-" + uid; }

bool JobPosition::Before(const JobPosition& other) const {
  if (create_unix_ns != other.create_unix_ns) return create_unix_ns > other.create_unix_ns;
  return uid < other.uid;
}

}  // namespace onepiece::node
