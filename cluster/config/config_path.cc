#include "cluster/config/config_path.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/config/config_changes.h"
#include "cluster/config/suggest.h"
#include "cluster/config/yaml.h"
#include "cluster/config/yaml_writer.h"
#include "google/protobuf/descriptor.h"

namespace onepiece::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// One step of a path: "stages" or "stages[diffusion]".
struct Step {
  std::string field;
  std::optional<std::string> element;
};

absl::Status KeyUnknown(std::string_view path, const std::string& what) {
  return base::MakeError(absl::StatusCode::kNotFound, "KEY_UNKNOWN",
                         absl::StrCat(Quote(path), ": ", what));
}

absl::Status BadValue(std::string_view path, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                         absl::StrCat(Quote(path), ": ", what));
}

// Names of elements may have dots, and anything but ']'.
absl::StatusOr<std::vector<Step>> ReadSteps(std::string_view path) {
  std::vector<Step> steps;
  for (std::string_view rest = path;;) {
    Step& step = steps.emplace_back();
    const std::size_t end = std::min(rest.find_first_of(".["), rest.size());
    step.field = std::string(rest.substr(0, end));
    rest.remove_prefix(end);
    if (rest.starts_with('[')) {
      rest.remove_prefix(1);
      const std::size_t close = rest.find(']');
      if (close == std::string_view::npos) return KeyUnknown(path, "a ']' is missing");
      step.element = std::string(rest.substr(0, close));
      rest.remove_prefix(close + 1);
    }
    if (step.field.empty()) return KeyUnknown(path, "a field's name is missing");
    if (rest.empty()) return steps;
    if (!rest.starts_with('.')) return KeyUnknown(path, "after an element comes '.' or the end");
    rest.remove_prefix(1);
  }
}

absl::StatusOr<const FieldDescriptor*> FieldOf(std::string_view path, const Message& message,
                                               const Step& step) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const FieldDescriptor* field = type.FindFieldByName(step.field);
  if (field == nullptr) {
    return KeyUnknown(path, absl::StrCat("there is no ", Quote(step.field), " in ", type.name(),
                                         Suggest(step.field, FieldNames(type))));
  }
  if (step.element.has_value() && ElementNameField(*field) == nullptr) {
    return KeyUnknown(path,
                      absl::StrCat(Quote(step.field), " has no elements that are known by a name"));
  }
  return field;
}

// The place of the element of this name, or -1.
int IndexOf(const Message& message, const FieldDescriptor& list, std::string_view name) {
  const FieldDescriptor& name_field = *ElementNameField(list);
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &list); ++i) {
    const Message& element = reflection.GetRepeatedMessage(message, &list, i);
    if (element.GetReflection()->GetString(element, &name_field) == name) return i;
  }
  return -1;
}

absl::Status NoElement(std::string_view path, const Message& message, const FieldDescriptor& list,
                       std::string_view name) {
  std::vector<std::string> known;
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &list); ++i) {
    const Message& element = reflection.GetRepeatedMessage(message, &list, i);
    known.push_back(element.GetReflection()->GetString(element, ElementNameField(list)));
  }
  return KeyUnknown(path, absl::StrCat("there is no ", Quote(name), " in ", Quote(list.name()),
                                       known.empty() ? ", which is empty" : Suggest(name, known)));
}

absl::Status NotInside(std::string_view path, const FieldDescriptor& field) {
  return KeyUnknown(path,
                    field.is_repeated()
                        ? absl::StrCat(Quote(field.name()), " is a list: name an element [NAME]")
                        : absl::StrCat(Quote(field.name()), " has no fields"));
}

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

// Elements that are only settings. Their names are checked by the server.
bool MayBeMade(const FieldDescriptor& list) {
  return list.message_type() == v1::WorkflowSetConfig::descriptor() ||
         list.message_type() == v1::PoolConfig::descriptor();
}

