#include "tests/proto/api_list.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <QDir>
#include <QDirIterator>
#include <QFile>
#include <QMap>
#include <QProcess>
#include <QSet>
#include <QTemporaryDir>
#include <set>
#include <string>

namespace onepiece::testing {
namespace {

namespace pb = google::protobuf;

std::string TypeOf(const pb::FieldDescriptor& field) {
  if (field.is_map()) {
    return "map<" + TypeOf(*field.message_type()->map_key()) + ", " +
           TypeOf(*field.message_type()->map_value()) + ">";
  }
  std::string type = field.type_name();
  if (field.message_type() != nullptr) type = field.message_type()->full_name();
  if (field.enum_type() != nullptr) type = field.enum_type()->full_name();
  if (field.is_repeated()) return "repeated " + type;
  // Whether a number was given or is 0 can be told only with "optional".
  return (field.has_optional_keyword() ? "optional " : "") + type;
}

void ListEnum(const pb::EnumDescriptor& type, std::set<std::string>& lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines.insert("value " + type.full_name() + "." + type.value(i)->name() + " = " +
                 std::to_string(type.value(i)->number()));
  }
}

void ListMessage(const pb::Descriptor& type, std::set<std::string>& lines) {
  if (type.options().map_entry()) return;
  lines.insert("message " + type.full_name());
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    lines.insert("field " + field.full_name() + " = " + std::to_string(field.number()) + " " +
                 TypeOf(field));
  }
  for (int i = 0; i < type.enum_type_count(); ++i) ListEnum(*type.enum_type(i), lines);
  for (int i = 0; i < type.nested_type_count(); ++i) ListMessage(*type.nested_type(i), lines);
}

void ListService(const pb::ServiceDescriptor& service, std::set<std::string>& lines) {
  for (int i = 0; i < service.method_count(); ++i) {
    const pb::MethodDescriptor& call = *service.method(i);
    lines.insert("rpc " + call.full_name() + (call.client_streaming() ? " stream " : " ") +
                 call.input_type()->full_name() + (call.server_streaming() ? " stream " : " ") +
                 call.output_type()->full_name());
  }
}

// "field onepiece.v1.Node.pid": what a line is about.
QString Subject(const QString& line) { return line.section(' ', 0, 1); }

}  // namespace

QStringList ListApi(const QString& folder, QString& errors) {
  QStringList names;
  QDirIterator found(folder, {"*.proto"}, QDir::Files, QDirIterator::Subdirectories);
  while (found.hasNext()) names << QDir(folder).relativeFilePath(found.next());
  const QTemporaryDir temporary;
  QFile descriptors(temporary.filePath("descriptors"));
  QProcess protoc;
  protoc.start(ONEPIECE_PROTOC, QStringList{"-I", folder, "--include_imports",
                                            "--descriptor_set_out=" + descriptors.fileName()} +
                                    names);
  protoc.waitForFinished();
  errors += QString::fromUtf8(protoc.readAllStandardError());
  pb::FileDescriptorSet set;
  if (!descriptors.open(QIODevice::ReadOnly) ||
      !set.ParseFromString(descriptors.readAll().toStdString())) {
    errors += "protoc wrote no descriptors";
    return {};
  }
  // The files come in the order of their imports.
  pb::DescriptorPool pool;
  std::set<std::string> lines;
  for (const pb::FileDescriptorProto& description : set.file()) {
    const pb::FileDescriptor* file = pool.BuildFile(description);
    if (file == nullptr || !names.contains(QString::fromStdString(file->name()))) continue;
    for (int i = 0; i < file->message_type_count(); ++i) ListMessage(*file->message_type(i), lines);
    for (int i = 0; i < file->enum_type_count(); ++i) ListEnum(*file->enum_type(i), lines);
    for (int i = 0; i < file->service_count(); ++i) ListService(*file->service(i), lines);
  }
  QStringList list;
  for (const std::string& line : lines) list << QString::fromStdString(line);
  return list;
}

QStringList BrokenPromises(const QStringList& released, const QStringList& now) {
  const QSet<QString> present(now.begin(), now.end());
  QMap<QString, QString> by_subject;
  for (const QString& line : now) by_subject[Subject(line)] = line;
  QStringList broken;
  for (const QString& line : released) {
    if (present.contains(line)) continue;
    const QString instead = by_subject.value(Subject(line));
    broken << (instead.isEmpty() ? line + ": removed" : line + ": now \"" + instead + "\"");
  }
  return broken;
}

}  // namespace onepiece::testing
