/* Streams of compressed values (W140-W148), as in catalog/column.py. A part of _kernel.c. */

typedef unsigned __int128 u128;

typedef struct {
    const u8 *value;
    u32 len;
    u8 type; /* 0: the row has none */
} Cell;
typedef struct {
    u128 number;
    u8 is_skip;
} Raw;
typedef struct { /* what a reader takes at once: the row that it begins with, and where its bytes are */
    u32 row, leaf;
    size_t at, len;
} Piece;
typedef struct {
    Piece *items;
    size_t count, capacity;
} Pieces;
typedef struct {
    Writer *out;
    Pieces *pieces; /* NULL where nobody asks for them */
    Raw *values;    /* room for all rows */
    u64 *blocks;    /* room for all rows */
    u32 *starts;    /* room for all rows: the first row of a block */
    size_t count;
    u32 row, leaf; /* row: of the next piece */
    u8 control; /* kind of the blocks that the values will make; 0 while it does not matter */
    int has_latest;
    Raw latest; /* the raw value that a run would repeat */
} Stream;

static const struct {
    u8 head, bits, count_bits, unit, slots;
} packings[] = {
    {1, 1, 0, 0, 60},     {2, 2, 0, 0, 30},     {3, 3, 0, 0, 20},     {4, 4, 0, 0, 15},     {5, 5, 0, 0, 12},
    {6, 6, 0, 0, 10},     {0x17, 2, 4, 1, 9},   {0x07, 7, 0, 0, 8},   {0x27, 3, 4, 1, 8},   {0x08, 8, 0, 0, 7},
    {0x37, 4, 4, 1, 7},   {0x18, 4, 4, 4, 7},   {0x09, 10, 0, 0, 6},  {0x47, 5, 4, 1, 6},   {0x28, 5, 4, 4, 6},
    {0x88, 4, 5, 4, 6},   {0x0A, 12, 0, 0, 5},  {0x57, 7, 4, 1, 5},   {0x38, 7, 4, 4, 5},   {0x98, 6, 5, 4, 5},
    {0x0B, 15, 0, 0, 4},  {0x67, 10, 4, 1, 4},  {0x48, 10, 4, 4, 4},  {0xA8, 9, 5, 4, 4},   {0x0C, 20, 0, 0, 3},
    {0x77, 14, 4, 1, 3},  {0x58, 14, 4, 4, 3},  {0xB8, 13, 5, 4, 3},  {0x0D, 30, 0, 0, 2},  {0x87, 24, 4, 1, 2},
    {0x68, 24, 4, 4, 2},  {0xC8, 23, 5, 4, 2},  {0x0E, 60, 0, 0, 1},  {0x97, 52, 4, 1, 1},  {0x78, 52, 4, 4, 1},
    {0xD8, 51, 5, 4, 1},
};
#define PACKINGS (sizeof packings / sizeof *packings)
#define UNSCALED 0x80
#define REPEATED 120
#define WORTH_A_SCALE 4
#define SCALES 5
static const double scale_factors[SCALES] = {1.0, 10.0, 100.0, 1e4, 1e8};
static const u8 scale_controls[SCALES] = {0x90, 0xA0, 0xB0, 0xC0, 0xD0};

