/* A libnccl.so.2 whose ranks meet through files below $STUB_MEETS. Ids are 128 bytes by value with NULs among them,
   and one of them counts as known only where it arrives whole. $STUB_FAULT plants one fault: WHAT:RANK[:ITERATION]. */
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION "2.21.5"
#define CODE 22105
#define FOR "12.4"
#endif

typedef struct { char internal[128]; } Id;
typedef struct { char folder[512]; int rank, ranks; long operations; } Comm;
typedef struct { Comm *comm; const float *send; float *receive; size_t count; long number; char kind; int grouped; } Operation;
typedef struct { const void *send; void *receive; int to, from; size_t count; } Part;

const char *built = "NCCL version " VERSION "+cuda" FOR;
static int (*launch)(void *, void (*)(void *), void *);
static Part parts[4096];
static int sends, receives, grouping;

static int strikes(const char *what, int rank, long iteration) {
    char planted[64];
    if (!getenv("STUB_FAULT")) return 0;
    snprintf(planted, sizeof planted, iteration < 0 ? "%s:%d" : "%s:%d:%ld", what, rank, iteration);
    return !strcmp(planted, getenv("STUB_FAULT"));
}

static void name_folder(char *folder, const Id *id) {
    uint64_t a = 14695981039346656037u, b = 1099511628211u;
    for (int k = 0; k < 128; k++) {
        a = (a ^ (unsigned char)id->internal[k]) * 1099511628211u;
        b = (b + (unsigned char)id->internal[k] * (k + 1)) * 6364136223846793005u;
    }
    snprintf(folder, 512, "%s/%016lx%016lx", getenv("STUB_MEETS"), a, b);
}

static void await(const char *path) {
    while (access(path, F_OK)) usleep(300);
}

static void put(const char *path, const void *data, size_t size) {
    char part[640];
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "wb");
    fwrite(data, 1, size, file);
    fclose(file);
    rename(part, path);
}

static void get(const char *path, void *data, size_t size) {
    await(path);
    FILE *file = fopen(path, "rb");
    if (fread(data, 1, size, file) != size) abort();
    fclose(file);
}

int ncclGetVersion(int *version) { *version = CODE; return 0; }
const char *ncclGetErrorString(int status) { return status == 4 ? "invalid argument" : "unhandled system error"; }
const char *ncclGetLastError(void *comm) { return comm ? "" : "told by the stub"; }

int ncclGetUniqueId(Id *id) {
    char folder[512];
    FILE *random = fopen("/dev/urandom", "rb");
    if (fread(id->internal, 1, 128, random) != 128) abort();
    fclose(random);
    for (int k = 20; k < 128; k += 3) id->internal[k] = 0;
    struct sockaddr_in here = {AF_INET, htons(4242), {htonl(INADDR_LOOPBACK)}, {0}};
    memcpy(id->internal + 8, &here, sizeof here);
    name_folder(folder, id);
    return mkdir(folder, 0777) ? 2 : 0;
}

int ncclCommInitRank(Comm **out, int ranks, Id id, int rank) {
    char path[640];
    Comm *comm = calloc(1, sizeof *comm);
    name_folder(comm->folder, &id);
    if (access(comm->folder, F_OK) || rank < 0 || rank >= ranks) return 4;      /* not an id that was made */
    if (strikes("refuses", rank, -1)) {
        printf("node:1:1 [0] NCCL WARN Connect to 10.0.0.9<4242> failed : Connection refused\n");
        return 2;
    }
    if (strikes("dies-at-init", rank, -1)) abort();
    while (strikes("sleeps-at-init", rank, -1)) sleep(1);
    comm->rank = rank;
    comm->ranks = ranks;
    snprintf(path, sizeof path, "%s/rank%d", comm->folder, rank);
    put(path, &ranks, sizeof ranks);
    for (int peer = 0; peer < ranks; peer++) {
        snprintf(path, sizeof path, "%s/rank%d", comm->folder, peer);
        await(path);
    }
    launch = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchHostFunc");
    const char *network = getenv("STUB_NETWORK") ? getenv("STUB_NETWORK") : "NET/IB/0/GDRDMA";
    printf("node:1:1 [0] NCCL INFO NCCL_DEBUG set by environment to INFO.\n");
    for (int channel = 0; channel < 2; channel++)
        printf("node:1:2 [0] NCCL INFO Channel %02d/0 : %d[0] -> %d[0] [send] via %s\n", channel, rank, (rank + 1) % ranks, network);
    *out = comm;
    return 0;
}

