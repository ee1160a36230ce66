/* Compressed columns read again (W140-W149), as in catalog/decoding.py. A part of _kernel.c.
 *
 * What is written is held against what it was made of. So this is written from the format alone, and nothing in it is
 * shared with what writes columns: a mistake there must not be made here again. No Python, no lasting state: it runs
 * without the interpreter's lock. */

enum { READ = 0, STOPPED = 1, NOT_READABLE = -1, NO_ROOM = -2, AT_END = 2, AT_SECTION = 3 };

typedef struct { /* an element; type 0: there is none */
    const u8 *name, *value;
    u32 name_len, len;
    u8 type;
} Item;
/* What becomes of a row's value; anything but 0 ends the reading. */
typedef int (*Take)(void *to, u8 type, const u8 *value, u32 len);

typedef struct { /* a column, or one leaf of its objects: what comes next, and what came before */
    const u8 *at; /* blocks */
    u64 slots;    /* what is left of a block, the next one lowest */
    u128 raw;
    u32 blocks, left; /* blocks after this one; slots or repetitions in it */
    u8 control, bits, zero_bits, unit, repeats, is_skip, has_raw;
    u8 type;
    u32 len;
    const u8 *value; /* of the element before */
    u8 own[24];
    u64 pace, whole; /* of dates and their like; of a scaled double */
} Source;

static i64 text_size(const u8 *p, size_t left)
{
    if (left < 5)
        return -1;
    u32 len = get_u32(p);
    return len >= 1 && len <= left - 4 && p[3 + len] == 0 ? 4 + (i64)len : -1;
}
/* Bytes of a value, of which so many may be looked at; -1: it is none. */
static i64 size_of_value(u8 type, const u8 *p, size_t left)
{
    size_t size = 0;
    switch (type) {
    case 0x06: case 0x0A: case 0x7F: case 0xFF: return 0;
    case 0x08: return left >= 1 && p[0] <= 1 ? 1 : -1;
    case 0x10: size = 4; break;
    case 0x01: case 0x09: case 0x11: case 0x12: size = 8; break;
    case 0x07: size = 12; break;
    case 0x13: size = 16; break;
    case 0x02: case 0x0D: case 0x0E: return text_size(p, left);
    case 0x03: case 0x04: case 0x0F:
        size = left < 5 ? 0 : get_u32(p);
        return size >= 5 && size <= left && p[size - 1] == 0 ? (i64)size : -1;
    case 0x05: return left >= 5 && get_u32(p) <= left - 5 ? 5 + (i64)get_u32(p) : -1;
    case 0x0B:
        for (int strings = 0; strings < 2; strings++) {
            while (size < left && p[size])
                size++;
            size++;
        }
        break;
    case 0x0C: {
        i64 text = text_size(p, left);
        if (text < 0)
            return -1;
        size = (size_t)text + 12;
        break;
    }
    default: return -1;
    }
    return size <= left ? (i64)size : -1;
}
/* The next element before the end of a document: 1, 0 at the end, -1 for what is none. */
static inline int next_item(const u8 **at, const u8 *end, Item *item)
{
    const u8 *p = *at;
    if (p == end)
        return p[0] ? -1 : 0;
    const u8 *name = ++p;
    while (p < end && *p)
        p++;
    if (p >= end)
        return -1;
    i64 size = size_of_value(name[-1], p + 1, (size_t)(end - p - 1));
    if (size < 0)
        return -1;
    *item = (Item){name, p + 1, (u32)(p - name), (u32)size, name[-1]};
    *at = p + 1 + size;
    return 1;
}

/* ---- blocks (W142) ---- */

static const u8 plain_bits[15] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60};
static const u8 plain_slots[15] = {0, 60, 30, 20, 15, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1};
static const u8 seven_bits[10] = {0, 2, 3, 4, 5, 7, 10, 14, 24, 52};
static const u8 eight_bits[14] = {0, 4, 5, 7, 10, 14, 24, 52, 4, 6, 9, 13, 23, 51};

