// The header that a stage author includes: Stage, StageContext and the plug-in entry point
// (docs/stage-authors.md).
//
// A stage is one step of a workflow. The runtime loads it from a shared object in
// lib/onepiece/stages, gives it a device and a model folder, and calls Run once for each job.
// Exceptions must not leave a stage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/ids.h"
#include "cluster/message/artifact.h"
#include "stages/sdk/collaboration.h"

namespace onepiece::sdk {

using message::Artifact;
using message::Parameters;

/// The inputs, outputs and parameters of a stage. Tools show them, and they are checked when a
/// workflow is put together.
struct StageInfo {
  std::string name;  ///< "vae_decode"
  std::string description;
  std::vector<std::string> inputs;           ///< Artifact names that Run needs.
  std::vector<std::string> optional_inputs;  ///< Artifact names that Run uses when they are there.
  std::vector<std::string> outputs;          ///< Artifact names that Run makes.
  std::vector<std::string> parameters;       ///< Job parameters that Run reads.
};

/// The device and the model that a stage is loaded with.
struct LoadOptions {
  std::string device = "cpu";  ///< "cpu" or "cuda:N".
  std::string model_dir;       ///< Model folder; empty for stages without weights.
  int threads = 1;  ///< Intra-op threads. It is always set, because sums depend on the count.
  std::string precision = "f32";  ///< The precision of products: "f32", "bf16" or "f16".
  /// How the workers of a group shall divide jobs, if the workflow says so.
  std::optional<ParallelPlan> plan = std::nullopt;
};

/// A number that a stage exports. It becomes onepiece_stage_NAME on the instance's metrics
/// endpoint.
struct StageMetric {
  std::string name;  ///< "conditioning_cache_hits_total"; lower case, with the unit at the end.
  std::string help;
  bool counter = false;  ///< A counter only grows and its name ends in _total. Otherwise a gauge.
  /// True for a number of the process, or of the plug-in in this process, which every object of the
  /// stage reports alike. Other numbers belong to one object, and those of an instance's workers
  /// are summed.
  bool of_process = false;
  double value = 0;
};

/// The runtime, as a running stage sees it. It is valid during one call of Run, on the calling
/// thread and on threads that Run joins before it returns.
class StageContext {
 public:
  virtual ~StageContext() = default;
  [[nodiscard]] virtual const base::Uid& uid() const = 0;
  /// Returns the job's parameters. They are valid by the application's schema, and defaults are
  /// filled in.
  [[nodiscard]] virtual const Parameters& parameters() const = 0;
  /// Reports that step `step` of `steps` is done (from 1), and returns whether to go on. After
  /// CANCELLED or DEADLINE_EXCEEDED, Run must return that status soon. It is cheap: call it at
  /// every step boundary.
  [[nodiscard]] virtual absl::Status Progress(int step, int steps) = 0;
  /// Returns whether to go on, within a step: for stages that wait.
  [[nodiscard]] virtual absl::Status Check() const { return absl::OkStatus(); }
  /// Makes the artifacts from which the computation can go on.
  using SaveState = std::function<absl::StatusOr<std::vector<Artifact>>()>;
  /// Does what Progress does, for a stage that can resume from this step. The runtime may call
  /// `save`, but only during this call. When the work is to go on elsewhere it returns ABORTED, and
  /// Run must return that status. A later Run of the same job, in any process, then finds the saved
  /// artifacts among its inputs.
  [[nodiscard]] virtual absl::Status Checkpoint(int step, int steps, const SaveState& save) {
    (void)save;
    return Progress(step, steps);
  }
  /// Returns with whom this worker computes the job from here on. The members may change at a
  /// Checkpoint, so a stage asks again after each; a worker that leaves gets ABORTED from its
  /// Checkpoint. Answers of Progress and Checkpoint are alike on all members.
  [[nodiscard]] virtual Collaboration collaboration() { return {}; }
};

/// One stage of a workflow, loaded with one model.
///
/// Threading: calls come from several threads, because an instance loads one model while it
/// computes with another. They never overlap, except those of Metrics.
class Stage {
 public:
  virtual ~Stage() = default;
  [[nodiscard]] virtual StageInfo Info() const = 0;
  /// Loads the weights.
  ///
  /// Errors: NOT_FOUND, INVALID_ARGUMENT (the files do not fit the stage), RESOURCE_EXHAUSTED (too
  /// little memory).
  virtual absl::Status Load(const LoadOptions& options) = 0;
  /// Computes one job. The runtime has checked that every input of Info() is present.
  ///
  /// Ownership: inputs are immutable views. Outputs own or share their bytes.
  /// Errors: INVALID_ARGUMENT (bad input), CANCELLED, DEADLINE_EXCEEDED, INTERNAL.
  virtual absl::StatusOr<std::vector<Artifact>> Run(StageContext& context,
                                                    const std::vector<Artifact>& inputs) = 0;
  /// Releases memory. The stage may be loaded again.
  virtual void Unload() = 0;
  /// Returns the stage's own metrics. It is called on any thread between Load and Unload, also
  /// during Run.
  [[nodiscard]] virtual std::vector<StageMetric> Metrics() const { return {}; }
};

class ModelTools;  // stages/sdk/model_tools.h

/// The contents of a plug-in file. It is one static object, and thread-safe.
class Plugin {
 public:
  virtual ~Plugin() = default;
  [[nodiscard]] virtual std::vector<StageInfo> Stages() const = 0;
  /// Returns nullptr when the plug-in has no stage of that name.
  [[nodiscard]] virtual std::unique_ptr<Stage> Create(std::string_view stage) const = 0;
  /// Returns the tools for this plug-in's model files (verify, inspect), or nullptr.
  [[nodiscard]] virtual const ModelTools* model_tools() const { return nullptr; }
};

/// The version of the binary interface. It grows whenever the binary form of anything in this
/// header or in model_tools.h changes.
inline constexpr int kPluginAbi = 4;
inline constexpr char kPluginEntryPoint[] = "onepiece_stage_plugin";

/// The value that the entry point returns. The runtime checks the ABI number before it touches
/// `plugin`.
struct PluginEntry {
  int abi = kPluginAbi;
  const Plugin* plugin = nullptr;
};

}  // namespace onepiece::sdk

/// Makes `PluginClass` the plug-in of this shared object. Use once, at namespace scope.
#define ONEPIECE_STAGE_PLUGIN(PluginClass)                                       \
  extern "C" __attribute__((visibility("default"))) ::onepiece::sdk::PluginEntry \
  onepiece_stage_plugin() {                                                      \
    static const PluginClass plugin;                                             \
    return {::onepiece::sdk::kPluginAbi, &plugin};                               \
  }
