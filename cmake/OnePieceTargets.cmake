# Functions that make the targets of the tree. Every target comes from one of them, so that flags, layout and test rules
# have one place.

add_library(onepiece_flags INTERFACE)
target_compile_options(onepiece_flags INTERFACE
  -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  # Checks what cluster/base/mutex.h and ABSL_GUARDED_BY declare.
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # g++ 12 warns of overlapping copies in std::string where there are none (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # In a unity build every source is an included file, where g++ expects no anonymous namespaces.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage> -Werror=switch -Werror=return-type
  # The loader finds a plug-in's entry point by its C name, but only C++ calls it. So it may return a C++ type.
  $<$<AND:$<CXX_COMPILER_ID:Clang>,$<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>>:-Wno-return-type-c-linkage>
  $<$<BOOL:${ONEPIECE_WERROR}>:-Werror>)
target_compile_definitions(onepiece_flags INTERFACE QT_NO_KEYWORDS)

# onepiece_add_folders(CORE .. PARSERS .. SERVICES .. REST ..): adds the folders. A sanitizer build takes only a part:
# ONEPIECE_CORE_ONLY the core and the parsers, ONEPIECE_SERVICES_ONLY also the services, with their gRPC. ThreadSanitizer
# leaves out the parsers, because they run in one thread. A folder of the core may have more in a build that has gRPC.
function(onepiece_add_folders)
  cmake_parse_arguments(PARSE_ARGV 0 A "" "" "CORE;PARSERS;SERVICES;REST")
  if(ONEPIECE_SANITIZE STREQUAL "thread")
    set(A_PARSERS)
  endif()
  if(ONEPIECE_CORE_ONLY)
    set(A_SERVICES)
  endif()
  if(NOT ONEPIECE_WHOLE)
    set(A_REST)
  endif()
  foreach(folder IN LISTS A_CORE A_PARSERS A_SERVICES A_REST)
    add_subdirectory(${folder})
  endforeach()
endfunction()

# Precompiled headers: the large headers take most of a file's compile time. They are compiled once for each set of
# flags. Libraries have services (gRPC, without our messages: a changed .proto would rebuild every service), torch and
# widgets. Tests have the same with Qt Test, and services with our messages. A folder borrows one when it sets
# ONEPIECE_PRECOMPILED (for its libraries) or ONEPIECE_TEST_PRECOMPILED (for its tests). A build with this option OFF
# shows which files include too little.
option(ONEPIECE_PRECOMPILE "Precompile large headers" ON)

# onepiece_precompiled(KIND [PROGRAM] HEADERS .. DEPS .. OPTIONS ..): makes the target onepiece_precompiled_KIND, which
# lends its precompiled header to libraries, or with PROGRAM to programs. Programs need their own because they are
# compiled with -fPIE.
function(onepiece_precompiled kind)
  cmake_parse_arguments(PARSE_ARGV 1 A "PROGRAM" "" "HEADERS;DEPS;OPTIONS")
  if(NOT ONEPIECE_PRECOMPILE)
    return()
  endif()
  if(A_PROGRAM)
    add_executable(onepiece_precompiled_${kind} EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/precompiled.cc)
  else()
    add_library(onepiece_precompiled_${kind} OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/precompiled.cc)
  endif()
  target_link_libraries(onepiece_precompiled_${kind} PRIVATE ${A_DEPS} onepiece_flags)
  target_compile_options(onepiece_precompiled_${kind} PRIVATE ${A_OPTIONS})
  target_precompile_headers(onepiece_precompiled_${kind} PRIVATE ${A_HEADERS})
endfunction()

# onepiece_borrow_precompiled(TARGET KIND): the target uses the precompiled header of this kind. Does nothing when there
# is none.
function(onepiece_borrow_precompiled target kind)
  if(NOT TARGET onepiece_precompiled_${kind})
    return()
  endif()
  target_precompile_headers(${target} REUSE_FROM onepiece_precompiled_${kind})
  # gcc treats the content of a precompiled header no longer as a system header, so it shows its false alarms there (GCC
  # bug 105651).
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow> $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread>)
endfunction()

