# What holds for the whole tree: the language level, the output folders, ccache, mold and the packages of others.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(ONEPIECE_STAGE_PLUGIN_DIR ${PROJECT_BINARY_DIR}/lib/onepiece/stages)

find_program(ONEPIECE_CCACHE ccache)
if(ONEPIECE_CCACHE)
  # CCACHE_SLOPPINESS: ccache must overlook the time stamps in precompiled headers. CCACHE_DEPEND: ccache reads the
  # compiler's list of headers instead of running the preprocessor first.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_DEPEND=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${ONEPIECE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${ONEPIECE_CCACHE})
endif()
find_program(ONEPIECE_MOLD mold)
if(ONEPIECE_MOLD AND NOT ONEPIECE_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()
if(ONEPIECE_SANITIZE)
  # This takes half the compile time of -O2 -g, and stack traces still show a line for every frame.
  string(REPLACE "-O2 -g" "-O1 -g1" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  add_compile_options(-fsanitize=${ONEPIECE_SANITIZE} -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # The sanitizers' instrumentation makes g++ 12 give these warnings for sound code, most of all for std::optional (GCC
    # bug 105562).
    add_compile_options(-Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  add_link_options(-fsanitize=${ONEPIECE_SANITIZE})
  set(ONEPIECE_SANITIZER_ENVIRONMENT
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp halt_on_error=1;UBSAN_OPTIONS=halt_on_error=1 print_stacktrace=1")
endif()
if(ONEPIECE_FUZZ)
  # The fuzzer is guided by coverage, so all code is instrumented. Undefined behaviour ends the run like a crash.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(Protobuf REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(LIBAV REQUIRED IMPORTED_TARGET libavformat libavcodec libswscale libavutil)
if(NOT ONEPIECE_CORE_ONLY)
  find_package(gRPC CONFIG REQUIRED)
  find_package(prometheus-cpp CONFIG REQUIRED)
  find_package(CLI11 REQUIRED)
  pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
  pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
endif()
if(ONEPIECE_WHOLE)
  pkg_check_modules(ICU REQUIRED IMPORTED_TARGET icu-uc icu-i18n)
  # A LibTorch for CUDA asks this machine's GPU for what its kernels shall be compiled for, which fails where there is none.
  # We have no such kernels, so any answer will do.
  if(NOT DEFINED TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
    set(TORCH_CUDA_ARCH_LIST 9.0)
  endif()
  find_package(Torch REQUIRED)
  # LibTorch's at::parallel_for starts threads only in code that is compiled with OpenMP. LibTorch comes with that of g++;
  # that of clang does not work beside it, so there such loops run in one thread.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    set(ONEPIECE_OPENMP OpenMP::OpenMP_CXX)
  endif()
  if(ONEPIECE_CUDA)
    find_package(CUDAToolkit QUIET)
  endif()
endif()
if(ONEPIECE_GUI AND ONEPIECE_WHOLE)
  find_package(Qt6 REQUIRED COMPONENTS Core DBus Gui PrintSupport Svg Widgets)
  find_package(QCustomPlotQt6 CONFIG REQUIRED)
endif()
if(ONEPIECE_TESTS)
  if(ONEPIECE_WHOLE)
    pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
  endif()
  find_package(Qt6 REQUIRED COMPONENTS Core Network Test)
  # Qt defines macros that nobody uses and that differ from test to test (each folder's name, QT_NETWORK_LIB). They would
  # keep the tests from sharing a precompiled header.
  foreach(library Qt6::Network Qt6::Test)
    get_target_property(definitions ${library} INTERFACE_COMPILE_DEFINITIONS)
    if(definitions)
      list(FILTER definitions EXCLUDE REGEX "QT_TESTCASE_|QT_NETWORK_LIB")
      set_target_properties(${library} PROPERTIES INTERFACE_COMPILE_DEFINITIONS "${definitions}")
    endif()
  endforeach()
endif()
