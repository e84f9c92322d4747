// Checks the files that a job brings against its application's inputs. A proxy does this before it
// admits a job, and fused mode before it runs one. Nothing is decoded here.
#pragma once

#include <cstdint>

#include "cluster/base/status.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// The limit of one job's inputs together. The rings of the entrance stages bound them too: a
/// message takes at most half of a ring's capacity.
inline constexpr std::int64_t kMaxInputBytes = std::int64_t{64} << 20;
/// The limit of one input whose spec does not name one.
inline constexpr std::int64_t kDefaultInputBytes = std::int64_t{32} << 20;
inline constexpr int kMaxInputs = 16;

/// Checks names, sizes and media types.
///
/// Threading: may be called from any thread.
/// Blocking: no I/O; takes microseconds, whatever the inputs' sizes.
/// Errors: INVALID_ARGUMENT (INVALID_INPUTS), which names all violations at once in its message and
/// as metadata {input, why}.
absl::Status CheckInputs(const v1::Workflow& workflow,
                         const google::protobuf::RepeatedPtrField<v1::JobInput>& given);

}  // namespace onepiece::workflow
