/* Stored buckets of several parts as one, as in catalog/merging.py and catalog/parts.py. A part of _kernel.c. */

typedef struct {
    Summary *summary; /* NULL for a name that has none */
    Writer cells;     /* encoded, renumbered */
} Merged;

static void merged_free(void *thing)
{
    Merged *merged = thing;
    if (merged) {
        summary_free(merged->summary);
        free(merged->cells.bytes);
        free(merged);
    }
}
typedef struct { /* one stored bucket, taken apart */
    FieldVec bucket, control, least, greatest, data;
} Stored;

static void stored_init(Stored *s)
{
    fields_init(&s->bucket), fields_init(&s->control), fields_init(&s->least);
    fields_init(&s->greatest), fields_init(&s->data);
}
static void stored_free(Stored *s)
{
    fields_free(&s->bucket), fields_free(&s->control), fields_free(&s->least);
    fields_free(&s->greatest), fields_free(&s->data);
}
static const Field *field_named(const FieldVec *vec, const void *name, u32 len, u32 guess)
{
    /* Parts have their fields in the same order, mostly. */
    if (guess < vec->count && vec->fields[guess].name_len == len && memcmp(vec->fields[guess].name, name, len) == 0)
        return &vec->fields[guess];
    for (u32 i = 0; i < vec->count; i++)
        if (vec->fields[i].name_len == len && memcmp(vec->fields[i].name, name, len) == 0)
            return &vec->fields[i];
    return NULL;
}
/* Both may be called with and without the interpreter's lock. */
static int invalid(const char *why)
{
    PyGILState_STATE state = PyGILState_Ensure();
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, why);
    PyGILState_Release(state);
    return -1;
}
static int no_memory(void)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_NoMemory();
    PyGILState_Release(state);
    return -1;
}
/* The fields of an object among others. -1 with an exception. */
static int open_inner(const FieldVec *outer, const char *name, u32 guess, FieldVec *inner)
{
    const Field *f = field_named(outer, name, (u32)strlen(name), guess);
    if (!f || f->type != T_DOC)
        return invalid("a bucket without control, summary or data");
    int collected = collect(f->value, f->value_len, 1, inner);
    return collected == -2 ? no_memory() : collected ? invalid("malformed BSON") : 0;
}
/* Control and data of a stored bucket of version 1. */
static int open_bucket(Stored *s, const u8 *bytes, i64 len)
{
    int collected = len > INT32_MAX ? -1 : collect(bytes, len, 1, &s->bucket);
    if (collected)
        return collected == -2 ? no_memory() : invalid("malformed BSON");
    if (open_inner(&s->bucket, "control", 1, &s->control))
        return -1;
    const Field *version = field_named(&s->control, "version", 7, 0);
    if (!version || version->type != T_I32 || get_u32(version->value) != 1)
        return invalid("not a bucket of version 1");
    return open_inner(&s->bucket, "data", s->bucket.count - 1, &s->data);
}
static int open_stored(Stored *s, const u8 *bytes, i64 len)
{
    return open_bucket(s, bytes, len) || open_inner(&s->control, "min", 1, &s->least) ||
                   open_inner(&s->control, "max", 2, &s->greatest)
               ? -1
               : 0;
}
/* One element of a document of which the edges are checked; 1: there is one, 0: the end, -1: no BSON. */
static int next_element(const u8 **at, const u8 *limit, Field *f)
{
    const u8 *p = *at;
    if (p >= limit)
        return 0;
    f->type = *p++;
    const u8 *name_end = memchr(p, 0, (size_t)(limit - p));
    if (!name_end)
        return -1;
    i64 size = value_size(f->type, name_end + 1, limit - name_end - 1);
    if (size < 0)
        return -1;
    f->name = p, f->name_len = (u32)(name_end - p), f->value = name_end + 1, f->value_len = (u32)size;
    *at = name_end + 1 + size;
    return 1;
}
/* A row number in its one spelling, or -1. */
static i64 row_of(const Field *f)
{
    if (!f->name_len || f->name_len > 9 || (f->name[0] == '0' && f->name_len > 1))
        return -1;
    i64 row = 0;
    for (u32 i = 0; i < f->name_len; i++) {
        if (f->name[i] < '0' || f->name[i] > '9')
            return -1;
        row = row * 10 + (f->name[i] - '0');
    }
    return row;
}
/* How many rows there are; -1 with an exception. */
static i64 count_times(const Field *column, i64 start_ms)
{
    if (!column || column->type != T_DOC)
        return invalid("a bucket without times");
    const u8 *at = column->value + 4, *limit = column->value + column->value_len - 1;
    Field f;
    i64 rows = 0;
    int more;
    while ((more = next_element(&at, limit, &f)) > 0) {
        if (row_of(&f) != rows)
            return invalid("rows are not numbered without holes");
        if (f.type != T_DATE || (i64)get_u64(f.value) < start_ms)
            return invalid("a row without a time of its bucket");
        rows++;
    }
    return more < 0 ? invalid("malformed BSON") : rows;
}
static int add_cells(Writer *w, const Field *column, i64 base, i64 rows)
{
    if (column->type != T_DOC)
        return invalid("a column that is no object");
    const u8 *at = column->value + 4, *limit = column->value + column->value_len - 1;
    Field f;
    i64 previous = -1;
    int more;
    while ((more = next_element(&at, limit, &f)) > 0) {
        i64 row = row_of(&f);
        if (row <= previous || row >= rows)
            return invalid("row keys do not ascend");
        previous = row;
        char digits[20];
        size_t len = row_digits(digits, (u64)(base + row));
        u8 *room = writer_room(w, 2 + len + f.value_len);
        if (!room)
            return no_memory();
        *room++ = f.type;
        memcpy(room, digits + 20 - len, len);
        room[len] = 0;
        if (f.value_len)
            memcpy(room + len + 1, f.value, f.value_len);
    }
    return more < 0 ? invalid("malformed BSON") : 0;
}
/* 1 or 0: has a value the kinds that a summary knows (W47)? -1 without memory. */
static int summary_takes(const Summary *summary, u8 type, const u8 *value, u32 len)
{
    if (!summary->nested)
        return !is_nested(type) && canonical[type] == canonical[summary->is.scalar.least.type];
    if (summary->nested != type)
        return 0;
    int object = type == T_DOC, fits = 1;
    FieldVec vec;
    fields_init(&vec);
    if (collect(value, len, object, &vec))
        fits = -1;
    const Map *inner = &summary->is.inner;
    for (u32 i = 0; fits == 1 && i < vec.count; i++) {
        const Field *f = &vec.fields[i];
        const Summary *known = object ? map_find(inner, f->name, f->name_len, f->hash)
                                      : (i < inner->count ? inner->entries[i].thing : NULL);
        if (known)
            fits = summary_takes(known, f->type, f->value, f->value_len);
    }
    fields_free(&vec);
    return fits;
}
static int is_sound(const Field *end) { return end && nested_depth(end->type, end->value, end->value_len, MAX_LEVELS) >= 0; }

