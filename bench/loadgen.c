/* Load generator of the bench: one thread, epoll, N connections, one request in flight on each.
 *
 * It sends an OP_MSG that was encoded beforehand and patches only what differs from one message to the next: request
 * id, and in each document its id, time, series and values. Every reply is checked (ok: 1, n, no write errors).
 * A reply with an open cursor is followed by getMore until the cursor is exhausted; the whole counts as one operation.
 *
 * What a measurement says is a function of its series and tick alone, so two runs with equal arguments store equal
 * measurements, whatever the connections' order was.
 *
 * The result is one JSON object on standard output. Build: cc -O2 -o loadgen loadgen.c
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 16, BODY = 21, MAX_PATCHES = 32, MAX_ACCOUNTED = 16, MAX_PORTS = 16, SUB_BITS = 6, HISTOGRAM = 64 << SUB_BITS };
enum { DAY_MS = 86400000, LATE_MS = 7200000, MAX_POINTS = 4096 };

enum patch_kind { PATCH_ID, PATCH_TIME, PATCH_DIGITS, PATCH_INT32, PATCH_WHOLE, PATCH_TENTH };
static const char *const PATCH_NAMES[] = {"id", "time", "digits", "int32", "whole", "tenth"};

struct patch {
    enum patch_kind kind;
    uint32_t offset; /* from the start of the document */
    uint32_t width;  /* decimal digits */
};

enum sharing { SHARED, PARTITIONED, RANDOM };
static const char *const SHARING_NAMES[] = {"shared", "partitioned", "random"};
enum order { IN_ORDER, TWO_DAYS, LATE };
static const char *const ORDER_NAMES[] = {"in-order", "two-days", "late"};

struct file {
    unsigned char *bytes;
    size_t length;
};

static struct options {
    const char *host;
    int ports[MAX_PORTS]; /* connection n goes to port n modulo port_count */
    uint32_t port_count;
    uint32_t connections;
    double seconds, warmup_seconds;
    uint64_t operations; /* stop after this many, 0: by time */
    uint64_t interval_ns; /* least time between the starts of a connection's operations, 0: none */
    uint64_t curve_ns; /* a point of the curve for each such time, 0: no curve */
    uint64_t burst_ns, period_ns; /* operations start in the first burst_ns of each period_ns, 0: always */
    struct file hello, message, get_more;
    uint32_t document_offset, document_length, documents; /* the documents lie one after the other */
    uint32_t cursor_offset;                               /* of the cursor id in the getMore message */
    uint32_t session_offset, more_session_offset;         /* of the session's UUID in the messages, 0: none */
    struct patch patches[MAX_PATCHES];
    int patch_count;
    uint32_t series;
    enum sharing sharing;
    enum order order;
    int64_t base_ms, step_ms;
    uint64_t first_tick;
    uint32_t run;
    int64_t expect_n; /* -1: any */
    int accounted[MAX_ACCOUNTED];
    int accounted_count;
} opt = {.host = "127.0.0.1", .connections = 1, .seconds = 1, .documents = 1, .series = 1, .step_ms = 1000,
         .expect_n = -1};

struct connection {
    int fd;
    uint32_t index;
    unsigned char *message; /* this connection's copy of the template */
    const unsigned char *out;
    size_t out_length, out_sent;
    unsigned char *in;
    size_t in_have, in_capacity;
    uint64_t sent_ns;
    uint64_t measurements; /* sent on this connection so far */
    uint32_t request_id;
    bool waits_for_room; /* EPOLLOUT is asked for */
    bool busy;
    unsigned char get_more[512];
};

/* What finished in one interval of the measured window. */
struct point {
    double seconds; /* since the window began */
    uint64_t finished;
    double p99_us;
};

struct usage {
    uint64_t cpu_ticks;
    uint64_t resident_pages;
};

static struct {
    uint64_t sequence; /* measurements given out, all connections */
    uint64_t started;  /* operations sent */
    uint64_t finished, finished_total, errors, reply_documents, reply_bytes, requests;
    uint64_t histogram[HISTOGRAM];
    uint64_t latency_sum_ns, latency_max_ns;
    uint32_t busy;
    char first_error[400];
    uint64_t random_state;
    uint64_t began_ns; /* the first burst */
    uint64_t window_ns, next_point_ns; /* 0 while nothing is measured */
    uint64_t interval_histogram[HISTOGRAM], interval_finished;
    struct point points[MAX_POINTS];
    int point_count;
} run;

