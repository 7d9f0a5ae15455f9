# Functions for the build's targets, such as poprun_library, poprun_families, poprun_test and poprun_mpi_test.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# By default, ccache caches nothing that includes a precompiled header. With paths relative to the
# source root, a second clone can reuse what the first one compiled.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "${CCACHE}")
endif()

set(POPRUN_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, for example address,undefined")
option(POPRUN_TIDY "Run clang-tidy on our own sources" OFF)

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(Protobuf REQUIRED)
find_package(Boost REQUIRED COMPONENTS program_options)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(LIBZIP REQUIRED IMPORTED_TARGET libzip)
find_library(ISAL_LIBRARY isal REQUIRED)
find_library(SIMDJSON_LIBRARY simdjson REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_library(ZXCVBN_LIBRARY zxcvbn REQUIRED)

# Flags for our own code. Rounding is part of the product's promise (bit-identical results for every placement), so
# there is no contraction and no fast-math. Two flags let loops be vectorised and change no result: no code reads errno
# after a square root, and no exception of floating point stops the program.
add_library(poprun_flags INTERFACE)
target_include_directories(poprun_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(poprun_flags INTERFACE
  -ffp-contract=off -fno-math-errno -fno-trapping-math -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
  -Wold-style-cast -Wswitch-enum -Werror
  # g++ 12 falsely reports overlapping copies in every `"text" + std::string` (GCC bug 105329).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # After a precompiled header, g++ 12 treats inlined std::string code as ours and reports out-of-bounds copies in it.
  # Presets without the header keep these warnings.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<NOT:$<BOOL:${CMAKE_DISABLE_PRECOMPILE_HEADERS}>>>:-Wno-array-bounds>
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<NOT:$<BOOL:${CMAKE_DISABLE_PRECOMPILE_HEADERS}>>>:-Wno-stringop-overflow>)
target_compile_definitions(poprun_flags INTERFACE POPRUN_VERSION="${PROJECT_VERSION}")
target_link_libraries(poprun_flags INTERFACE fmt::fmt)
# An access outside a container, a buffer or a stack frame ends the process.
target_compile_options(poprun_flags INTERFACE $<$<CONFIG:Release>:-fstack-protector-strong>)
target_compile_definitions(poprun_flags INTERFACE
  $<$<CONFIG:Release>:_GLIBCXX_ASSERTIONS> $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
if(POPRUN_SANITIZE)
  # The check of vptr opens a pipe, which a test without free file descriptors denies.
  add_compile_options(-fsanitize=${POPRUN_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${POPRUN_SANITIZE})
  # With a sanitizer, g++ 12 falsely reports uninitialised members in every std::regex (GCC bug 105562).
  target_compile_options(poprun_flags INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(POPRUN_SANITIZE MATCHES "thread")
    # g++ warns that ThreadSanitizer does not support Asio's fences, which Asio uses in addition to its locks.
    target_compile_options(poprun_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()
set(POPRUN_TIDY_COMMAND "")
if(POPRUN_TIDY)
  find_program(CLANG_TIDY NAMES clang-tidy-14 clang-tidy REQUIRED)
  set(POPRUN_TIDY_COMMAND "${CLANG_TIDY};--quiet")
endif()

# Third-party headers that only some rooms may include (tests/unit/layers/layers.txt).
# By default, Open MPI 4's <mpi.h> also includes the C++ bindings, which the MPI standard has removed.
add_library(poprun_mpi INTERFACE)
target_link_libraries(poprun_mpi INTERFACE MPI::MPI_C)
target_compile_definitions(poprun_mpi INTERFACE OMPI_SKIP_MPICXX=1)

# Linked by name, because CMake would call pkg-config a dozen times, and each call for gRPC takes a second. Programs
# link gRPC and Abseil statically: loading their 50 shared libraries would take a third of the time to load a replica.
add_library(poprun_grpc INTERFACE)
foreach(name grpc++ grpc gpr absl_synchronization)
  find_library(GRPC_LIBRARY_${name} ${name} REQUIRED)
  list(APPEND shared_grpc "${GRPC_LIBRARY_${name}}")
endforeach()
cmake_path(GET GRPC_LIBRARY_grpc PARENT_PATH folder)
file(GLOB abseil "${folder}/libabsl_*.a")
set(static_grpc -Wl,--start-group)
foreach(name grpc++ grpc gpr address_sorting upb)
  find_library(GRPC_ARCHIVE_${name} lib${name}.a REQUIRED)
  list(APPEND static_grpc "${GRPC_ARCHIVE_${name}}")
endforeach()
list(APPEND static_grpc ${abseil} -Wl,--end-group -lre2 -lcares -lz OpenSSL::SSL)
set(is_static $<BOOL:$<TARGET_PROPERTY:POPRUN_STATIC_GRPC>>)
target_link_libraries(poprun_grpc INTERFACE
  "$<${is_static}:${static_grpc}>" "$<$<NOT:${is_static}>:${shared_grpc}>")

add_library(poprun_dnnl INTERFACE)
target_link_libraries(poprun_dnnl INTERFACE "${DNNL_LIBRARY}")

# These macros select one of the schemas in libonnx's headers: the one with which Debian's library was built.
find_library(ONNX_LIBRARY onnx REQUIRED)
find_library(ONNX_PROTO_LIBRARY onnx_proto REQUIRED)
add_library(poprun_onnx_proto INTERFACE)
target_compile_definitions(poprun_onnx_proto INTERFACE ONNX_NAMESPACE=onnx ONNX_ML=1)
target_link_libraries(poprun_onnx_proto INTERFACE "${ONNX_PROTO_LIBRARY}" protobuf::libprotobuf)
add_library(poprun_onnx INTERFACE)
target_link_libraries(poprun_onnx INTERFACE "${ONNX_LIBRARY}" poprun_onnx_proto)

# Whether Asio uses aligned_alloc depends on the headers that a file includes before it, and one file may free memory
# that another one allocated. It is therefore disabled everywhere.
add_library(poprun_asio INTERFACE)
target_compile_definitions(poprun_asio INTERFACE
  ASIO_STANDALONE ASIO_NO_DEPRECATED ASIO_DISABLE_STD_ALIGNED_ALLOC)
target_link_libraries(poprun_asio INTERFACE Threads::Threads)

# Headers that most files include are compiled once, with replica/base, on which every room depends. These headers
# belong to the standard library or to Debian packages. None is ours or generated, so that a changed header rebuilds
# only the files that include it. The other presets compile without the precompiled header, which proves that each file
# includes what it uses.
set(POPRUN_PRECOMPILED_HEADERS
  <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <span> <string>
  <string_view> <utility> <vector> <fmt/format.h> <google/protobuf/extension_set.h>
  <google/protobuf/generated_message_reflection.h> <google/protobuf/map_entry.h>
  <google/protobuf/map_field_inl.h> <google/protobuf/message.h> <google/protobuf/repeated_field.h>
  <tl/expected.hpp>)
function(poprun_precompile name)
  if(name STREQUAL "poprun_replica_base")
    target_precompile_headers(${name} PRIVATE ${POPRUN_PRECOMPILED_HEADERS})
  else()
    target_precompile_headers(${name} REUSE_FROM poprun_replica_base)
  endif()
endfunction()

# Several sources of a folder are compiled as one, which halves the time of a full build. If files of a folder use the
# same local names, each puts its unnamed namespace into its own named namespace. The other presets compile each source
# alone.
option(POPRUN_UNITY "Compile several sources of a folder as one" OFF)
set(POPRUN_UNITY_SOURCES 24)

# Optimisation levels of Release: -O3 for the rooms that execute the steps of a job, and -O2 for those that compile it
# or read its data. All other code runs once or mostly waits, so it is compiled quickly, with -O1.
set(POPRUN_O3 replica/base replica/engine replica/graph replica/machine replica/ops collectives)
set(POPRUN_O2 replica/compiler replica/device replica/program hostio)
function(poprun_optimise name folder)
  set(level 1)
  foreach(candidate 2 3)
    foreach(room IN LISTS POPRUN_O${candidate})
      if("${folder}/" MATCHES "^${room}/")
        set(level ${candidate})
      endif()
    endforeach()
  endforeach()
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O${level}>)
  poprun_optimise_sanitized(${name} "${folder}")
endfunction()

# Code with sanitizers is compiled without optimisation, except that of collectives: their tests compare so many elements
# that optimising saves more time than it takes. clang refuses a precompiled header of another level.
function(poprun_optimise_sanitized name folder)
  if(POPRUN_SANITIZE AND "${folder}/" MATCHES "^collectives/")
    target_compile_options(${name} PRIVATE -O1)
    set_target_properties(${name} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# poprun_library(<folder> [EXCLUDE <sub-folder>...] [DEPS ...] [PRIVATE_DEPS ...])
#
# One folder, one target: `replica/ops` becomes poprun::replica_ops. It holds every *.cc in and below
# the folder except main.cc, so a new file needs no line in any CMakeLists.txt.
function(poprun_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "EXCLUDE;DEPS;PRIVATE_DEPS")
  string(REPLACE "/" "_" name "${folder}")
  poprun_sources(sources "${folder}" ${ARG_EXCLUDE} main.cc)
  if(sources)
    list(TRANSFORM sources PREPEND "${PROJECT_SOURCE_DIR}/${folder}/")
    add_library(poprun_${name} STATIC ${sources})
    poprun_precompile(poprun_${name})
    poprun_optimise(poprun_${name} "${folder}")
    target_link_libraries(poprun_${name} PUBLIC poprun_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
    set_target_properties(poprun_${name} PROPERTIES
      CXX_CLANG_TIDY "${POPRUN_TIDY_COMMAND}"
      UNITY_BUILD ${POPRUN_UNITY} UNITY_BUILD_BATCH_SIZE ${POPRUN_UNITY_SOURCES})
  else()
    add_library(poprun_${name} INTERFACE)
    target_link_libraries(poprun_${name} INTERFACE poprun_flags ${ARG_DEPS})
  endif()
  add_library(poprun::${name} ALIAS poprun_${name})
endfunction()

# poprun_sources(<out> <folder> [<excluded>...])
#
# Sets <out> to the sorted paths of every *.cc in and below <folder>, relative to it, except those that
# begin with an excluded file or sub-folder.
function(poprun_sources out folder)
  set(root "${PROJECT_SOURCE_DIR}/${folder}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${root}" "${root}/*.cc")
  foreach(excluded IN LISTS ARGN)
    list(FILTER sources EXCLUDE REGEX "^${excluded}")
  endforeach()
  list(SORT sources)
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# poprun_families(<folder> [EXCLUDE <file or sub-folder>...])
#
# For folders in which each file is one entry (an operator family, a model, a dataset): every *.cc in and below the
# folder except registry.cc and helpers, which have a header of the same name. Writes <folder>/families.inc into the
# build tree, with one line `POPRUN_FAMILY(<file stem>)` per file, which registry.cc expands (its target needs
# poprun_generated). A new entry is one new file.
add_library(poprun_generated INTERFACE)
target_include_directories(poprun_generated INTERFACE "${PROJECT_BINARY_DIR}/generated")
function(poprun_families folder)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "EXCLUDE")
  poprun_sources(sources "${folder}" ${ARG_EXCLUDE} registry.cc)
  set(lines "")
  foreach(source IN LISTS sources)
    string(REGEX REPLACE "\\.cc$" ".h" header "${PROJECT_SOURCE_DIR}/${folder}/${source}")
    if(NOT EXISTS "${header}")
      cmake_path(GET source STEM stem)
      string(APPEND lines "POPRUN_FAMILY(${stem})\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/${folder}/families.inc" CONTENT "${lines}")
endfunction()

# poprun_program(<name> SOURCES ... DEPS ...): an executable, also copied to <build>/bin.
function(poprun_program name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;DEPS")
  add_executable(${name} ${ARG_SOURCES})
  poprun_precompile(${name})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # A main.cc only connects libraries.
  target_link_libraries(${name} PRIVATE poprun_flags ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES
    POPRUN_STATIC_GRPC ON
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin"
    CXX_CLANG_TIDY "${POPRUN_TIDY_COMMAND}")
endfunction()

# Tests spend their time in the product, whose code is optimised. The code of the tests themselves is compiled quickly.
add_library(poprun_test_flags INTERFACE)
target_link_libraries(poprun_test_flags INTERFACE poprun_flags)
target_compile_options(poprun_test_flags INTERFACE $<$<CONFIG:Release>:-O1>)

# deploy/test shares 2 * cores + 1 slots among the tests that run at the same time (property PROCESSORS): a unit test
# takes 2, a test of the real command as many as there are cores, and one that must not be disturbed twice as many. The
# last slot is for one of the tests that only compute (BACKGROUND), which uses processor time that the others leave
# idle. ctest starts tests with the highest COST first: BACKGROUND tests (1000), tests that mostly wait (500) and long
# ones (100).
cmake_host_system_information(RESULT POPRUN_CORES QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR POPRUN_PLACES_ALONE "2 * ${POPRUN_CORES}")

# poprun_background_test(<name>): the test, whose command begins with `nice -n 19`, runs beside those that mostly wait.
function(poprun_background_test name)
  set_tests_properties(${name} PROPERTIES TIMEOUT 1800 PROCESSORS 1 RESOURCE_LOCK background COST 1000)
endfunction()

# poprun_test(<name> SOURCES ... DEPS ... [BACKGROUND] [TIMEOUT seconds])
function(poprun_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "BACKGROUND" "TIMEOUT" "SOURCES;DEPS")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_precompile_headers(${name} REUSE_FROM poprun_test_headers)
  target_link_libraries(${name} PRIVATE poprun_test_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(ARG_BACKGROUND)
    add_test(NAME ${name} COMMAND nice -n 19 $<TARGET_FILE:${name}>)
    poprun_background_test(${name})
  else()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS 2)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS unit
    SKIP_RETURN_CODE 77 ENVIRONMENT "OMP_NUM_THREADS=1;POPRUN_EMU_STRICT=1")
endfunction()

# poprun_unit_tests(<folder> [BACKGROUND] [EXCLUDE <file or sub-folder>...] DEPS ...)
#
# One test of all *.cc in and below tests/unit/<folder>, which mirrors the folder of that name: `replica/ops` becomes
# replica_ops_test.
function(poprun_unit_tests folder)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "BACKGROUND" "" "EXCLUDE;DEPS")
  set(background)
  if(ARG_BACKGROUND)
    set(background BACKGROUND)
  endif()
  string(REPLACE "/" "_" name "${folder}_test")
  poprun_sources(sources "tests/unit/${folder}" ${ARG_EXCLUDE})
  list(TRANSFORM sources PREPEND "${PROJECT_SOURCE_DIR}/tests/unit/${folder}/")
  poprun_test(${name} SOURCES ${sources} DEPS ${ARG_DEPS} TIMEOUT 600 ${background})
  poprun_optimise_sanitized(${name} "${folder}")
  set_target_properties(${name} PROPERTIES
    UNITY_BUILD ${POPRUN_UNITY} UNITY_BUILD_BATCH_SIZE ${POPRUN_UNITY_SOURCES})
endfunction()

# poprun_script_test(<path of a script in tests/unit without .py> <interpreter> [<argument>...])
function(poprun_script_test path interpreter)
  cmake_path(GET path FILENAME name)
  add_test(NAME ${name}
    COMMAND "${interpreter}" -B "${PROJECT_SOURCE_DIR}/tests/unit/${path}.py" ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 120 PROCESSORS 2 SKIP_RETURN_CODE 77)
endfunction()

# poprun_mpi_test(<name> RANKS 1 2 3 SOURCES ... DEPS ...): the same test under mpirun at each size.
function(poprun_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "RANKS;SOURCES;DEPS")
  add_executable(${name} ${ARG_SOURCES})
  target_precompile_headers(${name} REUSE_FROM poprun_test_headers)
  target_link_libraries(${name} PRIVATE poprun_test_flags poprun_mpi ${ARG_DEPS} GTest::gmock GTest::gtest)
  poprun_optimise_sanitized(${name} collectives)
  foreach(ranks IN LISTS ARG_RANKS)
    add_test(NAME ${name}_${ranks}
      COMMAND "${MPIEXEC_EXECUTABLE}" --oversubscribe --bind-to none -n ${ranks}
              $<TARGET_FILE:${name}>)
    set_tests_properties(${name}_${ranks} PROPERTIES LABELS mpi TIMEOUT 600 SKIP_RETURN_CODE 77
      PROCESSORS ${POPRUN_PLACES_ALONE}
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_mpi_yield_when_idle=1;OMPI_MCA_pml=ob1;OMPI_MCA_btl=self,vader,tcp;OMPI_MCA_btl_vader_single_copy_mechanism=none;ASAN_OPTIONS=detect_leaks=0")
  endforeach()
endfunction()
