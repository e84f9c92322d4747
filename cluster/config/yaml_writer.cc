#include "cluster/config/yaml_writer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cluster/config/enum_names.h"
#include "cluster/config/scalar_field.h"
#include "google/protobuf/descriptor.h"

namespace onepiece::config {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Words that YAML readers take for something else than text. Compared in lower case.
constexpr std::array<std::string_view, 9> kReserved = {"true", "false", "null", "yes", "no",
                                                       "on",   "off",   "y",    "n"};

bool IsPlainCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_./;-").find(c) != std::string_view::npos;
}

// Whether every YAML reader takes the bare text for text, also within a flow list.
bool IsPlain(std::string_view text) {
  if (text.empty() || text.size() > 200 || !std::ranges::all_of(text, IsPlainCharacter))
    return false;
  if (std::isalpha(static_cast<unsigned char>(text.front())) == 0) return false;
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::find(kReserved, lower) == kReserved.end();
}

template <typename Number>
std::string NumberText(Number number) {
  std::array<char, 40> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), error == std::errc() ? end : text.data()};
}

// Writes one value of a field that is not a message. `index` -1 is the value of a field that is not
// repeated.
std::string ScalarText(const Message& message, const FieldDescriptor& field, int index) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const Reflection& reflection = *message.GetReflection();
    const int number = index < 0 ? reflection.GetEnumValue(message, &field)
                                 : reflection.GetRepeatedEnumValue(message, &field, index);
    const EnumValueDescriptor* known = field.enum_type()->FindValueByNumber(number);
    return known == nullptr ? NumberText(number) : YamlScalar(ShortEnumName(*known));
  }
  return VisitScalar<std::string>(message, field, index, [](const auto& value) -> std::string {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_same_v<Value, std::string>) {
      return YamlScalar(value);
    } else {
      return NumberText(value);
    }
  });
}

// Writes blocks. `indent` is the number of spaces before a key or the dash of an item.
class YamlWriter {
 public:
  std::string Take() { return std::move(text_); }

  // Writes the fields, one a line. The first one follows what the line has already when
  // `begins_line` is false.
  void Fields(const Message& message, std::size_t indent, bool begins_line) {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    // ListFields sorts by number. The order of the .proto is the one that people know.
    std::ranges::sort(fields, {}, &FieldDescriptor::index);
    for (const FieldDescriptor* field : fields) {
      if (begins_line) text_.append(indent, ' ');
      begins_line = true;
      text_.append(field->name()).append(":");
      Value(message, *field, indent);
    }
  }

  // Writes what comes after "key:", with the end of its line.
  void Value(const Message& message, const FieldDescriptor& field, std::size_t indent) {
    if (field.is_map()) {
      Map(message, field, indent + 2);
    } else if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      text_.append(" ").append(Scalars(message, field)).append("\n");
    } else if (field.is_repeated()) {
      Messages(message, field, indent + 2);
    } else {
      Nested(message.GetReflection()->GetMessage(message, &field), indent + 2);
    }
  }

 private:
  static bool IsEmpty(const Message& message) {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    return fields.empty();
  }

  void Nested(const Message& message, std::size_t indent) {
    if (IsEmpty(message)) {
      text_.append(" {}\n");
      return;
    }
    text_.append("\n");
    Fields(message, indent, true);
  }

  static std::string Scalars(const Message& message, const FieldDescriptor& field) {
    if (!field.is_repeated()) return ScalarText(message, field, -1);
    std::string list;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i)
      list.append(i == 0 ? "" : ", ").append(ScalarText(message, field, i));
    return "[" + list + "]";
  }

  void Messages(const Message& message, const FieldDescriptor& field, std::size_t indent) {
    text_.append("\n");
    for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
      const Message& item = message.GetReflection()->GetRepeatedMessage(message, &field, i);
      text_.append(indent, ' ').append("- ");
      if (IsEmpty(item)) {
        text_.append("{}\n");
      } else {
        Fields(item, indent + 2, false);
      }
    }
  }

  void Map(const Message& message, const FieldDescriptor& field, std::size_t indent) {
    const FieldDescriptor& key = *field.message_type()->map_key();
    const FieldDescriptor& value = *field.message_type()->map_value();
    std::vector<std::pair<std::string, const Message*>> entries;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
      const Message& entry = message.GetReflection()->GetRepeatedMessage(message, &field, i);
      entries.emplace_back(ScalarText(entry, key, -1), &entry);
    }
    std::ranges::sort(entries, {}, [](const auto& entry) { return entry.first; });
    text_.append("\n");
    for (const auto& [name, entry] : entries) {
      text_.append(indent, ' ').append(name).append(":");
      Value(*entry, value, indent);
    }
  }

  std::string text_;
};

}  // namespace

std::string YamlScalar(std::string_view text) {
  if (IsPlain(text)) return std::string(text);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted.append("\\").push_back(c);
    } else if (c == '\n') {
      quoted.append("\\n");
    } else if (c == '\t') {
      quoted.append("\\t");
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted.append("\\x").push_back(kHex[byte >> 4]);
      quoted.push_back(kHex[byte & 15]);
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

std::string ToYaml(const Message& message) {
  YamlWriter writer;
  writer.Fields(message, 0, true);
  std::string text = writer.Take();
  return text.empty() ? "{}\n" : text;
}

std::string FieldToYaml(const Message& message, const FieldDescriptor& field) {
  YamlWriter writer;
  writer.Value(message, field, 0);
  std::string text = writer.Take();
  // A value follows "key:" after a space, and a block begins on the next line, indented.
  const std::size_t begin = text.find_first_not_of(" \n");
  if (begin == std::string::npos) return field.is_repeated() ? "[]\n" : "\n";
  if (text.front() == ' ') return text.substr(1);
  std::string shifted;
  for (std::size_t at = 1; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    shifted.append(text, at + 2, end + 1 - at - 2);
    at = end + 1;
  }
  return shifted;
}

}  // namespace onepiece::config
