// Tools that a plug-in offers for its model files: what `onepiece verify` and `onepiece inspect`
// call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::sdk {

/// One recorded output against what this build computed.
struct OutputError {
  std::string name;
  double error = 0;      ///< ‖out − ref‖ / ‖ref‖, unless `metric` says otherwise.
  double tolerance = 0;  ///< Largest error that passes.
  std::string metric = "relative_error";
};

struct VerifyReport {
  std::string component;             ///< Class name, "scheduler", or "reference".
  std::vector<OutputError> outputs;  ///< Those compared, in file order.
  int total = 0;                     ///< Outputs recorded in the file.
  std::vector<std::string> skipped;  ///< Recorded outputs that were not compared.
  /// Every recorded output was compared and lies within its tolerance.
  [[nodiscard]] bool ok() const {
    if (static_cast<int>(outputs.size()) != total || total == 0) return false;
    for (const auto& output : outputs) {
      if (!(output.error <= output.tolerance)) return false;  // Not a NaN either.
    }
    return true;
  }
};

struct TensorGroup {
  std::string dtype;
  std::int64_t tensors = 0, parameters = 0, bytes = 0;
};

struct ComponentReport {
  std::string name;        ///< Folder name: "transformer".
  std::string class_name;  ///< From config.json.
  std::string stage;       ///< Stage that loads it, empty when none does.
  std::vector<TensorGroup> weights;
};

struct StageMemory {
  std::string stage;
  std::int64_t weight_bytes = 0;  ///< Held while the stage is loaded.
  std::int64_t activation_bytes =
      0;  ///< Estimated peak on top for one job of the model's default size.
};

struct InspectReport {
  std::string model;
  std::vector<ComponentReport> components;
  std::vector<StageMemory> stages;
  std::vector<std::string>
      problems;  ///< Files, names or shapes that do not fit the config, or `expect`.
};

/// What a plug-in says to a model: is it of its family?
enum class ModelClaim {
  kNotMine,  ///< The files name another family.
  kUnclear,  ///< They name none, or cannot be read: the tools say what is wrong with them.
  kMine,
};

/// Offered by a plug-in. Thread-safe.
class ModelTools {
 public:
  virtual ~ModelTools() = default;
  /// To the model or component in `dir`, or where `dir` is empty to the component that the file
  /// `expect` lists (as Inspect has it). Reads small JSON files only. The other functions are
  /// called for what is not kNotMine.
  [[nodiscard]] virtual ModelClaim Claim(const std::string& dir,
                                         const std::string& expect) const = 0;
  /// Runs the component in `dir` on the inputs recorded in its io.safetensors. `device`: "cpu" or
  /// "cuda:N".
  virtual absl::StatusOr<VerifyReport> Verify(const std::string& dir, double tolerance, int threads,
                                              const std::string& device) const = 0;
  /// Replays the generation recorded in `reference` from its prompt string and settings.
  virtual absl::StatusOr<VerifyReport> VerifyReference(const std::string& model_dir,
                                                       const std::string& reference, int threads,
                                                       const std::string& device) const = 0;
  /// Reads headers only, never weights. `expect`, unless empty, is a file that lists the config and
  /// the tensors of a published component (resources/models/published): then the folder's component
  /// of that class, or without a folder what this build asks of such a checkpoint, is held against
  /// it. One of the two may be empty.
  virtual absl::StatusOr<InspectReport> Inspect(const std::string& dir,
                                                const std::string& expect) const = 0;
  /// Of the component in `dir`: stages of one process hold components of the same hash once. Reads
  /// every byte.
  virtual absl::StatusOr<std::string> ContentHash(const std::string& dir) const = 0;
};

}  // namespace onepiece::sdk