static int trailing_zeros(u128 v)
{
    u64 low = (u64)v;
    return low ? __builtin_ctzll(low) : 64 + __builtin_ctzll((u64)(v >> 64));
}
/* 1 when the value fits into a slot of this packing, which *slot is then. */
static inline int slot_of(const Raw *raw, size_t packing, u64 *slot)
{
    int bits = packings[packing].bits, count_bits = packings[packing].count_bits;
    u128 v = raw->number;
    if (raw->is_skip) {
        *slot = ((u64)1 << (bits + count_bits)) - 1;
        return 1;
    }
    u64 ones = ((u64)1 << bits) - 1;
    if (!count_bits) {
        *slot = (u64)v;
        return v < ones;
    }
    int zeros = 0, most = (1 << count_bits) - 1, unit = packings[packing].unit;
    if (v) {
        zeros = trailing_zeros(v) / unit;
        if (zeros > most)
            zeros = most;
        v >>= zeros * unit;
    }
    if (v > ones || (v == ones && zeros == most))
        return 0;
    *slot = (u64)v << count_bits | (u64)zeros;
    return 1;
}
static int raw_fits(u128 number)
{
    Raw raw = {number, 0};
    u64 slot;
    for (size_t i = PACKINGS - 4; i < PACKINGS; i++)
        if (slot_of(&raw, i, &slot))
            return 1;
    return 0;
}
static inline int same_raw(const Raw *a, const Raw *b)
{
    return a->is_skip == b->is_skip && (a->is_skip || a->number == b->number);
}
/* How many times 120 the latest value is repeated from here on, up to what one block can say. */
static size_t run_at(const Stream *s, size_t at)
{
    size_t end = at;
    while (s->has_latest && end < s->count && end - at < 16 * REPEATED && same_raw(&s->values[end], &s->latest))
        end++;
    return (end - at) / REPEATED;
}
static size_t pack_block(const Stream *s, size_t at, u64 *block)
{
    for (size_t i = 0; i < PACKINGS; i++) {
        size_t slots = packings[i].slots, taken = 0;
        if (slots > s->count - at)
            continue;
        int low = packings[i].head & 0xF, shift = low == 7 || low == 8 ? 8 : 4;
        u64 packed = packings[i].head, slot;
        while (taken < slots && slot_of(&s->values[at + taken], i, &slot)) {
            packed |= slot << shift;
            shift += packings[i].bits + packings[i].count_bits;
            taken++;
        }
        if (taken == slots) {
            *block = packed;
            return slots;
        }
    }
    return 0; /* cannot be: every value was found to fit */
}
/* What was written since at is a piece that begins with this row. */
static void note_piece(Stream *s, u32 row, size_t at)
{
    Pieces *pieces = s->pieces;
    if (!pieces)
        return;
    if (pieces->count == pieces->capacity) {
        size_t capacity = pieces->capacity ? pieces->capacity * 2 : 256;
        Piece *grown = realloc(pieces->items, sizeof(Piece) * capacity);
        if (!grown) {
            s->out->failed = 1;
            return;
        }
        pieces->items = grown, pieces->capacity = capacity;
    }
    pieces->items[pieces->count++] = (Piece){row, s->leaf, at, s->out->len - at};
}
static void stream_flush(Stream *s)
{
    size_t blocks = 0, at = 0;
    while (at < s->count) {
        size_t run = run_at(s, at), taken;
        s->starts[blocks] = (u32)at;
        if (run) {
            s->blocks[blocks++] = 0xF | (run - 1) << 4;
            at += run * REPEATED;
            continue;
        }
        taken = pack_block(s, at, &s->blocks[blocks]);
        if (!taken) {
            s->out->failed = 1;
            break;
        }
        blocks++;
        at += taken;
        s->latest = s->values[at - 1], s->has_latest = 1;
    }
    for (size_t first = 0; first < blocks; first += 16) {
        size_t together = blocks - first < 16 ? blocks - first : 16, start = s->out->len;
        put_byte(s->out, (u8)((s->control ? s->control : UNSCALED) + together - 1));
        for (size_t i = first; i < first + together; i++) {
            u8 *room = writer_room(s->out, 8);
            if (room) {
                put_u32(room, (u32)s->blocks[i]);
                put_u32(room + 4, (u32)(s->blocks[i] >> 32));
            }
        }
        note_piece(s, s->row + s->starts[first], start);
    }
    s->row += (u32)s->count;
    s->count = 0, s->control = 0;
}
static void stream_literal(Stream *s, const Cell *cell)
{
    stream_flush(s);
    size_t start = s->out->len;
    put_byte(s->out, cell->type);
    put_byte(s->out, 0);
    put(s->out, cell->value, cell->len);
    note_piece(s, s->row++, start);
    s->latest = (Raw){0, 0}, s->has_latest = 1;
}
static void stream_add(Stream *s, u128 number, u8 control)
{
    if (s->control && s->control != control) {
        stream_flush(s);
        s->has_latest = 0;
    }
    s->control = control;
    s->values[s->count++] = (Raw){number, 0};
}
static inline u64 zigzag64(u64 v) { return v << 1 ^ (v >> 63 ? ~(u64)0 : 0); }
static inline u128 zigzag128(u128 v) { return v << 1 ^ (v >> 127 ? ~(u128)0 : 0); }