// The element of this name, which is made if it is missing and may be.
absl::StatusOr<Message*> MutableElement(std::string_view path, Message& message,
                                        const FieldDescriptor& list, const std::string& name) {
  const Reflection& reflection = *message.GetReflection();
  const int index = IndexOf(message, list, name);
  if (index >= 0) return reflection.MutableRepeatedMessage(&message, &list, index);
  if (!MayBeMade(list)) return NoElement(path, message, list, name);
  Message* made = reflection.AddMessage(&message, &list);
  made->GetReflection()->SetString(made, ElementNameField(list), name);
  return made;
}

// Text goes in quotes, so that it stays what it is. Numbers and booleans go bare, and everything
// that cannot be one of them in quotes, so that the reader says what it takes.
std::string ValueAsYaml(const FieldDescriptor& field, std::string_view value) {
  const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  const bool may_be_bare = !value.empty() && std::ranges::all_of(value, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '+' || c == '-';
  });
  if (!is_text && may_be_bare) return std::string(value);
  return YamlScalar(value);
}

absl::Status SetField(std::string_view path, std::string_view value, const FieldDescriptor& field,
                      Message& message) {
  if (field.is_repeated() || IsMessage(field)) {
    return BadValue(path, "this is not one value; write it in a file, and use `onepiece apply -f`");
  }
  const absl::Status status =
      ParseYaml(absl::StrCat(field.name(), ": ", ValueAsYaml(field, value)), path, &message);
  if (status.ok()) return status;
  // The place in the text that was made here means nothing to people.
  auto metadata = base::GetReason(status).metadata;
  std::string what = base::Message(status);
  const std::string place =
      absl::StrCat(metadata["file"], ":", metadata["line"], ":", metadata["column"], ": ");
  if (what.starts_with(place)) what.erase(0, place.size());
  return BadValue(path, what);
}

}  // namespace

absl::StatusOr<ConfigPart> FindConfigPart(const v1::ClusterConfig& config, std::string_view path) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<Step> steps, ReadSteps(path));
  const Message* message = &config;
  for (std::size_t i = 0;; ++i) {
    const Step& step = steps[i];
    ONEPIECE_ASSIGN_OR_RETURN(const FieldDescriptor* field, FieldOf(path, *message, step));
    const Reflection& reflection = *message->GetReflection();
    const bool is_last = i + 1 == steps.size();
    if (step.element.has_value()) {
      const int index = IndexOf(*message, *field, *step.element);
      if (index < 0) return NoElement(path, *message, *field, *step.element);
      message = &reflection.GetRepeatedMessage(*message, field, index);
      if (is_last) return ConfigPart{.message = message};
    } else {
      if (is_last) return ConfigPart{.message = message, .field = field};
      if (field->is_repeated() || !IsMessage(*field)) return NotInside(path, *field);
      message = &reflection.GetMessage(*message, field);
    }
  }
}

std::string ConfigPartToYaml(const ConfigPart& part) {
  if (part.field == nullptr) return ToYaml(*part.message);
  const Reflection& reflection = *part.message->GetReflection();
  const bool is_set = part.field->is_repeated()
                          ? reflection.FieldSize(*part.message, part.field) > 0
                          : reflection.HasField(*part.message, part.field);
  return is_set ? FieldToYaml(*part.message, *part.field) : "";
}

absl::Status SetConfigValue(std::string_view path, std::string_view value,
                            v1::ClusterConfig& config) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<Step> steps, ReadSteps(path));
  v1::ClusterConfig changed = config;
  Message* message = &changed;
  for (std::size_t i = 0;; ++i) {
    const Step& step = steps[i];
    ONEPIECE_ASSIGN_OR_RETURN(const FieldDescriptor* field, FieldOf(path, *message, step));
    const bool is_last = i + 1 == steps.size();
    if (step.element.has_value()) {
      if (is_last) return BadValue(path, "this is a whole element; name one of its fields");
      ONEPIECE_ASSIGN_OR_RETURN(message, MutableElement(path, *message, *field, *step.element));
    } else if (is_last) {
      ONEPIECE_RETURN_IF_ERROR(SetField(path, value, *field, *message));
      config = std::move(changed);
      return absl::OkStatus();
    } else {
      if (field->is_repeated() || !IsMessage(*field)) return NotInside(path, *field);
      message = message->GetReflection()->MutableMessage(message, field);
    }
  }
}

}  // namespace onepiece::config
