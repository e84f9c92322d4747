#include "cluster/config/watched.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cluster/base/utf8.h"
#include "cluster/config/alert_rules.h"
#include "cluster/config/suggest.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/node_manager.pb.h"
#include "onepiece/v1/recording.pb.h"

namespace onepiece::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// A type is entered once, so that one which contains itself ends.
void AddNumbers(const Descriptor& type, std::set<const Descriptor*>& seen,
                std::set<std::string>& names) {
  if (!seen.insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_map()) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AddNumbers(*field.message_type(), seen, names);
    } else if (IsSeriesNumber(field)) {
      names.insert(field.name());
    }
  }
}

// The messages that hold the numbers of a kind, as the recording takes them apart.
std::vector<const Descriptor*> TypesOf(std::string_view kind) {
  if (kind == "node/")
    return {v1::NodeLoad::descriptor(), google::protobuf::Timestamp::descriptor()};
  if (kind == "ring/") return {v1::RecordedRing::descriptor()};
  if (kind == "pool/") return {v1::PoolStatus::descriptor()};
  if (kind == "database/") return {v1::RecordedDatabase::descriptor()};
  if (kind == "replica/") return {v1::RecordedReplica::descriptor()};
  if (kind == "part/") return {v1::RecordedParts::descriptor()};
  return {};
}

absl::Status CheckSeries(const v1::AlertRule& rule) {
  const std::string& watches = rule.watches();
  const auto kind = std::ranges::find_if(
      kSeriesKinds, [&](std::string_view each) { return watches.starts_with(each); });
  if (kind == kSeriesKinds.end()) {
    const std::vector<std::string> kinds(kSeriesKinds.begin(), kSeriesKinds.end());
    return BadRule(rule.name(), "watches",
                   absl::StrCat("a series like node/*/utilization: ", absl::StrJoin(kinds, ", "),
                                " come first"));
  }
  // Elements of a list of numbers end with their index.
  const std::vector<std::string> words = absl::StrSplit(watches, '/');
  const std::vector<std::string> known = SeriesOfKind(*kind);
  for (const std::size_t back : {1, 2}) {
    if (words.size() > back && std::ranges::binary_search(known, words[words.size() - back]))
      return absl::OkStatus();
  }
  return BadRule(rule.name(), "watches",
                 absl::StrCat("no series of ", std::string(*kind), " ends with ",
                              Quote(words.back()), Suggest(words.back(), known)));
}

}  // namespace

bool IsSeriesNumber(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return !IsOneOf(field.name(),
                      {"producer_id", "incarnation", "pid", "generation", "admissions", "replica",
                       "group", "version", "common_version"});
    case FieldDescriptor::CPPTYPE_BOOL:
      return field.name() == "sleeping";  // Other booleans say what a thing is.
    default:
      return false;
  }
}

bool IsLeftOutOfSeriesNames(const FieldDescriptor& field) {
  return IsOneOf(field.name(), {"load", "health", "rates", "database", "status", "parts"});
}

std::vector<std::string> SeriesOfKind(std::string_view kind) {
  if (kind == "jobs/") return {"queued", "running"};
  std::set<const Descriptor*> seen;
  std::set<std::string> names;
  for (const Descriptor* type : TypesOf(kind)) AddNumbers(*type, seen, names);
  return {names.begin(), names.end()};
}

absl::Status CheckWatches(const v1::AlertRule& rule) {
  const bool is_condition =
      std::ranges::find(kAlertConditions, rule.watches()) != kAlertConditions.end();
  if (rule.has_above() || rule.has_below()) {
    if (!is_condition) return CheckSeries(rule);
    return BadRule(rule.name(), "watches",
                   "a condition holds or not: above and below are for series");
  }
  if (is_condition) return absl::OkStatus();
  const std::vector<std::string> known(kAlertConditions.begin(), kAlertConditions.end());
  return BadRule(rule.name(), "watches",
                 absl::StrCat("one of ", absl::StrJoin(known, ", "),
                              ", or a series with above or below", Suggest(rule.watches(), known)));
}

}  // namespace onepiece::config
