/* Measurement and parse_measurement, as in catalog/measurement.py. A part of _kernel.c. */

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
