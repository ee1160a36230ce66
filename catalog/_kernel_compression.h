/* The compressed form of a stored bucket (W6), as in catalog/compression.py. A part of _kernel.c. */

static int take_cells(Room *room, const Field *column)
{
    if (column->type != T_DOC)
        return invalid("a column that is no object");
    memset(room->cells, 0, sizeof(Cell) * room->rows);
    const u8 *at = column->value + 4, *limit = column->value + column->value_len - 1;
    Field f;
    i64 previous = -1;
    int more;
    while ((more = next_element(&at, limit, &f)) > 0) {
        i64 row = row_of(&f);
        if (row <= previous || row >= (i64)room->rows)
            return invalid("row keys do not ascend");
        previous = row;
        room->cells[room->position[row]] = (Cell){f.value, f.value_len, f.type};
    }
    return more < 0 ? invalid("malformed BSON") : 0;
}
typedef struct {
    i64 time_ms;
    u32 row;
} Timed;
static int by_time(const void *left, const void *right)
{
    const Timed *a = left, *b = right;
    return a->time_ms != b->time_ms ? (a->time_ms > b->time_ms) - (a->time_ms < b->time_ms) : (a->row > b->row) - (a->row < b->row);
}
static int sort_rows(Room *room, const Field *time)
{
    Timed *order = malloc(sizeof(Timed) * room->rows);
    if (!order)
        return no_memory();
    const u8 *at = time->value + 4, *limit = time->value + time->value_len - 1;
    Field f;
    int sorted = 1;
    for (u32 i = 0; i < room->rows && next_element(&at, limit, &f) > 0; i++) {
        order[i] = (Timed){(i64)get_u64(f.value), i};
        sorted &= !i || order[i - 1].time_ms <= order[i].time_ms;
    }
    if (!sorted)
        qsort(order, room->rows, sizeof(Timed), by_time);
    for (u32 i = 0; i < room->rows; i++)
        room->position[order[i].row] = i;
    free(order);
    return 0;
}
static int put_compressed_column(Writer *w, Room *room, const Field *column)
{
    if (take_cells(room, column))
        return -1;
    put_head(w, T_BIN, "", 0, column->name, column->name_len);
    size_t at = w->len;
    writer_room(w, 4);
    put_byte(w, 7);
    int failed = put_column(w, room);
    if (failed < 0)
        return -1;
    if (w->failed)
        return no_memory();
    put_u32(w->bytes + at, (u32)(w->len - at - 5));
    return failed;
}
static void put_field(Writer *w, const Field *f)
{
    put_head(w, f->type, "", 0, f->name, f->name_len);
    put(w, f->value, f->value_len);
}
static int is_named(const Field *f, const char *name)
{
    return f->name_len == strlen(name) && memcmp(f->name, name, f->name_len) == 0;
}

/* As put_column; -1 with an exception. */
static int put_compressed(Writer *w, const Stored *s, Room *room, const Field *time)
{
    int failed = 0;
    size_t document = begin(w);
    for (u32 i = 0; i < s->bucket.count; i++) {
        const Field *f = &s->bucket.fields[i];
        if (is_named(f, "control")) {
            size_t control = BEGIN(w, "\x03" "control\0");
            for (u32 j = 0; j < s->control.count; j++) {
                const Field *inner = &s->control.fields[j];
                if (is_named(inner, "version"))
                    PUT(w, "\x10version\0\x02\0\0\0");
                else if (!is_named(inner, "count"))
                    put_field(w, inner);
            }
            PUT(w, "\x10" "count\0");
            u8 *count = writer_room(w, 4);
            if (count)
                put_u32(count, (u32)room->rows);
            end(w, control);
        } else if (is_named(f, "data")) {
            size_t data = BEGIN(w, "\x03" "data\0");
            failed = put_compressed_column(w, room, time);
            for (u32 j = 0; !failed && j < s->data.count; j++)
                if (&s->data.fields[j] != time)
                    failed = put_compressed_column(w, room, &s->data.fields[j]);
            if (failed)
                return failed;
            end(w, data);
        } else
            put_field(w, f);
    }
    end(w, document);
    return 0;
}
static PyObject *compressed_stored(const Stored *s, PyObject *time_field, Py_ssize_t size)
{
    const Field *time = field_named(&s->data, PyBytes_AS_STRING(time_field), (u32)PyBytes_GET_SIZE(time_field), 0);
    i64 rows = count_times(time, INT64_MIN);
    if (rows < 0)
        return NULL;
    if (rows < 2)
        Py_RETURN_NONE;
    size_t each = sizeof(Raw) + sizeof(Cell) + sizeof(u64) + 2 * sizeof(u32) + 1;
    u8 *memory = malloc(each * (size_t)rows + 1);
    if (!memory)
        return PyErr_NoMemory();
    Room room = {.rows = (size_t)rows};
    room.stream.values = (Raw *)memory;
    room.cells = (Cell *)(room.stream.values + rows);
    room.stream.blocks = (u64 *)(room.cells + rows);
    room.stream.starts = (u32 *)(room.stream.blocks + rows);
    room.position = room.stream.starts + rows;
    room.stream.scales = (signed char *)(room.position + rows);
    Writer w;
    writer_init(&w, 1024 + (size_t)size / 4);
    int failed;
    /* Nothing from here on touches an object: the bytes that are walked belong to the caller's arguments. */
    Py_BEGIN_ALLOW_THREADS
    failed = sort_rows(&room, time);
    if (!failed)
        failed = put_compressed(&w, s, &room, time);
    Py_END_ALLOW_THREADS
    free(memory);
    free(room.trees);
    if (failed || (!w.failed && w.len >= (size_t)size)) {
        free(w.bytes);
        if (failed < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    return writer_bytes(&w);
}
static PyObject *compressed(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "compressed takes bytes and bytes");
    Stored stored;
    stored_init(&stored);
    PyObject *smaller = NULL;
    if (!open_bucket(&stored, (const u8 *)PyBytes_AS_STRING(args[0]), PyBytes_GET_SIZE(args[0])))
        smaller = compressed_stored(&stored, args[1], PyBytes_GET_SIZE(args[0]));
    stored_free(&stored);
    return smaller;
}
