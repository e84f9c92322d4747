#include "cluster/workflow/work_units.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <variant>

namespace onepiece::workflow {
namespace {

constexpr double kMinUnits = 1e-9;
constexpr double kMaxUnits = 1e18;

double DefaultFactor(const v1::ParameterSpec& spec) {
  const std::string& text = spec.default_value();
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::isfinite(value) ? value : 0;
}

double Bounded(const v1::ParameterSpec& spec, double value) {
  const bool bounded = spec.minimum() != 0 || spec.maximum() != 0;
  return bounded ? std::min(std::max(value, spec.minimum()), spec.maximum()) : value;
}

using Factors = google::protobuf::RepeatedPtrField<std::string>;

// `given` returns the job's number for a parameter, or nullopt.
template <typename Given>
double Product(const v1::Workflow& workflow, const Factors& factors, double least,
               const Given& given) {
  double product = 1;
  for (const std::string& name : factors) {
    const auto& specs = workflow.parameters();
    const auto spec = std::ranges::find(specs, name, &v1::ParameterSpec::name);
    if (spec == specs.end()) continue;  // CheckWorkflow refuses it.
    const std::optional<double> value = given(name);
    product *= Bounded(*spec, value && std::isfinite(*value) ? *value : DefaultFactor(*spec));
  }
  // The product is NaN after an overflow to infinity times zero. The comparison is false then, and
  // such a job counts as no work.
  return product > least ? std::min(product, kMaxUnits) : least;
}

template <typename Given>
double Units(const v1::Workflow& workflow, const v1::StageSpec& stage, const Given& given) {
  const Factors& factors =
      stage.cost_terms().empty() ? stage.cost() : stage.cost_terms(UnitTerm(stage)).factors();
  return Product(workflow, factors, kMinUnits, given);
}

template <typename Given>
std::vector<double> Terms(const v1::Workflow& workflow, const v1::StageSpec& stage,
                          const Given& given) {
  std::vector<double> terms;
  for (const v1::CostTerm& term : stage.cost_terms())
    terms.push_back(Product(workflow, term.factors(), 0, given));
  return terms;
}

auto NumbersOf(const google::protobuf::Struct& given) {
  return [&given](const std::string& name) -> std::optional<double> {
    const auto found = given.fields().find(name);
    if (found == given.fields().end() || !found->second.has_number_value()) return std::nullopt;
    return found->second.number_value();
  };
}

auto NumbersOf(const message::Parameters& parameters) {
  return [&parameters](const std::string& name) -> std::optional<double> {
    const auto found = parameters.find(name);
    if (found == parameters.end()) return std::nullopt;
    if (const auto* whole = std::get_if<std::int64_t>(&found->second))
      return static_cast<double>(*whole);
    const auto* number = std::get_if<double>(&found->second);
    return number == nullptr ? std::nullopt : std::optional(*number);
  };
}

}  // namespace

double WorkUnits(const v1::Workflow& workflow, const v1::StageSpec& stage,
                 const google::protobuf::Struct& given) {
  return Units(workflow, stage, NumbersOf(given));
}

double WorkUnits(const v1::Workflow& workflow, const v1::StageSpec& stage,
                 const message::Parameters& parameters) {
  return Units(workflow, stage, NumbersOf(parameters));
}

std::vector<double> WorkTerms(const v1::Workflow& workflow, const v1::StageSpec& stage,
                              const google::protobuf::Struct& given) {
  return Terms(workflow, stage, NumbersOf(given));
}

std::vector<double> WorkTerms(const v1::Workflow& workflow, const v1::StageSpec& stage,
                              const message::Parameters& parameters) {
  return Terms(workflow, stage, NumbersOf(parameters));
}

int UnitTerm(const v1::StageSpec& stage) {
  for (int i = 0; i < stage.cost_terms_size(); ++i) {
    if (!stage.cost_terms(i).factors().empty()) return i;
  }
  return 0;
}

}  // namespace onepiece::workflow