static int open_block(Source *s)
{
    u64 block = get_u64(s->at);
    u8 selector = block & 15, extension = block >> 4 & 15;
    s->at += 8, s->blocks--;
    if (selector == 15) {
        s->repeats = 1, s->left = (extension + 1u) * 120;
        return s->has_raw && !(block >> 8) ? 0 : NOT_READABLE;
    }
    s->repeats = 0, s->zero_bits = 0, s->unit = 0;
    s->slots = block >> (selector == 7 || selector == 8 ? 8 : 4);
    if ((selector != 7 && selector != 8) || !extension) {
        s->bits = plain_bits[selector], s->left = plain_slots[selector];
        return s->left ? 0 : NOT_READABLE;
    }
    if (extension > (selector == 7 ? 9 : 13))
        return NOT_READABLE;
    if (selector == 7)
        s->bits = seven_bits[extension] + 4, s->zero_bits = 4, s->unit = 1, s->left = 10u - extension;
    else if (extension <= 7)
        s->bits = eight_bits[extension] + 4, s->zero_bits = 4, s->unit = 4, s->left = 8u - extension;
    else
        s->bits = eight_bits[extension] + 5, s->zero_bits = 5, s->unit = 4, s->left = 14u - extension;
    return 0;
}
static inline void take_slot(Source *s)
{
    u64 ones = ((u64)1 << s->bits) - 1, slot = s->slots & ones;
    s->slots >>= s->bits;
    s->is_skip = slot == ones, s->has_raw = 1;
    s->raw = s->zero_bits ? (u128)(slot >> s->zero_bits) << (slot & ((1u << s->zero_bits) - 1)) * s->unit : slot;
}

/* ---- what a raw value makes of the element before (W143-W146) ---- */

