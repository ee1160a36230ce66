/* Whether one stored form holds what another one held, as in catalog/comparing.py. A part of _kernel.c.
 *
 * Asked before the one takes the other's place. As in _kernel_decoding.h nothing is shared with what made them. */

enum { ALIKE = 1, DIFFERENT = 0 };

static int same_item(const Item *a, const Item *b)
{
    return a->type == b->type && a->len == b->len && (!a->len || memcmp(a->value, b->value, a->len) == 0);
}
static int is_called(const Item *item, const void *name, size_t len)
{
    return item->name_len == len && memcmp(item->name, name, len) == 0;
}
#define IS(item, literal) is_called(item, literal, sizeof(literal) - 1)
/* The field of that name in a document: 1, 0 for none. */
static int item_named(const Item *document, const void *name, size_t len, Item *found)
{
    if (document->type != T_DOC)
        return 0;
    const u8 *at = document->value + 4, *end = document->value + document->len - 1;
    while (next_item(&at, end, found) > 0)
        if (is_called(found, name, len))
            return 1;
    return 0;
}
static int whole_document(const u8 *bytes, size_t len, Item *document)
{
    *document = (Item){NULL, bytes, 0, (u32)len, T_DOC};
    return len <= INT32_MAX && size_of_value(T_DOC, bytes, len) == (i64)len;
}
static int says_version(const Item *item, u32 version) { return item->type == T_I32 && get_u32(item->value) == version; }

/* One cell of a column of version 1: 1, 0 at the end, -1 for what is none. The rows' numbers must ascend. */
static inline int next_row(const u8 **at, const u8 *end, i64 *row, Item *item)
{
    const u8 *p = *at, *name = p + 1;
    if (p == end)
        return *p ? -1 : 0;
    i64 number = 0;
    /* A document ends with a zero byte, so this ends there at the latest. */
    for (p++; *p; p++) {
        u8 digit = (u8)(*p - '0');
        if (digit > 9 || p - name >= 9)
            return -1;
        number = number * 10 + digit;
    }
    size_t digits = (size_t)(p - name), left = (size_t)(end - p);
    if (p >= end || !digits || (digits > 1 && *name == '0') || number <= *row)
        return -1;
    i64 size = name[-1] == T_DATE || name[-1] == T_DBL || name[-1] == T_I64 ? (left > 8 ? 8 : -1)
                                                                            : size_of_value(name[-1], p + 1, left - 1);
    if (size < 0)
        return -1;
    item->type = name[-1], item->value = p + 1, item->len = (u32)size;
    *row = number, *at = p + 1 + size;
    return 1;
}
static inline int same_bytes(const u8 *a, const u8 *b, u32 len)
{
    /* Most values are of these sizes, which take no call. */
    if (len == 8)
        return memcmp(a, b, 8) == 0;
    if (len == 4)
        return memcmp(a, b, 4) == 0;
    return len == 12 ? memcmp(a, b, 8) == 0 && memcmp(a + 8, b + 8, 4) == 0 : memcmp(a, b, len) == 0;
}

/* ---- a bucket and its compressed form ---- */

#define NO_MORE INT64_MAX
typedef struct {
    size_t rows, next;
    int is_sorted;
    i64 *times;
    u32 *order, *spare, *place; /* place: of each row after sorting */
    Item *cells;                /* what an unsorted column should have, in the order of the compressed form */
    const u8 *at, *end;         /* a sorted column is read along: the cell that comes next, and its row */
    Item cell;
    i64 row;
} Expected;

