// Calculates how much work a job is in a stage, before anything of the job has been checked or
// decoded.
#pragma once

#include <vector>

#include "cluster/message/artifact.h"
#include "google/protobuf/struct.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// Returns the product of the parameters that `stage.cost` names, or 1 when it names none. With
/// `stage.cost_terms` it is the value of the term UnitTerm(stage). A parameter that is missing or
/// is not a number counts with the schema's default. Values are clamped to the schema's bounds, and
/// the result to [1e-9, 1e18].
///
/// Blocking: no I/O. Copies no parameters.
/// Errors: none. Never throws.
double WorkUnits(const v1::Workflow& workflow, const v1::StageSpec& stage,
                 const google::protobuf::Struct& given);
/// The same for the checked parameters of a message, in an instance.
double WorkUnits(const v1::Workflow& workflow, const v1::StageSpec& stage,
                 const message::Parameters& parameters);

/// Returns the values of the stage's cost terms, each as WorkUnits() returns its product, except
/// that a value may be 0. It is empty for a stage without cost terms.
std::vector<double> WorkTerms(const v1::Workflow& workflow, const v1::StageSpec& stage,
                              const google::protobuf::Struct& given);
std::vector<double> WorkTerms(const v1::Workflow& workflow, const v1::StageSpec& stage,
                              const message::Parameters& parameters);

/// The cost term that counts as the units of a job: the first one that names a parameter. Until the
/// terms' costs have been fitted, a job's cost goes by it alone. REQUIRES: the stage has cost
/// terms.
int UnitTerm(const v1::StageSpec& stage);

}  // namespace onepiece::workflow
