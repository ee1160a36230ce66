/* Bucket documents and updates (W3, W121-W125), as in catalog/documents.py. A part of _kernel.c. */

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