static inline int is_cell(const Item *cell, u8 type, const u8 *value, u32 len)
{
    return cell->type == type && cell->len == len && same_bytes(cell->value, value, len);
}
static int take_placed(void *to, u8 type, const u8 *value, u32 len)
{
    Expected *expected = to;
    if (expected->next == expected->rows)
        return 1;
    const Item *cell = &expected->cells[expected->next++];
    return type ? !is_cell(cell, type, value, len) : cell->type;
}
static inline int read_cell(Expected *expected)
{
    int more = next_row(&expected->at, expected->end, &expected->row, &expected->cell);
    if (!more)
        expected->row = NO_MORE;
    return more < 0;
}
static int take_sorted(void *to, u8 type, const u8 *value, u32 len)
{
    Expected *expected = to;
    i64 row = (i64)expected->next++;
    if (expected->row != row)
        return type || row >= (i64)expected->rows;
    return !type || !is_cell(&expected->cell, type, value, len) || read_cell(expected);
}
/* By time, and rows of one time as they stood. */
static void sort_times(Expected *expected)
{
    size_t rows = expected->rows;
    for (u32 i = 0; i < rows; i++)
        expected->order[i] = i;
    for (size_t width = 1; width < rows; width *= 2) {
        for (size_t from = 0; from < rows; from += 2 * width) {
            size_t a = from, a_end = a + width < rows ? a + width : rows, b = a_end;
            size_t b_end = b + width < rows ? b + width : rows;
            for (size_t to = from; to < b_end; to++) {
                int first = b == b_end ||
                            (a < a_end && expected->times[expected->order[a]] <= expected->times[expected->order[b]]);
                expected->spare[to] = expected->order[first ? a++ : b++];
            }
        }
        u32 *sorted = expected->spare;
        expected->spare = expected->order, expected->order = sorted;
    }
    for (u32 i = 0; i < rows; i++)
        expected->place[expected->order[i]] = i;
}
/* The times of a bucket: ALIKE, DIFFERENT when they are none, NO_ROOM. */
static int take_times(Expected *expected, const Item *column)
{
    const u8 *at = column->value + 4, *end = column->value + column->len - 1;
    Item item;
    i64 row = -1;
    size_t most = column->len / 11 + 1; /* a time takes eleven bytes at least */
    int more;
    u8 *memory = malloc(most * (sizeof(Item) + sizeof(i64) + 3 * sizeof(u32)));
    if (!memory)
        return NO_ROOM;
    expected->cells = (Item *)memory;
    expected->times = (i64 *)(expected->cells + most);
    expected->order = (u32 *)(expected->times + most);
    expected->spare = expected->order + most;
    expected->place = expected->spare + most;
    expected->is_sorted = 1;
    while ((more = next_row(&at, end, &row, &item)) > 0) {
        if (row != (i64)expected->rows || item.type != T_DATE)
            return DIFFERENT;
        expected->times[row] = (i64)get_u64(item.value);
        expected->is_sorted &= !row || expected->times[row - 1] <= expected->times[row];
        expected->rows++;
    }
    if (more || !expected->rows)
        return DIFFERENT;
    if (!expected->is_sorted)
        sort_times(expected);
    return ALIKE;
}
static int place_cells(Expected *expected, const Item *plain)
{
    const u8 *at = plain->value + 4, *end = plain->value + plain->len - 1;
    Item item;
    i64 row = -1;
    int more;
    memset(expected->cells, 0, sizeof(Item) * expected->rows);
    while ((more = next_row(&at, end, &row, &item)) > 0) {
        if (row >= (i64)expected->rows)
            return DIFFERENT;
        expected->cells[expected->place[row]] = item;
    }
    return !more;
}
static int same_column(Expected *expected, const Item *plain, const Item *packed)
{
    if (plain->type != T_DOC || packed->type != T_BIN || packed->value[4] != 7 ||
        !is_called(packed, plain->name, plain->name_len))
        return DIFFERENT;
    const u8 *stream = packed->value + 5;
    size_t len = packed->len - 5;
    expected->next = 0;
    int read;
    if (expected->is_sorted) {
        expected->at = plain->value + 4, expected->end = plain->value + plain->len - 1, expected->row = -1;
        if (read_cell(expected))
            return DIFFERENT;
        read = read_column(stream, len, take_sorted, expected);
        if (read == READ && expected->row != NO_MORE)
            return DIFFERENT;
    } else {
        if (place_cells(expected, plain) != ALIKE)
            return DIFFERENT;
        read = read_column(stream, len, take_placed, expected);
    }
    return read == NO_ROOM ? NO_ROOM : read == READ && expected->next == expected->rows;
}
/* The columns: that of the times first, the others in their order. */
static int same_data(Expected *expected, const Item *plain, const Item *packed, const u8 *time, size_t time_len)
{
    Item column, other;
    if (plain->type != T_DOC || packed->type != T_DOC || !item_named(plain, time, time_len, &column) ||
        column.type != T_DOC)
        return DIFFERENT;
    const u8 *at = plain->value + 4, *end = plain->value + plain->len - 1, *times = column.value;
    const u8 *packed_at = packed->value + 4, *packed_end = packed->value + packed->len - 1;
    int same = take_times(expected, &column), more;
    if (same == ALIKE)
        same = next_item(&packed_at, packed_end, &other) > 0 ? same_column(expected, &column, &other) : DIFFERENT;
    while (same == ALIKE && (more = next_item(&at, end, &column))) {
        if (more > 0 && column.value == times)
            continue;
        same = more > 0 && next_item(&packed_at, packed_end, &other) > 0 ? same_column(expected, &column, &other)
                                                                         : DIFFERENT;
    }
    return same != ALIKE ? same : next_item(&packed_at, packed_end, &other) == 0;
}
/* The same but for the version, and the count of rows at the end. */
static int same_control(const Item *plain, const Item *packed, size_t rows)
{
    if (plain->type != T_DOC || packed->type != T_DOC)
        return DIFFERENT;
    const u8 *at = plain->value + 4, *end = plain->value + plain->len - 1;
    const u8 *packed_at = packed->value + 4, *packed_end = packed->value + packed->len - 1;
    Item item, other;
    int more, versions = 0;
    while ((more = next_item(&at, end, &item)) > 0) {
        if (IS(&item, "count"))
            continue;
        if (next_item(&packed_at, packed_end, &other) <= 0 || !is_called(&other, item.name, item.name_len))
            return DIFFERENT;
        if (IS(&item, "version")) {
            versions++;
            if (!says_version(&item, 1) || !says_version(&other, 2))
                return DIFFERENT;
        } else if (!same_item(&item, &other))
            return DIFFERENT;
    }
    return !more && versions == 1 && next_item(&packed_at, packed_end, &other) > 0 && IS(&other, "count") &&
           says_version(&other, (u32)rows) && next_item(&packed_at, packed_end, &other) == 0;
}
static int same_bucket(Expected *expected, const Item *plain, const Item *packed, const u8 *time, size_t time_len)
{
    const u8 *at = plain->value + 4, *end = plain->value + plain->len - 1;
    const u8 *packed_at = packed->value + 4, *packed_end = packed->value + packed->len - 1;
    Item item, other, control = {0}, packed_control = {0};
    int more, same;
    while ((more = next_item(&at, end, &item)) > 0) {
        if (next_item(&packed_at, packed_end, &other) <= 0 || !is_called(&other, item.name, item.name_len))
            return DIFFERENT;
        if (IS(&item, "control"))
            control = item, packed_control = other;
        else if (IS(&item, "data")) {
            if (expected->rows)
                return DIFFERENT;
            if ((same = same_data(expected, &item, &other, time, time_len)) != ALIKE)
                return same;
        } else if (!same_item(&item, &other))
            return DIFFERENT;
    }
    return !more && next_item(&packed_at, packed_end, &other) == 0 && expected->rows &&
           same_control(&control, &packed_control, expected->rows);
}

