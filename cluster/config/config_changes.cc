#include "cluster/config/config_changes.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

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

// One line, with text as people wrote it instead of octal escapes.
TextFormat::Printer LinePrinter() {
  TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.SetUseUtf8StringEscaping(true);
  return printer;
}

// The elements of one side of a list, by their names.
struct Named {
  std::vector<std::string> order;
  std::map<std::string, const Message*> elements;
  [[nodiscard]] bool unique() const { return elements.size() == order.size(); }
};

Named ByName(const Message& message, const FieldDescriptor& list, const FieldDescriptor& name) {
  Named named;
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &list); ++i) {
    const Message& element = reflection.GetRepeatedMessage(message, &list, i);
    named.order.push_back(element.GetReflection()->GetString(element, &name));
    named.elements[named.order.back()] = &element;
  }
  return named;
}

// Jobs pass an application's stages in their order, people see its parameters in theirs, and rules
// stay as they were written. Workflow sets, pools and workflows are kept in the order of their
// names.
bool OrderMatters(const FieldDescriptor& list) {
  return list.containing_type() == v1::Workflow::descriptor() ||
         list.message_type() == v1::AlertRule::descriptor();
}

bool IsSetByTheServer(const FieldDescriptor& field) {
  return field.containing_type() == v1::Workflow::descriptor() &&
         field.number() == v1::Workflow::kNameFieldNumber;
}

class Comparison {
 public:
  std::vector<v1::ConfigChange> Take() { return std::move(changes_); }

  void Messages(const std::string& path, const Message& before, const Message& after) {
    const google::protobuf::Descriptor& type = *before.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (IsSetByTheServer(field)) continue;
      Field(path.empty() ? field.name() : absl::StrCat(path, ".", field.name()), field, before,
            after);
    }
  }

 private:
  void Field(const std::string& path, const FieldDescriptor& field, const Message& before,
             const Message& after) {
    const Reflection& reflection = *before.GetReflection();
    if (field.is_repeated()) {
      List(path, field, before, after);
    } else if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      Add(path, Text(before, field), Text(after, field));
    } else if (reflection.HasField(before, &field) || reflection.HasField(after, &field)) {
      Messages(path, reflection.GetMessage(before, &field), reflection.GetMessage(after, &field));
    }
  }

  void List(const std::string& path, const FieldDescriptor& field, const Message& before,
            const Message& after) {
    const FieldDescriptor* name = ElementNameField(field);
    if (name != nullptr) {
      const Named named_before = ByName(before, field, *name);
      const Named named_after = ByName(after, field, *name);
      if (named_before.unique() && named_after.unique()) {
        NamedElements(path, named_before, named_after);
        if (OrderMatters(field)) Order(path, named_before, named_after);
        return;
      }
    }
    Add(path, Text(before, field), Text(after, field));
  }

  void NamedElements(const std::string& path, const Named& before, const Named& after) {
    std::map<std::string, std::pair<const Message*, const Message*>> pairs;
    for (const auto& [name, element] : before.elements) pairs[name].first = element;
    for (const auto& [name, element] : after.elements) pairs[name].second = element;
    for (const auto& [name, pair] : pairs) {
      const std::string place = absl::StrCat(path, "[", base::ToUtf8(name, kMaxShownValue), "]");
      if (pair.first != nullptr && pair.second != nullptr) {
        Messages(place, *pair.first, *pair.second);
      } else {
        Add(place, pair.first == nullptr ? "" : Braced(*pair.first),
            pair.second == nullptr ? "" : Braced(*pair.second));
      }
    }
  }

  // Elements that came or went are changes already, so the order is that of the others.
  void Order(const std::string& path, const Named& before, const Named& after) {
    const auto common = [](const Named& side, const Named& other) {
      std::vector<std::string> names;
      for (const std::string& name : side.order) {
        if (other.elements.contains(name)) names.push_back(name);
      }
      return names;
    };
    if (common(before, after) == common(after, before)) return;
    Add(path, absl::StrCat("[", absl::StrJoin(before.order, ", "), "]"),
        absl::StrCat("[", absl::StrJoin(after.order, ", "), "]"));
  }

  static std::string Braced(const Message& message) {
    std::string text;
    LinePrinter().PrintToString(message, &text);
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return absl::StrCat("{", text, "}");
  }

  // The value for people. Empty when the field is not set.
  static std::string Text(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    std::string text;
    if (!field.is_repeated()) {
      if (reflection.HasField(message, &field))
        LinePrinter().PrintFieldValueToString(message, &field, -1, &text);
      return text;
    }
    std::vector<std::string> elements;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        elements.push_back(Braced(reflection.GetRepeatedMessage(message, &field, i)));
      } else {
        LinePrinter().PrintFieldValueToString(message, &field, i, &elements.emplace_back());
      }
    }
    // A map has no order, and its entries may come in any.
    if (field.is_map()) std::ranges::sort(elements);
    return elements.empty() ? "" : absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
  }

  void Add(const std::string& path, const std::string& before, const std::string& after) {
    if (before == after) return;
    v1::ConfigChange& change = changes_.emplace_back();
    change.set_path(path);
    change.set_before(Shown(before));
    change.set_after(Shown(after));
  }

  // Two long values may differ only beyond what is shown.
  static std::string Shown(const std::string& value) {
    if (value.size() <= kMaxShownValue) return base::ToUtf8(value, kMaxShownValue);
    return absl::StrCat(base::ToUtf8(value, kMaxShownValue), "…");
  }

  std::vector<v1::ConfigChange> changes_;
};

}  // namespace

const FieldDescriptor* ElementNameField(const FieldDescriptor& list) {
  if (!list.is_repeated() || list.is_map()) return nullptr;
  if (list.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return nullptr;
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

std::vector<v1::ConfigChange> ConfigChanges(const v1::ClusterConfig& before,
                                            const v1::ClusterConfig& after) {
  Comparison comparison;
  comparison.Messages("", before, after);
  return comparison.Take();
}

}  // namespace onepiece::config
