#include "gui/app/export.h"

#include <QBuffer>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QPainter>
#include <QSaveFile>
#include <QSvgGenerator>
#include <cmath>

#include "cluster/base/status.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {
namespace {

QVariant Cell(const QAbstractItemModel& model, int row, int column) {
  const QModelIndex index = model.index(row, column);
  const QVariant value = index.data(kSortRole);
  // NaN and null both mean "not known".
  if (value.typeId() == QMetaType::Double && std::isnan(value.toDouble())) return {};
  return value.isValid() ? value : index.data(Qt::DisplayRole);
}

QByteArray CsvField(const QVariant& value) {
  QString text = value.toString();
  const bool number = value.typeId() != QMetaType::QString;
  // A spreadsheet takes a text that begins with one of these for a formula.
  static const QString kComputes = QStringLiteral("=+-@\t\r");
  if (!number && !text.isEmpty() && kComputes.contains(text[0])) text.prepend(u'\'');
  if (text.contains(u'"') || text.contains(u',') || text.contains(u'\n') || text.contains(u'\r')) {
    text = u'"' + text.replace(u'"', QStringLiteral("\"\"")) + u'"';
  }
  return text.toUtf8();
}

}  // namespace

QByteArray ToCsv(const QAbstractItemModel& model) {
  QByteArray csv;
  for (int column = 0; column < model.columnCount(); ++column) {
    if (column > 0) csv += ',';
    csv += CsvField(model.headerData(column, Qt::Horizontal).toString());
  }
  csv += "\r\n";
  for (int row = 0; row < model.rowCount(); ++row) {
    for (int column = 0; column < model.columnCount(); ++column) {
      if (column > 0) csv += ',';
      csv += CsvField(Cell(model, row, column));
    }
    csv += "\r\n";
  }
  return csv;
}

QByteArray ToJson(const QAbstractItemModel& model) {
  QJsonArray rows;
  for (int row = 0; row < model.rowCount(); ++row) {
    QJsonObject object;
    for (int column = 0; column < model.columnCount(); ++column) {
      const QVariant value = Cell(model, row, column);
      object.insert(model.headerData(column, Qt::Horizontal).toString(),
                    value.isValid() ? QJsonValue::fromVariant(value) : QJsonValue());
    }
    rows.append(object);
  }
  return QJsonDocument(rows).toJson();
}

QByteArray ToSvg(QWidget& widget) {
  QBuffer buffer;
  buffer.open(QIODevice::WriteOnly);
  QSvgGenerator generator;
  generator.setOutputDevice(&buffer);
  generator.setSize(widget.size());
  generator.setViewBox(QRect(QPoint(0, 0), widget.size()));
  generator.setTitle(widget.accessibleName());
  QPainter painter(&generator);
  widget.render(&painter);
  painter.end();
  return buffer.data();
}

absl::Status ExportView(View& view, const QString& path) {
  const QString ending = QFileInfo(path).suffix().toLower();
  QByteArray bytes;
  if (ending == u"csv" || ending == u"json") {
    const QAbstractItemModel* model = view.ExportModel();
    if (model == nullptr) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "NO_TABLE",
                             "this page has no table: export it as .png or .svg");
    }
    bytes = ending == u"csv" ? ToCsv(*model) : ToJson(*model);
  } else if (ending == u"png") {
    QBuffer buffer(&bytes);
    buffer.open(QIODevice::WriteOnly);
    view.grab().save(&buffer, "PNG");
  } else if (ending == u"svg") {
    bytes = ToSvg(view);
  } else {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_ENDING",
                           "the file's name must end in .csv, .json, .png or .svg");
  }
  QSaveFile file(path);
  if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size() || !file.commit()) {
    return base::MakeError(absl::StatusCode::kUnavailable, "NOT_WRITTEN",
                           path.toStdString() + ": " + file.errorString().toStdString());
  }
  return absl::OkStatus();
}

}  // namespace onepiece::gui
