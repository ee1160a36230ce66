/* The compiled form of the kernel: Measurement, parse_measurement and BucketState, equal to the byte to
 * catalog/measurement.py and catalog/bucket.py, which say what is done and why. Rule numbers are theirs.
 *
 * Three agreements keep this file small and safe:
 *  - Whatever is wrong with a measurement is said by the interpreted form: on any doubt parse_measurement calls it,
 *    and it raises. The same holds for a stored bucket: the interpreted form checks it and hands over its parts.
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
enum { SCHEMA_CHANGE = 1, COUNT = 2, SIZE = 3, TIME_FORWARD = 4, TIME_BACKWARD = 5 };

#define MAX_DOCUMENT_BYTES (16 * 1024 * 1024)
#define DOCUMENT_MAX_BYTES (MAX_DOCUMENT_BYTES - 512 * 1024)
#define PATHS_MAX_BYTES (4 * 1024 * 1024)
#define PIPELINE_MIN_ROWS 8
#define PIPELINE_SHARE 16
#define MAX_FIELD_LEVELS 177
#define MAX_META_LEVELS 179
#define MAX_LEVELS 200
#define BUCKET_MEMORY_BYTES 500
#define COLUMN_MEMORY_BYTES 200

static PyObject *interpreted_parse; /* catalog.measurement.parse_measurement */
static PyObject *InvariantViolated;
static PyObject *python_compare; /* catalog.bson.order.compare */
static PyObject *python_adopt;   /* catalog.adoption.adopted_bucket */
static u64 hash_seed, hash_factor;

static u8 canonical[256];
static signed char fixed_size[256]; /* -1: the value tells; -2: no type */

static void take_sizes(void)
{
    static const u8 types[] = {T_DBL, T_UNDEF, T_OID, T_DATE, T_NUL, T_I32, T_TS, T_I64, T_DEC, T_MAX, T_MIN};
    static const signed char sizes[] = {8, 0, 12, 8, 0, 4, 8, 8, 16, 0, 0};
    static const u8 variable[] = {T_STR, T_DOC, T_ARR, T_BIN, T_BOO, T_REGEX, T_DBPTR, T_CODE, T_SYM, T_CWS};
    memset(fixed_size, -2, sizeof fixed_size);
    for (size_t i = 0; i < sizeof types; i++)
        fixed_size[types[i]] = sizes[i];
    for (size_t i = 0; i < sizeof variable; i++)
        fixed_size[variable[i]] = -1;
}

/* ---- numbers in bytes; x86 and ARM are little endian, others swap ---- */

static inline u32 get_u32(const u8 *p) { return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24; }
static inline i64 get_length(const u8 *p) { return (i64)(int32_t)get_u32(p); }
static inline u64 get_u64(const u8 *p) { return (u64)get_u32(p) | (u64)get_u32(p + 4) << 32; }
static inline void put_u32(u8 *p, u32 v)
{
    p[0] = (u8)v, p[1] = (u8)(v >> 8), p[2] = (u8)(v >> 16), p[3] = (u8)(v >> 24);
}
static inline double get_double(const u8 *p)
{
    u64 bits = get_u64(p);
    double number;
    memcpy(&number, &bits, 8);
    return number;
}

/* Keyed by a secret, so that nobody can choose names that collide. */
static inline u32 hash_name(const u8 *name, size_t len)
{
    u64 h = hash_seed ^ (u64)len;
    while (len >= 8) {
        u64 chunk;
        memcpy(&chunk, name, 8);
        h = (h ^ chunk) * hash_factor;
        h ^= h >> 32;
        name += 8, len -= 8;
    }
    if (len) {
        u64 chunk = 0;
        memcpy(&chunk, name, len);
        h = (h ^ chunk) * hash_factor;
        h ^= h >> 32;
    }
    h *= hash_factor;
    return (u32)(h >> 32);
}

/* ---- walking BSON ---- */

typedef struct {
    const u8 *name;
    const u8 *value;
    u32 name_len;
    u32 value_len;
    u32 hash;
    u8 type;
} Field;

#define INLINE_FIELDS 24
typedef struct {
    Field *fields;
    u32 count, capacity;
    Field inline_fields[INLINE_FIELDS];
} FieldVec;

static void fields_init(FieldVec *vec) { vec->fields = vec->inline_fields, vec->count = 0, vec->capacity = INLINE_FIELDS; }
static void fields_free(FieldVec *vec)
{
    if (vec->fields != vec->inline_fields)
        free(vec->fields);
}
static int fields_grow(FieldVec *vec)
{
    u32 capacity = vec->capacity * 2;
    Field *grown = malloc(sizeof(Field) * (size_t)capacity);
    if (!grown)
        return -1;
    memcpy(grown, vec->fields, sizeof(Field) * vec->count);
    fields_free(vec);
    vec->fields = grown, vec->capacity = capacity;
    return 0;
}

static i64 string_size(const u8 *p, i64 avail)
{
    if (avail < 5)
        return -1;
    i64 length = get_length(p);
    if (length < 1 || 4 + length > avail || p[3 + length] != 0)
        return -1;
    return 4 + length;
}

/* Bytes of the value at p, of which avail may be read; -1 when it does not fit or is none. */
static i64 value_size(u8 type, const u8 *p, i64 avail)
{
    i64 size = fixed_size[type];
    if (size == -2)
        return -1;
    if (size >= 0)
        return size <= avail ? size : -1;
    switch (type) {
    case T_STR: case T_CODE: case T_SYM:
        return string_size(p, avail);
    case T_DOC: case T_ARR: case T_CWS: {
        if (avail < 5)
            return -1;
        i64 length = get_length(p);
        return length >= 5 && length <= avail && p[length - 1] == 0 ? length : -1;
    }
    case T_BIN: {
        if (avail < 5)
            return -1;
        i64 length = get_length(p);
        return length >= 0 && 5 + length <= avail ? 5 + length : -1;
    }
    case T_BOO:
        return avail >= 1 && p[0] <= 1 ? 1 : -1;
    case T_REGEX: {
        if (avail < 2)
            return -1;
        const u8 *end = memchr(p, 0, (size_t)avail);
        if (!end || end + 1 >= p + avail)
            return -1;
        end = memchr(end + 1, 0, (size_t)(p + avail - end - 1));
        return end ? end + 1 - p : -1;
    }
    case T_DBPTR: {
        i64 length = string_size(p, avail);
        return length >= 0 && length + 12 <= avail ? length + 12 : -1;
    }
    }
    return -1;
}

static inline int same_name(const Field *f, const u8 *name, u32 len, u32 hash)
{
    return f->hash == hash && f->name_len == len && memcmp(f->name, name, len) == 0;
}

/* Drops later fields of a name that was there before (W36). 0, or -1 without memory. */
static int fields_distinct(FieldVec *vec)
{
    u32 kept = 0;
    if (vec->count <= 16) {
        for (u32 i = 0; i < vec->count; i++) {
            Field *f = &vec->fields[i];
            u32 j = 0;
            while (j < kept && !same_name(&vec->fields[j], f->name, f->name_len, f->hash))
                j++;
            if (j == kept) {
                if (kept != i)
                    vec->fields[kept] = *f;
                kept++;
            }
        }
        vec->count = kept;
        return 0;
    }
    size_t size = 64;
    while (size < (size_t)vec->count * 2)
        size *= 2;
    u32 *table = calloc(size, sizeof(u32));
    if (!table)
        return -1;
    for (u32 i = 0; i < vec->count; i++) {
        Field *f = &vec->fields[i];
        size_t slot = f->hash & (size - 1);
        while (table[slot] && !same_name(&vec->fields[table[slot] - 1], f->name, f->name_len, f->hash))
            slot = (slot + 1) & (size - 1);
        if (!table[slot]) {
            if (kept != i)
                vec->fields[kept] = *f;
            table[slot] = ++kept;
        }
    }
    vec->count = kept;
    free(table);
    return 0;
}

/* The elements of the document of len bytes at p, one level deep. 0; -1: no BSON; -2: no memory. */
static int collect(const u8 *p, i64 len, int distinct, FieldVec *vec)
{
    vec->count = 0;
    if (len < 5 || get_length(p) != len || p[len - 1] != 0)
        return -1;
    const u8 *limit = p + len - 1;
    p += 4;
    while (p < limit) {
        u8 type = *p++;
        const u8 *end = memchr(p, 0, (size_t)(limit - p));
        if (!end)
            return -1;
        i64 size = value_size(type, end + 1, limit - end - 1);
        if (size < 0)
            return -1;
        if (vec->count == vec->capacity && fields_grow(vec))
            return -2;
        Field *f = &vec->fields[vec->count++];
        f->name = p, f->name_len = (u32)(end - p), f->type = type;
        f->value = end + 1, f->value_len = (u32)size;
        f->hash = distinct ? hash_name(p, f->name_len) : 0;
        p = end + 1 + size;
    }
    return distinct && fields_distinct(vec) ? -2 : 0;
}

