// Tools that a plug-in offers for its model files. `onepiece verify` and `onepiece inspect` call
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::sdk {

/// The difference between one recorded output and the output of this build.
struct OutputError {
  std::string name;
  double error = 0;      ///< ‖out − ref‖ / ‖ref‖, unless `metric` says otherwise.
  double tolerance = 0;  ///< The largest error that passes.
  std::string metric = "relative_error";
};

struct VerifyReport {
  std::string component;             ///< Class name, "scheduler", or "reference".
  std::vector<OutputError> outputs;  ///< The compared outputs, in file order.
  int total = 0;                     ///< The number of outputs in the file.
  std::vector<std::string> skipped;  ///< Recorded outputs that were not compared.
  /// Returns whether every recorded output was compared and lies within its tolerance.
  [[nodiscard]] bool ok() const {
    if (static_cast<int>(outputs.size()) != total || total == 0) return false;
    for (const auto& output : outputs) {
      if (!(output.error <= output.tolerance)) return false;  // A NaN fails too.
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
  std::string stage;       ///< The stage that loads it; empty when none does.
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

/// Whether a model belongs to a plug-in's family.
enum class ModelClaim {
  kNotMine,  ///< The files name another family.
  kUnclear,  ///< They name none or cannot be read. The tools report what is wrong with them.
  kMine,
};

/// Offered by a plug-in. Thread-safe.
class ModelTools {
 public:
  virtual ~ModelTools() = default;
  /// Returns whether the model or component in `dir` belongs to the plug-in's family. If `dir` is
  /// empty, the question is about the component that the file `expect` lists (see Inspect). Reads
  /// only small JSON files. The other functions are not called for a model that is kNotMine.
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
  /// Describes a model. It reads only headers, never weights. `expect`, unless empty, is a file
  /// that lists the config and the tensors of a published component (resources/models/published).
  /// The list is compared with the folder's component of that class, or without a folder with what
  /// this build requires of such a checkpoint. One of the two may be empty.
  virtual absl::StatusOr<InspectReport> Inspect(const std::string& dir,
                                                const std::string& expect) const = 0;
  /// Returns the hash of the component in `dir`. The stages of one process hold components with the
  /// same hash only once. Reads every byte.
  virtual absl::StatusOr<std::string> ContentHash(const std::string& dir) const = 0;
};

}  // namespace onepiece::sdk