static int fold_ends(Merged *merged, const Field *least, const Field *greatest)
{
    if (!is_sound(least) || !is_sound(greatest))
        return invalid("a column without a summary");
    if (!merged->summary) {
        merged->summary = summary_between(least->type, least->value, least->value_len, greatest->type, greatest->value,
                                          greatest->value_len);
        return merged->summary ? 0 : -1;
    }
    int equal = least->type == greatest->type && least->value_len == greatest->value_len &&
                memcmp(least->value, greatest->value, least->value_len) == 0;
    int fits = summary_takes(merged->summary, least->type, least->value, least->value_len);
    if (fits == 1 && !equal)
        fits = summary_takes(merged->summary, greatest->type, greatest->value, greatest->value_len);
    if (fits != 1)
        return fits ? no_memory() : invalid("parts whose fields differ in shape");
    if (summary_fold(merged->summary, least->type, least->value, least->value_len) < 0)
        return -1;
    return !equal && summary_fold(merged->summary, greatest->type, greatest->value, greatest->value_len) < 0 ? -1 : 0;
}
static int merge_column(Map *columns, const Stored *s, const Field *f, u32 index, int summarised, i64 base, i64 rows)
{
    Merged *merged = map_find(columns, f->name, f->name_len, f->hash);
    int fresh = !merged;
    if (fresh) {
        merged = calloc(1, sizeof(Merged));
        if (!merged || map_add(columns, f->name, f->name_len, f->hash, 1, merged)) {
            free(merged);
            return no_memory();
        }
        writer_init(&merged->cells, 256);
    }
    if (summarised) {
        if (!fresh && !merged->summary)
            return invalid("parts whose fields differ in shape");
        if (fold_ends(merged, field_named(&s->least, f->name, f->name_len, index),
                      field_named(&s->greatest, f->name, f->name_len, index)))
            return -1;
    }
    return add_cells(&merged->cells, f, base, rows);
}
typedef struct { /* what has been merged */
    Map columns;
    Field first_meta; /* of the first part, whose bytes outlive this */
    i64 start_ms, rows;
    int any, has_meta;
} Join;