/* Levels of documents and arrays in a value, checking all of it; -1 when something inside is no BSON. */
static int nested_depth(u8 type, const u8 *p, i64 len, int levels)
{
    if (type == T_CWS) {
        if (len < 4)
            return -1;
        i64 code = string_size(p + 4, len - 4);
        if (code < 0 || value_size(T_DOC, p + 4 + code, len - 4 - code) != len - 4 - code)
            return -1;
        return nested_depth(T_DOC, p + 4 + code, len - 4 - code, levels);
    }
    if (type != T_DOC && type != T_ARR)
        return 0;
    if (levels == 0)
        return -1;
    int deepest = 0;
    const u8 *limit = p + len - 1;
    p += 4;
    while (p < limit) {
        u8 inner = *p++;
        const u8 *end = memchr(p, 0, (size_t)(limit - p));
        if (!end)
            return -1;
        p = end + 1;
        i64 size = value_size(inner, p, limit - p);
        if (size < 0)
            return -1;
        if (inner == T_DOC || inner == T_ARR || inner == T_CWS) {
            int depth = nested_depth(inner, p, size, levels - 1);
            if (depth < 0)
                return -1;
            if (depth > deepest)
                deepest = depth;
        }
        p += size;
    }
    return deepest + 1;
}

/* ---- writing BSON; a failed allocation shows at the end ---- */

typedef struct {
    u8 *bytes;
    size_t len, capacity;
    int failed;
} Writer;

static void writer_init(Writer *w, size_t capacity)
{
    w->bytes = malloc(capacity), w->len = 0, w->capacity = w->bytes ? capacity : 0, w->failed = !w->bytes;
}
static u8 *writer_room(Writer *w, size_t len)
{
    if (w->capacity - w->len < len) {
        size_t capacity = w->capacity * 2 > w->len + len ? w->capacity * 2 : w->len + len;
        u8 *grown = w->failed || capacity > INT32_MAX ? NULL : realloc(w->bytes, capacity);
        if (!grown) {
            w->failed = 1;
            return NULL;
        }
        w->bytes = grown, w->capacity = capacity;
    }
    u8 *room = w->bytes + w->len;
    w->len += len;
    return room;
}
static inline void put(Writer *w, const void *bytes, size_t len)
{
    u8 *room = writer_room(w, len);
    if (room && len)
        memcpy(room, bytes, len);
}
#define PUT(w, literal) put(w, literal, sizeof(literal) - 1)
static inline void put_byte(Writer *w, u8 byte)
{
    u8 *room = writer_room(w, 1);
    if (room)
        *room = byte;
}
/* The decimal digits of a row at the end of room; how many. */
static inline size_t row_digits(char room[20], u64 row)
{
    size_t at = 20;
    do
        room[--at] = (char)('0' + row % 10);
    while (row /= 10);
    return 20 - at;
}
static inline void put_row(Writer *w, u64 row)
{
    char room[20];
    size_t digits = row_digits(room, row);
    put(w, room + 20 - digits, digits);
}
static inline size_t begin(Writer *w)
{
    size_t at = w->len;
    writer_room(w, 4);
    return at;
}
static inline void end(Writer *w, size_t at)
{
    put_byte(w, 0);
    if (!w->failed)
        put_u32(w->bytes + at, (u32)(w->len - at));
}
/* "\x03name\0" and the room for a length, given the bytes before it as a literal */
#define BEGIN(w, head) (PUT(w, head), begin(w))
static PyObject *writer_bytes(Writer *w)
{
    PyObject *bytes = w->failed ? PyErr_NoMemory() : PyBytes_FromStringAndSize((char *)w->bytes, (Py_ssize_t)w->len);
    free(w->bytes);
    return bytes;
}
static void put_string(Writer *w, const void *text, size_t len)
{
    u8 *room = writer_room(w, 4);
    if (room)
        put_u32(room, (u32)(len + 1));
    put(w, text, len);
    put_byte(w, 0);
}
#define PUT_STRING(w, head, text) (PUT(w, head), put_string(w, text, sizeof(text) - 1))

/* ---- names to things, in the order in which they came ---- */

typedef struct {
    u8 *name;
    void *thing;
    u32 name_len, hash;
} Entry;
typedef struct {
    Entry *entries;
    u32 *table; /* entry + 1 by hash, once there are more than LINEAR entries */
    u32 count, capacity, mask;
} Map;
#define LINEAR 8

static inline void *map_find(const Map *map, const u8 *name, u32 len, u32 hash)
{
    if (!map->table) {
        for (u32 i = 0; i < map->count; i++) {
            const Entry *e = &map->entries[i];
            if (e->hash == hash && e->name_len == len && memcmp(e->name, name, len) == 0)
                return e->thing;
        }
        return NULL;
    }
    for (u32 slot = hash & map->mask; map->table[slot]; slot = (slot + 1) & map->mask) {
        const Entry *e = &map->entries[map->table[slot] - 1];
        if (e->hash == hash && e->name_len == len && memcmp(e->name, name, len) == 0)
            return e->thing;
    }
    return NULL;
}
static int map_index(Map *map)
{
    u32 size = 32;
    while (size < map->capacity * 2)
        size *= 2;
    u32 *table = calloc(size, sizeof(u32));
    if (!table)
        return -1;
    free(map->table);
    map->table = table, map->mask = size - 1;
    for (u32 i = 0; i < map->count; i++) {
        u32 slot = map->entries[i].hash & map->mask;
        while (table[slot])
            slot = (slot + 1) & map->mask;
        table[slot] = i + 1;
    }
    return 0;
}
/* Adds a name that is not there; names of arrays stay empty and unindexed (indexed 0). -1 without memory. */
static int map_add(Map *map, const u8 *name, u32 len, u32 hash, int indexed, void *thing)
{
    if (map->count == map->capacity) {
        u32 capacity = map->capacity ? map->capacity * 2 : 4;
        Entry *grown = realloc(map->entries, sizeof(Entry) * (size_t)capacity);
        if (!grown)
            return -1;
        map->entries = grown, map->capacity = capacity;
        if (indexed && map->count >= LINEAR && map_index(map))
            return -1;
    }
    u8 *copy = NULL;
    if (indexed) {
        copy = malloc(len ? len : 1);
        if (!copy)
            return -1;
        memcpy(copy, name, len);
    }
    map->entries[map->count++] = (Entry){copy, thing, len, hash};
    if (map->table) {
        u32 slot = hash & map->mask;
        while (map->table[slot])
            slot = (slot + 1) & map->mask;
        map->table[slot] = map->count;
    }
    return 0;
}
static void map_free(Map *map, void (*free_thing)(void *))
{
    for (u32 i = 0; i < map->count; i++) {
        free(map->entries[i].name);
        free_thing(map->entries[i].thing);
    }
    free(map->entries);
    free(map->table);
    memset(map, 0, sizeof *map);
}

/* ---- shapes (W47), as in catalog/schema.py ---- */

typedef struct Shape {
    Map inner; /* by name for objects, by index for arrays */
    u8 kind;   /* canonical class */
} Shape;

static void shape_free(void *thing)
{
    if (thing) {
        map_free(&((Shape *)thing)->inner, shape_free);
        free(thing);
    }
}
static inline int is_nested(u8 type) { return type == T_DOC || type == T_ARR; }

static int shape_grow(Shape *shape, const u8 *value, u32 len);

static Shape *shape_of(u8 type, const u8 *value, u32 len)
{
    Shape *shape = calloc(1, sizeof(Shape));
    if (!shape)
        return NULL;
    shape->kind = canonical[type];
    if (is_nested(type) && shape_grow(shape, value, len)) {
        shape_free(shape);
        return NULL;
    }
    return shape;
}
/* Adds the paths of a nested value of the same kind. -1 without memory. */
static int shape_grow(Shape *shape, const u8 *value, u32 len)
{
    int object = shape->kind == canonical[T_DOC], failed = -1;
    FieldVec vec;
    fields_init(&vec);
    if (collect(value, len, object, &vec))
        goto done;
    for (u32 i = 0; i < vec.count; i++) {
        Field *f = &vec.fields[i];
        Shape *known = object ? map_find(&shape->inner, f->name, f->name_len, f->hash)
                              : (i < shape->inner.count ? shape->inner.entries[i].thing : NULL);
        if (!known) {
            known = shape_of(f->type, f->value, f->value_len);
            if (!known || map_add(&shape->inner, f->name, f->name_len, f->hash, object, known)) {
                shape_free(known);
                goto done;
            }
        } else if (is_nested(f->type) && known->kind == canonical[f->type] &&
                   shape_grow(known, f->value, f->value_len))
            goto done;
    }
    failed = 0;
done:
    fields_free(&vec);
    return failed;
}
/* 1 or 0: may the value stand there? -1 without memory. */
static int shape_fits(const Shape *shape, u8 type, const u8 *value, u32 len)
{
    if (shape->kind != canonical[type])
        return 0;
    if (!is_nested(type))
        return 1;
    int object = type == T_DOC, fits = 1;
    FieldVec vec;
    fields_init(&vec);
    if (collect(value, len, object, &vec))
        fits = -1;
    for (u32 i = 0; fits == 1 && i < vec.count; i++) {
        Field *f = &vec.fields[i];
        const Shape *known = object ? map_find(&shape->inner, f->name, f->name_len, f->hash)
                                    : (i < shape->inner.count ? shape->inner.entries[i].thing : NULL);
        if (known)
            fits = shape_fits(known, f->type, f->value, f->value_len);
    }
    fields_free(&vec);
    return fits;
}

