#include "cluster/workflow/workflow_check.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "cluster/workflow/graph.h"
#include "cluster/workflow/input_check.h"

namespace onepiece::workflow {
namespace {

constexpr int kMaxStages = 64;
// The record of every job has a holder for each edge.
constexpr int kMaxEdges = 128;
constexpr int kMaxParameters = 256;
constexpr int kMaxMediaTypes = 32;
constexpr int kMaxThreads = 1024;
constexpr int kMaxSequence = 64;
constexpr int kMaxInstances = 4096;
constexpr std::int64_t kMaxDeviceMemory = std::int64_t{1} << 44;
// Factors of StageSpec.cost.
constexpr int kMaxFactors = 16;
// Those of one StageSpec.cost_terms.
constexpr int kMaxTermFactors = 8;
constexpr int kMaxTerms = 4;
constexpr int kMaxSeconds = 30 * 24 * 3600;
constexpr int kMaxRetries = 20;  // Below the largest number of attempts of any work.
constexpr std::int64_t kMaxStringBytes = 65536;
// Parameters travel as doubles (google.protobuf.Struct), which are exact for integers up to here.
constexpr double kMaxInteger = 9007199254740991.0;

absl::Status Bad(std::string field, std::string_view message) {
  std::string text = absl::StrCat(field, ": ", std::string(message));
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_WORKFLOW", text,
                         {{"field", std::move(field)}});
}

// A name has 1 to 63 characters: lower-case letters, digits and the characters of `others`. It
// begins with a letter or a digit.
bool IsName(const std::string& text, std::string_view others) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && text.size() <= 63 && plain(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return plain(c) || others.find(c) != std::string_view::npos; });
}

absl::Status CheckParallel(const std::string& field, const v1::StageSpec& stage) {
  if (!stage.has_parallel()) return absl::OkStatus();
  if (stage.mode() != v1::MODE_COLLABORATION)
    return Bad(field, "only in collaboration mode: say mode: collaboration too");
  if (stage.parallel().cfg() < 0 || stage.parallel().cfg() > 2)
    return Bad(field + ".cfg", "1, or 2 (a worker for each branch of guidance)");
  if (stage.parallel().sequence() < 0 || stage.parallel().sequence() > kMaxSequence)
    return Bad(field + ".sequence", absl::StrCat("1 to ", kMaxSequence));
  return absl::OkStatus();
}

absl::Status CheckStage(const std::string& field, const v1::StageSpec& stage) {
  if (!IsName(stage.stage(), "_-")) {
    return Bad(field + ".stage", "1 to 63 lower-case letters, digits, '_' or '-'");
  }
  // The name becomes part of a path that instances load code from.
  if (!IsName(stage.plugin(), "_-")) {
    return Bad(field + ".plugin",
               "1 to 63 lower-case letters, digits, '_' or '-' (a name, not a path)");
  }
  if (stage.model().size() > 4096) return Bad(field + ".model", "at most 4096 bytes");
  if (!v1::Mode_IsValid(stage.mode())) return Bad(field + ".mode", "unknown value");
  ONEPIECE_RETURN_IF_ERROR(CheckParallel(field + ".parallel", stage));
  if (stage.min_instances() < 0 || stage.min_instances() > kMaxInstances) {
    return Bad(field + ".min_instances", absl::StrCat("0 to ", kMaxInstances));
  }
  if (stage.max_instances() < 0 || stage.max_instances() > kMaxInstances) {
    return Bad(field + ".max_instances", absl::StrCat("0 to ", kMaxInstances));
  }
  if (stage.max_instances() != 0 && stage.max_instances() < stage.min_instances()) {
    return Bad(field + ".max_instances", "below min_instances");
  }
  if (!stage.pool().empty() && !IsName(stage.pool(), "_-.")) {
    return Bad(field + ".pool", "1 to 63 lower-case letters, digits, '_', '-' or '.'");
  }
  if (constexpr std::array kPrecisions = {"", "f32", "bf16", "f16"};
      std::find(kPrecisions.begin(), kPrecisions.end(), stage.precision()) == kPrecisions.end()) {
    return Bad(field + ".precision", "f32 (default), bf16 or f16");
  }
  if (!IsDeviceKind(stage.device()))
    return Bad(field + ".device", "cpu, cuda, or none (any device)");
  if (stage.device_memory_bytes() < 0 || stage.device_memory_bytes() > kMaxDeviceMemory) {
    return Bad(field + ".device_memory_bytes", absl::StrCat("0 (any) to ", kMaxDeviceMemory));
  }
  if (stage.threads() < 0 || stage.threads() > kMaxThreads) {
    return Bad(field + ".threads", absl::StrCat("0 to ", kMaxThreads));
  }
  return absl::OkStatus();
}