static int add_part(Join *join, Stored *s, PyObject *time_field, int takes_meta)
{
    const u8 *time_name = (const u8 *)PyBytes_AS_STRING(time_field);
    u32 time_len = (u32)PyBytes_GET_SIZE(time_field);
    const Field *meta = field_named(&s->bucket, "meta", 4, 2), *start = field_named(&s->least, time_name, time_len, 0);
    if (!start || start->type != T_DATE || (meta && !takes_meta))
        return invalid("a bucket without a start, or with a meta value that cannot be");
    i64 start_ms = (i64)get_u64(start->value);
    if (!join->any) {
        join->any = 1, join->start_ms = start_ms, join->has_meta = meta != NULL;
        if (meta)
            join->first_meta = *meta;
    } else {
        const Field *first = &join->first_meta;
        if (start_ms != join->start_ms || join->has_meta != (meta != NULL) ||
            (meta && (meta->type != first->type || meta->value_len != first->value_len ||
                      memcmp(meta->value, first->value, meta->value_len))))
            return invalid("parts of different buckets");
    }
    const Field *time = field_named(&s->data, time_name, time_len, 0);
    i64 rows = count_times(time, start_ms);
    if (rows < 0)
        return -1;
    u32 at = (u32)(time - s->data.fields);
    if (merge_column(&join->columns, s, time, at, time_len || meta, join->rows, rows))
        return -1;
    for (u32 i = 0; i < s->data.count; i++) {
        const Field *f = &s->data.fields[i];
        if (f != time && merge_column(&join->columns, s, f, i, f->name_len || meta, join->rows, rows))
            return -1;
    }
    join->rows += rows;
    return 0;
}
static PyObject *joined_document(const Join *join, PyObject *id)
{
    size_t size = 256 + join->first_meta.value_len;
    for (u32 i = 0; i < join->columns.count; i++) {
        const Entry *e = &join->columns.entries[i];
        const Merged *merged = e->thing;
        size += merged->cells.len + 3 * (e->name_len + 12) + 64;
    }
    Writer w;
    writer_init(&w, size);
    size_t document = begin(&w);
    PUT(&w, "\x07_id\0");
    put(&w, PyBytes_AS_STRING(id), 12);
    size_t control = BEGIN(&w, "\x03" "control\0");
    PUT(&w, "\x10version\0\x01\0\0\0");
    for (int greatest = 0; greatest < 2; greatest++) {
        size_t ends = greatest ? BEGIN(&w, "\x03max\0") : BEGIN(&w, "\x03min\0");
        for (u32 i = 0; i < join->columns.count; i++) {
            const Entry *e = &join->columns.entries[i];
            const Summary *summary = ((const Merged *)e->thing)->summary;
            if (summary) {
                put_head(&w, summary_type(summary, greatest), "", 0, e->name, e->name_len);
                put_summary(&w, summary, greatest);
            }
        }
        end(&w, ends);
    }
    end(&w, control);
    if (join->has_meta) {
        put_head(&w, join->first_meta.type == T_UNDEF ? T_NUL : join->first_meta.type, "meta", 4, NULL, 0);
        put(&w, join->first_meta.value, join->first_meta.value_len);
    }
    size_t data = BEGIN(&w, "\x03" "data\0");
    for (u32 i = 0; i < join->columns.count; i++) {
        const Entry *e = &join->columns.entries[i];
        const Merged *merged = e->thing;
        put_head(&w, T_DOC, "", 0, e->name, e->name_len);
        size_t rows = begin(&w);
        put(&w, merged->cells.bytes, merged->cells.len);
        end(&w, rows);
    }
    end(&w, data);
    end(&w, document);
    return writer_bytes(&w);
}
static PyObject *join_documents(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 4 || !PyBytes_Check(args[1]) || !PyBytes_Check(args[2]) ||
        !(args[3] == Py_None || PyBytes_Check(args[3])))
        return PyErr_Format(PyExc_TypeError, "join_documents takes a sequence of bytes, bytes, bytes, bytes or None");
    /* A tuple of our own: its bytes cannot change or go away meanwhile. */
    PyObject *parts = PySequence_Tuple(args[0]), *joined = NULL;
    if (!parts)
        return NULL;
    Join join;
    memset(&join, 0, sizeof join);
    int failed = 0;
    if (PyBytes_GET_SIZE(args[1]) != 12)
        failed = invalid("a bucket id has twelve bytes");
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(parts); i++) {
        PyObject *part = PyTuple_GET_ITEM(parts, i);
        if (!PyBytes_Check(part)) {
            PyErr_SetString(PyExc_TypeError, "a part is bytes");
            failed = -1;
            break;
        }
        Stored stored;
        stored_init(&stored);
        failed = open_stored(&stored, (const u8 *)PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part)) ||
                 add_part(&join, &stored, args[2], args[3] != Py_None);
        stored_free(&stored);
    }
    if (!failed && !join.any)
        failed = invalid("no parts");
    if (!failed)
        joined = joined_document(&join, args[1]);
    map_free(&join.columns, merged_free);
    Py_DECREF(parts);
    return joined ? Py_BuildValue("NL", joined, (long long)join.rows) : NULL;
}

/* ---- a part of one row ---- */