static inline u64 signed_64(u64 raw) { return raw >> 1 ^ (0 - (raw & 1)); }
static inline u128 signed_128(u128 raw) { return raw >> 1 ^ (0 - (raw & 1)); }
static inline void keep_number(Source *s, u64 number)
{
    put_u32(s->own, (u32)number);
    put_u32(s->own + 4, (u32)(number >> 32));
    s->value = s->own;
}
static double factor_of(u8 control) /* 0x90 1, 0xA0 10, 0xB0 100, 0xC0 10^4, 0xD0 10^8 */
{
    switch (control) {
    case 0xA0: return 10;
    case 0xB0: return 100;
    case 0xC0: return 10000;
    case 0xD0: return 100000000;
    default: return 1;
    }
}
static int begin_scale(Source *s)
{
    if (s->type != T_DBL)
        return NOT_READABLE;
    double before = get_double(s->value), product = before * factor_of(s->control);
    if (!(product >= -9007199254740992.0 && product <= 9007199254740992.0))
        return NOT_READABLE;
    i64 whole = llround(product);
    double again = (double)whole / factor_of(s->control);
    u64 bits;
    memcpy(&bits, &again, 8);
    s->whole = (u64)whole;
    return bits == get_u64(s->value) ? 0 : NOT_READABLE;
}
static int next_double(Source *s, u64 raw)
{
    if (s->control == 0x80) {
        keep_number(s, get_u64(s->value) + signed_64(raw));
        return 0;
    }
    s->whole += signed_64(raw);
    double number = (double)(i64)s->whole / factor_of(s->control);
    u64 bits;
    memcpy(&bits, &number, 8);
    keep_number(s, bits);
    return 0;
}
static inline int next_object_id(Source *s)
{
    const u8 *id = s->value;
    u64 number = (u64)id[0] << 48 | (u64)id[1] << 40 | (u64)id[9] << 32 | (u64)id[2] << 24 | (u64)id[10] << 16 |
                 (u64)id[3] << 8 | id[11];
    number += s->pace;
    if (number >> 56)
        return NOT_READABLE;
    u8 *own = s->own;
    if (id != own)
        memcpy(own, id, 12);
    own[11] = (u8)number, own[3] = (u8)(number >> 8), own[10] = (u8)(number >> 16), own[2] = (u8)(number >> 24);
    own[9] = (u8)(number >> 32), own[1] = (u8)(number >> 40), own[0] = (u8)(number >> 48);
    s->value = own;
    return 0;
}
static int next_text(Source *s)
{
    u128 number = 0;
    u32 len = s->len - 5;
    if (len <= 16 && s->value[4])
        for (u32 i = 0; i < len; i++)
            number = number << 8 | s->value[4 + i];
    number += signed_128(s->raw);
    for (len = 0; len < 16 && number >> 8 * len; len++) {
    }
    put_u32(s->own, len + 1);
    for (u32 i = 0; i < len; i++)
        s->own[4 + i] = (u8)(number >> 8 * (len - 1 - i));
    s->own[4 + len] = 0;
    s->value = s->own, s->len = len + 5;
    return 0;
}
static int next_bytes(Source *s, u32 from, u32 len) /* binary data and decimals: a number, lowest byte first */
{
    u128 number = 0;
    if (len > 16)
        return NOT_READABLE;
    for (u32 i = 0; i < len; i++)
        number |= (u128)s->value[from + i] << 8 * i;
    number += signed_128(s->raw);
    if (len < 16 && number >> 8 * len)
        return NOT_READABLE;
    memmove(s->own, s->value, from);
    s->value = s->own;
    for (u32 i = 0; i < len; i++)
        s->own[from + i] = (u8)(number >> 8 * i);
    return 0;
}
/* The next element from the one before and the raw value. */
static inline int next_element_of(Source *s)
{
    if (!s->type)
        return NOT_READABLE;
    int is_paced = s->type == T_DATE || s->type == T_TS || s->type == T_OID;
    if (!s->raw && !is_paced)
        return 0;
    if (s->type == T_STR || s->type == T_CODE)
        return next_text(s);
    if (s->type == T_BIN)
        return next_bytes(s, 5, s->len - 5);
    if (s->type == T_DEC)
        return next_bytes(s, 0, 16);
    if (s->raw >> 64)
        return NOT_READABLE;
    u64 raw = (u64)s->raw, number;
    switch (s->type) {
    case T_DATE: case T_TS:
        s->pace += signed_64(raw);
        keep_number(s, get_u64(s->value) + s->pace);
        return 0;
    case T_OID:
        s->pace += signed_64(raw);
        return next_object_id(s);
    case T_DBL:
        return next_double(s, raw);
    case T_I64:
        keep_number(s, get_u64(s->value) + signed_64(raw));
        return 0;
    case T_I32:
        number = (u64)(i64)(int32_t)get_u32(s->value) + signed_64(raw);
        keep_number(s, number);
        return (u64)(i64)(int32_t)(u32)number == number ? 0 : NOT_READABLE;
    case T_BOO:
        number = s->value[0] + signed_64(raw);
        keep_number(s, number);
        return number <= 1 ? 0 : NOT_READABLE;
    }
    return NOT_READABLE;
}
static int take_literal(Source *s, const u8 **at, const u8 *end)
{
    const u8 *p = *at;
    if (end - p < 2 || p[1])
        return NOT_READABLE;
    i64 size = size_of_value(p[0], p + 2, (size_t)(end - p - 2));
    if (size < 0)
        return NOT_READABLE;
    s->type = p[0], s->value = p + 2, s->len = (u32)size;
    s->raw = 0, s->is_skip = 0, s->has_raw = 1, s->pace = 0;
    *at = p + 2 + size;
    return READ;
}
static int open_control(Source *s, const u8 **at, const u8 *end)
{
    const u8 *p = *at;
    u32 blocks = (*p & 15u) + 1;
    if ((size_t)(end - p - 1) < blocks * 8)
        return NOT_READABLE;
    s->control = *p & 0xF0, s->blocks = blocks, s->at = p + 1;
    *at = p + 1 + blocks * 8;
    return s->control == 0x80 ? 0 : begin_scale(s);
}
/* One value, or skip; AT_END and AT_SECTION leave their byte where it is. */
static inline int next_value(Source *s, const u8 **at, const u8 *end)
{
    while (!s->left && !s->blocks) {
        if (*at >= end)
            return NOT_READABLE;
        u8 control = **at;
        if (!control)
            return AT_END;
        if (control == 0xF1 || control == 0xF2)
            return AT_SECTION;
        if (control < 0x20 || control == 0x7F || control == 0xFF)
            return take_literal(s, at, end);
        if (control >= 0xE0 || control < 0x80 || open_control(s, at, end))
            return NOT_READABLE;
    }
    if (!s->left && open_block(s))
        return NOT_READABLE;
    s->left--;
    if (!s->repeats)
        take_slot(s);
    return s->is_skip ? READ : next_element_of(s);
}

/* ---- objects and arrays that were taken apart (W147) ---- */

typedef struct {
    Item item;
    u32 inside; /* nodes */
} Knot;
typedef struct { /* a section: the reference in preorder, a source for each leaf, a row under way */
    Knot *knots;
    Source *sources;
    u32 count, room, leaves, leaf;
    const u8 *at, *end;
    Writer row;
} Apart;

static int is_inner(const Item *item) { return item->type == T_DOC || item->type == T_ARR; }

