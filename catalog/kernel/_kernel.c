/* The compiled form of the kernel: Measurement, parse_measurement and BucketState, equal to the byte to
 * measurement.py and bucket.py, which say what is done and why. Rule numbers are theirs.
 *
 * Three agreements keep this file small and safe:
 *  - Whatever is wrong with a measurement is said by the interpreted form: on any doubt parse_measurement calls it,
 *    and it raises. The same holds for a stored bucket that is not plainly valid.
 *  - Every length is checked when a measurement is parsed; afterwards its bytes are walked without looking again,
 *    which is sound because they cannot change: the measurement owns the bytes object.
 *  - Values that Python must compare (decimals, code with scope) are compared by catalog.bson.order. No pointer into
 *    a bucket lives across that call unless the bucket is marked as busy; a busy bucket refuses calls.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

enum {
    T_DBL = 0x01, T_STR = 0x02, T_DOC = 0x03, T_ARR = 0x04, T_BIN = 0x05, T_UNDEF = 0x06,
    T_OID = 0x07, T_BOO = 0x08, T_DATE = 0x09, T_NUL = 0x0A, T_REGEX = 0x0B, T_DBPTR = 0x0C, T_CODE = 0x0D,
    T_SYM = 0x0E, T_CWS = 0x0F, T_I32 = 0x10, T_TS = 0x11, T_I64 = 0x12, T_DEC = 0x13, T_MAX = 0x7F, T_MIN = 0xFF
};
enum { MIN_CHANGED = 1, MAX_CHANGED = 2, BOTH_CHANGED = 3 };
enum { SCHEMA_CHANGE = 1, COUNT = 2, SIZE = 3, TIME_FORWARD = 4, TIME_BACKWARD = 5, CACHE_PRESSURE = 8 };

#define MAX_DOCUMENT_BYTES (16 * 1024 * 1024)
#define DOCUMENT_MAX_BYTES (MAX_DOCUMENT_BYTES - 512 * 1024)
#define PATHS_MAX_BYTES (4 * 1024 * 1024)
#define PIPELINE_MIN_ROWS 8
#define PIPELINE_SHARE 16
#define PIPELINE_MIN_COLUMNS 1000
#define ID_RANGE_MS 4294967296000LL
#define MAX_FIELD_LEVELS 177
#define MAX_META_LEVELS 179
#define MAX_LEVELS 200
#define BUCKET_MEMORY_BYTES 500
#define COLUMN_MEMORY_BYTES 200
#define NODE_MEMORY_BYTES 320 /* a value inside a nested one: its shape, two summaries, their names */

/* Taken over once, while the module is imported, and never changed afterwards: nothing in the kernel may have a state
 * that two threads share, for some of it runs without the interpreter's lock (tests/test_tidy.py looks). */
static PyObject *interpreted_parse; /* catalog.kernel.measurement.parse_measurement */
static PyObject *InvariantViolated;
static PyObject *python_compare; /* catalog.bson.order.compare */
static PyObject *python_adopt;   /* catalog.kernel.reopen_validation.reopened_bucket */
static u64 hash_seed, hash_factor;
static u8 canonical[256];

static const signed char fixed_size[256] = { /* -1: the value tells; -2: no type */
    [0] = -2, [T_DBL] = 8, [T_STR] = -1, [T_DOC] = -1, [T_ARR] = -1, [T_BIN] = -1, [T_UNDEF] = 0, [T_OID] = 12,
    [T_BOO] = -1, [T_DATE] = 8, [T_NUL] = 0, [T_REGEX] = -1, [T_DBPTR] = -1, [T_CODE] = -1, [T_SYM] = -1,
    [T_CWS] = -1, [T_I32] = 4, [T_TS] = 8, [T_I64] = 8, [T_DEC] = 16, [T_DEC + 1 ... T_MAX - 1] = -2, [T_MAX] = 0,
    [T_MAX + 1 ... T_MIN - 1] = -2, [T_MIN] = 0};

/* The parts build on one another in this order. */
#include "_kernel_bson.inc"
#include "_kernel_shapes.inc"
#include "_kernel_order.inc"
#include "_kernel_summaries.inc"
#include "_kernel_measurement.inc"
#include "_kernel_bucket.inc"
#include "_kernel_reopening.inc"
#include "_kernel_documents.inc"
#include "_kernel_batch.inc"
#include "_kernel_parts.inc"
#include "_kernel_column.inc"
#include "_kernel_interleaving.inc"
#include "_kernel_compression.inc"
#include "_kernel_decoding.inc"
#include "_kernel_comparing.inc"
#include "_kernel_headers.inc"
#include "_kernel_times.inc"

