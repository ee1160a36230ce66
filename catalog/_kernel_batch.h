/* BucketState from the preparing of a batch on, and its type. A part of _kernel.c. */

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
static PyObject *prepare_batch(BucketState *self, Batch *batch, int encoding)
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
        encoded = encoding ? encode_batch(self, batch) : Py_NewRef(Py_None);
    for (u32 i = 0; i < self->columns.count; i++) {
        Column *column = self->columns.entries[i].thing;
        column->rows = 0, column->changed = 0;
    }
    if (room != (u8 *)inside)
        free(room);
    return encoded;
}
static PyObject *prepare_or_fold(BucketState *self, PyObject *measurements, int encoding)
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
        encoded = prepare_batch(self, &batch, encoding);
        self->busy = 0;
    }
    Py_DECREF(sequence);
    return encoded;
}
static PyObject *state_prepare(BucketState *self, PyObject *measurements)
{
    return prepare_or_fold(self, measurements, 1);
}
static PyObject *state_fold(BucketState *self, PyObject *measurements)
{
    return prepare_or_fold(self, measurements, 0);
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
    {"fold", (PyCFunction)state_fold, METH_O, NULL},
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
