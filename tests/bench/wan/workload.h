// The subject of a measurement: a component of a model and the inputs of one run. Both are on disk,
// so that every side reads the same bytes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::bench {

struct Workload {
  std::string name;         ///< "tiny_transformer": the COMPONENT of a row's name.
  std::string component;    ///< transformer, text_encode, vae_decode or vae_encode.
  std::string model_dir;    ///< A component folder.
  std::string inputs;       ///< A safetensors file.
  std::string description;  ///< For people.
};

/// Returns the workloads of the shipped tiny model and of a mid-size one with random weights.
/// Writes the latter and all inputs below `scratch`.
///
/// Errors: NOT_FOUND (the shipped models), INTERNAL (the disk).
absl::StatusOr<std::vector<Workload>> MakeWorkloads(const std::string& scratch);

}  // namespace onepiece::bench