/* ---- comparison (W21-W23), as in catalog/bson/order.py ---- */

typedef struct { /* a scalar; short ones take no memory of their own */
    union {
        u8 inside[16];
        u8 *outside;
    } at;
    u32 len;
    u8 type;
} Scalar;

static inline const u8 *scalar_bytes(const Scalar *s) { return s->len <= 16 ? s->at.inside : s->at.outside; }
static inline void scalar_free(Scalar *s)
{
    if (s->len > 16)
        free(s->at.outside);
    s->len = 0;
}
static inline int scalar_set(Scalar *s, u8 type, const u8 *value, u32 len)
{
    if (len > 16) {
        u8 *copy = malloc(len);
        if (!copy)
            return -1;
        memcpy(copy, value, len);
        scalar_free(s);
        s->at.outside = copy;
    } else {
        scalar_free(s);
        memcpy(s->at.inside, value, len);
    }
    s->len = len, s->type = type;
    return 0;
}

static inline int order_of(i64 difference) { return (difference > 0) - (difference < 0); }
static inline int order_bytes(const u8 *a, size_t a_len, const u8 *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order_of(order) : (a_len > b_len) - (a_len < b_len);
}
static inline int order_doubles(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(b) - isnan(a);
    return (a > b) - (a < b);
}
static int order_long_double(i64 a, double b)
{
    if (isnan(b))
        return 1;
    if (b >= 9223372036854775808.0)
        return -1;
    if (b < -9223372036854775808.0)
        return 1;
    i64 whole = (i64)b; /* towards zero */
    if (a != whole)
        return a < whole ? -1 : 1;
    double rest = b - (double)whole;
    return (rest < 0) - (rest > 0);
}
static inline i64 integer_of(u8 type, const u8 *p)
{
    return type == T_I32 ? get_length(p) : (i64)get_u64(p);
}
static PyObject *element_value(u8 type, const u8 *value, u32 len)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)len + 1);
    if (bytes) {
        u8 *to = (u8 *)PyBytes_AS_STRING(bytes);
        to[0] = type;
        if (len)
            memcpy(to + 1, value, len);
    }
    return bytes;
}
#define COMPARE_FAILED 9
static int order_in_python(u8 ta, const u8 *a, u32 a_len, u8 tb, const u8 *b, u32 b_len)
{
    int order = COMPARE_FAILED;
    PyObject *left = element_value(ta, a, a_len), *right = element_value(tb, b, b_len), *answer = NULL;
    if (left && right)
        answer = PyObject_CallFunctionObjArgs(python_compare, left, right, NULL);
    if (answer) {
        long number = PyLong_AsLong(answer);
        if (!PyErr_Occurred())
            order = order_of(number);
        Py_DECREF(answer);
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return order;
}
/* -1, 0, 1 for two values of one canonical class; COMPARE_FAILED with an exception. */
static int order_values(u8 ta, const u8 *a, u32 a_len, u8 tb, const u8 *b, u32 b_len)
{
    switch (ta) {
    case T_DBL:
        if (tb == T_DBL)
            return order_doubles(get_double(a), get_double(b));
        if (tb == T_I32 || tb == T_I64)
            return -order_long_double(integer_of(tb, b), get_double(a));
        break;
    case T_I32: case T_I64:
        if (tb == T_DBL)
            return order_long_double(integer_of(ta, a), get_double(b));
        if (tb == T_I32 || tb == T_I64) {
            i64 left = integer_of(ta, a), right = integer_of(tb, b);
            return (left > right) - (left < right);
        }
        break;
    case T_STR: case T_SYM: case T_CODE:
        return order_bytes(a + 4, a_len - 5, b + 4, b_len - 5);
    case T_BIN:
        return a_len != b_len ? (a_len > b_len ? 1 : -1) : order_of(memcmp(a + 4, b + 4, a_len - 4));
    case T_OID:
        return order_of(memcmp(a, b, 12));
    case T_BOO:
        return (int)a[0] - (int)b[0];
    case T_DATE: {
        i64 left = (i64)get_u64(a), right = (i64)get_u64(b);
        return (left > right) - (left < right);
    }
    case T_TS: {
        u64 left = get_u64(a), right = get_u64(b);
        return (left > right) - (left < right);
    }
    case T_REGEX: {
        size_t a_pattern = strlen((const char *)a), b_pattern = strlen((const char *)b);
        int order = order_bytes(a, a_pattern, b, b_pattern);
        return order ? order
                     : order_bytes(a + a_pattern + 1, a_len - a_pattern - 2, b + b_pattern + 1, b_len - b_pattern - 2);
    }
    case T_DBPTR:
        return a_len != b_len ? (a_len > b_len ? 1 : -1) : order_of(memcmp(a, b, a_len));
    case T_UNDEF: case T_NUL: case T_MIN: case T_MAX:
        return 0;
    }
    return order_in_python(ta, a, a_len, tb, b, b_len);
}

/* ---- summaries (W20-W28), as in catalog/minmax.py ---- */

typedef struct Summary {
    union {
        struct {
            Scalar least, greatest;
        } scalar;
        Map inner;
    } is;
    u8 nested; /* T_DOC, T_ARR or 0 */
} Summary;

static void summary_free(void *thing)
{
    Summary *summary = thing;
    if (!summary)
        return;
    if (summary->nested)
        map_free(&summary->is.inner, summary_free);
    else {
        scalar_free(&summary->is.scalar.least);
        scalar_free(&summary->is.scalar.greatest);
    }
    free(summary);
}
static int summary_fold(Summary *summary, u8 type, const u8 *value, u32 len);

/* NULL with an exception. */
static Summary *summary_of(u8 type, const u8 *value, u32 len)
{
    Summary *summary = calloc(1, sizeof(Summary));
    if (!summary) {
        PyErr_NoMemory();
        return NULL;
    }
    int failed;
    if (is_nested(type)) {
        summary->nested = type;
        failed = summary_fold(summary, type, value, len) < 0;
    } else {
        failed = scalar_set(&summary->is.scalar.least, type, value, len) ||
                 scalar_set(&summary->is.scalar.greatest, type, value, len);
        if (failed)
            PyErr_NoMemory();
    }
    if (failed) {
        summary_free(summary);
        return NULL;
    }
    return summary;
}
/* Which ends changed; -1 with an exception. */
static int scalar_fold(Summary *summary, u8 type, const u8 *value, u32 len)
{
    Scalar *least = &summary->is.scalar.least, *greatest = &summary->is.scalar.greatest;
    int changed = 0;
    if (canonical[type] != canonical[least->type]) { /* W28 */
        if (canonical[type] < canonical[least->type])
            changed |= MIN_CHANGED;
        if (canonical[type] > canonical[greatest->type])
            changed |= MAX_CHANGED;
    } else {
        int order = order_values(type, value, len, least->type, scalar_bytes(least), least->len);
        if (order == COMPARE_FAILED)
            return -1;
        if (order < 0)
            changed = MIN_CHANGED;
        else if (canonical[type] == canonical[greatest->type]) {
            order = order_values(type, value, len, greatest->type, scalar_bytes(greatest), greatest->len);
            if (order == COMPARE_FAILED)
                return -1;
            if (order > 0)
                changed = MAX_CHANGED;
        }
    }
    if ((changed & MIN_CHANGED && scalar_set(least, type, value, len)) ||
        (changed & MAX_CHANGED && scalar_set(greatest, type, value, len))) {
        PyErr_NoMemory();
        return -1;
    }
    return changed;
}
static int summary_fold(Summary *summary, u8 type, const u8 *value, u32 len)
{
    if (!summary->nested)
        return scalar_fold(summary, type, value, len);
    if (summary->nested != type) {
        PyErr_SetString(PyExc_ValueError, "folded a value of another kind");
        return -1;
    }
    int object = type == T_DOC, changed = 0;
    Map *inner = &summary->is.inner;
    FieldVec vec;
    fields_init(&vec);
    if (collect(value, len, object, &vec)) {
        PyErr_NoMemory();
        changed = -1;
    }
    for (u32 i = 0; changed >= 0 && i < vec.count; i++) {
        Field *f = &vec.fields[i];
        Summary *known = object ? map_find(inner, f->name, f->name_len, f->hash)
                                : (i < inner->count ? inner->entries[i].thing : NULL);
        if (known) {
            int more = summary_fold(known, f->type, f->value, f->value_len);
            changed = more < 0 ? -1 : changed | more;
            continue;
        }
        known = summary_of(f->type, f->value, f->value_len);
        if (known && map_add(inner, f->name, f->name_len, f->hash, object, known)) {
            summary_free(known);
            known = NULL;
            PyErr_NoMemory();
        }
        changed = known ? BOTH_CHANGED : -1;
    }
    fields_free(&vec);
    return changed;
}
static u8 summary_type(const Summary *summary, int greatest)
{
    if (summary->nested)
        return summary->nested;
    return greatest ? summary->is.scalar.greatest.type : summary->is.scalar.least.type;
}
/* The value of one end, without its type byte. */
static void put_summary(Writer *w, const Summary *summary, int greatest)
{
    if (!summary->nested) {
        const Scalar *s = greatest ? &summary->is.scalar.greatest : &summary->is.scalar.least;
        put(w, scalar_bytes(s), s->len);
        return;
    }
    size_t at = begin(w);
    for (u32 i = 0; i < summary->is.inner.count; i++) {
        const Entry *e = &summary->is.inner.entries[i];
        put_byte(w, summary_type(e->thing, greatest));
        if (summary->nested == T_DOC)
            put(w, e->name, e->name_len);
        else
            put_row(w, i);
        put_byte(w, 0);
        put_summary(w, e->thing, greatest);
    }
    end(w, at);
}
static size_t digits_of(u64 number)
{
    size_t digits = 1;
    while (number /= 10)
        digits++;
    return digits;
}
static size_t summary_size(const Summary *summary, int greatest)
{
    if (!summary->nested)
        return greatest ? summary->is.scalar.greatest.len : summary->is.scalar.least.len;
    size_t size = 5;
    for (u32 i = 0; i < summary->is.inner.count; i++) {
        const Entry *e = &summary->is.inner.entries[i];
        size += 2 + (summary->nested == T_DOC ? e->name_len : digits_of(i)) + summary_size(e->thing, greatest);
    }
    return size;
}
/* From two ends that the interpreted form found to have the same paths. NULL with an exception. */
static Summary *summary_between(u8 type, const u8 *least, u32 least_len, u8 other, const u8 *greatest, u32 greatest_len)
{
    Summary *summary = calloc(1, sizeof(Summary));
    FieldVec lower, upper;
    fields_init(&lower);
    fields_init(&upper);
    int failed = !summary, object = type == T_DOC;
    if (!failed && !is_nested(type)) {
        failed = scalar_set(&summary->is.scalar.least, type, least, least_len) ||
                 scalar_set(&summary->is.scalar.greatest, other, greatest, greatest_len);
    } else if (!failed) {
        summary->nested = type;
        failed = type != other || collect(least, least_len, 1, &lower) || collect(greatest, greatest_len, 1, &upper) ||
                 lower.count != upper.count;
        for (u32 i = 0; !failed && i < lower.count; i++) {
            Field *f = &lower.fields[i], *g = &upper.fields[i];
            if (!same_name(g, f->name, f->name_len, f->hash))
                for (g = upper.fields; g < upper.fields + upper.count; g++)
                    if (same_name(g, f->name, f->name_len, f->hash))
                        break;
            failed = g == upper.fields + upper.count;
            if (failed)
                break;
            Summary *inner = summary_between(f->type, f->value, f->value_len, g->type, g->value, g->value_len);
            failed = !inner || map_add(&summary->is.inner, f->name, f->name_len, f->hash, object, inner);
            if (failed)
                summary_free(inner);
        }
    }
    fields_free(&lower);
    fields_free(&upper);
    if (failed) {
        summary_free(summary);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "control.min and control.max differ");
        return NULL;
    }
    return summary;
}