# onepiece_library(NAME SOURCES .. PUBLIC_HEADERS .. PRIVATE_HEADERS .. DEPS .. PRIVATE_DEPS ..): the static library
# onepiece::NAME. Files include its headers by their path from the top of the tree. Only the folder itself, its tests,
# the benchmarks and the fuzz targets include its private headers (tests/structure). A library without sources becomes an
# INTERFACE library.
function(onepiece_library name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;PUBLIC_HEADERS;PRIVATE_HEADERS;DEPS;PRIVATE_DEPS")
  if(A_SOURCES)
    add_library(onepiece_${name} STATIC ${A_SOURCES})
    target_sources(onepiece_${name}
      PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${A_PUBLIC_HEADERS}
      PRIVATE FILE_SET private_headers TYPE HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${A_PRIVATE_HEADERS})
    target_link_libraries(onepiece_${name} PUBLIC ${A_DEPS} PRIVATE onepiece_flags ${A_PRIVATE_DEPS})
    onepiece_borrow_precompiled(onepiece_${name} "${ONEPIECE_PRECOMPILED}")
  else()
    add_library(onepiece_${name} INTERFACE)
    target_sources(onepiece_${name} INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${A_PUBLIC_HEADERS})
    target_link_libraries(onepiece_${name} INTERFACE ${A_DEPS})
  endif()
  add_library(onepiece::${name} ALIAS onepiece_${name})
endfunction()

# onepiece_qt_library(NAME SOURCES .. PUBLIC_HEADERS .. PRIVATE_HEADERS .. MOC headers with Q_OBJECT .. DEPS ..): an
# onepiece_library of Qt classes. It calls moc itself, for the reason that onepiece_test() gives.
function(onepiece_qt_library name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;PUBLIC_HEADERS;PRIVATE_HEADERS;MOC;DEPS;PRIVATE_DEPS")
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  foreach(header IN LISTS A_MOC)
    cmake_path(GET header STEM stem)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/moc/moc_${stem}.cc)
    add_custom_command(OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/moc
      COMMAND Qt6::moc -f ${folder}/${header} ${CMAKE_CURRENT_SOURCE_DIR}/${header} -o ${output}
      DEPENDS ${header} VERBATIM)
    list(APPEND A_SOURCES ${output})
  endforeach()
  onepiece_library(${name} SOURCES ${A_SOURCES} PUBLIC_HEADERS ${A_PUBLIC_HEADERS} PRIVATE_HEADERS ${A_PRIVATE_HEADERS}
    DEPS ${A_DEPS} PRIVATE_DEPS ${A_PRIVATE_DEPS})
  # The console mostly waits for its user, so -O1 is fast enough, and it compiles sooner.
  target_compile_options(onepiece_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# onepiece_program(NAME SOURCES .. DEPS .. [MEASURES]): a program in bin/. Its own files read arguments and wire libraries
# together, so -O1 is fast enough; a program that MEASURES is optimised like a library.
function(onepiece_program name)
  cmake_parse_arguments(PARSE_ARGV 1 A "MEASURES" "" "SOURCES;DEPS")
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${A_DEPS} onepiece_flags)
  if(NOT A_MEASURES)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# onepiece_stage_plugin(NAME SOURCES .. DEPS ..): a loadable stage plug-in in lib/onepiece/stages.
function(onepiece_stage_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;DEPS")
  add_library(${name} MODULE ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${A_DEPS} onepiece_flags)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${ONEPIECE_STAGE_PLUGIN_DIR} PREFIX ""
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# onepiece_test(NAME SOURCES .. DEPS .. LABELS .. [TIMEOUT seconds] [PROGRAMS targets it runs [WAITS]] [ALONE]): a Qt
# Test class, registered with ctest. Its first source holds the class, says ONEPIECE_TEST(Class) (tests/test_main.h) and
# includes "FILE_STEM.moc" at its end. The classes of a folder share one program: tests/gui/views makes gui_views_tests.
# With ALONE the class gets a program of its own, with its own main(). When the folder sets ONEPIECE_TEST_PRECOMPILED
# (services, torch or widgets) before its first test, its program borrows that precompiled header. The release compiles the
# files of a folder together, so their local names differ.
function(onepiece_test name)
  cmake_parse_arguments(PARSE_ARGV 1 A "WAITS;ALONE" "TIMEOUT" "SOURCES;DEPS;LABELS;PROGRAMS")
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  list(GET A_SOURCES 0 main_source)
  cmake_path(GET main_source STEM stem)
  if(A_ALONE)
    set(program ${name})
    set(command ${name})
  else()
    cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/tests OUTPUT_VARIABLE folder)
    string(REPLACE / _ program "${folder}_tests")
    set(command ${program} ${stem})
  endif()
  if(NOT TARGET ${program})
    onepiece_test_program(${program})
    if(ONEPIECE_SANITIZE)
      # For tests that count steps or bytes of memory. clang defines no macro for its sanitizers, unlike g++.
      target_compile_definitions(${program} PRIVATE ONEPIECE_SANITIZED)
    endif()
    if(NOT A_ALONE)
      target_sources(${program} PRIVATE $<TARGET_OBJECTS:onepiece_test_main>)
    endif()
  endif()
  # CMake's AUTOMOC would give moc the include paths. moc 6.4 then fails on <concepts>; without them it still finds a
  # test's slots.
  add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/moc/${stem}.moc
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/moc
    COMMAND Qt6::moc -i ${CMAKE_CURRENT_SOURCE_DIR}/${main_source} -o ${CMAKE_CURRENT_BINARY_DIR}/moc/${stem}.moc
    DEPENDS ${main_source} VERBATIM)
  list(TRANSFORM A_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(${program} PRIVATE ${A_SOURCES} ${CMAKE_CURRENT_BINARY_DIR}/moc/${stem}.moc)
  target_link_libraries(${program} PRIVATE ${A_DEPS})
  set_property(GLOBAL APPEND PROPERTY ONEPIECE_TEST_SOURCES ${A_SOURCES})
  add_test(NAME ${name} COMMAND ${command})
  if(A_PROGRAMS)
    add_dependencies(${program} ${A_PROGRAMS})
    # A test that starts programs has the machine to itself. One that mostly waits (WAITS) runs beside the tests that
    # start no programs, one such test at a time, and ctest begins it first.
    if(A_WAITS)
      set_tests_properties(${name} PROPERTIES RESOURCE_LOCK cluster COST 1000)
    else()
      set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
  endif()
  # One thread for LibTorch's kernels and for OpenBLAS: their threads wait for one another in busy loops, which takes ten
  # times as long when something else has a core, and ctest runs as many tests as there are cores.
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT}
    ENVIRONMENT "OMP_NUM_THREADS=1;QT_QPA_PLATFORM=offscreen;ONEPIECE_BIN_DIR=${PROJECT_BINARY_DIR}/bin;${ONEPIECE_SANITIZER_ENVIRONMENT}")
