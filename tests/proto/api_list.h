// The API as a list of lines, for comparing it with that of the last release.
#pragma once

#include <QString>
#include <QStringList>

namespace onepiece::testing {

/// Returns one line for each message, field, enum value and call of the .proto files below
/// `folder`, sorted. A line has all that must not change: "field onepiece.v1.Node.pid = 7 int32".
/// protoc reads the files; what it says against them is added to `errors`.
QStringList ListApi(const QString& folder, QString& errors);

/// Returns the lines of `released` that `now` lacks, each with what stands in its place.
QStringList BrokenPromises(const QStringList& released, const QStringList& now);

}  // namespace onepiece::testing
