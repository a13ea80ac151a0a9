/* A libcuda.so.1 without a GPU: device memory is the process's own, a stream is a thread that does one thing after
   another. It has the symbols of the driver's ABI that a caller may use, and traps behind those that it must not. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef void (*Work)(void *);
typedef struct Item { Work work; void *data; struct Item *next; } Item;
typedef struct { pthread_mutex_t lock; pthread_cond_t news; Item *first, *last; int busy; } Stream;
typedef struct { volatile int done; struct timespec at; } Event;
typedef struct { float *buffer; uint64_t count, base, block; uint32_t times, add; uint64_t *wrong; } Pattern;

static long number(const char *name, long otherwise) { return getenv(name) ? atol(getenv(name)) : otherwise; }

static void *serve(void *argument) {
    Stream *stream = argument;
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        while (!stream->first) pthread_cond_wait(&stream->news, &stream->lock);
        Item *item = stream->first;
        pthread_mutex_unlock(&stream->lock);
        item->work(item->data);
        pthread_mutex_lock(&stream->lock);
        stream->first = item->next;
        stream->busy--;
        pthread_cond_broadcast(&stream->news);
        pthread_mutex_unlock(&stream->lock);
        free(item);
    }
    return NULL;
}

int cuLaunchHostFunc(Stream *stream, Work work, void *data) {
    Item *item = malloc(sizeof *item);
    *item = (Item){work, data, NULL};
    pthread_mutex_lock(&stream->lock);
    if (stream->first) stream->last->next = item; else stream->first = item;
    stream->last = item;
    stream->busy++;
    pthread_cond_broadcast(&stream->news);
    pthread_mutex_unlock(&stream->lock);
    return 0;
}

int cuInit(unsigned flags) { return flags ? 1 : (int)number("STUB_CUDA_STATUS", 0); }
int cuDriverGetVersion(int *version) { *version = (int)number("STUB_DRIVER", 13000); return 0; }
int cuGetErrorName(int status, const char **name) {
    *name = status == 1 ? "CUDA_ERROR_INVALID_VALUE" : status == 100 ? "CUDA_ERROR_NO_DEVICE"
          : status == 218 ? "CUDA_ERROR_INVALID_PTX" : status == 221 ? "CUDA_ERROR_JIT_COMPILER_NOT_FOUND" : NULL;
    return *name ? 0 : 1;
}
int cuDeviceGetCount(int *count) { *count = (int)number("STUB_GPUS", 2); return 0; }
int cuDeviceGet(int *device, int ordinal) {
    *device = 40 + ordinal;     /* a handle, not an ordinal */
    return ordinal < 0 || ordinal >= number("STUB_GPUS", 2);
}
int cuDeviceGetName(char *name, int length, int device) {
    return snprintf(name, length, "%s", getenv("STUB_NAME") ? getenv("STUB_NAME") : "Stub GPU") < 0 || device < 40;
}
int cuDeviceGetPCIBusId(char *address, int length, int device) {
    return snprintf(address, length, "0000:%02X:00.0", device) < 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 20 ? (int)number("STUB_COMPUTE_MODE", 0) : attribute == 116;
    return device < 40;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    const char *sick = getenv("STUB_SLEEPS_AT_LOAD");
    while (sick && atoi(sick) == device - 40) sleep(1);
    *context = (char *)0x7fff12345000 + device;     /* wider than 32 bits: an int in between would break it */
    return device < 40;
}
static char *current;
int cuCtxSetCurrent(void *context) { current = context; return current < (char *)0x7fff12345000; }
int cuCtxGetDevice(int *device) { *device = (int)(current - (char *)0x7fff12345000); return !current; }
int cuMemGetInfo_v2(size_t *available, size_t *total) { *available = *total = number("STUB_FREE", 80L << 30); return 0; }
int cuMemAlloc_v2(uint64_t *address, size_t size) { *address = (uint64_t)malloc(size); return *address == 0; }
int cuMemFree_v2(uint64_t address) { free((void *)address); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { memcpy(to, (void *)from, size); return 0; }
int cuMemsetD32_v2(uint64_t address, unsigned value, size_t count) {
    for (size_t k = 0; k < count; k++) ((unsigned *)address)[k] = value;
    return 0;
}
int cuStreamCreate(Stream **stream, unsigned flags) {
    pthread_t thread;
    *stream = calloc(1, sizeof **stream);
    pthread_mutex_init(&(*stream)->lock, NULL);
    pthread_cond_init(&(*stream)->news, NULL);
    return flags > 1 || pthread_create(&thread, NULL, serve, *stream);
}
int cuStreamSynchronize(Stream *stream) {
    pthread_mutex_lock(&stream->lock);
    while (stream->busy) pthread_cond_wait(&stream->news, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return 0;
}

static void happen(void *data) { Event *event = data; clock_gettime(CLOCK_MONOTONIC, &event->at); event->done = 1; }
int cuEventCreate(Event **event, unsigned flags) { *event = calloc(1, sizeof **event); return (int)flags; }
int cuEventDestroy_v2(Event *event) { free(event); return 0; }
int cuEventRecord(Event *event, Stream *stream) { event->done = 0; return cuLaunchHostFunc(stream, happen, event); }
int cuEventQuery(Event *event) { return event->done ? 0 : 600; }
int cuEventElapsedTime(float *milliseconds, Event *a, Event *b) {
    *milliseconds = (b->at.tv_sec - a->at.tv_sec) * 1e3f + (b->at.tv_nsec - a->at.tv_nsec) * 1e-6f;
    return !a->done || !b->done;
}

/* The one kernel, written a second time from what it shall do; its PTX is only looked at. */
int cuModuleLoadData(void **module, const void *image) {
    *module = (void *)0x7ffe00000001;
    if (number("STUB_NO_JIT", 0)) return 221;
    return strstr(image, ".version") && strstr(image, ".entry pattern(") ? 0 : 218;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = (void *)0x7ffe00000002;
    return module != (void *)0x7ffe00000001 || strcmp(name, "pattern");
}
static void apply(void *data) {
    Pattern p = *(Pattern *)data;
    for (uint64_t e = 0; e < p.count; e++) {
        uint32_t index = (uint32_t)((p.base + e % p.block) % 65521);
        uint32_t hash = index * 2654435761u >> 24;
        float value = (float)(p.times * hash + p.add + (uint32_t)(e / p.block % 127));
        if (!p.wrong) p.buffer[e] = value;
        else if (p.buffer[e] != value) ++*p.wrong;
    }
    free(data);
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream *stream, void **in, void **extra) {
    if (function != (void *)0x7ffe00000002 || !gx || gy != 1 || gz != 1 || !bx || by != 1 || bz != 1 || shared || extra)
        return 1;
    Pattern *p = malloc(sizeof *p);
    *p = (Pattern){*(float **)in[0], *(uint64_t *)in[1], *(uint64_t *)in[2], *(uint64_t *)in[3],
                   *(uint32_t *)in[4], *(uint32_t *)in[5], *(uint64_t **)in[6]};
    return cuLaunchHostFunc(stream, apply, p);
}

/* The ABI of CUDA 3.1 and older, with 32-bit sizes, which a library of today still has under these names. */
#define TRAP(name) void name(void) { fprintf(stderr, #name " is of another ABI\n"); abort(); }
TRAP(cuMemAlloc) TRAP(cuMemFree) TRAP(cuMemcpyHtoD) TRAP(cuMemcpyDtoH) TRAP(cuMemGetInfo) TRAP(cuMemsetD32)
TRAP(cuCtxCreate) TRAP(cuCtxCreate_v2) TRAP(cuEventDestroy) TRAP(cuStreamDestroy)
