#include "cluster/config/config_changes.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"

namespace onepiece::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

// The field by which elements of a list are told apart. Null: they have no name.
const FieldDescriptor* NameField(const FieldDescriptor& list) {
  if (list.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || list.is_map()) return nullptr;
  static constexpr std::string_view kNames[] = {"app_id", "stage", "pool", "name"};
  for (const std::string_view name : kNames) {
    const FieldDescriptor* field = list.message_type()->FindFieldByName(std::string(name));
    if (field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
        !field->is_repeated()) {
      return field;
    }
  }
  return nullptr;
}

class Comparison {
 public:
  std::vector<v1::ConfigChange> Take() { return std::move(changes_); }

  void Messages(const std::string& path, const Message& before, const Message& after) {
    const google::protobuf::Descriptor& type = *before.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      Field(path.empty() ? field.name() : absl::StrCat(path, ".", field.name()), field, before,
            after);
    }
  }

 private:
  void Field(const std::string& path, const FieldDescriptor& field, const Message& before,
             const Message& after) {
    if (field.is_repeated()) {
      const FieldDescriptor* name = NameField(field);
      if (name != nullptr) {
        NamedElements(path, field, *name, before, after);
      } else {
        Add(path, Text(before, field), Text(after, field));
      }
      return;
    }
    const Reflection& reflection = *before.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Messages(path, reflection.GetMessage(before, &field), reflection.GetMessage(after, &field));
    } else {
      Add(path, Text(before, field), Text(after, field));
    }
  }

  void NamedElements(const std::string& path, const FieldDescriptor& field,
                     const FieldDescriptor& name, const Message& before, const Message& after) {
    std::map<std::string, std::pair<const Message*, const Message*>> elements;
    const Reflection& reflection = *before.GetReflection();
    for (int i = 0; i < reflection.FieldSize(before, &field); ++i) {
      const Message& element = reflection.GetRepeatedMessage(before, &field, i);
      elements[element.GetReflection()->GetString(element, &name)].first = &element;
    }
    for (int i = 0; i < reflection.FieldSize(after, &field); ++i) {
      const Message& element = reflection.GetRepeatedMessage(after, &field, i);
      elements[element.GetReflection()->GetString(element, &name)].second = &element;
    }
    for (const auto& [key, pair] : elements) {
      const std::string place = absl::StrCat(path, "[", base::ToUtf8(key, kMaxShownValue), "]");
      if (pair.first != nullptr && pair.second != nullptr) {
        Messages(place, *pair.first, *pair.second);
      } else {
        Add(place, pair.first == nullptr ? "" : pair.first->ShortDebugString(),
            pair.second == nullptr ? "" : pair.second->ShortDebugString());
      }
    }
  }

  // The value for people. Empty when the field is not set.
  static std::string Text(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    std::string text;
    if (!field.is_repeated()) {
      if (reflection.HasField(message, &field))
        TextFormat::PrintFieldValueToString(message, &field, -1, &text);
      return text;
    }
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      std::string element;
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        element = absl::StrCat(
            "{", reflection.GetRepeatedMessage(message, &field, i).ShortDebugString(), "}");
      } else {
        TextFormat::PrintFieldValueToString(message, &field, i, &element);
      }
      absl::StrAppend(&text, text.empty() ? "[" : ", ", element);
    }
    return text.empty() ? text : text + "]";
  }

  void Add(const std::string& path, const std::string& before, const std::string& after) {
    if (before == after) return;
    v1::ConfigChange& change = changes_.emplace_back();
    change.set_path(path);
    change.set_before(base::ToUtf8(before, kMaxShownValue));
    change.set_after(base::ToUtf8(after, kMaxShownValue));
  }

  std::vector<v1::ConfigChange> changes_;
};

}  // namespace

std::vector<std::string> ConfigSections() {
  std::vector<std::string> sections;
  const google::protobuf::Descriptor& type = *v1::ClusterConfig::descriptor();
  for (int i = 0; i < type.field_count(); ++i) sections.push_back(type.field(i)->name());
  return sections;
}

std::vector<std::string> SectionsOf(const v1::ClusterConfig& config) {
  std::vector<const FieldDescriptor*> fields;
  config.GetReflection()->ListFields(config, &fields);
  std::vector<std::string> sections;
  for (const FieldDescriptor* field : fields) sections.push_back(field->name());
  return sections;
}

absl::Status ReplaceSections(const v1::ClusterConfig& from,
                             const std::vector<std::string>& sections, v1::ClusterConfig& config) {
  std::vector<const FieldDescriptor*> fields;
  for (const std::string& section : sections) {
    fields.push_back(v1::ClusterConfig::descriptor()->FindFieldByName(section));
    if (fields.back() == nullptr) {
      return base::MakeError(
          absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
          absl::StrCat("'", base::ToUtf8(section, kMaxShownValue), "' is no section: ",
                       absl::StrJoin(ConfigSections(), ", "), " are"));
    }
  }
  v1::ClusterConfig kept = config, taken = from;
  const Reflection& reflection = *config.GetReflection();
  for (int i = 0; i < v1::ClusterConfig::descriptor()->field_count(); ++i) {
    const FieldDescriptor* field = v1::ClusterConfig::descriptor()->field(i);
    const bool replaced = std::ranges::find(fields, field) != fields.end();
    reflection.ClearField(replaced ? &kept : &taken, field);
  }
  kept.MergeFrom(taken);
  config = std::move(kept);
  return absl::OkStatus();
}

std::vector<v1::ConfigChange> ConfigChanges(const v1::ClusterConfig& before,
                                            const v1::ClusterConfig& after) {
  Comparison comparison;
  comparison.Messages("", before, after);
  return comparison.Take();
}

}  // namespace onepiece::config