/* ---- Measurement ---- */

typedef struct {
    PyObject_VAR_HEAD
    PyObject *raw;
    PyObject *meta;
    i64 time_ms;
    i64 payload_bytes;
    Field fields[1];
} Measurement;

static PyTypeObject MeasurementType;

static void measurement_dealloc(Measurement *self)
{
    Py_XDECREF(self->raw);
    Py_XDECREF(self->meta);
    Py_TYPE(self)->tp_free((PyObject *)self);
}
static PyObject *measurement_columns(Measurement *self, void *closure)
{
    (void)closure;
    PyObject *columns = PyDict_New();
    for (Py_ssize_t i = 0; columns && i < Py_SIZE(self); i++) {
        Field *f = &self->fields[i];
        PyObject *name = PyBytes_FromStringAndSize((const char *)f->name, f->name_len);
        PyObject *value = element_value(f->type, f->value, f->value_len);
        if (!name || !value || PyDict_SetItem(columns, name, value))
            Py_CLEAR(columns);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    return columns;
}
static PyMemberDef measurement_members[] = {
    {"raw", T_OBJECT_EX, offsetof(Measurement, raw), READONLY, "The client's document."},
    {"meta", T_OBJECT_EX, offsetof(Measurement, meta), READONLY, "The normalised meta, b\"\" without one."},
    {"time_ms", T_LONGLONG, offsetof(Measurement, time_ms), READONLY, "The time field."},
    {"payload_bytes", T_LONGLONG, offsetof(Measurement, payload_bytes), READONLY, "Type bytes and values of columns."},
    {NULL, 0, 0, 0, NULL}};
static PyGetSetDef measurement_getset[] = {
    {"columns", (getter)measurement_columns, NULL, "Every field except the meta field, name to element value.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyTypeObject MeasurementType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "catalog._kernel.Measurement",
    .tp_doc = "A client's document, ready for a bucket; see catalog.measurement.",
    .tp_basicsize = offsetof(Measurement, fields),
    .tp_itemsize = sizeof(Field),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)measurement_dealloc,
    .tp_members = measurement_members,
    .tp_getset = measurement_getset,
};

static int by_name(const void *left, const void *right)
{
    const Field *a = left, *b = right;
    int order = order_bytes(a->name, a->name_len, b->name, b->name_len);
    return order ? order : (a->name > b->name) - (a->name < b->name);
}
static void put_normalised(Writer *w, u8 type, const u8 *value, u32 len)
{
    if (!is_nested(type)) {
        put(w, value, len);
        return;
    }
    FieldVec vec;
    fields_init(&vec);
    if (collect(value, len, 0, &vec))
        w->failed = 1;
    else {
        if (type == T_DOC)
            qsort(vec.fields, vec.count, sizeof(Field), by_name);
        size_t at = begin(w);
        for (u32 i = 0; i < vec.count; i++) {
            Field *f = &vec.fields[i];
            put_byte(w, f->type);
            put(w, f->name, f->name_len);
            put_byte(w, 0);
            put_normalised(w, f->type, f->value, f->value_len);
        }
        end(w, at);
    }
    fields_free(&vec);
}
static PyObject *meta_bytes(const Field *meta)
{
    if (!meta)
        return PyBytes_FromStringAndSize(NULL, 0);
    if (!is_nested(meta->type))
        return element_value(meta->type, meta->value, meta->value_len);
    Writer w;
    writer_init(&w, (size_t)meta->value_len + 1);
    put_byte(&w, meta->type);
    put_normalised(&w, meta->type, meta->value, meta->value_len);
    return writer_bytes(&w);
}
static inline int is_deep(u8 type) { return type == T_DOC || type == T_ARR || type == T_CWS; }

/* Fits into a bucket as far as nesting goes (W99)? */
static int nesting_is_fine(const FieldVec *vec, const Field *meta)
{
    for (u32 i = 0; i < vec->count; i++) {
        const Field *f = &vec->fields[i];
        if (is_deep(f->type)) {
            int depth = nested_depth(f->type, f->value, f->value_len, MAX_LEVELS);
            if (depth < 0 || depth > (f == meta ? MAX_META_LEVELS : MAX_FIELD_LEVELS))
                return 0;
        }
    }
    return 1;
}
/* NULL without exception when the interpreted form must say what is wrong. */
static PyObject *measurement_from(PyObject *raw, FieldVec *vec, PyObject *time_field, PyObject *meta_field)
{
    const u8 *time_name = (const u8 *)PyBytes_AS_STRING(time_field), *meta_name = NULL;
    size_t time_len = (size_t)PyBytes_GET_SIZE(time_field), meta_len = 0;
    if (meta_field != Py_None)
        meta_name = (const u8 *)PyBytes_AS_STRING(meta_field), meta_len = (size_t)PyBytes_GET_SIZE(meta_field);
    const Field *time = NULL, *meta = NULL;
    for (u32 i = 0; i < vec->count; i++) {
        const Field *f = &vec->fields[i];
        if (meta_name && f->name_len == meta_len && memcmp(f->name, meta_name, meta_len) == 0)
            meta = f;
        else if (f->name_len == time_len && memcmp(f->name, time_name, time_len) == 0)
            time = f;
    }
    if (!time || time->type != T_DATE || !nesting_is_fine(vec, meta))
        return NULL;
    PyObject *meta_value = meta_bytes(meta);
    if (!meta_value)
        return NULL;
    Measurement *self = (Measurement *)MeasurementType.tp_alloc(&MeasurementType, vec->count - (meta != NULL));
    if (!self) {
        Py_DECREF(meta_value);
        return NULL;
    }
    Py_INCREF(raw);
    self->raw = raw, self->meta = meta_value, self->time_ms = (i64)get_u64(time->value);
    Field *to = self->fields;
    i64 payload_bytes = 0;
    for (u32 i = 0; i < vec->count; i++) {
        const Field *f = &vec->fields[i];
        if (f == meta)
            continue;
        *to++ = *f;
        payload_bytes += (i64)f->value_len + 1;
    }
    self->payload_bytes = payload_bytes;
    return (PyObject *)self;
}
static PyObject *parse_measurement(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[1]) ||
        !(args[2] == Py_None || PyBytes_Check(args[2])))
        return PyErr_Format(PyExc_TypeError, "parse_measurement takes bytes, bytes, and bytes or None");
    PyObject *measurement = NULL;
    FieldVec vec;
    fields_init(&vec);
    const u8 *raw = (const u8 *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t len = PyBytes_GET_SIZE(args[0]);
    int collected = len > INT32_MAX || !PyBytes_GET_SIZE(args[1]) ? -1 : collect(raw, len, 1, &vec);
    if (collected == -2)
        PyErr_NoMemory();
    else if (collected == 0)
        measurement = measurement_from(args[0], &vec, args[1], args[2]);
    fields_free(&vec);
    if (PyErr_Occurred() || (measurement && len <= MAX_DOCUMENT_BYTES / 4))
        return measurement;
    /* Refused, or so large that its size has to be looked at: the interpreted form decides and says why. */
    PyObject *other = PyObject_Vectorcall(interpreted_parse, args, 3, NULL);
    if (!other) {
        Py_CLEAR(measurement);
        return NULL;
    }
    Py_DECREF(other);
    if (!measurement)
        PyErr_SetString(InvariantViolated, "the two forms of the kernel disagree about a measurement");
    return measurement;
}

