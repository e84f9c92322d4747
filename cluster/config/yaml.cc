#include "cluster/config/yaml.h"

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <vector>

#include "cluster/config/enum_names.h"
#include "cluster/config/suggest.h"
#include "cluster/config/yaml_tree.h"
#include "google/protobuf/descriptor.h"

namespace onepiece::config {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using Kind = YamlNode::Kind;

std::string Upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

const char* Describe(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kPlain:
      return "a value";
    case Kind::kQuoted:
      return "a text";
    case Kind::kList:
      return "a list";
    case Kind::kMapping:
      return "a mapping";
  }
  return "";
}

// Walks through the tree and the message together. `name` is the name of the text.
class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  absl::Status ReadMessage(const YamlNode& node, Message& message) const;

 private:
  absl::Status ReadField(const YamlNode& key, const YamlNode& value, const FieldDescriptor& field,
                         Message& message) const;
  absl::Status ReadMap(const YamlNode& value, const FieldDescriptor& field, Message& message) const;
  // Sets a singular field, or appends to a repeated field.
  absl::Status ReadValue(const YamlNode& value, const FieldDescriptor& field,
                         Message& message) const;
  absl::Status ReadScalar(const YamlNode& value, const FieldDescriptor& field,
                          Message& message) const;
  absl::Status ReadEnum(const YamlNode& value, const FieldDescriptor& field,
                        Message& message) const;
  template <typename Integer, typename Setter>
  absl::Status ReadInteger(const YamlNode& value, const FieldDescriptor& field,
                           const Setter& set) const;
  template <typename Setter>
  absl::Status ReadNumber(const YamlNode& value, const FieldDescriptor& field,
                          const Setter& set) const;

  [[nodiscard]] absl::Status Expected(const YamlNode& value, const FieldDescriptor& field,
                                      const char* what) const {
    std::string got = Describe(value.kind);
    if (value.kind == Kind::kPlain) got = Quote(value.text);
    if (value.kind == Kind::kQuoted) got = "the text " + Quote(value.text);
    return ErrorAt(name_, value.at, Quote(field.name()) + " takes " + what + ", not " + got);
  }

  std::string_view name_;
};

