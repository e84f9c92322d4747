// Included first in every source that uses messages, in a build with ThreadSanitizer alone. There
// protobuf's headers give each map field two more members, which Debian's libprotobuf does not
// know: it was compiled without. Map fields must have the same layout on both sides.
#pragma once

// These remain as the sanitizer wants them.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include "google/protobuf/map_field.h"
#pragma pop_macro("__SANITIZE_THREAD__")