static void put_part_ends(Writer *w, const Measurement *m, Summary **summaries, i64 start_ms, int time, int has_meta,
                          int greatest)
{
    for (int pass = 0; pass < 2; pass++)
        for (Py_ssize_t i = 0; i < Py_SIZE(m); i++) {
            const Field *f = &m->fields[i];
            if ((i == time) != (pass == 0) || (!f->name_len && !has_meta))
                continue;
            put_head(w, f->type, "", 0, f->name, f->name_len);
            if (summaries[i])
                put_summary(w, summaries[i], greatest);
            else if (i == time && !greatest) {
                u8 *room = writer_room(w, 8);
                if (room) {
                    put_u32(room, (u32)(u64)start_ms);
                    put_u32(room + 4, (u32)((u64)start_ms >> 32));
                }
            } else
                put(w, f->value, f->value_len);
        }
}
static PyObject *write_part(PyObject *id, const Measurement *m, Summary **summaries, i64 start_ms, int time, int sealed)
{
    const u8 *meta = (const u8 *)PyBytes_AS_STRING(m->meta);
    size_t meta_len = (size_t)PyBytes_GET_SIZE(m->meta), names = 0;
    for (Py_ssize_t i = 0; i < Py_SIZE(m); i++)
        names += m->fields[i].name_len + 6;
    Writer w;
    writer_init(&w, 256 + meta_len + 3 * (names + (size_t)m->payload_bytes));
    size_t document = begin(&w);
    PUT(&w, "\x07_id\0");
    put(&w, PyBytes_AS_STRING(id), 12);
    size_t control = BEGIN(&w, "\x03" "control\0");
    PUT(&w, "\x10version\0\x01\0\0\0");
    for (int greatest = 0; greatest < 2; greatest++) {
        size_t ends = greatest ? BEGIN(&w, "\x03max\0") : BEGIN(&w, "\x03min\0");
        put_part_ends(&w, m, summaries, start_ms, time, meta_len > 0, greatest);
        end(&w, ends);
    }
    if (sealed)
        PUT(&w, "\x08" "closed\0\x01");
    end(&w, control);
    if (meta_len) {
        put_head(&w, meta[0] == T_UNDEF ? T_NUL : meta[0], "meta", 4, NULL, 0);
        put(&w, meta + 1, meta_len - 1);
    }
    size_t data = BEGIN(&w, "\x03" "data\0");
    for (int pass = 0; pass < 2; pass++)
        for (Py_ssize_t i = 0; i < Py_SIZE(m); i++) {
            const Field *f = &m->fields[i];
            if ((i == time) != (pass == 0))
                continue;
            put_head(&w, T_DOC, "", 0, f->name, f->name_len);
            size_t rows = begin(&w);
            put_byte(&w, f->type);
            PUT(&w, "0\0");
            put(&w, f->value, f->value_len);
            end(&w, rows);
        }
    end(&w, data);
    end(&w, document);
    return writer_bytes(&w);
}
static PyObject *one_row_part(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 5 || !PyBytes_Check(args[0]) || PyBytes_GET_SIZE(args[0]) != 12 || !PyBytes_Check(args[1]) ||
        !Py_IS_TYPE(args[3], &MeasurementType))
        return PyErr_Format(PyExc_TypeError, "one_row_part takes an id, bytes, a time, a Measurement and a flag");
    i64 start_ms = PyLong_AsLongLong(args[2]);
    int sealed = PyObject_IsTrue(args[4]), time = -1;
    if (PyErr_Occurred())
        return NULL;
    Measurement *m = (Measurement *)args[3];
    Summary *inside[32], **summaries = inside;
    size_t fields = (size_t)Py_SIZE(m);
    if (fields > 32 && !(summaries = malloc(fields * sizeof *summaries)))
        return PyErr_NoMemory();
    memset(summaries, 0, fields * sizeof *summaries);
    PyObject *document = NULL;
    int failed = 0;
    for (int i = 0; !failed && i < (int)fields; i++) {
        const Field *f = &m->fields[i];
        if (f->type == T_DATE && (Py_ssize_t)f->name_len == PyBytes_GET_SIZE(args[1]) &&
            memcmp(f->name, PyBytes_AS_STRING(args[1]), f->name_len) == 0)
            time = i;
        else if (is_nested(f->type))
            failed = !(summaries[i] = summary_of(f->type, f->value, f->value_len));
    }
    if (!failed && (time < 0 || m->time_ms < start_ms))
        PyErr_SetString(InvariantViolated, "a row that does not fit into its bucket");
    else if (!failed)
        document = write_part(args[0], m, summaries, start_ms, time, sealed);
    for (size_t i = 0; i < fields; i++)
        summary_free(summaries[i]);
    if (summaries != inside)
        free(summaries);
    return document;
}
