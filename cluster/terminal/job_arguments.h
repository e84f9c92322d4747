// The command line arguments that describe a job, for `submit` and `generate`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/terminal/job_inputs.h"
#include "google/protobuf/struct.pb.h"

namespace onepiece::terminal {

struct JobArguments {
  std::string app = "tiny-wan-t2v";
  std::optional<std::string> prompt, negative_prompt, format;
  std::optional<std::int64_t> seed, steps, frames, width, height, fps;
  std::optional<double> guidance;
  std::vector<std::string> more;     ///< "name=value"
  std::optional<std::string> image;  ///< The path of the input "image".
  std::vector<std::string> inputs;   ///< "name=path"
  double deadline_s = 0;
  std::string output;

  void AddTo(CLI::App& verb);
  /// Returns the parameters as the API takes them.
  ///
  /// Errors: INVALID_ARGUMENT.
  [[nodiscard]] absl::StatusOr<google::protobuf::Struct> Parameters() const;
  /// Reads the input files.
  ///
  /// Errors: those of ReadInputs.
  [[nodiscard]] absl::StatusOr<JobInputs> Inputs() const;
};

/// Returns the path for artifact `index` of `count`: "out.png" becomes "out_0003.png" when there
/// are several.
std::string NumberedPath(const std::string& path, std::size_t index, std::size_t count);

}  // namespace onepiece::terminal