template <typename Number>
bool ParseAll(const std::string& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

absl::Status CheckNumberDefault(const std::string& field, const v1::ParameterSpec& spec) {
  const std::string& text = spec.default_value();
  double value = 0;
  if (spec.type() == v1::ParameterSpec::INTEGER) {
    std::int64_t whole = 0;
    if (!ParseAll(text, whole)) return Bad(field, absl::StrCat("'", text, "' is not an integer"));
    value = static_cast<double>(whole);
    if (std::abs(value) > kMaxInteger) return Bad(field, "integers beyond 2^53-1 cannot travel");
    if (spec.multiple_of() != 0 && (whole - spec.multiple_offset()) % spec.multiple_of() != 0) {
      return Bad(field, absl::StrCat(text, " is not a multiple of ", spec.multiple_of(), " plus ",
                                     spec.multiple_offset()));
    }
  } else if (!ParseAll(text, value) || !std::isfinite(value)) {
    return Bad(field, absl::StrCat("'", text, "' is not a number"));
  }
  const bool bounded = spec.minimum() != 0 || spec.maximum() != 0;
  if (bounded && (value < spec.minimum() || value > spec.maximum())) {
    return Bad(field,
               absl::StrCat(text, " is not within ", spec.minimum(), " to ", spec.maximum()));
  }
  return absl::OkStatus();
}

absl::Status CheckStringParameter(const std::string& field, const v1::ParameterSpec& spec) {
  if (spec.minimum() != 0 || spec.maximum() != 0)
    return Bad(field + ".minimum", "a string has no bounds");
  if (spec.max_bytes() < 0 || spec.max_bytes() > kMaxStringBytes) {
    return Bad(field + ".max_bytes", absl::StrCat("0 to ", kMaxStringBytes));
  }
  const auto limit =
      static_cast<std::size_t>(spec.max_bytes() == 0 ? kMaxStringBytes : spec.max_bytes());
  if (spec.default_value().size() > limit)
    return Bad(field + ".default_value", "longer than max_bytes");
  const auto& allowed = spec.allowed_values();
  if (std::set<std::string>(allowed.begin(), allowed.end()).size() !=
      static_cast<std::size_t>(allowed.size())) {
    return Bad(field + ".allowed_values", "a value is named twice");
  }
  if (!allowed.empty() && !spec.required() &&
      std::find(allowed.begin(), allowed.end(), spec.default_value()) == allowed.end()) {
    return Bad(field + ".default_value",
               absl::StrCat("'", spec.default_value(), "' is not an allowed value"));
  }
  return absl::OkStatus();
}

absl::Status CheckNumberParameter(const std::string& field, const v1::ParameterSpec& spec) {
  if (!std::isfinite(spec.minimum()) || !std::isfinite(spec.maximum()) ||
      spec.minimum() > spec.maximum()) {
    return Bad(field + ".minimum", "not below maximum");
  }
  if (spec.type() == v1::ParameterSpec::INTEGER) {
    if (std::max(std::abs(spec.minimum()), std::abs(spec.maximum())) > kMaxInteger) {
      return Bad(field + ".maximum", "integers beyond 2^53-1 cannot travel");
    }
    if (spec.multiple_of() < 0 || static_cast<double>(spec.multiple_of()) > kMaxInteger) {
      return Bad(field + ".multiple_of", "0 to 2^53-1");
    }
    if (spec.multiple_offset() < 0 ||
        spec.multiple_offset() >= std::max<std::int64_t>(1, spec.multiple_of())) {
      return Bad(field + ".multiple_offset", "not within 0 to multiple_of - 1");
    }
  } else if (spec.multiple_of() != 0 || spec.multiple_offset() != 0) {
    return Bad(field + ".multiple_of", "for integers only");
  }
  if (spec.default_value().empty()) {
    return spec.required()
               ? absl::OkStatus()
               : Bad(field + ".default_value", "a parameter that is not required needs one");
  }
  return CheckNumberDefault(field + ".default_value", spec);
}

absl::Status CheckParameter(const std::string& field, const v1::ParameterSpec& spec) {
  if (!IsName(spec.name(), "_"))
    return Bad(field + ".name", "1 to 63 lower-case letters, digits or '_'");
  if (spec.description().size() > 4096) return Bad(field + ".description", "at most 4096 bytes");
  if (spec.required() && !spec.default_value().empty()) {
    return Bad(field + ".default_value", "a required parameter has none");
  }
  const bool text = spec.type() == v1::ParameterSpec::STRING;
  if (!text && (spec.max_bytes() != 0 || !spec.allowed_values().empty())) {
    return Bad(field + (spec.max_bytes() != 0 ? ".max_bytes" : ".allowed_values"),
               "for strings only");
  }
  switch (spec.type()) {
    case v1::ParameterSpec::STRING:
      return CheckStringParameter(field, spec);
    case v1::ParameterSpec::INTEGER:
    case v1::ParameterSpec::NUMBER:
      return CheckNumberParameter(field, spec);
    case v1::ParameterSpec::BOOLEAN:
      if (spec.required() || spec.default_value() == "true" || spec.default_value() == "false") {
        return absl::OkStatus();
      }
      return Bad(field + ".default_value", "true or false");
    default:
      return Bad(field + ".type", "STRING, INTEGER, NUMBER or BOOLEAN");
  }
}

/// A media type is "type/subtype", each of lower-case letters, digits and the marks that registered
/// types have.
bool IsMediaType(const std::string& text) {
  const auto slash = text.find('/');
  return slash != std::string::npos && IsName(text.substr(0, slash), "-+.") &&
         IsName(text.substr(slash + 1), "-+.");
}

absl::Status CheckInput(const std::string& field, const v1::InputSpec& spec) {
  // The name becomes the name of an artifact, and a word on the command line.
  if (!IsName(spec.name(), "_"))
    return Bad(field + ".name", "1 to 63 lower-case letters, digits or '_'");
  if (spec.description().size() > 4096) return Bad(field + ".description", "at most 4096 bytes");
  if (spec.max_bytes() < 0 || spec.max_bytes() > kMaxInputBytes)
    return Bad(field + ".max_bytes", absl::StrCat("0 to ", kMaxInputBytes));
  if (spec.media_types_size() > kMaxMediaTypes)
    return Bad(field + ".media_types", absl::StrCat("at most ", kMaxMediaTypes));
  for (const std::string& type : spec.media_types()) {
    if (!IsMediaType(type))
      return Bad(field + ".media_types", absl::StrCat("'", type, "' is not like image/png"));
  }
  return absl::OkStatus();
}

absl::Status CheckInputSpecs(const v1::Workflow& workflow) {
  if (workflow.inputs_size() > kMaxInputs)
    return Bad("inputs", absl::StrCat("at most ", kMaxInputs));
  std::set<std::string> names;
  for (int i = 0; i < workflow.inputs_size(); ++i) {
    const std::string field = absl::StrCat("inputs[", i, "]");
    ONEPIECE_RETURN_IF_ERROR(CheckInput(field, workflow.inputs(i)));
    if (!names.insert(workflow.inputs(i).name()).second)
      return Bad(field + ".name", absl::StrCat("'", workflow.inputs(i).name(), "' is there twice"));
  }
  return absl::OkStatus();
}

// Checks that `after` makes one graph of the stages, with no cycle, no dead end and a single end.
// REQUIRES: stage names are unique.
absl::Status CheckOrder(const v1::Workflow& workflow) {
  std::set<std::string> earlier;
  for (int i = 0; i < workflow.stages_size(); ++i) {
    const v1::StageSpec& spec = workflow.stages(i);
    std::set<std::string> named;
    for (int k = 0; k < spec.after_size(); ++k) {
      const std::string field = absl::StrCat("stages[", i, "].after[", k, "]");
      if (!earlier.contains(spec.after(k))) {
        return Bad(field, absl::StrCat("'", spec.after(k), "' is not an earlier stage"));
      }
      if (!named.insert(spec.after(k)).second)
        return Bad(field, absl::StrCat("'", spec.after(k), "' is named twice"));
    }
    earlier.insert(spec.stage());
  }
  const Graph graph(workflow);
  int edges = 0;
  for (int i = 0; i < workflow.stages_size(); ++i) {
    const std::string& stage = workflow.stages(i).stage();
    edges += std::max(1, static_cast<int>(graph.Predecessors(stage).size()));
    if (i + 1 < workflow.stages_size() && graph.Successors(stage).empty()) {
      return Bad(absl::StrCat("stages[", i, "].stage"),
                 absl::StrCat("no later stage names '", stage,
                              "' in its 'after': only the last stage may be an end"));
    }
  }
  if (edges > kMaxEdges) {
    return Bad("stages", absl::StrCat("at most ", kMaxEdges, " names in 'after' together"));
  }
  return absl::OkStatus();
}

// Checks that `cost` and `cost_terms` name numeric parameters.
// REQUIRES: the parameters are good.
absl::Status CheckCosts(const v1::Workflow& workflow) {
  const auto is_number = [&](const std::string& name) {
    return std::ranges::any_of(workflow.parameters(), [&](const v1::ParameterSpec& spec) {
      return spec.name() == name && (spec.type() == v1::ParameterSpec::INTEGER ||
                                     spec.type() == v1::ParameterSpec::NUMBER);
    });
  };
  for (int i = 0; i < workflow.stages_size(); ++i) {
    const v1::StageSpec& stage = workflow.stages(i);
    const std::string field = absl::StrCat("stages[", i, "].cost");
    const auto check = [&](const std::string& name, const auto& factors, int most) -> absl::Status {
      if (factors.size() > most) return Bad(name, absl::StrCat("at most ", most));
      for (int k = 0; k < factors.size(); ++k) {
        if (is_number(factors.Get(k))) continue;
        return Bad(absl::StrCat(name, "[", k, "]"),
                   absl::StrCat("'", factors.Get(k), "' is not an INTEGER or NUMBER parameter"));
      }
      return absl::OkStatus();
    };
    ONEPIECE_RETURN_IF_ERROR(check(field, stage.cost(), kMaxFactors));
    const std::string terms = field + "_terms";
    if (!stage.cost().empty() && !stage.cost_terms().empty())
      return Bad(terms, "a stage has either cost or cost_terms: remove one of them");
    if (stage.cost_terms_size() > kMaxTerms) return Bad(terms, absl::StrCat("at most ", kMaxTerms));
    for (int k = 0; k < stage.cost_terms_size(); ++k) {
      ONEPIECE_RETURN_IF_ERROR(check(absl::StrCat(terms, "[", k, "].factors"),
                                     stage.cost_terms(k).factors(), kMaxTermFactors));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsDeviceKind(std::string_view kind) { return kind.empty() || kind == "cpu" || kind == "cuda"; }

absl::Status CheckWorkflow(const v1::Workflow& workflow) {
  if (!IsName(workflow.app_id(), "-"))
    return Bad("app_id", "1 to 63 lower-case letters, digits or '-'");
  if (workflow.display_name().size() > 256) return Bad("display_name", "at most 256 bytes");
  if (workflow.stages().empty()) return Bad("stages", "at least one");
  if (workflow.stages_size() > kMaxStages)
    return Bad("stages", absl::StrCat("at most ", kMaxStages));
  if (workflow.parameters_size() > kMaxParameters)
    return Bad("parameters", absl::StrCat("at most ", kMaxParameters));
  if (workflow.default_deadline_s() < 0 || workflow.default_deadline_s() > kMaxSeconds) {
    return Bad("default_deadline_s", absl::StrCat("0 to ", kMaxSeconds));
  }
  if (workflow.result_ttl_s() < 0 || workflow.result_ttl_s() > kMaxSeconds) {
    return Bad("result_ttl_s", absl::StrCat("0 to ", kMaxSeconds));
  }
  if (workflow.retries() < 0 || workflow.retries() > kMaxRetries)
    return Bad("retries", absl::StrCat("0 to ", kMaxRetries));
  std::set<std::string> names;
  for (int i = 0; i < workflow.stages_size(); ++i) {
    const std::string field = absl::StrCat("stages[", i, "]");
    ONEPIECE_RETURN_IF_ERROR(CheckStage(field, workflow.stages(i)));
    if (!names.insert(workflow.stages(i).stage()).second) {
      return Bad(field + ".stage",
                 absl::StrCat("'", workflow.stages(i).stage(), "' is there twice"));
    }
  }
  ONEPIECE_RETURN_IF_ERROR(CheckOrder(workflow));
  names.clear();
  for (int i = 0; i < workflow.parameters_size(); ++i) {
    const std::string field = absl::StrCat("parameters[", i, "]");
    ONEPIECE_RETURN_IF_ERROR(CheckParameter(field, workflow.parameters(i)));
    if (!names.insert(workflow.parameters(i).name()).second) {
      return Bad(field + ".name",
                 absl::StrCat("'", workflow.parameters(i).name(), "' is there twice"));
    }
  }
  ONEPIECE_RETURN_IF_ERROR(CheckCosts(workflow));
  return CheckInputSpecs(workflow);
}

}  // namespace onepiece::workflow