/* ---- BucketState ---- */

typedef struct {
    const u8 *name; /* owned by the map */
    Shape *shape;   /* of nested columns */
    Summary *summary;
    i64 ends_bytes; /* size of both encoded ends */
    u32 name_len;
    u32 rows, first; /* of the batch that is being written */
    u8 kind, committed, safe, changed;
} Column;

typedef struct {
    PyObject_HEAD
    PyObject *bucket_id, *meta;
    Map columns; /* the time field first */
    i64 start_ms, span_ms, rows, committed_rows, size_bytes;
    i64 max_count, max_size_bytes, min_count, large_max_bytes;
    i64 unfolded_bytes, summary_bytes, memory_bytes;
    char kept_open_for_large, busy;
} BucketState;

static void column_free(void *thing)
{
    Column *column = thing;
    if (column) {
        shape_free(column->shape);
        summary_free(column->summary);
        free(column);
    }
}
static void state_dealloc(BucketState *self)
{
    map_free(&self->columns, column_free);
    Py_XDECREF(self->bucket_id);
    Py_XDECREF(self->meta);
    Py_TYPE(self)->tp_free((PyObject *)self);
}
static int is_path_safe(const u8 *name, u32 len) { return len && name[0] != '$' && !memchr(name, '.', len); }

/* NULL with an exception. */
static Column *add_column(BucketState *self, const u8 *name, u32 len, u32 hash, u8 type, const u8 *value, u32 value_len)
{
    Column *column = calloc(1, sizeof(Column));
    if (column) {
        column->kind = canonical[type], column->safe = (u8)is_path_safe(name, len), column->name_len = len;
        if (is_nested(type))
            column->shape = shape_of(type, value, value_len);
    }
    if (!column || (is_nested(type) && !column->shape) || map_add(&self->columns, name, len, hash, 1, column)) {
        column_free(column);
        PyErr_NoMemory();
        return NULL;
    }
    column->name = self->columns.entries[self->columns.count - 1].name;
    self->memory_bytes += COLUMN_MEMORY_BYTES + (i64)len + (is_nested(type) ? 4 * (i64)value_len : 0);
    return column;
}
static i64 encode_ends(BucketState *self, Column *column)
{
    i64 size = column->summary ? 2 + (i64)(summary_size(column->summary, 0) + summary_size(column->summary, 1)) : 0;
    i64 grown = size - column->ends_bytes;
    column->ends_bytes = size;
    self->summary_bytes += grown;
    return grown;
}
static int limit_of(PyObject *limits, const char *name, i64 *to)
{
    PyObject *value = PyObject_GetAttrString(limits, name);
    if (!value)
        return -1;
    *to = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}
