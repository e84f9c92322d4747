// Reads a value of a field of which only the descriptor is known.
#pragma once

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace onepiece::config {

/// Returns what `visit` makes of the value: a number, a bool or a string. `index` -1 is the value
/// of a field that is not repeated. For an enum or a message it is Result().
template <typename Result, typename Visit>
Result VisitScalar(const google::protobuf::Message& message,
                   const google::protobuf::FieldDescriptor& field, int index, Visit visit) {
  using google::protobuf::FieldDescriptor;
  using google::protobuf::Reflection;
  const Reflection& reflection = *message.GetReflection();
  const auto value = [&](auto get, auto get_repeated) -> Result {
    return index < 0 ? visit((reflection.*get)(message, &field))
                     : visit((reflection.*get_repeated)(message, &field, index));
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return value(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return value(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return value(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return value(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return value(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return value(&Reflection::GetFloat, &Reflection::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_BOOL:
      return value(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_STRING:
      return value(&Reflection::GetString, &Reflection::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_ENUM:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return Result();
}

}  // namespace onepiece::config