static void die(const char *what) {
    fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* BSON is little-endian, and so are the machines this is built for; memcpy keeps alignment out of the way. */
static void put32(unsigned char *at, uint32_t v) { memcpy(at, &v, 4); }
static void put64(unsigned char *at, uint64_t v) { memcpy(at, &v, 8); }
static uint32_t get32(const unsigned char *at) { uint32_t v; memcpy(&v, at, 4); return v; }
static uint64_t get64(const unsigned char *at) { uint64_t v; memcpy(&v, at, 8); return v; }

static uint64_t mixed(uint64_t x) { /* the finaliser of splitmix64 */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* --- measurements ------------------------------------------------------------------------------------------------ */

struct place {
    uint32_t series;
    uint64_t tick; /* how many measurements of this series came before */
};

static struct place next_place(struct connection *c) {
    struct place p;
    uint64_t k;
    if (opt.sharing == RANDOM) {
        run.random_state = mixed(run.random_state);
        p.series = (uint32_t)(run.random_state % opt.series);
        p.tick = run.sequence++;
    } else if (opt.sharing == PARTITIONED && opt.series >= opt.connections) {
        uint32_t own = (opt.series - c->index + opt.connections - 1) / opt.connections;
        k = c->measurements++;
        p.series = c->index + (uint32_t)(k % own) * opt.connections;
        p.tick = k / own;
        run.sequence++;
    } else {
        k = run.sequence++;
        p.series = (uint32_t)(k % opt.series);
        p.tick = k / opt.series;
    }
    p.tick += opt.first_tick;
    return p;
}

static int64_t time_of(struct place p) {
    int64_t tick = (int64_t)p.tick;
    int64_t phase_ms = (int64_t)(mixed(p.series) % 1000); /* devices are not in step */
    if (opt.order == TWO_DAYS) return opt.base_ms + phase_ms + (tick & 1) * DAY_MS + (tick >> 1) * opt.step_ms;
    if (opt.order == LATE && (tick + p.series) % 10 == 9) return opt.base_ms + phase_ms + tick * opt.step_ms - LATE_MS;
    return opt.base_ms + phase_ms + tick * opt.step_ms;
}

static double value_of(struct place p, int field, double scale) {
    uint64_t level = mixed(p.series * 64u + (uint64_t)field) % 90;
    uint64_t noise = mixed(((uint64_t)p.series << 40) ^ (p.tick << 6) ^ (uint64_t)field) % 11;
    return (double)(level + noise) / scale;
}

static void patch_document(unsigned char *document, struct place p) {
    for (int i = 0; i < opt.patch_count; i++) {
        const struct patch *patch = &opt.patches[i];
        unsigned char *at = document + patch->offset;
        double number;
        uint32_t digits;
        switch (patch->kind) {
        case PATCH_ID: /* run, series, tick: unique, and told apart in a dump */
            put32(at, htonl(opt.run));
            put32(at + 4, htonl(p.series));
            put32(at + 8, htonl((uint32_t)p.tick));
            break;
        case PATCH_TIME: put64(at, (uint64_t)time_of(p)); break;
        case PATCH_INT32: put32(at, p.series); break;
        case PATCH_DIGITS:
            digits = p.series;
            for (uint32_t w = patch->width; w-- > 0; digits /= 10) at[w] = (unsigned char)('0' + digits % 10);
            break;
        case PATCH_WHOLE:
        case PATCH_TENTH:
            number = value_of(p, i, patch->kind == PATCH_TENTH ? 10.0 : 1.0);
            memcpy(at, &number, 8);
            break;
        }
    }
}

/* --- replies ----------------------------------------------------------------------------------------------------- */

/* Length of a BSON value of this type, or SIZE_MAX for a type that replies do not have at the places looked at. */
static size_t value_length(unsigned char type, const unsigned char *value, size_t room) {
    switch (type) {
    case 0x01: case 0x09: case 0x11: case 0x12: return 8;
    case 0x02: return room < 4 ? SIZE_MAX : 4 + (size_t)get32(value);
    case 0x03: case 0x04: return room < 4 ? SIZE_MAX : (size_t)get32(value);
    case 0x05: return room < 4 ? SIZE_MAX : 5 + (size_t)get32(value);
    case 0x07: return 12;
    case 0x08: return 1;
    case 0x0a: return 0;
    case 0x10: return 4;
    case 0x13: return 16;
    default: return SIZE_MAX;
    }
}

struct element {
    unsigned char type;
    const char *name;
    const unsigned char *value;
    size_t length;
};

/* The element at *at, which moves on; false at the end or when the document is malformed (then *at is NULL). */
static bool next_element(const unsigned char **at, const unsigned char *end, struct element *e) {
    if (*at >= end - 1) return false; /* the document's closing zero */
    e->type = **at;
    e->name = (const char *)*at + 1;
    size_t name = strnlen(e->name, (size_t)(end - *at) - 1);
    e->value = *at + 2 + name;
    if (e->value > end) { *at = NULL; return false; }
    e->length = value_length(e->type, e->value, (size_t)(end - e->value));
    if (e->length > (size_t)(end - e->value)) { *at = NULL; return false; }
    *at = e->value + e->length;
    return true;
}

static uint64_t array_elements(const unsigned char *array, size_t length) {
    const unsigned char *at = array + 4, *end = array + length;
    struct element e;
    uint64_t count = 0;
    while (next_element(&at, end, &e)) count++;
    return count;
}

struct reply {
    bool ok, write_errors;
    int64_t n;
    uint64_t cursor_id, documents;
};

static bool read_reply(const unsigned char *message, size_t length, struct reply *r) {
    memset(r, 0, sizeof *r);
    r->n = -1;
    if (length < BODY + 5 || get32(message + 12) != 2013 || message[20] != 0) return false;
    const unsigned char *at = message + BODY + 4, *end = message + BODY + get32(message + BODY);
    if (end > message + length) return false;
    struct element e, inner;
    while (next_element(&at, end, &e)) {
        if (!strcmp(e.name, "ok")) {
            double d;
            memcpy(&d, e.value, 8);
            r->ok = e.type == 0x01 ? d == 1.0 : e.type == 0x10 && get32(e.value) == 1;
        } else if (!strcmp(e.name, "n")) {
            double d;
            memcpy(&d, e.value, e.length == 8 ? 8 : 4);
            r->n = e.type == 0x10 ? (int32_t)get32(e.value) : e.type == 0x12 ? (int64_t)get64(e.value) : (int64_t)d;
        } else if (!strcmp(e.name, "writeErrors")) {
            r->write_errors = true;
        } else if (!strcmp(e.name, "cursor") && e.type == 0x03) {
            const unsigned char *in = e.value + 4, *in_end = e.value + e.length;
            while (next_element(&in, in_end, &inner)) {
                if (!strcmp(inner.name, "id") && inner.type == 0x12) r->cursor_id = get64(inner.value);
                else if (inner.type == 0x04) r->documents += array_elements(inner.value, inner.length);
            }
            if (in == NULL) return false;
        } else if (!strcmp(e.name, "values") && e.type == 0x04) {
            r->documents += array_elements(e.value, e.length);
        }
    }
    return at != NULL;
}

/* Printable characters of a reply that was not as expected, for the report. */
static void note_error(const unsigned char *message, size_t length) {
    run.errors++;
    if (run.first_error[0]) return;
    size_t out = 0;
    for (size_t i = BODY; i < length && out + 1 < sizeof run.first_error; i++) {
        unsigned char b = message[i];
        if (b >= ' ' && b < 127 && b != '"' && b != '\\') run.first_error[out++] = (char)b;
        else if (out && run.first_error[out - 1] != ' ') run.first_error[out++] = ' ';
    }
    run.first_error[out] = 0;
}

/* --- latency ----------------------------------------------------------------------------------------------------- */

/* Log-linear: 64 steps for each doubling, so a percentile is right within 1.6 per cent. */
static unsigned slot_of(uint64_t ns) {
    if (ns < (1u << SUB_BITS)) return (unsigned)ns;
    unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - SUB_BITS;
    return ((shift + 1) << SUB_BITS) + (unsigned)((ns >> shift) & ((1u << SUB_BITS) - 1));
}

static double slot_us(unsigned slot) {
    if (slot < (1u << SUB_BITS)) return slot / 1e3;
    unsigned shift = (slot >> SUB_BITS) - 1;
    return (double)((((uint64_t)slot & ((1u << SUB_BITS) - 1)) + (1u << SUB_BITS)) << shift) / 1e3;
}

static double percentile_us(const uint64_t *histogram, uint64_t count, double part) {
    uint64_t wanted = (uint64_t)(part * (double)count), seen = 0;
    for (unsigned slot = 0; slot < HISTOGRAM; slot++) {
        seen += histogram[slot];
        if (seen > wanted) return slot_us(slot);
    }
    return (double)run.latency_max_ns / 1e3;
}

/* Closes the interval that ends at this moment. */
static void add_point(uint64_t at) {
    if (run.point_count < MAX_POINTS) {
        struct point *p = &run.points[run.point_count++];
        p->seconds = (double)(at - run.window_ns) / 1e9;
        p->finished = run.interval_finished;
        p->p99_us = p->finished ? percentile_us(run.interval_histogram, p->finished, 0.99) : 0;
    }
    memset(run.interval_histogram, 0, sizeof run.interval_histogram);
    run.interval_finished = 0;
    run.next_point_ns = at + opt.curve_ns;
}

/* --- what the servers used --------------------------------------------------------------------------------------- */

static struct usage usage_of(int pid) {
    struct usage u = {0, 0};
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return u;
    size_t got = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[got] = 0;
    char *after_name = strrchr(text, ')');
    unsigned long user = 0, system = 0;
    long resident = 0;
    if (after_name &&
        sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %*u %*u %ld",
               &user, &system, &resident) == 3) {
        u.cpu_ticks = user + system;
        u.resident_pages = (uint64_t)resident;
    }
    return u;
}

/* --- conversation ------------------------------------------------------------------------------------------------ */

static void watch(int epoll, struct connection *c, bool for_room, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (for_room ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll, operation, c->fd, &event)) die("epoll_ctl");
    c->waits_for_room = for_room;
}