static BucketState *state_make(PyTypeObject *type, PyObject *id, PyObject *time_field, PyObject *meta_field,
                               PyObject *meta, i64 start_ms, i64 span_ms, PyObject *limits)
{
    if (PyBytes_GET_SIZE(meta) && meta_field == Py_None) {
        PyErr_SetString(InvariantViolated, "a meta value in a collection without meta field");
        return NULL;
    }
    if (PyBytes_GET_SIZE(id) != 12) {
        PyErr_SetString(PyExc_ValueError, "a bucket id has twelve bytes");
        return NULL;
    }
    BucketState *self = (BucketState *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    Py_INCREF(id);
    Py_INCREF(meta);
    self->bucket_id = id, self->meta = meta, self->start_ms = start_ms, self->span_ms = span_ms;
    self->memory_bytes = BUCKET_MEMORY_BYTES + (i64)PyBytes_GET_SIZE(meta);
    u8 start[8];
    put_u32(start, (u32)(u64)start_ms);
    put_u32(start + 4, (u32)((u64)start_ms >> 32));
    const u8 *name = (const u8 *)PyBytes_AS_STRING(time_field);
    u32 len = (u32)PyBytes_GET_SIZE(time_field);
    Column *time = NULL;
    if (!limit_of(limits, "max_count", &self->max_count) && !limit_of(limits, "max_size_bytes", &self->max_size_bytes) &&
        !limit_of(limits, "min_count", &self->min_count) && !limit_of(limits, "large_max_bytes", &self->large_max_bytes))
        time = add_column(self, name, len, hash_name(name, len), T_DATE, start, 8);
    if (!time || !(time->summary = summary_of(T_DATE, start, 8))) { /* starts from the rounded time (W20) */
        Py_DECREF(self);
        return NULL;
    }
    encode_ends(self, time);
    return self;
}
static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"bucket_id", "time_field", "meta_field", "meta", "start_ms", "span_ms", "limits", NULL};
    PyObject *id, *time_field, *meta_field, *meta, *limits;
    long long start_ms, span_ms;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "SSOSLLO:BucketState", names, &id, &time_field, &meta_field, &meta,
                                     &start_ms, &span_ms, &limits))
        return NULL;
    return (PyObject *)state_make(type, id, time_field, meta_field, meta, start_ms, span_ms, limits);
}
static int adopt_column(BucketState *self, PyObject *name, PyObject *ends)
{
    PyObject *least, *greatest;
    if (!PyBytes_Check(name) || !PyArg_ParseTuple(ends, "SS", &least, &greatest))
        return -1;
    const u8 *bytes = (const u8 *)PyBytes_AS_STRING(name);
    const u8 *lower = (const u8 *)PyBytes_AS_STRING(least), *upper = (const u8 *)PyBytes_AS_STRING(greatest);
    u32 len = (u32)PyBytes_GET_SIZE(name), hash = hash_name(bytes, len);
    u32 lower_len = (u32)PyBytes_GET_SIZE(least) - 1, upper_len = (u32)PyBytes_GET_SIZE(greatest) - 1;
    if (!PyBytes_GET_SIZE(least) || !PyBytes_GET_SIZE(greatest))
        return -1;
    Column *column = map_find(&self->columns, bytes, len, hash);
    if (!column && !(column = add_column(self, bytes, len, hash, lower[0], lower + 1, lower_len)))
        return -1;
    if (column->shape && (upper[0] != lower[0] || shape_grow(column->shape, upper + 1, upper_len)))
        return -1;
    Summary *summary = summary_between(lower[0], lower + 1, lower_len, upper[0], upper + 1, upper_len);
    if (!summary)
        return -1;
    summary_free(column->summary);
    column->summary = summary, column->committed = 1;
    encode_ends(self, column);
    return 0;
}
static PyObject *state_from_document(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"document", "time_field", "meta_field", "span_ms", "limits", NULL};
    PyObject *document, *time_field, *meta_field, *limits, *id, *meta, *ends, *name, *pair;
    long long span_ms, start_ms, rows;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "SSOLO:from_document", names, &document, &time_field, &meta_field,
                                     &span_ms, &limits))
        return NULL;
    PyObject *parts = PyObject_CallFunction(python_adopt, "OOOL", document, time_field, meta_field, span_ms);
    if (!parts)
        return NULL;
    BucketState *self = NULL;
    if (PyArg_ParseTuple(parts, "SSLLO!", &id, &meta, &start_ms, &rows, &PyDict_Type, &ends))
        self = state_make(type, id, time_field, meta_field, meta, start_ms, span_ms, limits);
    Py_ssize_t at = 0;
    while (self && PyDict_Next(ends, &at, &name, &pair))
        if (adopt_column(self, name, pair)) {
            Py_CLEAR(self);
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "the bucket cannot be adopted");
        }
    if (self) {
        self->rows = self->committed_rows = rows;
        self->size_bytes = PyBytes_GET_SIZE(document);
    }
    Py_DECREF(parts);
    return (PyObject *)self;
}
static int refuse_busy(BucketState *self)
{
    if (self->busy)
        PyErr_SetString(InvariantViolated, "a bucket is being prepared");
    return self->busy;
}
static int stays_open(const BucketState *self, i64 added_bytes)
{
    i64 size_bytes = self->size_bytes + added_bytes;
    if (self->rows >= self->min_count || size_bytes > self->large_max_bytes)
        return 0;
    i64 summaries = self->summary_bytes + 2 * (self->unfolded_bytes + added_bytes);
    return size_bytes + summaries + PyBytes_GET_SIZE(self->meta) <= DOCUMENT_MAX_BYTES;
}
/* 0 or a reason; -1 with an exception. *added_bytes: the measurement's size by W46. */
static int judge(BucketState *self, Measurement *m, i64 *added_bytes)
{
    i64 added = m->payload_bytes;
    for (Py_ssize_t i = 0; i < Py_SIZE(m); i++) {
        Field *f = &m->fields[i];
        Column *column = map_find(&self->columns, f->name, f->name_len, f->hash);
        if (!column || !column->committed)
            added += 12 + (i64)f->name_len;
        if (!column)
            continue;
        if (column->kind != canonical[f->type])
            return SCHEMA_CHANGE;
        if (column->shape) {
            int fits = shape_fits(column->shape, f->type, f->value, f->value_len);
            if (fits <= 0)
                return fits < 0 ? (PyErr_NoMemory(), -1) : SCHEMA_CHANGE;
        }
    }
    added += Py_SIZE(m) * (i64)(self->rows ? digits_of((u64)self->rows) + 1 : 1);
    *added_bytes = added;
    if (self->rows >= self->max_count)
        return COUNT;
    if (self->rows && self->size_bytes + added > self->max_size_bytes && !stays_open(self, added))
        return SIZE;
    if (m->time_ms >= self->start_ms && (self->span_ms <= 0 || (u64)m->time_ms - (u64)self->start_ms >= (u64)self->span_ms))
        return TIME_FORWARD;
    return m->time_ms < self->start_ms ? TIME_BACKWARD : 0;
}
static PyObject *state_try_stage(BucketState *self, PyObject *measurement)
{
    if (refuse_busy(self))
        return NULL;
    if (!Py_IS_TYPE(measurement, &MeasurementType))
        return PyErr_Format(PyExc_TypeError, "try_stage takes a Measurement");
    Measurement *m = (Measurement *)measurement;
    i64 added_bytes = 0;
    int reason = judge(self, m, &added_bytes);
    if (reason)
        return reason < 0 ? NULL : PyLong_FromLong(reason);
    if (self->rows && self->size_bytes + added_bytes > self->max_size_bytes)
        self->kept_open_for_large = 1;
    for (Py_ssize_t i = 0; i < Py_SIZE(m); i++) {
        Field *f = &m->fields[i];
        Column *column = map_find(&self->columns, f->name, f->name_len, f->hash);
        if (!column) {
            if (!add_column(self, f->name, f->name_len, f->hash, f->type, f->value, f->value_len))
                return NULL;
        } else if (column->shape && shape_grow(column->shape, f->value, f->value_len))
            return PyErr_NoMemory();
    }
    self->rows++;
    self->size_bytes += added_bytes;
    self->unfolded_bytes += m->payload_bytes;
    return PyLong_FromLong(0);
}

/* ---- the documents (W3, W121-W125), as in catalog/documents.py ---- */

typedef struct {
    Measurement **measurements;
    Py_ssize_t count;
    i64 base;
    Column **column_of; /* by field, measurement after measurement */
    Column **changed;   /* in the order in which they first changed */
    u32 changed_count;
    const Field **cells; /* column after column */
    i64 *cell_rows;
    size_t fields, bytes;
} Batch;

