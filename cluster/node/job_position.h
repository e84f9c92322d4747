// Where a job stands in a list of jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "onepiece/v1/generation.pb.h"

namespace onepiece::node {

/// The place of a job in lists, which are ordered by create_time (newest first), then uid
/// (ascending). A list's page token is the position of its last job, so that one token means the
/// same to every database.
struct JobPosition {
  std::int64_t create_unix_ns = 0;
  std::string uid;

  static JobPosition Of(const v1::Job& job);
  /// Returns nullopt when the token is malformed.
  static std::optional<JobPosition> Parse(std::string_view page_token);
  [[nodiscard]] std::string ToToken() const;
  /// Returns true when this comes before `other` in the list.
  [[nodiscard]] bool Before(const JobPosition& other) const;
};

}  // namespace onepiece::node
