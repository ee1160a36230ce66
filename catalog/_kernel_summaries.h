/* Control summaries (W20-W28), as in catalog/minmax.py. A part of _kernel.c. */

/* ---- summaries (W20-W28), as in catalog/minmax.py ---- */

typedef struct Summary {
    union {
        struct {
            Scalar least, greatest;
        } scalar;
        Map inner;
    } is;
    u8 nested; /* T_DOC, T_ARR or 0 */
} Summary;

static void summary_free(void *thing)
{
    Summary *summary = thing;
    if (!summary)
        return;
    if (summary->nested)
        map_free(&summary->is.inner, summary_free);
    else {
        scalar_free(&summary->is.scalar.least);
        scalar_free(&summary->is.scalar.greatest);
    }
    free(summary);
}
static int summary_fold(Summary *summary, u8 type, const u8 *value, u32 len);

/* NULL with an exception. */
static Summary *summary_of(u8 type, const u8 *value, u32 len)
{
    Summary *summary = calloc(1, sizeof(Summary));
    if (!summary) {
        PyErr_NoMemory();
        return NULL;
    }
    int failed;
    if (is_nested(type)) {
        summary->nested = type;
        failed = summary_fold(summary, type, value, len) < 0;
    } else {
        failed = scalar_set(&summary->is.scalar.least, type, value, len) ||
                 scalar_set(&summary->is.scalar.greatest, type, value, len);
        if (failed)
            PyErr_NoMemory();
    }
    if (failed) {
        summary_free(summary);
        return NULL;
    }
    return summary;
}
/* Which ends changed; -1 with an exception. */
static int scalar_fold(Summary *summary, u8 type, const u8 *value, u32 len)
{
    Scalar *least = &summary->is.scalar.least, *greatest = &summary->is.scalar.greatest;
    int changed = 0;
    if (canonical[type] != canonical[least->type]) { /* W28 */
        if (canonical[type] < canonical[least->type])
            changed |= MIN_CHANGED;
        if (canonical[type] > canonical[greatest->type])
            changed |= MAX_CHANGED;
    } else {
        int order = order_values(type, value, len, least->type, scalar_bytes(least), least->len);
        if (order == COMPARE_FAILED)
            return -1;
        if (order < 0)
            changed = MIN_CHANGED;
        else if (canonical[type] == canonical[greatest->type]) {
            order = order_values(type, value, len, greatest->type, scalar_bytes(greatest), greatest->len);
            if (order == COMPARE_FAILED)
                return -1;
            if (order > 0)
                changed = MAX_CHANGED;
        }
    }
    if ((changed & MIN_CHANGED && scalar_set(least, type, value, len)) ||
        (changed & MAX_CHANGED && scalar_set(greatest, type, value, len))) {
        PyErr_NoMemory();
        return -1;
    }
    return changed;
}
static int summary_fold(Summary *summary, u8 type, const u8 *value, u32 len)
{
    if (!summary->nested)
        return scalar_fold(summary, type, value, len);
    if (summary->nested != type) {
        PyErr_SetString(PyExc_ValueError, "folded a value of another kind");
        return -1;
    }
    int object = type == T_DOC, changed = 0;
    Map *inner = &summary->is.inner;
    FieldVec vec;
    fields_init(&vec);
    if (collect(value, len, object, &vec)) {
        PyErr_NoMemory();
        changed = -1;
    }
    for (u32 i = 0; changed >= 0 && i < vec.count; i++) {
        Field *f = &vec.fields[i];
        Summary *known = object ? map_find(inner, f->name, f->name_len, f->hash)
                                : (i < inner->count ? inner->entries[i].thing : NULL);
        if (known) {
            int more = summary_fold(known, f->type, f->value, f->value_len);
            changed = more < 0 ? -1 : changed | more;
            continue;
        }
        known = summary_of(f->type, f->value, f->value_len);
        if (known && map_add(inner, f->name, f->name_len, f->hash, object, known)) {
            summary_free(known);
            known = NULL;
            PyErr_NoMemory();
        }
        changed = known ? BOTH_CHANGED : -1;
    }
    fields_free(&vec);
    return changed;
}
static u8 summary_type(const Summary *summary, int greatest)
{
    if (summary->nested)
        return summary->nested;
    return greatest ? summary->is.scalar.greatest.type : summary->is.scalar.least.type;
}
/* The value of one end, without its type byte. */
static void put_summary(Writer *w, const Summary *summary, int greatest)
{
    if (!summary->nested) {
        const Scalar *s = greatest ? &summary->is.scalar.greatest : &summary->is.scalar.least;
        put(w, scalar_bytes(s), s->len);
        return;
    }
    size_t at = begin(w);
    for (u32 i = 0; i < summary->is.inner.count; i++) {
        const Entry *e = &summary->is.inner.entries[i];
        put_byte(w, summary_type(e->thing, greatest));
        if (summary->nested == T_DOC)
            put(w, e->name, e->name_len);
        else
            put_row(w, i);
        put_byte(w, 0);
        put_summary(w, e->thing, greatest);
    }
    end(w, at);
}
static size_t digits_of(u64 number)
{
    size_t digits = 1;
    while (number /= 10)
        digits++;
    return digits;
}
static size_t summary_size(const Summary *summary, int greatest)
{
    if (!summary->nested)
        return greatest ? summary->is.scalar.greatest.len : summary->is.scalar.least.len;
    size_t size = 5;
    for (u32 i = 0; i < summary->is.inner.count; i++) {
        const Entry *e = &summary->is.inner.entries[i];
        size += 2 + (summary->nested == T_DOC ? e->name_len : digits_of(i)) + summary_size(e->thing, greatest);
    }
    return size;
}
/* From two ends that the interpreted form found to have the same paths. NULL with an exception. */
static Summary *summary_between(u8 type, const u8 *least, u32 least_len, u8 other, const u8 *greatest, u32 greatest_len)
{
    Summary *summary = calloc(1, sizeof(Summary));
    FieldVec lower, upper;
    fields_init(&lower);
    fields_init(&upper);
    int failed = !summary, object = type == T_DOC;
    if (!failed && !is_nested(type)) {
        int order = canonical[type] != canonical[other]
                        ? COMPARE_FAILED
                        : order_values(other, greatest, greatest_len, type, least, least_len);
        failed = order < 0 || order == COMPARE_FAILED ||
                 scalar_set(&summary->is.scalar.least, type, least, least_len) ||
                 scalar_set(&summary->is.scalar.greatest, other, greatest, greatest_len);
    } else if (!failed) {
        summary->nested = type;
        failed = type != other || collect(least, least_len, 1, &lower) || collect(greatest, greatest_len, 1, &upper) ||
                 lower.count != upper.count;
        for (u32 i = 0; !failed && i < lower.count; i++) {
            Field *f = &lower.fields[i], *g = &upper.fields[i];
            if (!same_name(g, f->name, f->name_len, f->hash))
                for (g = upper.fields; g < upper.fields + upper.count; g++)
                    if (same_name(g, f->name, f->name_len, f->hash))
                        break;
            failed = g == upper.fields + upper.count;
            if (failed)
                break;
            Summary *inner = summary_between(f->type, f->value, f->value_len, g->type, g->value, g->value_len);
            failed = !inner || map_add(&summary->is.inner, f->name, f->name_len, f->hash, object, inner);
            if (failed)
                summary_free(inner);
        }
    }
    fields_free(&lower);
    fields_free(&upper);
    if (failed) {
        summary_free(summary);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "control.min and control.max differ");
        return NULL;
    }
    return summary;
}