static inline void put_head(Writer *w, u8 type, const char *prefix, size_t prefix_len, const u8 *name, size_t len)
{
    u8 *room = writer_room(w, 2 + prefix_len + len);
    if (!room)
        return;
    *room++ = type;
    memcpy(room, prefix, prefix_len);
    if (len)
        memcpy(room + prefix_len, name, len);
    room[prefix_len + len] = 0;
}
static void put_end(Writer *w, const Column *column, int greatest, const char *prefix, size_t prefix_len)
{
    put_head(w, summary_type(column->summary, greatest), prefix, prefix_len, column->name, column->name_len);
    put_summary(w, column->summary, greatest);
}
/* Numbers the cells of each column that the batch touches. */
static void sort_cells(BucketState *self, Batch *batch)
{
    u32 first = 0;
    for (u32 i = 0; i < self->columns.count; i++) {
        Column *column = self->columns.entries[i].thing;
        column->first = first;
        first += column->rows;
        column->rows = 0;
    }
    Column **column = batch->column_of;
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        Measurement *m = batch->measurements[i];
        for (Py_ssize_t j = 0; j < Py_SIZE(m); j++, column++) {
            u32 cell = (*column)->first + (*column)->rows++;
            batch->cells[cell] = &m->fields[j];
            batch->cell_rows[cell] = batch->base + i;
        }
    }
}
static void put_cells(Writer *w, const Batch *batch, const Column *column)
{
    for (u32 i = column->first; i < column->first + column->rows; i++) {
        const Field *f = batch->cells[i];
        put_byte(w, f->type);
        put_row(w, (u64)batch->cell_rows[i]);
        put_byte(w, 0);
        put(w, f->value, f->value_len);
    }
}
static void put_id(Writer *w, const BucketState *self)
{
    PUT(w, "\x07_id\0");
    put(w, PyBytes_AS_STRING(self->bucket_id), 12);
}
/* The meta as stored; undefined is kept as null (W35). */
static void put_meta(Writer *w, const BucketState *self, const char *name, size_t name_len)
{
    const u8 *meta = (const u8 *)PyBytes_AS_STRING(self->meta);
    size_t len = (size_t)PyBytes_GET_SIZE(self->meta);
    put_byte(w, meta[0] == T_UNDEF ? T_NUL : meta[0]);
    put(w, name, name_len + 1);
    put(w, meta + 1, len - 1);
}
static void put_bucket(Writer *w, const BucketState *self, const Batch *batch)
{
    int has_meta = PyBytes_GET_SIZE(self->meta) > 0;
    size_t document = begin(w);
    put_id(w, self);
    size_t control = BEGIN(w, "\x03" "control\0");
    PUT(w, "\x10version\0\x01\0\0\0");
    for (int greatest = 0; greatest < 2; greatest++) {
        size_t ends = greatest ? BEGIN(w, "\x03max\0") : BEGIN(w, "\x03min\0");
        for (u32 i = 0; i < self->columns.count; i++) {
            const Column *column = self->columns.entries[i].thing;
            if (column->rows && (column->name_len || has_meta))
                put_end(w, column, greatest, "", 0);
        }
        end(w, ends);
    }
    end(w, control);
    if (has_meta)
        put_meta(w, self, "meta", 4);
    size_t data = BEGIN(w, "\x03" "data\0");
    for (u32 i = 0; i < self->columns.count; i++) {
        const Column *column = self->columns.entries[i].thing;
        if (!column->rows)
            continue;
        put_head(w, T_DOC, "", 0, column->name, column->name_len);
        size_t rows = begin(w);
        put_cells(w, batch, column);
        end(w, rows);
    }
    end(w, data);
    end(w, document);
}
/* The value of {$getField: {field: {$literal: name}, input: "$data"}}, after its type and name. */
static void put_data_column(Writer *w, const Column *column)
{
    size_t expression = begin(w), get = BEGIN(w, "\x03$getField\0"), literal = BEGIN(w, "\x03" "field\0");
    PUT(w, "\x02$literal\0");
    put_string(w, column->name, column->name_len);
    end(w, literal);
    PUT_STRING(w, "\x02input\0", "$data");
    end(w, get);
    end(w, expression);
}
/* One of the conditions that a time field needs which no path can address. */
static void put_row_condition(Writer *w, const Column *time, u32 index, int there, i64 row)
{
    put_byte(w, T_DOC);
    put_row(w, index);
    put_byte(w, 0);
    size_t condition = begin(w), operands = there ? BEGIN(w, "\x04$ne\0") : BEGIN(w, "\x04$eq\0");
    size_t type = BEGIN(w, "\x03" "0\0"), of = BEGIN(w, "\x03$type\0"), get = BEGIN(w, "\x03$getField\0");
    size_t literal = BEGIN(w, "\x03" "field\0");
    PUT(w, "\x02$literal\0");
    char room[20];
    size_t digits = row_digits(room, (u64)row);
    put_string(w, room + 20 - digits, digits);
    end(w, literal);
    PUT(w, "\x03input\0");
    put_data_column(w, time);
    end(w, get);
    end(w, of);
    end(w, type);
    PUT_STRING(w, "\x02" "1\0", "missing");
    end(w, operands);
    end(w, condition);
}
static void put_meta_condition(Writer *w, const BucketState *self)
{
    size_t condition = begin(w), operands = BEGIN(w, "\x04$eq\0");
    PUT_STRING(w, "\x02" "0\0", "$meta");
    size_t literal = BEGIN(w, "\x03" "1\0");
    put_meta(w, self, "$literal", 8);
    end(w, literal);
    end(w, operands);
    end(w, condition);
}
static int matches_plainly(u8 type)
{
    return type == T_STR || type == T_DOC || type == T_OID || type == T_BOO || type == T_DATE || type == T_I32 ||
           type == T_I64;
}
static void put_exists(Writer *w, const Column *time, i64 row, u8 there)
{
    PUT(w, "\x03" "data.");
    put(w, time->name, time->name_len);
    put_byte(w, '.');
    put_row(w, (u64)row);
    put_byte(w, 0);
    size_t exists = begin(w);
    PUT(w, "\x08$exists\0");
    put_byte(w, there);
    end(w, exists);
}
/* The guard of an append (W125). */
static void put_query(Writer *w, const BucketState *self, i64 base)
{
    const Column *time = self->columns.entries[0].thing;
    int has_meta = PyBytes_GET_SIZE(self->meta) > 0;
    int plain = has_meta && matches_plainly((u8)PyBytes_AS_STRING(self->meta)[0]);
    size_t query = begin(w);
    put_id(w, self);
    PUT(w, "\x10" "control.version\0\x01\0\0\0");
    size_t closed = BEGIN(w, "\x03" "control.closed\0");
    PUT(w, "\x08$ne\0\x01");
    end(w, closed);
    if (plain) {
        size_t meta = BEGIN(w, "\x03meta\0");
        put_meta(w, self, "$eq", 3);
        size_t not_array = BEGIN(w, "\x03$not\0");
        PUT(w, "\x10$type\0\x04\0\0\0");
        end(w, not_array);
        end(w, meta);
    } else if (!has_meta) {
        size_t meta = BEGIN(w, "\x03meta\0");
        PUT(w, "\x08$exists\0\0");
        end(w, meta);
    }
    if (time->safe) {
        put_exists(w, time, base - 1, 1);
        put_exists(w, time, base, 0);
        if (has_meta && !plain) {
            PUT(w, "\x03$expr\0");
            put_meta_condition(w, self);
        }
    } else {
        size_t expression = BEGIN(w, "\x03$expr\0"), all = BEGIN(w, "\x04$and\0");
        u32 index = 0;
        if (has_meta && !plain) {
            PUT(w, "\x03" "0\0");
            put_meta_condition(w, self);
            index = 1;
        }
        put_row_condition(w, time, index, 1, base - 1);
        put_row_condition(w, time, index + 1, 0, base);
        end(w, all);
        end(w, expression);
    }
    end(w, query);
}
static void put_sets(Writer *w, const Batch *batch)
{
    Column **column = batch->column_of;
    size_t update = BEGIN(w, "\x03u\0"), sets = BEGIN(w, "\x03$set\0");
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        const Measurement *m = batch->measurements[i];
        char room_for_key[22] = {0}; /* a dot, digits, NUL */
        size_t key_len = row_digits(room_for_key + 1, (u64)(batch->base + i)) + 2;
        char *key = room_for_key + 22 - key_len;
        *key = '.';
        for (Py_ssize_t j = 0; j < Py_SIZE(m); j++, column++) {
            const Field *f = &m->fields[j];
            u8 *room = writer_room(w, 6 + f->name_len + key_len + f->value_len);
            if (!room)
                return;
            *room++ = f->type;
            memcpy(room, "data.", 5);
            memcpy(room + 5, f->name, f->name_len);
            memcpy(room + 5 + f->name_len, key, key_len);
            if (f->value_len)
                memcpy(room + 5 + f->name_len + key_len, f->value, f->value_len);
        }
    }
    for (u32 i = 0; i < batch->changed_count; i++) {
        const Column *changed = batch->changed[i];
        if (changed->changed & MIN_CHANGED)
            put_end(w, changed, 0, "control.min.", 12);
        if (changed->changed & MAX_CHANGED)
            put_end(w, changed, 1, "control.max.", 12);
    }
    end(w, sets);
    end(w, update);
}
/* {k: {$literal: name}, v: {$mergeObjects: [the column, {$literal: its new rows}]}}, after type and name */
static void put_grown_column(Writer *w, const Batch *batch, const Column *column)
{
    size_t pair = begin(w), key = BEGIN(w, "\x03k\0");
    PUT(w, "\x02$literal\0");
    put_string(w, column->name, column->name_len);
    end(w, key);
    size_t value = BEGIN(w, "\x03v\0"), merge = BEGIN(w, "\x04$mergeObjects\0");
    PUT(w, "\x03" "0\0");
    put_data_column(w, column);
    size_t literal = BEGIN(w, "\x03" "1\0"), rows = BEGIN(w, "\x03$literal\0");
    put_cells(w, batch, column);
    end(w, rows);
    end(w, literal);
    end(w, merge);
    end(w, value);
    end(w, pair);
}
static void put_merged_ends(Writer *w, const Batch *batch, int greatest)
{
    u8 bit = greatest ? MAX_CHANGED : MIN_CHANGED;
    int any = 0;
    for (u32 i = 0; i < batch->changed_count; i++)
        any |= batch->changed[i]->changed & bit;
    if (!any)
        return;
    size_t expression = greatest ? BEGIN(w, "\x03" "control.max\0") : BEGIN(w, "\x03" "control.min\0");
    size_t merge = BEGIN(w, "\x04$mergeObjects\0");
    if (greatest)
        PUT_STRING(w, "\x02" "0\0", "$control.max");
    else
        PUT_STRING(w, "\x02" "0\0", "$control.min");
    size_t literal = BEGIN(w, "\x03" "1\0"), ends = BEGIN(w, "\x03$literal\0");
    for (u32 i = 0; i < batch->changed_count; i++)
        if (batch->changed[i]->changed & bit)
            put_end(w, batch->changed[i], greatest, "", 0);
    end(w, ends);
    end(w, literal);
    end(w, merge);
    end(w, expression);
}
/* The form of an update that takes any name (W123). */
static void put_pipeline(Writer *w, const BucketState *self, const Batch *batch)
{
    size_t stages = BEGIN(w, "\x04u\0"), stage = BEGIN(w, "\x03" "0\0"), sets = BEGIN(w, "\x03$set\0");
    size_t data = BEGIN(w, "\x03" "data\0"), merge = BEGIN(w, "\x04$mergeObjects\0");
    PUT_STRING(w, "\x02" "0\0", "$data");
    size_t second = BEGIN(w, "\x03" "1\0"), object = BEGIN(w, "\x04$arrayToObject\0"), pairs = BEGIN(w, "\x04" "0\0");
    u32 index = 0;
    for (u32 i = 0; i < self->columns.count; i++) {
        const Column *column = self->columns.entries[i].thing;
        if (!column->rows)
            continue;
        put_byte(w, T_DOC);
        put_row(w, index++);
        put_byte(w, 0);
        put_grown_column(w, batch, column);
    }
    end(w, pairs);
    end(w, object);
    end(w, second);
    end(w, merge);
    end(w, data);
    put_merged_ends(w, batch, 0);
    put_merged_ends(w, batch, 1);
    end(w, sets);
    end(w, stage);
    end(w, stages);
}
/* Folds the batch into the summaries (W64). -1 with an exception. */
static int fold_batch(BucketState *self, Batch *batch)
{
    int has_meta = PyBytes_GET_SIZE(self->meta) > 0;
    Column **column_of = batch->column_of;
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        Measurement *m = batch->measurements[i];
        for (Py_ssize_t j = 0; j < Py_SIZE(m); j++) {
            Field *f = &m->fields[j];
            Column *column = map_find(&self->columns, f->name, f->name_len, f->hash);
            if (!column) {
                PyErr_SetString(PyExc_KeyError, "a column of a measurement that was not staged");
                return -1;
            }
            int changed = BOTH_CHANGED;
            if (column->summary)
                changed = summary_fold(column->summary, f->type, f->value, f->value_len);
            else if (!(column->summary = summary_of(f->type, f->value, f->value_len)))
                changed = -1;
            if (changed < 0)
                return -1;
            column->committed = 1;
            column->rows++;
            *column_of++ = column;
            if (changed && (column->name_len || has_meta)) {
                if (!column->changed)
                    batch->changed[batch->changed_count++] = column;
                column->changed |= (u8)changed;
            }
        }
        self->unfolded_bytes -= m->payload_bytes;
        batch->bytes += (size_t)m->payload_bytes;
    }
    for (u32 i = 0; i < batch->changed_count; i++)
        self->memory_bytes += 2 * encode_ends(self, batch->changed[i]);
    return 0;
}
static PyObject *encode_batch(BucketState *self, Batch *batch)
{
    size_t names = 0, ends = 0;
    int safe = 1;
    for (u32 i = 0; i < self->columns.count; i++) {
        const Column *column = self->columns.entries[i].thing;
        if (column->rows) {
            names += column->name_len + 12;
            safe &= column->safe;
            ends += (size_t)column->ends_bytes;
        }
    }
    size_t meta = (size_t)PyBytes_GET_SIZE(self->meta);
    Writer w;
    if (batch->base == 0) {
        writer_init(&w, 256 + meta + batch->bytes + 8 * batch->fields + 3 * names + ends);
        sort_cells(self, batch);
        put_bucket(&w, self, batch);
        return writer_bytes(&w);
    }
    int many_rows = batch->count >= PIPELINE_MIN_ROWS + batch->base / PIPELINE_SHARE;
    size_t paths = (size_t)batch->count * names;
    int pipeline = many_rows || paths > PATHS_MAX_BYTES || !safe;
    writer_init(&w, 512 + meta + batch->bytes + 8 * batch->fields + (pipeline ? 4 * names : paths) + 2 * names);
    size_t statement = begin(&w);
    PUT(&w, "\x03q\0");
    put_query(&w, self, batch->base);
    if (pipeline) {
        sort_cells(self, batch);
        put_pipeline(&w, self, batch);
    } else
        put_sets(&w, batch);
    end(&w, statement);
    return writer_bytes(&w);
}
static PyObject *prepare_batch(BucketState *self, Batch *batch)
{
    for (Py_ssize_t i = 0; i < batch->count; i++)
        batch->fields += (size_t)Py_SIZE(batch->measurements[i]);
    size_t each = 2 * sizeof(void *) + sizeof(i64);
    size_t columns = self->columns.count;
    u64 inside[512];
    size_t wanted = each * batch->fields + sizeof(Column *) * columns;
    u8 *room = wanted <= sizeof inside ? (u8 *)inside : malloc(wanted);
    if (!room)
        return PyErr_NoMemory();
    batch->column_of = (Column **)room;
    batch->cells = (const Field **)(room + sizeof(void *) * batch->fields);
    batch->cell_rows = (i64 *)(room + 2 * sizeof(void *) * batch->fields);
    batch->changed = (Column **)(room + each * batch->fields);
    PyObject *encoded = NULL;
    if (fold_batch(self, batch) == 0)
        encoded = encode_batch(self, batch);
    for (u32 i = 0; i < self->columns.count; i++) {
        Column *column = self->columns.entries[i].thing;
        column->rows = 0, column->changed = 0;
    }
    if (room != (u8 *)inside)
        free(room);
    return encoded;
}
static PyObject *state_prepare(BucketState *self, PyObject *measurements)
{
    if (refuse_busy(self))
        return NULL;
    /* A tuple of our own: nobody can change it while Python compares. */
    PyObject *sequence = PySequence_Tuple(measurements), *encoded = NULL;
    if (!sequence)
        return NULL;
    Batch batch = {.count = PyTuple_GET_SIZE(sequence), .base = self->committed_rows};
    batch.measurements = (Measurement **)((PyTupleObject *)sequence)->ob_item;
    int known = 1;
    for (Py_ssize_t i = 0; i < batch.count; i++)
        known &= Py_IS_TYPE((PyObject *)batch.measurements[i], &MeasurementType);
    if (!known)
        PyErr_SetString(PyExc_TypeError, "prepare takes Measurements");
    else if (!batch.count || batch.base + batch.count > self->rows)
        PyErr_SetString(InvariantViolated, "prepared measurements that were not staged");
    else {
        self->busy = 1;
        encoded = prepare_batch(self, &batch);
        self->busy = 0;
    }
    Py_DECREF(sequence);
    return encoded;
}
static PyObject *state_committed(BucketState *self, PyObject *argument)
{
    i64 count = PyLong_AsLongLong(argument);
    if (PyErr_Occurred())
        return NULL;
    if (count < 0 || count > self->rows - self->committed_rows) {
        PyErr_SetString(InvariantViolated, "more rows committed than staged");
        return NULL;
    }
    self->committed_rows += count;
    Py_RETURN_NONE;
}
static PyObject *state_memory_bytes(BucketState *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLongLong(self->memory_bytes);
}