/* ---- a bucket and the parts, or the rows, that it was made of ---- */

typedef struct { /* a column of the new bucket, read once from its first to its last row */
    Item column, next;
    const u8 *at, *end;
    i64 row; /* of next; -1 for what is none, NO_MORE at the end */
} Reading;
typedef struct {
    Item meta, start, data; /* of the new bucket; no type: there is none */
    Reading *columns;
    u32 *table, count, mask;
    const u8 *time;
    size_t time_len;
    i64 rows; /* that were found so far */
} Whole;

static inline void read_on(Reading *reading)
{
    int more = next_row(&reading->at, reading->end, &reading->row, &reading->next);
    if (more <= 0)
        reading->row = more ? -1 : NO_MORE;
}
static Reading *column_named(Whole *whole, const Item *item, u32 guess)
{
    if (guess < whole->count && is_called(&whole->columns[guess].column, item->name, item->name_len))
        return &whole->columns[guess];
    for (u32 slot = hash_name(item->name, item->name_len) & whole->mask; whole->table[slot]; slot = (slot + 1) & whole->mask) {
        Reading *reading = &whole->columns[whole->table[slot] - 1];
        if (is_called(&reading->column, item->name, item->name_len))
            return reading;
    }
    return NULL;
}
static int open_parts(const Item *bucket, const u8 *time, size_t time_len, Item *meta, Item *start, Item *data)
{
    Item control, least, version;
    *meta = (Item){0};
    if (item_named(bucket, "meta", 4, meta)) {
        if (meta->type == T_UNDEF)
            meta->type = T_NUL;
    } else
        *meta = (Item){0};
    return item_named(bucket, "control", 7, &control) && item_named(&control, "version", 7, &version) &&
           says_version(&version, 1) && item_named(&control, "min", 3, &least) &&
           item_named(&least, time, time_len, start) && item_named(bucket, "data", 4, data) && data->type == T_DOC;
}
static int open_whole(Whole *whole, const Item *bucket, const u8 *time, size_t time_len)
{
    whole->time = time, whole->time_len = time_len;
    if (!open_parts(bucket, time, time_len, &whole->meta, &whole->start, &whole->data))
        return DIFFERENT;
    const u8 *first = whole->data.value + 4, *end = whole->data.value + whole->data.len - 1, *at = first;
    Item item;
    int more;
    while ((more = next_item(&at, end, &item)) > 0) {
        if (item.type != T_DOC)
            return DIFFERENT;
        whole->count++;
    }
    if (more)
        return DIFFERENT;
    for (whole->mask = 15; whole->mask < whole->count * 2;)
        whole->mask = whole->mask * 2 + 1;
    whole->columns = calloc(whole->count + 1, sizeof(Reading));
    whole->table = calloc(whole->mask + 1, sizeof(u32));
    if (!whole->columns || !whole->table)
        return NO_ROOM;
    at = first;
    for (u32 i = 0; i < whole->count && next_item(&at, end, &item) > 0; i++) {
        if (column_named(whole, &item, UINT32_MAX))
            return DIFFERENT;
        u32 slot = hash_name(item.name, item.name_len) & whole->mask;
        while (whole->table[slot])
            slot = (slot + 1) & whole->mask;
        whole->table[slot] = i + 1;
        whole->columns[i] = (Reading){.column = item, .at = item.value + 4, .end = item.value + item.len - 1, .row = -1};
        read_on(&whole->columns[i]);
    }
    return ALIKE;
}
static int is_next(Reading *reading, i64 row, const Item *item)
{
    if (!reading || reading->row != row || !same_item(&reading->next, item))
        return 0;
    read_on(reading);
    return 1;
}
/* The rows of a part follow those that were found before. */
static int part_follows(Whole *whole, const Item *part)
{
    Item meta, start, data, column, item;
    if (!open_parts(part, whole->time, whole->time_len, &meta, &start, &data) || !same_item(&meta, &whole->meta) ||
        !same_item(&start, &whole->start) || !item_named(&data, whole->time, whole->time_len, &column) ||
        column.type != T_DOC)
        return DIFFERENT;
    i64 rows = 0, row = -1;
    int more;
    const u8 *at = column.value + 4, *end = column.value + column.len - 1;
    for (; (more = next_row(&at, end, &row, &item)) > 0; rows++)
        if (row != rows)
            return DIFFERENT;
    if (more)
        return DIFFERENT;
    const u8 *columns_at = data.value + 4, *columns_end = data.value + data.len - 1;
    for (u32 i = 0; (more = next_item(&columns_at, columns_end, &column)) > 0; i++) {
        Reading *reading = column_named(whole, &column, i);
        if (column.type != T_DOC || !reading)
            return DIFFERENT;
        at = column.value + 4, end = column.value + column.len - 1;
        for (row = -1; (more = next_row(&at, end, &row, &item)) > 0;)
            if (row >= rows || !is_next(reading, whole->rows + row, &item))
                return DIFFERENT;
        if (more)
            return DIFFERENT;
    }
    whole->rows += rows;
    return !more;
}
/* A row, as a document, is the next one. */
static int row_follows(Whole *whole, const Item *row)
{
    const u8 *at = row->value + 4, *end = row->value + row->len - 1;
    Item item;
    int more, has_time = 0;
    for (u32 i = 0; (more = next_item(&at, end, &item)) > 0; i++) {
        if (!is_next(column_named(whole, &item, i), whole->rows, &item))
            return DIFFERENT;
        has_time |= is_called(&item, whole->time, whole->time_len);
    }
    whole->rows++;
    return !more && has_time;
}
static int is_read_whole(const Whole *whole)
{
    for (u32 i = 0; i < whole->count; i++)
        if (whole->columns[i].row != NO_MORE)
            return DIFFERENT;
    return ALIKE;
}