static int read_reference(Apart *a, const u8 *document, u32 len, int levels)
{
    const u8 *p = document + 4, *end = document + len - 1;
    Item item;
    int more;
    if (!levels)
        return NOT_READABLE;
    while ((more = next_item(&p, end, &item)) > 0) {
        if (a->count == a->room) {
            u32 room = a->room ? a->room * 2 : 64;
            Knot *grown = realloc(a->knots, room * sizeof(Knot));
            if (!grown)
                return NO_ROOM;
            a->knots = grown, a->room = room;
        }
        u32 at = a->count++;
        int failed = 0;
        if (is_inner(&item))
            failed = read_reference(a, item.value, item.len, levels - 1);
        else
            a->leaves++;
        if (failed)
            return failed;
        a->knots[at] = (Knot){item, a->count - at - 1};
    }
    return more;
}
/* The fields of an object of this row; *any: it has some. */
static int read_inner(Apart *a, u32 from, u32 to, int *any)
{
    for (u32 i = from; i < to; i += 1 + a->knots[i].inside) {
        const Item *known = &a->knots[i].item;
        size_t before = a->row.len;
        if (is_inner(known)) {
            int inner = !a->knots[i].inside;
            put_head(&a->row, known->type, "", 0, known->name, known->name_len);
            size_t document = begin(&a->row);
            int failed = read_inner(a, i + 1, i + 1 + a->knots[i].inside, &inner);
            if (failed)
                return failed;
            end(&a->row, document);
            if (inner)
                *any = 1;
            else
                a->row.len = before;
            continue;
        }
        Source *s = &a->sources[a->leaf];
        int found = next_value(s, &a->at, a->end);
        if (found == AT_END && !a->leaf)
            return AT_END;
        if (found != READ)
            return NOT_READABLE;
        a->leaf++;
        if (!s->is_skip) {
            *any = 1;
            put_head(&a->row, s->type, "", 0, known->name, known->name_len);
            put(&a->row, s->value, s->len);
        }
    }
    return READ;
}
static int read_rows(Apart *a, u8 type, Take take, void *to)
{
    for (;;) {
        int any = 0;
        a->row.len = 0, a->leaf = 0;
        size_t document = begin(&a->row);
        int found = read_inner(a, 0, a->count, &any);
        if (found == AT_END) {
            a->at++;
            return READ;
        }
        if (found)
            return found;
        end(&a->row, document);
        if (a->row.failed)
            return NO_ROOM;
        if (take(to, any ? type : 0, a->row.bytes, (u32)a->row.len))
            return STOPPED;
    }
}
static int read_section(const u8 **at, const u8 *end, Take take, void *to)
{
    u8 type = **at == 0xF1 ? T_DOC : T_ARR;
    const u8 *reference = *at + 1;
    i64 size = size_of_value(T_DOC, reference, (size_t)(end - reference));
    if (size < 0)
        return NOT_READABLE;
    Apart apart = {.at = reference + size, .end = end};
    int found = read_reference(&apart, reference, (u32)size, 200);
    if (!found && !apart.leaves)
        found = NOT_READABLE;
    if (!found && !(apart.sources = calloc(apart.leaves, sizeof(Source))))
        found = NO_ROOM;
    if (!found) {
        u32 leaf = 0;
        for (u32 i = 0; i < apart.count; i++) {
            const Item *item = &apart.knots[i].item;
            if (!is_inner(item)) {
                Source *s = &apart.sources[leaf++];
                s->type = item->type, s->value = item->value, s->len = item->len, s->has_raw = 1;
            }
        }
        writer_init(&apart.row, 256 + (size_t)size);
        found = apart.row.failed ? NO_ROOM : read_rows(&apart, type, take, to);
        free(apart.row.bytes);
    }
    free(apart.sources);
    free(apart.knots);
    *at = apart.at;
    return found;
}
/* Every row of a column, in order. */
static inline int read_column(const u8 *stream, size_t len, Take take, void *to)
{
    const u8 *at = stream, *end = stream + len;
    Source source = {0};
    for (;;) {
        int found = next_value(&source, &at, end);
        if (found == AT_END)
            return at + 1 == end ? READ : NOT_READABLE;
        if (found == AT_SECTION) {
            if ((found = read_section(&at, end, take, to)))
                return found;
            source = (Source){0};
        } else if (found)
            return found;
        else if (take(to, source.is_skip ? 0 : source.type, source.value, source.len))
            return STOPPED;
    }
}