static PyMemberDef state_members[] = {
    {"bucket_id", T_OBJECT_EX, offsetof(BucketState, bucket_id), READONLY, NULL},
    {"meta", T_OBJECT_EX, offsetof(BucketState, meta), READONLY, NULL},
    {"start_ms", T_LONGLONG, offsetof(BucketState, start_ms), READONLY, NULL},
    {"span_ms", T_LONGLONG, offsetof(BucketState, span_ms), 0, NULL},
    {"rows", T_LONGLONG, offsetof(BucketState, rows), READONLY, NULL},
    {"committed_rows", T_LONGLONG, offsetof(BucketState, committed_rows), READONLY, NULL},
    {"size_bytes", T_LONGLONG, offsetof(BucketState, size_bytes), READONLY, NULL},
    {"kept_open_for_large", T_BOOL, offsetof(BucketState, kept_open_for_large), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyMethodDef state_methods[] = {
    {"from_document", (PyCFunction)(void (*)(void))state_from_document, METH_CLASS | METH_VARARGS | METH_KEYWORDS, NULL},
    {"try_stage", (PyCFunction)state_try_stage, METH_O, NULL},
    {"prepare", (PyCFunction)state_prepare, METH_O, NULL},
    {"committed", (PyCFunction)state_committed, METH_O, NULL},
    {"memory_bytes", (PyCFunction)state_memory_bytes, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyTypeObject BucketStateType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "catalog._kernel.BucketState",
    .tp_doc = "One open bucket; see catalog.bucket.",
    .tp_basicsize = sizeof(BucketState),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = state_new,
    .tp_dealloc = (destructor)state_dealloc,
    .tp_members = state_members,
    .tp_methods = state_methods,
};

static PyMethodDef functions[] = {
    {"parse_measurement", (PyCFunction)(void (*)(void))parse_measurement, METH_FASTCALL,
     "Checks a client's document and splits it; see catalog.measurement."},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, .m_name = "catalog._kernel", .m_doc = "The compiled form of catalog.kernel.", .m_size = -1,
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
    take_sizes();
    hash_seed = secret("names of fields");
    hash_factor = (secret("factor for names") | 1) ^ 0x9E3779B97F4A7C14u;
    interpreted_parse = imported("catalog.measurement", "parse_measurement");
    InvariantViolated = imported("catalog.errors", "InvariantViolated");
    python_compare = imported("catalog.bson.order", "compare");
    python_adopt = imported("catalog.adoption", "adopted_bucket");
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
