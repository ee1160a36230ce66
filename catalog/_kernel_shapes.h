/* Names to things, and the shapes of what may share a bucket (W47), as in catalog/schema.py. A part of _kernel.c. */

/* ---- names to things, in the order in which they came ---- */

typedef struct {
    u8 *name;
    void *thing;
    u32 name_len, hash;
} Entry;
typedef struct {
    Entry *entries;
    u32 *table; /* entry + 1 by hash, once there are more than LINEAR entries */
    u32 count, capacity, mask;
} Map;
#define LINEAR 8

static inline void *map_find(const Map *map, const u8 *name, u32 len, u32 hash)
{
    if (!map->table) {
        for (u32 i = 0; i < map->count; i++) {
            const Entry *e = &map->entries[i];
            if (e->hash == hash && e->name_len == len && memcmp(e->name, name, len) == 0)
                return e->thing;
        }
        return NULL;
    }
    for (u32 slot = hash & map->mask; map->table[slot]; slot = (slot + 1) & map->mask) {
        const Entry *e = &map->entries[map->table[slot] - 1];
        if (e->hash == hash && e->name_len == len && memcmp(e->name, name, len) == 0)
            return e->thing;
    }
    return NULL;
}
static int map_index(Map *map)
{
    u32 size = 32;
    while (size < map->capacity * 2)
        size *= 2;
    u32 *table = calloc(size, sizeof(u32));
    if (!table)
        return -1;
    free(map->table);
    map->table = table, map->mask = size - 1;
    for (u32 i = 0; i < map->count; i++) {
        u32 slot = map->entries[i].hash & map->mask;
        while (table[slot])
            slot = (slot + 1) & map->mask;
        table[slot] = i + 1;
    }
    return 0;
}
/* Adds a name that is not there; names of arrays stay empty and unindexed (indexed 0). -1 without memory. */
static int map_add(Map *map, const u8 *name, u32 len, u32 hash, int indexed, void *thing)
{
    if (map->count == map->capacity) {
        u32 capacity = map->capacity ? map->capacity * 2 : 4;
        Entry *grown = realloc(map->entries, sizeof(Entry) * (size_t)capacity);
        if (!grown)
            return -1;
        map->entries = grown, map->capacity = capacity;
        if (indexed && map->count >= LINEAR && map_index(map))
            return -1;
    }
    u8 *copy = NULL;
    if (indexed) {
        copy = malloc(len ? len : 1);
        if (!copy)
            return -1;
        memcpy(copy, name, len);
    }
    map->entries[map->count++] = (Entry){copy, thing, len, hash};
    if (map->table) {
        u32 slot = hash & map->mask;
        while (map->table[slot])
            slot = (slot + 1) & map->mask;
        map->table[slot] = map->count;
    }
    return 0;
}
static void map_free(Map *map, void (*free_thing)(void *))
{
    for (u32 i = 0; i < map->count; i++) {
        free(map->entries[i].name);
        free_thing(map->entries[i].thing);
    }
    free(map->entries);
    free(map->table);
    memset(map, 0, sizeof *map);
}

/* ---- shapes (W47), as in catalog/schema.py ---- */

typedef struct Shape {
    Map inner; /* by name for objects, by index for arrays */
    u8 kind;   /* canonical class */
} Shape;

static void shape_free(void *thing)
{
    if (thing) {
        map_free(&((Shape *)thing)->inner, shape_free);
        free(thing);
    }
}
static inline int is_nested(u8 type) { return type == T_DOC || type == T_ARR; }

static int shape_grow(Shape *shape, const u8 *value, u32 len, i64 *added);

/* As below: *added is raised by the number of values that it describes. */
static Shape *shape_of(u8 type, const u8 *value, u32 len, i64 *added)
{
    Shape *shape = calloc(1, sizeof(Shape));
    if (!shape)
        return NULL;
    ++*added;
    shape->kind = canonical[type];
    if (is_nested(type) && shape_grow(shape, value, len, added)) {
        shape_free(shape);
        return NULL;
    }
    return shape;
}
/* Adds the paths of a nested value of the same kind; *added is raised by their number. -1 without memory. */
static int shape_grow(Shape *shape, const u8 *value, u32 len, i64 *added)
{
    int object = shape->kind == canonical[T_DOC], failed = -1;
    FieldVec vec;
    fields_init(&vec);
    if (collect(value, len, object, &vec))
        goto done;
    for (u32 i = 0; i < vec.count; i++) {
        Field *f = &vec.fields[i];
        Shape *known = object ? map_find(&shape->inner, f->name, f->name_len, f->hash)
                              : (i < shape->inner.count ? shape->inner.entries[i].thing : NULL);
        if (!known) {
            known = shape_of(f->type, f->value, f->value_len, added);
            if (!known || map_add(&shape->inner, f->name, f->name_len, f->hash, object, known)) {
                shape_free(known);
                goto done;
            }
        } else if (is_nested(f->type) && known->kind == canonical[f->type] &&
                   shape_grow(known, f->value, f->value_len, added))
            goto done;
    }
    failed = 0;
done:
    fields_free(&vec);
    return failed;
}
/* 1 or 0: may the value stand there? -1 without memory. */
static int shape_fits(const Shape *shape, u8 type, const u8 *value, u32 len)
{
    if (shape->kind != canonical[type])
        return 0;
    if (!is_nested(type))
        return 1;
    int object = type == T_DOC, fits = 1;
    FieldVec vec;
    fields_init(&vec);
    if (collect(value, len, object, &vec))
        fits = -1;
    for (u32 i = 0; fits == 1 && i < vec.count; i++) {
        Field *f = &vec.fields[i];
        const Shape *known = object ? map_find(&shape->inner, f->name, f->name_len, f->hash)
                                    : (i < shape->inner.count ? shape->inner.entries[i].thing : NULL);
        if (known)
            fits = shape_fits(known, f->type, f->value, f->value_len);
    }
    fields_free(&vec);
    return fits;
}
