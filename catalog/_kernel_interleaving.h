/* Objects and arrays of a column taken apart (W147), as in catalog/interleaving.py, which says what is done and why.
 * A part of _kernel.c. */

#define MAX_NODES 1000
#define MAX_TREE_LEVELS 100
#define FEW_NODES 16

typedef struct { /* in preorder; the root is an object or array without a name */
    const u8 *name, *value;
    u32 name_len, value_len, hash;
    u32 size;         /* nodes, itself and everything inside */
    u32 leaves;       /* of it and inside */
    u32 before_empty; /* leaves before the first empty object */
    u32 place;        /* of the node of that name in the other tree, 0: there is none */
    u8 type, holds_empty;
} Node;
#define NAME_SLOTS 2048 /* more than twice the nodes */
typedef struct {
    Node nodes[MAX_NODES];
    u32 count;
    uint16_t names[NAME_SLOTS]; /* of one branch at a time: where the field of that name is */
} Tree;
typedef struct { /* room for the columns of one bucket */
    StreamRoom stream;
    Cell *cells;
    u32 *position; /* of a row after sorting */
    size_t rows;
    Tree *trees; /* three, once they are needed */
} Room;

static inline int is_branch(const Node *node) { return node->type == T_DOC || node->type == T_ARR; }
static inline int untouchable(u8 type) { return type == T_MIN || type == T_MAX || type == T_CWS; }
static inline int names_equal(const Node *a, const Node *b)
{
    return a->hash == b->hash && a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
}
/* What a branch says of what is inside, once all of it is there. */
static void finish_branch(Tree *t, u32 at)
{
    Node *branch = &t->nodes[at];
    branch->size = t->count - at, branch->leaves = branch->before_empty = 0, branch->holds_empty = 0;
    for (u32 i = at + 1; i < t->count; i += t->nodes[i].size) {
        const Node *inner = &t->nodes[i];
        if (inner->holds_empty && !branch->holds_empty)
            branch->holds_empty = 1, branch->before_empty = branch->leaves + inner->before_empty;
        branch->leaves += inner->leaves;
    }
    branch->holds_empty |= branch->size == 1;
}
static u32 slot_of_name(const Tree *t, const Node *node)
{
    u32 slot = node->hash & (NAME_SLOTS - 1);
    while (t->names[slot] && !names_equal(&t->nodes[t->names[slot]], node))
        slot = (slot + 1) & (NAME_SLOTS - 1);
    return slot;
}
/* Finds the fields of a branch by their names; 1: two of them have one name. */
static int index_names(Tree *t, u32 at)
{
    memset(t->names, 0, sizeof t->names);
    for (u32 i = at + 1, end = at + t->nodes[at].size; i < end; i += t->nodes[i].size) {
        u32 slot = slot_of_name(t, &t->nodes[i]);
        if (t->names[slot])
            return 1;
        t->names[slot] = (uint16_t)i;
    }
    return 0;
}
static int names_repeat(Tree *t, u32 at)
{
    u32 end = at + t->nodes[at].size;
    if (t->nodes[at].size > FEW_NODES)
        return index_names(t, at);
    for (u32 i = at + 1; i < end; i += t->nodes[i].size)
        for (u32 j = at + 1; j < i; j += t->nodes[j].size)
            if (names_equal(&t->nodes[i], &t->nodes[j]))
                return 1;
    return 0;
}
enum { TOO_MUCH = 1, REPEATS = 2, UNTOUCHABLE = 4 };

