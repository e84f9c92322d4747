// The files that a job brings against its application's inputs: what a proxy does before it admits
// a job, and fused mode before it runs one. Nothing is decoded here.
#pragma once

#include <cstdint>

#include "cluster/base/status.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// Of one job, all inputs together. What reaches the entrance stages is bounded by their rings too:
/// a message takes at most half of a ring's capacity.
inline constexpr std::int64_t kMaxInputBytes = std::int64_t{64} << 20;
/// Of one input whose spec does not say.
inline constexpr std::int64_t kDefaultInputBytes = std::int64_t{32} << 20;
inline constexpr int kMaxInputs = 16;

/// Checks names, sizes and media types. Thread-safe, no I/O, microseconds whatever the size.
/// Errors: INVALID_ARGUMENT with reason INVALID_INPUTS; all violations are named at once, in the
/// message and as metadata {input, why}.
absl::Status CheckInputs(const v1::Workflow& workflow,
                         const google::protobuf::RepeatedPtrField<v1::JobInput>& given);

}  // namespace onepiece::workflow
