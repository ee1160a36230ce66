/* Comparison of scalars (W21-W23), as in catalog/bson/order.py. A part of _kernel.c. */

/* ---- comparison (W21-W23), as in catalog/bson/order.py ---- */

typedef struct { /* a scalar; short ones take no memory of their own */
    union {
        u8 inside[16];
        u8 *outside;
    } at;
    u32 len;
    u8 type;
} Scalar;

static inline const u8 *scalar_bytes(const Scalar *s) { return s->len <= 16 ? s->at.inside : s->at.outside; }
static inline void scalar_free(Scalar *s)
{
    if (s->len > 16)
        free(s->at.outside);
    s->len = 0;
}
static inline int scalar_set(Scalar *s, u8 type, const u8 *value, u32 len)
{
    if (len > 16) {
        u8 *copy = malloc(len);
        if (!copy)
            return -1;
        memcpy(copy, value, len);
        scalar_free(s);
        s->at.outside = copy;
    } else {
        scalar_free(s);
        memcpy(s->at.inside, value, len);
    }
    s->len = len, s->type = type;
    return 0;
}

static inline int order_of(i64 difference) { return (difference > 0) - (difference < 0); }
static inline int order_bytes(const u8 *a, size_t a_len, const u8 *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order_of(order) : (a_len > b_len) - (a_len < b_len);
}
static inline int order_doubles(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(b) - isnan(a);
    return (a > b) - (a < b);
}
static int order_long_double(i64 a, double b)
{
    if (isnan(b))
        return 1;
    if (b >= 9223372036854775808.0)
        return -1;
    if (b < -9223372036854775808.0)
        return 1;
    i64 whole = (i64)b; /* towards zero */
    if (a != whole)
        return a < whole ? -1 : 1;
    double rest = b - (double)whole;
    return (rest < 0) - (rest > 0);
}
static inline i64 integer_of(u8 type, const u8 *p)
{
    return type == T_I32 ? get_length(p) : (i64)get_u64(p);
}
static PyObject *element_value(u8 type, const u8 *value, u32 len)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)len + 1);
    if (bytes) {
        u8 *to = (u8 *)PyBytes_AS_STRING(bytes);
        to[0] = type;
        if (len)
            memcpy(to + 1, value, len);
    }
    return bytes;
}
#define COMPARE_FAILED 9
static int order_in_python(u8 ta, const u8 *a, u32 a_len, u8 tb, const u8 *b, u32 b_len)
{
    int order = COMPARE_FAILED;
    PyObject *left = element_value(ta, a, a_len), *right = element_value(tb, b, b_len), *answer = NULL;
    if (left && right)
        answer = PyObject_CallFunctionObjArgs(python_compare, left, right, NULL);
    if (answer) {
        long number = PyLong_AsLong(answer);
        if (!PyErr_Occurred())
            order = order_of(number);
        Py_DECREF(answer);
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return order;
}
/* -1, 0, 1 for two values of one canonical class; COMPARE_FAILED with an exception. */
static int order_values(u8 ta, const u8 *a, u32 a_len, u8 tb, const u8 *b, u32 b_len)
{
    switch (ta) {
    case T_DBL:
        if (tb == T_DBL)
            return order_doubles(get_double(a), get_double(b));
        if (tb == T_I32 || tb == T_I64)
            return -order_long_double(integer_of(tb, b), get_double(a));
        break;
    case T_I32: case T_I64:
        if (tb == T_DBL)
            return order_long_double(integer_of(ta, a), get_double(b));
        if (tb == T_I32 || tb == T_I64) {
            i64 left = integer_of(ta, a), right = integer_of(tb, b);
            return (left > right) - (left < right);
        }
        break;
    case T_STR: case T_SYM: case T_CODE:
        return order_bytes(a + 4, a_len - 5, b + 4, b_len - 5);
    case T_BIN:
        return a_len != b_len ? (a_len > b_len ? 1 : -1) : order_of(memcmp(a + 4, b + 4, a_len - 4));
    case T_OID:
        return order_of(memcmp(a, b, 12));
    case T_BOO:
        return (int)a[0] - (int)b[0];
    case T_DATE: {
        i64 left = (i64)get_u64(a), right = (i64)get_u64(b);
        return (left > right) - (left < right);
    }
    case T_TS: {
        u64 left = get_u64(a), right = get_u64(b);
        return (left > right) - (left < right);
    }
    case T_REGEX: {
        size_t a_pattern = strlen((const char *)a), b_pattern = strlen((const char *)b);
        int order = order_bytes(a, a_pattern, b, b_pattern);
        return order ? order
                     : order_bytes(a + a_pattern + 1, a_len - a_pattern - 2, b + b_pattern + 1, b_len - b_pattern - 2);
    }
    case T_DBPTR:
        return a_len != b_len ? (a_len > b_len ? 1 : -1) : order_of(memcmp(a, b, a_len));
    case T_UNDEF: case T_NUL: case T_MIN: case T_MAX:
        return 0;
    }
    return order_in_python(ta, a, a_len, tb, b, b_len);
}