static void flush(int epoll, struct connection *c) {
    while (c->out_sent < c->out_length) {
        ssize_t sent = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) die("send");
            if (!c->waits_for_room) watch(epoll, c, true, EPOLL_CTL_MOD);
            return;
        }
        c->out_sent += (size_t)sent;
    }
    if (c->waits_for_room) watch(epoll, c, false, EPOLL_CTL_MOD);
}

static void transmit(int epoll, struct connection *c, unsigned char *message, size_t length) {
    put32(message + 4, ++c->request_id);
    c->out = message;
    c->out_length = length;
    c->out_sent = 0;
    run.requests++;
    flush(epoll, c);
}

static void start_operation(int epoll, struct connection *c) {
    for (uint32_t d = 0; opt.patch_count && d < opt.documents; d++)
        patch_document(c->message + opt.document_offset + d * opt.document_length, next_place(c));
    run.started++;
    run.busy++;
    c->busy = true;
    c->sent_ns = now_ns();
    transmit(epoll, c, c->message, opt.message.length);
}

/* True when the operation is over. */
static bool take_reply(int epoll, struct connection *c, size_t length) {
    struct reply r;
    if (!read_reply(c->in, length, &r) || get32(c->in + 8) != c->request_id || !r.ok || r.write_errors ||
        (opt.expect_n >= 0 && r.n != opt.expect_n)) {
        note_error(c->in, length);
        return true;
    }
    run.reply_documents += r.documents;
    run.reply_bytes += length;
    if (r.cursor_id == 0 || !opt.get_more.length) return true;
    put64(c->get_more + opt.cursor_offset, r.cursor_id);
    transmit(epoll, c, c->get_more, opt.get_more.length);
    return false;
}

