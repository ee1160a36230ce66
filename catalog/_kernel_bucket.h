/* BucketState up to staging, as in catalog/bucket.py. A part of _kernel.c. */

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
    i64 nodes = 0;
    if (column) {
        column->kind = canonical[type], column->safe = (u8)is_path_safe(name, len), column->name_len = len;
        if (is_nested(type))
            column->shape = shape_of(type, value, value_len, &nodes);
    }
    if (!column || (is_nested(type) && !column->shape) || map_add(&self->columns, name, len, hash, 1, column)) {
        column_free(column);
        PyErr_NoMemory();
        return NULL;
    }
    column->name = self->columns.entries[self->columns.count - 1].name;
    self->memory_bytes += COLUMN_MEMORY_BYTES + (i64)len + NODE_MEMORY_BYTES * nodes;
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
    static const char *const names[] = {"bucket_id", "time_field", "meta_field", "meta", "start_ms", "span_ms", "limits", NULL};
    PyObject *id, *time_field, *meta_field, *meta, *limits;
    long long start_ms, span_ms;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "SSOSLLO:BucketState", (char **)names, &id, &time_field, &meta_field, &meta,
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
    i64 nodes = 0;
    if (column->shape && (upper[0] != lower[0] || shape_grow(column->shape, upper + 1, upper_len, &nodes)))
        return -1;
    self->memory_bytes += NODE_MEMORY_BYTES * nodes;
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
    static const char *const names[] = {"document", "time_field", "meta_field", "span_ms", "limits", NULL};
    PyObject *document, *time_field, *meta_field, *limits, *id, *meta, *ends, *name, *pair;
    long long span_ms, start_ms, rows;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "SSOLO:from_document", (char **)names, &document, &time_field, &meta_field,
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
    i64 nodes = 0;
    for (Py_ssize_t i = 0; i < Py_SIZE(m); i++) {
        Field *f = &m->fields[i];
        Column *column = map_find(&self->columns, f->name, f->name_len, f->hash);
        if (!column) {
            if (!add_column(self, f->name, f->name_len, f->hash, f->type, f->value, f->value_len))
                return NULL;
        } else if (column->shape && shape_grow(column->shape, f->value, f->value_len, &nodes))
            return PyErr_NoMemory();
    }
    self->memory_bytes += NODE_MEMORY_BYTES * nodes;
    self->rows++;
    self->size_bytes += added_bytes;
    self->unfolded_bytes += m->payload_bytes;
    return PyLong_FromLong(0);
}