static PyMethodDef functions[] = {
    {"parse_measurement", (PyCFunction)(void (*)(void))parse_measurement, METH_FASTCALL,
     "Checks a client's document and splits it; see catalog.kernel.measurement."},
    {"join_documents", (PyCFunction)(void (*)(void))join_documents, METH_FASTCALL,
     "One bucket of the rows of stored parts; see catalog.kernel.merging."},
    {"one_row_part", (PyCFunction)(void (*)(void))one_row_part, METH_FASTCALL,
     "A bucket of one row; see catalog.kernel.merging."},
    {"compressed", (PyCFunction)(void (*)(void))compressed, METH_FASTCALL,
     "The compressed form of a stored bucket; see catalog.kernel.compression."},
    {"column_cells", (PyCFunction)(void (*)(void))column_cells, METH_FASTCALL,
     "The values of a compressed column; see catalog.kernel.decoding."},
    {"same_rows", (PyCFunction)(void (*)(void))same_rows, METH_FASTCALL,
     "Whether a compressed bucket is what it was made of; see catalog.kernel.comparing."},
    {"holds_parts", (PyCFunction)(void (*)(void))holds_parts, METH_FASTCALL,
     "Whether a bucket holds the rows of parts; see catalog.kernel.comparing."},
    {"holds_rows", (PyCFunction)(void (*)(void))holds_rows, METH_FASTCALL,
     "Whether a bucket holds these rows; see catalog.kernel.comparing."},
    {"has_true_header", (PyCFunction)(void (*)(void))has_true_header, METH_FASTCALL,
     "Whether the summaries of a bucket are those of its rows; see catalog.kernel.headers."},
    {"count_plain_times", (PyCFunction)(void (*)(void))count_plain_times, METH_FASTCALL,
     "Counts documents if their bucket ids are in the order of time; see catalog.kernel.time_range."},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, .m_name = "catalog.kernel._kernel", .m_doc = "The compiled form of catalog.kernel.", .m_size = -1,
    .m_methods = functions};

static PyObject *imported(const char *module, const char *name)
{
    PyObject *from = PyImport_ImportModule(module), *thing = NULL;
    if (from) {
        thing = PyObject_GetAttrString(from, name);
        Py_DECREF(from);
    }
    return thing;
}
static int take_canonical(void)
{
    PyObject *table = imported("catalog.bson.order", "CANONICAL");
    int fits = table && PyBytes_Check(table) && PyBytes_GET_SIZE(table) == 256;
    if (fits)
        memcpy(canonical, PyBytes_AS_STRING(table), 256);
    Py_XDECREF(table);
    return fits ? 0 : -1;
}
/* Python's hash of bytes is keyed by a secret of the process. */
static u64 secret(const char *of)
{
    PyObject *bytes = PyBytes_FromString(of);
    u64 hash = bytes ? (u64)PyObject_Hash(bytes) : 1;
    Py_XDECREF(bytes);
    return hash;
}
PyMODINIT_FUNC PyInit__kernel(void)
{
    hash_seed = secret("names of fields");
    hash_factor = (secret("factor for names") | 1) ^ 0x9E3779B97F4A7C14u;
    interpreted_parse = imported("catalog.kernel.measurement", "parse_measurement");
    InvariantViolated = imported("catalog.errors", "InvariantViolated");
    python_compare = imported("catalog.bson.order", "compare");
    python_adopt = imported("catalog.kernel.reopen_validation", "reopened_bucket");
    if (!interpreted_parse || !InvariantViolated || !python_compare || !python_adopt || take_canonical() ||
        PyType_Ready(&MeasurementType) || PyType_Ready(&BucketStateType))
        return NULL;
    PyObject *module = PyModule_Create(&module_definition);
    if (!module)
        return NULL;
    Py_INCREF(&MeasurementType);
    Py_INCREF(&BucketStateType);
    if (PyModule_AddObject(module, "Measurement", (PyObject *)&MeasurementType) ||
        PyModule_AddObject(module, "BucketState", (PyObject *)&BucketStateType)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