/* The number whose differences stand for values of this type (W144, W145); 0 when there is none. */
static int number_of(const Cell *c, u128 *number)
{
    u128 v = 0;
    switch (c->type) {
    case T_I32: v = (u128)(u64)get_length(c->value); break;
    case T_I64: v = get_u64(c->value); break;
    case T_BOO: v = c->value[0]; break;
    case T_DEC: v = (u128)get_u64(c->value + 8) << 64 | get_u64(c->value); break;
    case T_STR: case T_CODE:
        if (c->len > 21 || (c->len > 5 && !c->value[4]))
            return 0;
        for (u32 i = 4; i < c->len - 1; i++)
            v = v << 8 | c->value[i];
        break;
    case T_BIN:
        if (c->len > 21 || c->value[4] == 2)
            return 0;
        for (u32 i = c->len; i > 5; i--)
            v = v << 8 | c->value[i - 1];
        break;
    default: return 0;
    }
    *number = v;
    return 1;
}
static inline int same_cell(const Cell *a, const Cell *b)
{
    return a->type == b->type && a->len == b->len && memcmp(a->value, b->value, a->len) == 0;
}
/* The raw value of a cell after another of its type; 0: a literal is needed. */
static int plain_step(const Cell *previous, const Cell *cell, u128 *step)
{
    u128 now, before;
    *step = 0;
    if (same_cell(previous, cell))
        return 1;
    if (!number_of(cell, &now) ||
        (cell->type == T_BIN && (cell->len != previous->len || cell->value[4] != previous->value[4])))
        return 0;
    if (!number_of(previous, &before))
        before = 0;
    int narrow = cell->type == T_I32 || cell->type == T_I64 || cell->type == T_BOO;
    *step = narrow ? zigzag64((u64)now - (u64)before) : zigzag128(now - before);
    return *step != 0;
}
static u64 pace_of(const Cell *c)
{
    const u8 *o = c->value;
    if (c->type != T_OID)
        return get_u64(o);
    return (u64)o[11] | (u64)o[3] << 8 | (u64)o[10] << 16 | (u64)o[2] << 24 | (u64)o[9] << 32 | (u64)o[1] << 40 |
           (u64)o[0] << 48;
}
/* A double as an integer that gives back its very bits, if there is one. */
static int scaled(const u8 *value, int scale, i64 *whole)
{
    double number = get_double(value), product = number * scale_factors[scale];
    if (!(fabs(product) <= 9007199254740992.0))
        return 0;
    *whole = (i64)round(product);
    double back = (double)*whole / scale_factors[scale];
    u64 bits;
    memcpy(&bits, &back, 8);
    return bits == get_u64(value);
}
/* For each double from cell first on, up to another type, the scale that it is written in, -1 for none. */
static int choose_scales(const Cell *cells, size_t first, size_t rows, signed char *chosen)
{
    size_t count = 0, most = rows - first;
    u32 *lengths = malloc(sizeof(u32) * SCALES * (most + 1));
    const u8 **numbers = malloc(sizeof(u8 *) * most);
    if (!lengths || !numbers) {
        free(lengths);
        free(numbers);
        return -1;
    }
    for (size_t i = first; i < rows && (!cells[i].type || cells[i].type == T_DBL); i++)
        if (cells[i].type)
            numbers[count++] = cells[i].value;
    for (int scale = 0; scale < SCALES; scale++) {
        u32 *length = lengths + (size_t)scale * (most + 1);
        i64 whole;
        length[count] = 0;
        for (size_t i = count; i-- > 0;)
            length[i] = scaled(numbers[i], scale, &whole) ? length[i + 1] + 1 : 0;
    }
    size_t at = 1;
    chosen[0] = -1;
    while (at < count) {
        int best = 0;
        for (int scale = 1; scale < SCALES; scale++)
            if (lengths[(size_t)scale * (most + 1) + at - 1] > lengths[(size_t)best * (most + 1) + at - 1])
                best = scale;
        size_t length = lengths[(size_t)best * (most + 1) + at - 1];
        if (length > 1 && (length > WORTH_A_SCALE || at - 1 + length == count)) {
            memset(chosen + at, best, length - 1);
            at += length - 1;
        } else
            chosen[at++] = -1;
    }
    free(lengths);
    free(numbers);
    return 0;
}
static u128 double_step(const Cell *previous, const Cell *cell, int scale, u8 *control)
{
    if (scale < 0)
        return zigzag64(get_u64(cell->value) - get_u64(previous->value));
    i64 after = 0, before = 0;
    scaled(cell->value, scale, &after);
    scaled(previous->value, scale, &before);
    *control = scale_controls[scale];
    return zigzag64((u64)after - (u64)before);
}
typedef struct { /* room for one stream */
    Raw *values;
    u64 *blocks;
    u32 *starts;
    signed char *scales;
} StreamRoom;

/* Cells in pieces; a reference, the cell before the first, counts as a value that was written before. -1 without
 * memory. */
static int put_values(Writer *w, const StreamRoom *room, const Cell *cells, size_t rows, const Cell *reference,
                      Pieces *pieces, u32 leaf)
{
    Stream s = {.out = w, .pieces = pieces, .values = room->values, .blocks = room->blocks, .starts = room->starts,
                .leaf = leaf, .has_latest = reference != NULL};
    const Cell *previous = reference;
    u64 pace = 0;
    size_t next_scale = 1;
    if (reference && reference->type == T_DBL && choose_scales(reference, 0, rows + 1, room->scales))
        return -1;
    for (size_t i = 0; i < rows; i++) {
        const Cell *cell = &cells[i];
        if (!cell->type) {
            s.values[s.count++] = (Raw){0, 1};
            continue;
        }
        u128 number = 0;
        u64 step = 0;
        u8 control = UNSCALED;
        int known = 0, alike = previous && previous->type == cell->type;
        if (cell->type == T_DBL) {
            if (!alike) {
                next_scale = 0;
                if (choose_scales(cells, i, rows, room->scales))
                    return -1;
            }
            int scale = room->scales[next_scale++];
            if (alike)
                number = double_step(previous, cell, scale, &control), known = 1;
        } else if (!alike) {
        } else if (cell->type == T_DATE || cell->type == T_TS || cell->type == T_OID) {
            if (cell->type != T_OID || memcmp(cell->value + 4, previous->value + 4, 5) == 0) {
                step = pace_of(cell) - pace_of(previous);
                number = zigzag64(step - pace), known = 1;
            }
        } else
            known = plain_step(previous, cell, &number);
        if (known && raw_fits(number)) {
            stream_add(&s, number, control);
            pace = step;
        } else {
            stream_literal(&s, cell);
            pace = 0;
        }
        previous = cell;
    }
    stream_flush(&s);
    return 0;
}
