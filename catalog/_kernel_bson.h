/* Walking and writing raw BSON, as in catalog/bson/raw.py. A part of _kernel.c. */

/* ---- numbers in bytes ---- */

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