static int next_node(Tree *t)
{
    if (t->count == MAX_NODES)
        return 0;
    t->count++;
    return 1;
}
/* Takes an object apart, all of it unless it is too much; *found is what there is to say about it. -1: no BSON. */
static int read_branch(Tree *t, const Field *f, int levels, int *found)
{
    u32 at = t->count;
    if (!next_node(t)) {
        *found |= TOO_MUCH;
        return 0;
    }
    t->nodes[at] = (Node){.name = f->name, .name_len = f->name_len, .hash = hash_name(f->name, f->name_len), .type = f->type};
    const u8 *p = f->value + 4, *limit = f->value + f->value_len - 1;
    Field inner;
    int more;
    while ((more = next_element(&p, limit, &inner)) > 0) {
        if (inner.type == T_DOC || inner.type == T_ARR) {
            if (levels == 1)
                *found |= TOO_MUCH;
            else if (read_branch(t, &inner, levels - 1, found))
                return -1;
        } else if (!next_node(t))
            *found |= TOO_MUCH;
        else {
            t->nodes[t->count - 1] = (Node){inner.name, inner.value, inner.name_len, inner.value_len,
                                            hash_name(inner.name, inner.name_len), 1, 1, 0, 0, inner.type, 0};
            if (untouchable(inner.type))
                *found |= UNTOUCHABLE;
        }
        if (*found & TOO_MUCH)
            return 0;
    }
    if (more < 0)
        return -1;
    finish_branch(t, at);
    if (names_repeat(t, at))
        *found |= REPEATS;
    return 0;
}
/* Whether it stands anywhere in an object or array; -1 where that is no BSON, or too deep. */
static int holds_untouchable(const u8 *value, u32 len, int levels)
{
    const u8 *p = value + 4, *limit = value + len - 1;
    Field inner;
    int more, found = 0;
    if (!levels)
        return -1;
    while ((more = next_element(&p, limit, &inner)) > 0) {
        found |= untouchable(inner.type);
        if (inner.type == T_DOC || inner.type == T_ARR) {
            int nested = holds_untouchable(inner.value, inner.value_len, levels - 1);
            if (nested < 0)
                return -1;
            found |= nested;
        }
    }
    return more < 0 ? -1 : found;
}
/* Whether a row fits a reference, and how many leaves of the reference were come by until that was known. */
static int walk(const Tree *reference, u32 at, const Tree *row, u32 row_at, u32 *passed)
{
    const Node *r = &reference->nodes[at], *w = &row->nodes[row_at];
    if (r->type != w->type || (r->size == 1) != (w->size == 1))
        return 0;
    u32 other = row_at + 1, end = row_at + w->size;
    for (u32 i = at + 1; i < at + r->size; i += reference->nodes[i].size) {
        const Node *known = &reference->nodes[i], *inner = &row->nodes[other];
        if (other >= end || !names_equal(known, inner)) {
            *passed += known->holds_empty ? known->before_empty : known->leaves;
            if (known->holds_empty)
                return 0;
            continue;
        }
        if (is_branch(known) != is_branch(inner))
            return 0;
        if (!is_branch(known))
            ++*passed;
        else if (!walk(reference, i, row, other, passed))
            return 0;
        other += inner->size;
    }
    return other >= end;
}
static int copy_nodes(Tree *whole, const Tree *from, u32 at)
{
    u32 size = from->nodes[at].size;
    if (size > MAX_NODES - whole->count)
        return 0;
    memcpy(whole->nodes + whole->count, from->nodes + at, sizeof(Node) * size);
    whole->count += size;
    return 1;
}
/* Notes for the fields of two branches where they are in the other. */
static void find_places(Tree *reference, u32 at, Tree *row, u32 row_at)
{
    u32 end = row_at + row->nodes[row_at].size, expected = row_at + 1;
    int indexed = row->nodes[row_at].size > FEW_NODES;
    if (indexed)
        index_names(row, row_at);
    for (u32 j = row_at + 1; j < end; j += row->nodes[j].size)
        row->nodes[j].place = 0;
    for (u32 i = at + 1; i < at + reference->nodes[at].size; i += reference->nodes[i].size) {
        Node *known = &reference->nodes[i];
        u32 place = expected;
        if (indexed)
            place = row->names[slot_of_name(row, known)];
        else if (place >= end || !names_equal(known, &row->nodes[place])) {
            for (place = row_at + 1; place < end && !names_equal(known, &row->nodes[place]);)
                place += row->nodes[place].size;
            if (place >= end)
                place = 0;
        }
        known->place = place;
        if (place)
            row->nodes[place].place = i, expected = place + row->nodes[place].size;
    }
}
static int add_new(Tree *whole, const Tree *row, u32 from, u32 to)
{
    for (u32 j = from; j < to; j += row->nodes[j].size)
        if (row->nodes[j].place || row->nodes[j].holds_empty || !copy_nodes(whole, row, j))
            return 0;
    return 1;
}
/* The reference with the fields that it lacks; 0 where the row cannot be joined to it. */
static int extend(Tree *whole, Tree *reference, u32 at, Tree *row, u32 row_at)
{
    const Node *r = &reference->nodes[at], *w = &row->nodes[row_at];
    u32 start = whole->count, done = row_at + 1;
    if (r->type != w->type || (r->size == 1) != (w->size == 1) || !next_node(whole))
        return 0;
    whole->nodes[start] = *r;
    find_places(reference, at, row, row_at);
    for (u32 i = at + 1; i < at + r->size; i += reference->nodes[i].size) {
        const Node *known = &reference->nodes[i], *inner = &row->nodes[known->place];
        if (!known->place) {
            if (known->holds_empty || !copy_nodes(whole, reference, i))
                return 0;
            continue;
        }
        if (known->place < done || !add_new(whole, row, done, known->place) || is_branch(known) != is_branch(inner))
            return 0;
        if (is_branch(known) ? !extend(whole, reference, i, row, known->place) : !copy_nodes(whole, reference, i))
            return 0;
        done = known->place + inner->size;
    }
    if (!add_new(whole, row, done, row_at + w->size))
        return 0;
    finish_branch(whole, start);
    return 1;
}
static void put_tree(Writer *w, const Tree *t, u32 at)
{
    size_t document = begin(w);
    for (u32 i = at + 1; i < at + t->nodes[at].size; i += t->nodes[i].size) {
        const Node *node = &t->nodes[i];
        put_head(w, node->type, "", 0, node->name, node->name_len);
        if (is_branch(node))
            put_tree(w, t, i);
        else
            put(w, node->value, node->value_len);
    }
    end(w, document);
}
/* The leaves of a row that fits, each into its column of cells. */
static void spread(const Tree *t, u32 at, const u8 *document, u32 len, Cell *cells, size_t stride)
{
    const u8 *p = document + 4, *limit = document + len - 1;
    Field f;
    int more = next_element(&p, limit, &f);
    for (u32 i = at + 1; i < at + t->nodes[at].size; i += t->nodes[i].size) {
        const Node *node = &t->nodes[i];
        if (more > 0 && f.name_len == node->name_len && memcmp(f.name, node->name, f.name_len) == 0) {
            if (is_branch(node))
                spread(t, i, f.value, f.value_len, cells, stride);
            else
                *cells = (Cell){f.value, f.value_len, f.type};
            more = next_element(&p, limit, &f);
        }
        cells += node->leaves * stride;
    }
}
static int by_need(const void *left, const void *right)
{
    const Piece *a = left, *b = right;
    return a->row != b->row ? (a->row > b->row) - (a->row < b->row) : (a->leaf > b->leaf) - (a->leaf < b->leaf);
}
static int put_leaves(Writer *w, const Room *room, const Tree *reference, size_t first, size_t rows, Cell *cells)
{
    size_t stride = rows + 1;
    u32 leaf = 0;
    for (u32 i = 1; i < reference->count; i++)
        if (!is_branch(&reference->nodes[i]))
            cells[leaf++ * stride] = (Cell){reference->nodes[i].value, reference->nodes[i].value_len, reference->nodes[i].type};
    for (size_t row = 0; row < rows; row++) {
        const Cell *cell = &room->cells[first + row];
        if (cell->type)
            spread(reference, 0, cell->value, cell->len, cells + 1 + row, stride);
    }
    Writer streams;
    Pieces pieces = {NULL, 0, 0};
    writer_init(&streams, 256 + rows * 4);
    int failed = 0;
    for (u32 i = 0; i < leaf && !failed; i++)
        failed = put_values(&streams, &room->stream, cells + i * stride + 1, rows, cells + i * stride, &pieces, i);
    failed = failed || streams.failed ? -1 : 0;
    if (!failed) {
        /* A reader takes the next piece where the leaf that it comes to has none left. */
        qsort(pieces.items, pieces.count, sizeof(Piece), by_need);
        for (size_t i = 0; i < pieces.count; i++)
            put(w, streams.bytes + pieces.items[i].at, pieces.items[i].len);
    }
    free(streams.bytes);
    free(pieces.items);
    return failed;
}
static int put_section(Writer *w, const Room *room, const Tree *reference, size_t first, size_t rows)
{
    Cell *cells = calloc((rows + 1) * reference->nodes[0].leaves, sizeof(Cell));
    if (!cells)
        return no_memory();
    put_byte(w, reference->nodes[0].type == T_DOC ? 0xF1 : 0xF2);
    put_tree(w, reference, 0);
    int failed = put_leaves(w, room, reference, first, rows, cells);
    put_byte(w, 0);
    free(cells);
    return failed ? no_memory() : 0;
}
typedef struct { /* the section under way */
    Tree *reference, *row, *spare; /* reference: NULL where rows are not taken apart */
    Tree *trees[3];
    size_t first;
    int young;
} Section;

