// What is measured: a component of a model, the inputs of one run, and both written to disk so that
// every side reads the same bytes.
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

/// The shipped tiny model and a mid-size one of random weights, which is written below `scratch`
/// together with all inputs.
/// Errors: NOT_FOUND (the shipped models), INTERNAL (the disk).
absl::StatusOr<std::vector<Workload>> MakeWorkloads(const std::string& scratch);

}  // namespace onepiece::bench
