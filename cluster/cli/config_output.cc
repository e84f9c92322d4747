#include "cluster/cli/config_output.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/utf8.h"
#include "cluster/cli/plan_output.h"
#include "cluster/config/enum_names.h"
#include "cluster/config/scalar_field.h"
#include "google/protobuf/descriptor.h"

namespace onepiece::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Enough to recognise a change in a table.
constexpr std::size_t kMaxPaths = 3;
constexpr std::size_t kMaxReason = 200;

// `index` -1 is the value of a field that is not repeated.
Json ValueDocument(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    return config::ShortEnumName(*(index < 0 ? reflection.GetEnum(message, &field)
                                             : reflection.GetRepeatedEnum(message, &field, index)));
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return MessageDocument(index < 0 ? reflection.GetMessage(message, &field)
                                     : reflection.GetRepeatedMessage(message, &field, index));
  }
  return config::VisitScalar<Json>(message, field, index,
                                   [](auto value) { return Json(std::move(value)); });
}

Json FieldDocument(const Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return ValueDocument(message, field, -1);
  Json list = Json::array();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i)
    list.push_back(ValueDocument(message, field, i));
  return list;
}

// Text from outside in one line.
std::string OneLine(const std::string& text) {
  std::string line = base::ToUtf8(text, kMaxReason);
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return line;
}

}  // namespace

Json MessageDocument(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  Json document = Json::object();
  for (const FieldDescriptor* field : fields)
    document[field->name()] = FieldDocument(message, *field);
  return document;
}

Json ConfigPartDocument(const config::ConfigPart& part) {
  if (part.field == nullptr) return MessageDocument(*part.message);
  const Reflection& reflection = *part.message->GetReflection();
  if (!part.field->is_repeated() && !reflection.HasField(*part.message, part.field)) return nullptr;
  return FieldDocument(*part.message, *part.field);
}

Json ConfigChangesDocument(const ChangeList& changes) {
  Json document = Json::array();
  for (const v1::ConfigChange& change : changes) {
    document.push_back(
        {{"path", change.path()}, {"before", change.before()}, {"after", change.after()}});
  }
  return document;
}

std::string ConfigChangesText(const ChangeList& changes) {
  std::string text;
  int added = 0, removed = 0, changed = 0;
  for (const v1::ConfigChange& change : changes) {
    const std::string path = OneLine(change.path());
    if (change.before().empty()) {
      absl::StrAppend(&text, "+ ", path, ": ", change.after(), "\n");
      ++added;
    } else if (change.after().empty()) {
      absl::StrAppend(&text, "- ", path, ": ", change.before(), "\n");
      ++removed;
    } else {
      absl::StrAppend(&text, "~ ", path, ": ", change.before(), " → ", change.after(), "\n");
      ++changed;
    }
  }
  if (!changes.empty())
    absl::StrAppend(&text, added, " added, ", changed, " changed, ", removed, " removed\n");
  return text;
}

Json ConfigRevisionDocument(const v1::ConfigRevision& revision) {
  return {
      {"revision", revision.revision()},
      {"time_unix_ms", revision.time_unix_ms()},
      {"author", revision.author()},
      {"reason", revision.reason()},
      {"changes", ConfigChangesDocument({revision.changes().begin(), revision.changes().end()})}};
}

std::vector<std::string> ConfigRevisionRow(const v1::ConfigRevision& revision) {
  std::string what;
  const std::size_t count = static_cast<std::size_t>(revision.changes_size());
  for (std::size_t i = 0; i < std::min(count, kMaxPaths); ++i) {
    absl::StrAppend(&what, i == 0 ? "" : ", ",
                    OneLine(revision.changes(static_cast<int>(i)).path()));
  }
  if (count > kMaxPaths) absl::StrAppend(&what, " and ", count - kMaxPaths, " more");
  return {absl::StrCat(revision.revision()), TimeText(revision.time_unix_ms()),
          OneLine(revision.author()), what, OneLine(revision.reason())};
}

std::string ConfigRevisionTitle(const v1::ConfigRevision& revision) {
  std::string title = absl::StrCat("revision ", revision.revision());
  if (revision.time_unix_ms() != 0)
    absl::StrAppend(&title, " of ", TimeText(revision.time_unix_ms()), " UTC");
  if (!revision.author().empty()) absl::StrAppend(&title, " by ", OneLine(revision.author()));
  if (!revision.reason().empty()) absl::StrAppend(&title, ": ", OneLine(revision.reason()));
  return title;
}

}  // namespace onepiece::cli