int ncclCommCuDevice(Comm *comm, int *ordinal) {
    int (*of_context)(int *) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxGetDevice");
    if (of_context(ordinal)) return 1;
    *ordinal -= 40;
    if (strikes("takes-another-gpu", comm->rank, -1)) ++*ordinal;
    return 0;
}
int ncclCommDestroy(Comm *comm) {
    while (strikes("sleeps-at-leaving", comm->rank, -1)) sleep(1);
    free(comm);
    return 0;
}
int ncclCommGetAsyncError(Comm *comm, int *status) { *status = strikes("breaks", comm->rank, -1) ? 2 : 0; return 0; }

/* kinds: r all-reduce, s reduce-scatter, g all-gather */
static void collect(void *data) {
    Operation *o = data;
    Comm *c = o->comm;
    char path[640];
    while (strikes("sleeps-on-gpu", c->rank, o->number) || strikes("breaks", c->rank, -1)) sleep(1);
    if (strikes("dies", c->rank, o->number)) abort();
    size_t sent = o->count * (o->kind == 's' ? c->ranks : 1), received = o->count * (o->kind == 'g' ? c->ranks : 1);
    snprintf(path, sizeof path, "%s/op%ld.%d", c->folder, o->number, c->rank);
    put(path, o->send, 4 * sent);
    float *theirs = malloc(4 * sent);
    memset(o->receive, 0, 4 * received);
    for (int peer = 0; peer < c->ranks; peer++) {
        snprintf(path, sizeof path, "%s/op%ld.%d", c->folder, o->number, peer);
        get(path, theirs, 4 * sent);
        for (size_t k = 0; k < o->count; k++)
            if (o->kind == 'g') o->receive[peer * o->count + k] = theirs[k];
            else o->receive[k] += theirs[k + (o->kind == 's' ? c->rank * o->count : 0)];
    }
    if (strikes("adds-wrong", c->rank, o->number)) o->receive[received / 2] += 1;
    snprintf(path, sizeof path, "%s/op%ld.%d", c->folder, o->number - 2, c->rank);
    unlink(path);       /* everybody is past it: each waited for all before it went on to the last but one */
    free(theirs);
    free(data);
}

static int begin(char kind, const void *send, void *receive, size_t count, int type, Comm *comm, void *stream) {
    Operation *o = malloc(sizeof *o);
    *o = (Operation){comm, send, receive, count, comm->operations++, kind, 0};
    while (strikes("sleeps-at-launch", comm->rank, o->number)) sleep(1);
    if (!comm->rank)
        printf("node:1:1 [0] NCCL INFO AllReduce: %zu Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}\n", 4 * count);
    return type != 7 ? 4 : launch(stream, collect, o);
}

int ncclAllReduce(const void *send, void *receive, size_t count, int type, int sum, Comm *comm, void *stream) {
    return sum ? 4 : begin('r', send, receive, count, type, comm, stream);
}
int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int sum, Comm *comm, void *stream) {
    return sum ? 4 : begin('s', send, receive, count, type, comm, stream);
}
int ncclAllGather(const void *send, void *receive, size_t count, int type, Comm *comm, void *stream) {
    return begin('g', send, receive, count, type, comm, stream);
}

typedef struct { Comm *comm; int count; long number; Part part[]; } Exchange;
static void exchange(void *data) {
    Exchange *x = data;
    char path[640];
    for (int k = 0; k < x->count; k++) {
        snprintf(path, sizeof path, "%s/p2p%ld.%d.%d", x->comm->folder, x->number, x->comm->rank, x->part[k].to);
        put(path, x->part[k].send, 4 * x->part[k].count);
    }
    for (int k = 0; k < x->count; k++) {
        snprintf(path, sizeof path, "%s/p2p%ld.%d.%d", x->comm->folder, x->number, x->part[k].from, x->comm->rank);
        get(path, x->part[k].receive, 4 * x->part[k].count);
    }
    free(x);
}
int ncclGroupStart(void) { grouping = 1; sends = receives = 0; return 0; }
static Comm *grouped;
static void *grouped_on;
int ncclSend(const void *send, size_t count, int type, int peer, Comm *comm, void *stream) {
    parts[sends].send = send;
    parts[sends].count = count;
    parts[sends++].to = peer;
    grouped = comm;
    grouped_on = stream;
    return type == 7 && grouping ? 0 : 4;
}
int ncclRecv(void *receive, size_t count, int type, int peer, Comm *comm, void *stream) {
    parts[receives].receive = receive;
    parts[receives++].from = peer;
    return type == 7 && grouping && comm == grouped && stream && count == parts[receives - 1].count ? 0 : 4;
}
int ncclGroupEnd(void) {
    Exchange *x = malloc(sizeof *x + sends * sizeof(Part));
    *x = (Exchange){grouped, sends, grouped->operations++};
    memcpy(x->part, parts, sends * sizeof(Part));
    grouping = 0;
    return sends != receives ? 4 : launch(grouped_on, exchange, x);
}
