// A view as a file: its table as CSV or JSON, its picture as PNG or SVG.
//
// Threading  GUI thread only.
#pragma once

#include <QAbstractItemModel>
#include <QByteArray>
#include <QWidget>

#include "absl/status/status.h"
#include "gui/views/view.h"

namespace onepiece::gui {

/// RFC 4180, with a header line; kSortRole of every cell, so numbers are in their unit and what is
/// not known is empty. A text that a spreadsheet would compute begins with an apostrophe.
QByteArray ToCsv(const QAbstractItemModel& model);
/// An array of objects by column title; what is not known is null.
QByteArray ToJson(const QAbstractItemModel& model);
/// Drawn anew, not a picture of the screen.
QByteArray ToSvg(QWidget& widget);

/// By the file's ending: .csv, .json, .png or .svg. Errors: INVALID_ARGUMENT (another ending, or a
/// view without a table), UNAVAILABLE (it cannot be written).
absl::Status ExportView(View& view, const QString& path);

}  // namespace onepiece::gui