static void finish_operation(struct connection *c) {
    uint64_t took = now_ns() - c->sent_ns;
    c->busy = false;
    run.busy--;
    run.finished++;
    run.finished_total++;
    run.latency_sum_ns += took;
    if (took > run.latency_max_ns) run.latency_max_ns = took;
    run.histogram[slot_of(took)]++;
    run.interval_histogram[slot_of(took)]++;
    run.interval_finished++;
}

/* Reads what is there; true when that finished an operation. */
static bool receive(int epoll, struct connection *c) {
    size_t wanted = c->in_have < HEADER ? c->in_capacity : get32(c->in);
    if (wanted > c->in_capacity) {
        c->in = realloc(c->in, c->in_capacity = wanted);
        if (!c->in) die("memory");
    }
    ssize_t got = recv(c->fd, c->in + c->in_have, c->in_capacity - c->in_have, 0);
    if (got == 0) { errno = ECONNRESET; die("the server closed a connection"); }
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return false;
        die("recv");
    }
    c->in_have += (size_t)got;
    if (c->in_have < HEADER || c->in_have < get32(c->in)) return false;
    c->in_have = 0; /* one request in flight: nothing follows the reply */
    if (!take_reply(epoll, c, get32(c->in))) return false;
    finish_operation(c);
    return true;
}