endfunction()

# onepiece_test_program(NAME): the program in build/PRESET/tests that onepiece_test() fills.
function(onepiece_test_program program)
  add_executable(${program})
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/moc)
  target_link_libraries(${program} PRIVATE Qt6::Test onepiece_flags)
  target_compile_definitions(${program} PRIVATE
    ONEPIECE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ONEPIECE_BINARY_DIR="${PROJECT_BINARY_DIR}")
  # A test's own code runs for moments and would compile for minutes with -O3. The libraries under test keep their flags.
  target_compile_options(${program} PRIVATE $<$<CONFIG:Release>:-O1>)
  onepiece_borrow_precompiled(${program} "test_${ONEPIECE_TEST_PRECOMPILED}")
endfunction()

# Reports a test file that no onepiece_test() builds: a test that silently left the build would rot.
function(onepiece_check_tests_registered)
  get_property(known GLOBAL PROPERTY ONEPIECE_TEST_SOURCES)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*_test.cc)
  list(REMOVE_ITEM found ${known})
  if(NOT ONEPIECE_GUI)
    list(FILTER found EXCLUDE REGEX "/tests/(gui/|e2e/console_test)")
  endif()
  if(found)
    message(SEND_ERROR "Test files not registered with onepiece_test(): ${found}")
  endif()
endfunction()