/* ---- for Python ---- */

static PyObject *answer(int same) { return same == NO_ROOM ? PyErr_NoMemory() : PyBool_FromLong(same == ALIKE); }

static PyObject *same_rows(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[1]) || !PyBytes_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "same_rows takes bytes, bytes and bytes");
    const u8 *plain = (const u8 *)PyBytes_AS_STRING(args[0]), *packed = (const u8 *)PyBytes_AS_STRING(args[1]);
    const u8 *time = (const u8 *)PyBytes_AS_STRING(args[2]);
    size_t len = (size_t)PyBytes_GET_SIZE(args[0]), packed_len = (size_t)PyBytes_GET_SIZE(args[1]);
    size_t time_len = (size_t)PyBytes_GET_SIZE(args[2]);
    Expected expected = {0};
    Item document, other;
    int same = DIFFERENT;
    /* Nothing from here on touches an object: the bytes belong to the caller's arguments. */
    Py_BEGIN_ALLOW_THREADS
    if (whole_document(plain, len, &document) && whole_document(packed, packed_len, &other))
        same = same_bucket(&expected, &document, &other, time, time_len);
    free(expected.cells);
    Py_END_ALLOW_THREADS
    return answer(same);
}
/* bucket, sequence of documents, time field */
static PyObject *follows(PyObject *const *args, Py_ssize_t count, int (*one)(Whole *, const Item *))
{
    if (count != 3 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "expected bytes, a sequence of bytes, bytes");
    PyObject *documents = PySequence_Tuple(args[1]);
    if (!documents)
        return NULL;
    Whole whole = {0};
    Item bucket, document;
    int same = whole_document((const u8 *)PyBytes_AS_STRING(args[0]), (size_t)PyBytes_GET_SIZE(args[0]), &bucket);
    if (same == ALIKE)
        same = open_whole(&whole, &bucket, (const u8 *)PyBytes_AS_STRING(args[2]), (size_t)PyBytes_GET_SIZE(args[2]));
    for (Py_ssize_t i = 0; same == ALIKE && i < PyTuple_GET_SIZE(documents); i++) {
        PyObject *each = PyTuple_GET_ITEM(documents, i);
        same = PyBytes_Check(each) &&
               whole_document((const u8 *)PyBytes_AS_STRING(each), (size_t)PyBytes_GET_SIZE(each), &document)
                   ? one(&whole, &document)
                   : DIFFERENT;
    }
    if (same == ALIKE)
        same = is_read_whole(&whole);
    free(whole.columns);
    free(whole.table);
    Py_DECREF(documents);
    return answer(same);
}
static PyObject *holds_parts(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return follows(args, count, part_follows);
}
static PyObject *holds_rows(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return follows(args, count, row_follows);
}
typedef struct {
    Writer out; /* type, length, value; type 0: none */
    size_t left;
} Cells;
static int take_cell(void *to, u8 type, const u8 *value, u32 len)
{
    Cells *cells = to;
    if (!cells->left--)
        return 1;
    put_byte(&cells->out, type);
    u8 *room = writer_room(&cells->out, 4);
    if (room)
        put_u32(room, type ? len : 0);
    if (type)
        put(&cells->out, value, len);
    return 0;
}
static PyObject *column_cells(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyBytes_Check(args[0]) || !PyLong_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "column_cells takes bytes and int");
    size_t rows = PyLong_AsSize_t(args[1]);
    if (PyErr_Occurred())
        return NULL;
    Cells cells = {.left = rows};
    writer_init(&cells.out, 1024);
    int read = read_column((const u8 *)PyBytes_AS_STRING(args[0]), (size_t)PyBytes_GET_SIZE(args[0]), take_cell, &cells);
    PyObject *found = NULL;
    if (cells.out.failed || read == NO_ROOM)
        PyErr_NoMemory();
    else if (read != READ || cells.left)
        PyErr_SetString(PyExc_ValueError, "not a column of so many rows");
    else
        found = PyList_New((Py_ssize_t)rows);
    const u8 *at = cells.out.bytes;
    for (size_t i = 0; found && i < rows; i++, at += 5 + get_u32(at + 1)) {
        PyObject *cell = *at ? element_value(*at, at + 5, get_u32(at + 1)) : Py_NewRef(Py_None);
        if (!cell)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, (Py_ssize_t)i, cell);
    }
    free(cells.out.bytes);
    return found;
}