static void say_hello(struct connection *c) {
    if (!opt.hello.length) return;
    size_t have = 0;
    if (send(c->fd, opt.hello.bytes, opt.hello.length, MSG_NOSIGNAL) != (ssize_t)opt.hello.length) die("hello");
    while (have < HEADER || have < get32(c->in)) {
        ssize_t got = recv(c->fd, c->in + have, c->in_capacity - have, 0);
        if (got <= 0) die("hello");
        have += (size_t)got;
    }
}

static void open_connection(int epoll, struct connection *c, uint32_t index) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.ports[index % opt.port_count])};
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1) die("host must be an IPv4 address");
    c->index = index;
    c->in = malloc(c->in_capacity = 64 * 1024);
    c->message = malloc(opt.message.length);
    if (!c->in || !c->message) die("memory");
    memcpy(c->message, opt.message.bytes, opt.message.length);
    memcpy(c->get_more, opt.get_more.bytes ? opt.get_more.bytes : opt.message.bytes,
           opt.get_more.length ? opt.get_more.length : 0);
    if (opt.session_offset) put32(c->message + opt.session_offset, index); /* a session of its own, as drivers have */
    if (opt.more_session_offset) put32(c->get_more + opt.more_session_offset, index);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    say_hello(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(epoll, c, false, EPOLL_CTL_ADD);
}

/* --- the run ----------------------------------------------------------------------------------------------------- */

static bool paced(void) { return opt.interval_ns || opt.period_ns; }

static bool may_start(const struct connection *c, uint64_t at) {
    if (c->busy || at < c->sent_ns + opt.interval_ns) return false;
    return !opt.period_ns || (at - run.began_ns) % opt.period_ns < opt.burst_ns;
}

/* Runs until the time is over or the operations are done; with drain false the requests in flight stay there. */
static void go(int epoll, struct connection *all, double seconds, bool drain) {
    struct epoll_event events[256];
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    bool over = false;
    if (!run.began_ns) run.began_ns = start;
    for (uint32_t i = 0; i < opt.connections; i++)
        if (may_start(&all[i], start) && (!opt.operations || run.started < opt.operations))
            start_operation(epoll, &all[i]);
    while (!over || (drain && run.busy)) {
        int n = epoll_wait(epoll, events, 256, over ? 30000 : opt.period_ns ? 1 : opt.interval_ns ? 2 : 100);
        if (n == 0 && over) { errno = ETIMEDOUT; die("replies stay away"); }
        uint64_t at = now_ns();
        if (run.next_point_ns && at >= run.next_point_ns && !over) add_point(at);
        over = over || at >= end || (opt.operations && run.started >= opt.operations);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) flush(epoll, c);
            if (!(events[i].events & ~(uint32_t)EPOLLOUT) || !receive(epoll, c)) continue;
            if (!paced() && (!over || (!drain && !opt.operations))) start_operation(epoll, c);
            if (opt.operations && run.started >= opt.operations) over = true;
        }
        for (uint32_t i = 0; paced() && !over && i < opt.connections; i++)
            if (may_start(&all[i], at)) {
                start_operation(epoll, &all[i]);
                if (opt.operations && run.started >= opt.operations) over = true;
            }
    }
}