absl::Status Reader::ReadMessage(const YamlNode& node, Message& message) const {
  if (node.kind == Kind::kNull) return absl::OkStatus();
  const auto& type = *message.GetDescriptor();
  if (node.kind != Kind::kMapping) {
    return ErrorAt(
        name_, node.at,
        "expected a mapping (" + type.name() + "), found " + std::string(Describe(node.kind)));
  }
  std::set<const OneofDescriptor*> chosen;
  for (std::size_t i = 0; i < node.items.size(); i += 2) {
    const YamlNode& key = node.items[i];
    const FieldDescriptor* field = type.FindFieldByName(key.text);
    if (field == nullptr) {
      return ErrorAt(name_, key.at,
                     "unknown key " + Quote(key.text) + " in " + type.name() +
                         Suggest(key.text, FieldNames(type)));
    }
    const OneofDescriptor* oneof = field->real_containing_oneof();
    if (oneof != nullptr && !chosen.insert(oneof).second) {
      return ErrorAt(name_, key.at,
                     Quote(key.text) + ": only one of " + oneof->name() + " can be given");
    }
    ONEPIECE_RETURN_IF_ERROR(ReadField(key, node.items[i + 1], *field, message));
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadField(const YamlNode& key, const YamlNode& value,
                               const FieldDescriptor& field, Message& message) const {
  if (field.is_map()) return ReadMap(value, field, message);
  if (!field.is_repeated()) {
    if (value.kind == Kind::kNull && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return ErrorAt(name_, key.at, "key " + Quote(key.text) + " has no value");
    }
    return ReadValue(value, field, message);
  }
  message.GetReflection()->ClearField(&message, &field);
  if (value.kind == Kind::kNull) return absl::OkStatus();
  if (value.kind != Kind::kList) return Expected(value, field, "a list");
  for (const YamlNode& item : value.items)
    ONEPIECE_RETURN_IF_ERROR(ReadValue(item, field, message));
  return absl::OkStatus();
}

absl::Status Reader::ReadMap(const YamlNode& value, const FieldDescriptor& field,
                             Message& message) const {
  message.GetReflection()->ClearField(&message, &field);
  if (value.kind == Kind::kNull) return absl::OkStatus();
  if (value.kind != Kind::kMapping) return Expected(value, field, "a mapping");
  for (std::size_t i = 0; i < value.items.size(); i += 2) {
    Message& entry = *message.GetReflection()->AddMessage(&message, &field);
    ONEPIECE_RETURN_IF_ERROR(ReadValue(value.items[i], *field.message_type()->map_key(), entry));
    ONEPIECE_RETURN_IF_ERROR(
        ReadValue(value.items[i + 1], *field.message_type()->map_value(), entry));
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadValue(const YamlNode& value, const FieldDescriptor& field,
                               Message& message) const {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const auto& reflection = *message.GetReflection();
    return ReadMessage(value, field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                                  : *reflection.MutableMessage(&message, &field));
  }
  if (value.kind != Kind::kPlain && value.kind != Kind::kQuoted)
    return Expected(value, field, "a single value");
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return ReadEnum(value, field, message);
  return ReadScalar(value, field, message);
}

template <typename Integer, typename Setter>
absl::Status Reader::ReadInteger(const YamlNode& value, const FieldDescriptor& field,
                                 const Setter& set) const {
  Integer integer = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, integer);
  if (value.kind == Kind::kPlain && stop == end && error == std::errc::result_out_of_range) {
    return ErrorAt(name_, value.at,
                   Quote(field.name()) + ": " + Quote(value.text) + " is out of range");
  }
  if (value.kind != Kind::kPlain || stop != end || error != std::errc()) {
    return Expected(value, field,
                    std::is_unsigned_v<Integer> ? "a whole number from 0" : "a whole number");
  }
  set(integer);
  return absl::OkStatus();
}

template <typename Setter>
absl::Status Reader::ReadNumber(const YamlNode& value, const FieldDescriptor& field,
                                const Setter& set) const {
  double number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (value.kind != Kind::kPlain || stop != end || error != std::errc() || !std::isfinite(number)) {
    return Expected(value, field, "a number");
  }
  set(number);
  return absl::OkStatus();
}

absl::Status Reader::ReadScalar(const YamlNode& value, const FieldDescriptor& field,
                                Message& message) const {
  const auto& reflection = *message.GetReflection();
  // Calls the setter for a singular field, or the one that appends to a repeated field.
  const auto with = [&](auto setter, auto adder) {
    return [&, setter, adder](auto content) {
      (reflection.*(field.is_repeated() ? adder : setter))(&message, &field, std::move(content));
    };
  };
  using R = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return ReadInteger<std::int32_t>(value, field, with(&R::SetInt32, &R::AddInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return ReadInteger<std::int64_t>(value, field, with(&R::SetInt64, &R::AddInt64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return ReadInteger<std::uint32_t>(value, field, with(&R::SetUInt32, &R::AddUInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return ReadInteger<std::uint64_t>(value, field, with(&R::SetUInt64, &R::AddUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ReadNumber(value, field, with(&R::SetDouble, &R::AddDouble));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return ReadNumber(value, field, [&](double number) {
        with(&R::SetFloat, &R::AddFloat)(static_cast<float>(number));
      });
    case FieldDescriptor::CPPTYPE_BOOL:
      if (value.kind != Kind::kPlain || (value.text != "true" && value.text != "false")) {
        return Expected(value, field, "true or false");
      }
      with(&R::SetBool, &R::AddBool)(value.text == "true");
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_STRING:
      with(&R::SetString, &R::AddString)(value.text);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;  // ReadValue() has read these; they are no scalars.
  }
  return absl::InternalError("field of an unknown type");
}

absl::Status Reader::ReadEnum(const YamlNode& value, const FieldDescriptor& field,
                              Message& message) const {
  const auto& type = *field.enum_type();
  const std::string prefix = EnumPrefix(type.name());
  const std::string wanted = Upper(value.text);
  std::vector<std::string> known;
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor& candidate = *type.value(i);
    std::string_view brief = candidate.name();
    if (brief.starts_with(prefix)) brief.remove_prefix(prefix.size());
    if (wanted == candidate.name() || wanted == brief) {
      const auto& reflection = *message.GetReflection();
      field.is_repeated() ? reflection.AddEnum(&message, &field, &candidate)
                          : reflection.SetEnum(&message, &field, &candidate);
      return absl::OkStatus();
    }
    if (candidate.number() != 0) known.push_back(ShortEnumName(candidate));
  }
  return ErrorAt(
      name_, value.at,
      Quote(field.name()) + " cannot be " + Quote(value.text) + Suggest(value.text, known));
}

}  // namespace

absl::Status ParseYaml(std::string_view text, std::string_view name, Message* message,
                       std::size_t max_bytes) {
  ONEPIECE_ASSIGN_OR_RETURN(const YamlNode root, ReadYaml(text, name, max_bytes));
  // The fields are set in a copy, so that an error leaves `message` unchanged.
  const std::unique_ptr<Message> result(message->New());
  result->CopyFrom(*message);
  ONEPIECE_RETURN_IF_ERROR(Reader(name).ReadMessage(root, *result));
  message->GetReflection()->Swap(message, result.get());
  return absl::OkStatus();
}

absl::Status LoadYamlFile(const std::string& path, Message* message) {
  const auto unreadable = [&] {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                           path + ": cannot be read: " + std::strerror(errno), {{"file", path}});
  };
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable();
  // Reads one byte more than is allowed, so that ParseYaml refuses a longer file.
  std::string text(kMaxYamlBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return unreadable();
  text.resize(static_cast<std::size_t>(file.gcount()));
  return ParseYaml(text, path, message);
}

}  // namespace onepiece::config