static int end_section(Writer *w, const Room *room, Section *s, size_t next)
{
    size_t first = s->first, rows = next - first;
    Tree *reference = s->reference;
    s->reference = NULL, s->first = next;
    if (!rows)
        return 0;
    if (reference)
        return put_section(w, room, reference, first, rows);
    return put_values(w, &room->stream, room->cells + first, rows, NULL, NULL, 0) ? no_memory() : 0;
}
static void swap_trees(Tree **a, Tree **b)
{
    Tree *other = *a;
    *a = *b, *b = other;
}
/* Whether the row that was read belongs to the section, whose reference may grow by it. */
static int joins_section(Section *s, size_t rows)
{
    u32 passed = 0;
    if (!walk(s->reference, 0, s->row, 0, &passed)) {
        s->spare->count = 0;
        if (!s->young || !extend(s->spare, s->reference, 0, s->row, 0))
            return 0;
        swap_trees(&s->reference, &s->spare);
    }
    s->young = s->young && rows < 2 * (size_t)passed + 2;
    return 1;
}
/* A row that is no object, or has no value. */
static int take_whole(Writer *w, const Room *room, Section *s, size_t row)
{
    if (!s->reference || (!room->cells[row].type && !s->reference->nodes[0].holds_empty))
        return 0;
    return end_section(w, room, s, row);
}
static int take_object(Writer *w, const Room *room, Section *s, size_t row)
{
    const Cell *cell = &room->cells[row];
    Field f = {.name = (const u8 *)"", .value = cell->value, .value_len = cell->len, .type = cell->type};
    int found = 0;
    s->row->count = 0;
    if (read_branch(s->row, &f, MAX_TREE_LEVELS, &found))
        return invalid("malformed BSON");
    if (found & TOO_MUCH) {
        int holds = holds_untouchable(cell->value, cell->len, MAX_LEVELS);
        if (holds)
            return holds < 0 ? invalid("malformed BSON") : 1;
    } else if (found & UNTOUCHABLE)
        return 1;
    if (found || s->row->count == 1)
        return take_whole(w, room, s, row);
    if (s->reference && joins_section(s, row + 1 - s->first))
        return 0;
    if (!s->row->nodes[0].leaves)
        return take_whole(w, room, s, row);
    if (end_section(w, room, s, row))
        return -1;
    /* The three trees change their roles; a section that ended has left its own behind. */
    Tree *reference = s->row;
    u32 others = 0;
    for (u32 i = 0; i < 3; i++)
        if (s->trees[i] != reference)
            *(others++ ? &s->spare : &s->row) = s->trees[i];
    s->reference = reference, s->young = 1;
    return 0;
}
/* 0; 1: there are values that cannot be compressed; -1 with an exception. */
static int put_column(Writer *w, Room *room)
{
    Section s = {.first = 0};
    int failed = 0;
    for (size_t i = 0; i < room->rows && !failed; i++) {
        u8 type = room->cells[i].type;
        if (untouchable(type))
            return 1;
        if (type != T_DOC && type != T_ARR) {
            failed = take_whole(w, room, &s, i);
            continue;
        }
        if (!room->trees && !(room->trees = malloc(3 * sizeof(Tree))))
            return no_memory();
        if (!s.row)
            for (u32 k = 0; k < 3; k++)
                s.trees[k] = &room->trees[k];
        if (!s.row)
            s.row = s.trees[0], s.spare = s.trees[1];
        failed = take_object(w, room, &s, i);
    }
    if (failed || (failed = end_section(w, room, &s, room->rows)))
        return failed;
    put_byte(w, 0);
    return 0;
}