static void forget_counts(void) {
    memset(run.histogram, 0, sizeof run.histogram);
    memset(run.interval_histogram, 0, sizeof run.interval_histogram);
    run.interval_finished = 0;
    run.finished = run.errors = run.reply_documents = run.reply_bytes = 0;
    run.latency_sum_ns = run.latency_max_ns = 0;
}

static double own_cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void print_result(double seconds, double own_cpu, const struct usage *before, const struct usage *after,
                         uint64_t finished, uint64_t errors_total) {
    double tick = (double)sysconf(_SC_CLK_TCK);
    printf("{\"seconds\": %.6f, \"operations\": %lu, \"measurements\": %lu, \"operations_total\": %lu, "
           "\"errors\": %lu, \"first_error\": \"%s\", \"reply_documents\": %lu, \"reply_bytes\": %lu, "
           "\"requests_total\": %lu, \"generator_cpu_seconds\": %.4f, ",
           seconds, finished, finished * opt.documents, run.finished_total, errors_total, run.first_error,
           run.reply_documents, run.reply_bytes, run.requests, own_cpu);
    printf("\"latency_us\": {\"mean\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}, ",
           run.finished ? (double)run.latency_sum_ns / 1e3 / (double)run.finished : 0,
           percentile_us(run.histogram, run.finished, 0.5), percentile_us(run.histogram, run.finished, 0.9),
           percentile_us(run.histogram, run.finished, 0.99), percentile_us(run.histogram, run.finished, 0.999),
           (double)run.latency_max_ns / 1e3);
    printf("\"curve\": [");
    for (int i = 0; i < run.point_count; i++)
        printf("%s[%.3f, %lu, %.1f]", i ? ", " : "", run.points[i].seconds, run.points[i].finished * opt.documents,
               run.points[i].p99_us);
    printf("], ");
    printf("\"processes\": {");
    for (int i = 0; i < opt.accounted_count; i++)
        printf("%s\"%d\": {\"cpu_seconds\": %.2f, \"resident_bytes\": %lu}", i ? ", " : "", opt.accounted[i],
               (double)(after[i].cpu_ticks - before[i].cpu_ticks) / tick,
               after[i].resident_pages * (uint64_t)sysconf(_SC_PAGESIZE));
    printf("}}\n");
}

static int by_name(const char *name, const char *const *names, int count, const char *what) {
    for (int i = 0; i < count; i++)
        if (!strcmp(name, names[i])) return i;
    fprintf(stderr, "loadgen: %s %s is unknown\n", what, name);
    exit(2);
}

static struct file read_whole(const char *path) {
    struct file result = {0};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) die(path);
    result.length = (size_t)ftell(f);
    rewind(f);
    result.bytes = malloc(result.length + 1);
    if (!result.bytes || fread(result.bytes, 1, result.length, f) != result.length) die(path);
    fclose(f);
    return result;
}

static void add_patch(char *text) { /* kind:offset[:width] */
    if (opt.patch_count == MAX_PATCHES) { errno = E2BIG; die("--patch"); }
    struct patch *p = &opt.patches[opt.patch_count++];
    p->kind = (enum patch_kind)by_name(strtok(text, ":"), PATCH_NAMES, 6, "patch");
    p->offset = (uint32_t)atol(strtok(NULL, ":"));
    char *width = strtok(NULL, ":");
    p->width = width ? (uint32_t)atol(width) : 0;
}

static void read_options(int argc, char **argv) {
    static const char *const NAMES[] = {
        "host", "port", "connections", "seconds", "warmup-seconds", "operations", "hello", "message", "get-more",
        "cursor-offset", "document-offset", "document-length", "documents", "patch", "series", "sharing", "order",
        "base-ms", "step-ms", "first-tick", "run", "expect-n", "account", "session-offset", "more-session-offset",
        "interval-ms", "burst-ms", "period-ms", "curve-ms", NULL};
    struct option longs[32] = {{0}};
    for (int i = 0; NAMES[i]; i++) longs[i] = (struct option){NAMES[i], required_argument, NULL, i};
    int which;
    while ((which = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (which) {
        case 0: opt.host = optarg; break;
        case 1:
            for (char *port = strtok(optarg, ","); port && opt.port_count < MAX_PORTS; port = strtok(NULL, ","))
                opt.ports[opt.port_count++] = atoi(port);
            break;
        case 2: opt.connections = (uint32_t)atol(optarg); break;
        case 3: opt.seconds = atof(optarg); break;
        case 4: opt.warmup_seconds = atof(optarg); break;
        case 5: opt.operations = strtoull(optarg, NULL, 10); break;
        case 6: opt.hello = read_whole(optarg); break;
        case 7: opt.message = read_whole(optarg); break;
        case 8: opt.get_more = read_whole(optarg); break;
        case 9: opt.cursor_offset = (uint32_t)atol(optarg); break;
        case 10: opt.document_offset = (uint32_t)atol(optarg); break;
        case 11: opt.document_length = (uint32_t)atol(optarg); break;
        case 12: opt.documents = (uint32_t)atol(optarg); break;
        case 13: add_patch(optarg); break;
        case 14: opt.series = (uint32_t)atol(optarg); break;
        case 15: opt.sharing = (enum sharing)by_name(optarg, SHARING_NAMES, 3, "sharing"); break;
        case 16: opt.order = (enum order)by_name(optarg, ORDER_NAMES, 3, "order"); break;
        case 17: opt.base_ms = strtoll(optarg, NULL, 10); break;
        case 18: opt.step_ms = strtoll(optarg, NULL, 10); break;
        case 19: opt.first_tick = strtoull(optarg, NULL, 10); break;
        case 20: opt.run = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 21: opt.expect_n = strtoll(optarg, NULL, 10); break;
        case 22:
            for (char *pid = strtok(optarg, ","); pid && opt.accounted_count < MAX_ACCOUNTED; pid = strtok(NULL, ","))
                opt.accounted[opt.accounted_count++] = atoi(pid);
            break;
        case 23: opt.session_offset = (uint32_t)atol(optarg); break;
        case 24: opt.more_session_offset = (uint32_t)atol(optarg); break;
        case 25: opt.interval_ns = strtoull(optarg, NULL, 10) * 1000000; break;
        case 26: opt.burst_ns = strtoull(optarg, NULL, 10) * 1000000; break;
        case 27: opt.period_ns = strtoull(optarg, NULL, 10) * 1000000; break;
        case 28: opt.curve_ns = strtoull(optarg, NULL, 10) * 1000000; break;
        default: exit(2);
        }
    }
    if (!opt.message.length || !opt.port_count || !opt.connections || !opt.series || opt.get_more.length > 512) {
        fprintf(stderr, "loadgen: --message, --port, --connections and --series are needed\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    struct usage before[MAX_ACCOUNTED], after[MAX_ACCOUNTED];
    struct connection *all = calloc(opt.connections, sizeof *all);
    int epoll = epoll_create1(0);
    if (!all || epoll < 0) die("epoll");
    for (uint32_t i = 0; i < opt.connections; i++) open_connection(epoll, &all[i], i);
    uint64_t warmup_errors = 0;
    if (opt.warmup_seconds > 0) {
        go(epoll, all, opt.warmup_seconds, false);
        warmup_errors = run.errors;
        forget_counts();
    }
    double own = own_cpu_seconds();
    for (int i = 0; i < opt.accounted_count; i++) before[i] = usage_of(opt.accounted[i]);
    uint64_t start = now_ns();
    run.window_ns = start;
    run.next_point_ns = opt.curve_ns ? start + opt.curve_ns : 0;
    go(epoll, all, opt.seconds, opt.operations != 0);
    run.next_point_ns = 0;
    double seconds = (double)(now_ns() - start) / 1e9;
    for (int i = 0; i < opt.accounted_count; i++) after[i] = usage_of(opt.accounted[i]);
    own = own_cpu_seconds() - own;
    uint64_t finished = run.finished;
    if (!opt.operations) { /* what is still in flight is checked, but belongs to no window */
        opt.operations = run.started;
        struct connection *none = all;
        go(epoll, none, 0, true);
    }
    print_result(seconds, own, before, after, finished, run.errors + warmup_errors);
    return 0;
}
