// A CUDA runtime and driver that do nothing, for a machine without a GPU: preloaded before PyTorch's CUDA build, it
// answers as one device of NULL_DEVICE_SM's compute capability would (80, 86, 89, 90, 100 or 120; 90 where it is not
// set), keeps device memory in host memory, ignores every kernel, and counts what it was asked.
//
// What is real: PyTorch's own dispatch, allocator, autograd engine, CUDA graphs' bookkeeping, Triton's compiler and
// launcher, torch.compile. What is not: results (kernels write nothing: memory is zeros), and the device's time.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <driver_types.h>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unordered_map>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {
enum { LAUNCH, H2D, D2H, D2D, MEMSET, SYNC, EVENT, MALLOC, FREE, GRAPH, HOSTWAIT, PLAN, KINDS };
const char *KIND[] = {"launch", "h2d", "d2h", "d2d", "memset", "sync", "event", "malloc", "free", "graph", "hostwait", "cudnn plan"};
struct Entry { int kind; const char *name; size_t size; };
std::recursive_mutex &lock() { static auto *m = new std::recursive_mutex; return *m; }
std::unordered_map<const void *, std::string> &names() { static auto *m = new std::unordered_map<const void *, std::string>; return *m; }
std::map<char *, size_t> &blocks() { static auto *m = new std::map<char *, size_t>; return *m; }
std::map<char *, size_t> &pinned() { static auto *m = new std::map<char *, size_t>; return *m; }
std::vector<Entry> &events() { static auto *v = new std::vector<Entry>; return *v; }
std::set<std::string> &pool() { static auto *s = new std::set<std::string>; return *s; }
long counts[KINDS];
bool recording = false;
size_t used = 0, peak = 0;
// What differs between devices, from NVIDIA's table of compute capabilities and the data sheets of the cards named.
struct Model { int sm; const char *name; int multiprocessors, threads, blocks; size_t shared, optin, l2; int gib; };
const Model MODELS[] = {
  {80, "Null A100", 108, 2048, 32, 164 << 10, 163 << 10, 40 << 20, 79},
  {86, "Null RTX 3090", 82, 1536, 16, 100 << 10, 99 << 10, 6 << 20, 23},
  {89, "Null L4", 58, 1536, 24, 100 << 10, 99 << 10, 48 << 20, 22},
  {90, "Null H200", 132, 2048, 32, 228 << 10, 227 << 10, 60 << 20, 139},
  {100, "Null B200", 148, 2048, 32, 228 << 10, 227 << 10, 126 << 20, 178},
  {120, "Null RTX 5090", 170, 1536, 24, 100 << 10, 99 << 10, 96 << 20, 31},
};
const Model &model() {
  static const Model *found = [] {
    const char *said = getenv("NULL_DEVICE_SM");
    for (const Model &m : MODELS) if (m.sm == (said ? atoi(said) : 90)) return &m;
    fprintf(stderr, "NULL_DEVICE_SM=%s: no such device; 80, 86, 89, 90, 100 or 120\n", said);
    abort();
  }();
  return *found;
}
size_t total() { return (size_t)model().gib << 30; }
thread_local cudaError_t last = cudaSuccess;
cudaStream_t capturing = nullptr;  // the stream of a graph that is being captured
bool invalid = false;
long captured = 0;
void *unique() { static std::atomic<size_t> next{0x1000}; return (void *)(next += 16); }

void note(int kind, const char *name, size_t size = 0) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  counts[kind]++;
  if (recording) events().push_back({kind, pool().insert(name ? name : "?").first->c_str(), size});
}
cudaError_t fail(cudaError_t e) { last = e; return e; }
bool is_device(const void *p) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  auto it = blocks().upper_bound((char *)p);
  return it != blocks().begin() && (--it, (char *)p < it->first + it->second);
}
bool is_pinned(const void *p) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  auto it = pinned().upper_bound((char *)p);
  return it != pinned().begin() && (--it, (char *)p < it->first + it->second);
}
cudaError_t take(void **p, size_t n) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  if (used + n > total()) { *p = nullptr; return fail(cudaErrorMemoryAllocation); }
  void *m = mmap(nullptr, n ? n : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  blocks()[(char *)m] = n; used += n; if (used > peak) peak = used;
  *p = m; return cudaSuccess;
}
cudaError_t give(void *p) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  auto it = blocks().find((char *)p);
  if (it != blocks().end()) { munmap(p, it->second ? it->second : 1); used -= it->second; blocks().erase(it); }
  return cudaSuccess;
}
const char *name_of(const void *f) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  auto it = names().find(f);
  return it == names().end() ? "unnamed kernel" : it->second.c_str();
}
// a wait in a stream whose graph is being captured is an error, as on a device
cudaError_t wait(const char *name, bool of_captured) {
  note(SYNC, name);
  if (capturing && of_captured) { invalid = true; return fail(cudaErrorStreamCaptureUnsupported); }
  return cudaSuccess;
}
cudaError_t copy(void *dst, const void *src, size_t n, cudaMemcpyKind kind, bool async, cudaStream_t stream) {
  bool to = is_device(dst), from = is_device(src);
  int what = to && from ? D2D : to ? H2D : from ? D2H : D2D;
  const void *host = to ? src : dst;
  note(what, what == D2D ? "copy on the device" : is_pinned(host) ? "pinned" : "pageable", n);
  if (n) memcpy(dst, src, n);
  if (!async) return wait("cudaMemcpy", true);
  return cudaSuccess;
}
}  // namespace

// ---- what a harness asks -----------------------------------------------------------------------------------------
API void null_device_record(int on) { std::lock_guard<std::recursive_mutex> hold(lock()); recording = on; events().clear(); memset(counts, 0, sizeof counts); peak = used; }
API int null_device_present() { return 1; }
API long null_device_count(int kind) { return counts[kind]; }
API long null_device_events() { return (long)events().size(); }
API const char *null_device_event_name(long i) { return events()[i].name; }
API int null_device_event_kind(long i) { return events()[i].kind; }
API size_t null_device_event_size(long i) { return events()[i].size; }
API const char *null_device_kind_name(int k) { return k < KINDS ? KIND[k] : ""; }
API void null_device_note(int kind, const char *name) { note(kind, name); }

// ---- runtime: registration and launches --------------------------------------------------------------------------
API void **__cudaRegisterFatBinary(void *) { return (void **)unique(); }
API void __cudaRegisterFatBinaryEnd(void **) {}
API void __cudaUnregisterFatBinary(void **) {}
API void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
API void __cudaRegisterFunction(void **, const char *host, char *, const char *device, int, uint3 *, uint3 *, dim3 *, dim3 *, int *) {
  std::lock_guard<std::recursive_mutex> hold(lock()); names()[host] = device;
}
API char __cudaInitModule(void **) { return 1; }
static thread_local struct { dim3 grid, block; size_t shared; cudaStream_t stream; } config;
API unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t s, cudaStream_t st) { config = {g, b, s, st}; return 0; }
API cudaError_t __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *s, void *st) { *g = config.grid; *b = config.block; *s = config.shared; *(cudaStream_t *)st = config.stream; return cudaSuccess; }
static cudaError_t launch(const void *f, cudaStream_t s) { note(LAUNCH, name_of(f)); if (capturing && s == capturing) captured++; return cudaSuccess; }
API cudaError_t cudaLaunchKernel(const void *f, dim3, dim3, void **, size_t, cudaStream_t s) { return launch(f, s); }
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **) { return launch(f, c->stream); }
API cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3, dim3, void **, size_t, cudaStream_t s) { return launch(f, s); }
API cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *f) { *k = (cudaKernel_t)f; return cudaSuccess; }
API cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3, dim3, void **, size_t, cudaStream_t s) { return launch((const void *)k, s); }
API cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t fn, void *data) { fn(data); return cudaSuccess; }
API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t fn, void *data, unsigned) { fn(s, cudaSuccess, data); return cudaSuccess; }
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *) { memset(a, 0, sizeof *a); a->maxThreadsPerBlock = 1024; a->numRegs = 32; a->binaryVersion = a->ptxVersion = model().sm; a->maxDynamicSharedSizeBytes = model().optin; return cudaSuccess; }
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *, int, size_t, unsigned) { *n = 2; return cudaSuccess; }
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int, size_t) { *n = 2; return cudaSuccess; }

// ---- runtime: device ---------------------------------------------------------------------------------------------
API cudaError_t cudaGetDeviceCount(int *n) { *n = 1; return cudaSuccess; }
API cudaError_t cudaGetDevice(int *d) { *d = 0; return cudaSuccess; }
API cudaError_t cudaSetDevice(int) { return cudaSuccess; }
API cudaError_t cudaDriverGetVersion(int *v) { *v = 13000; return cudaSuccess; }
API cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return cudaSuccess; }
API cudaError_t cudaGetLastError() { cudaError_t e = last; last = cudaSuccess; return e; }
API cudaError_t cudaPeekAtLastError() { return last; }
API const char *cudaGetErrorString(cudaError_t e) { return e == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing" : e == cudaErrorStreamCaptureInvalidated ? "operation failed due to a previous error during capture" : e == cudaErrorMemoryAllocation ? "out of memory" : "an error of the null device"; }
API const char *cudaGetErrorName(cudaError_t) { return "cudaErrorNull"; }
API cudaError_t cudaDeviceSynchronize() { return wait("cudaDeviceSynchronize", true); }
API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return cudaSuccess; }
API cudaError_t cudaDeviceGetPCIBusId(char *s, int n, int) { snprintf(s, n, "0000:00:00.0"); return cudaSuccess; }
API cudaError_t cudaDeviceCanAccessPeer(int *yes, int, int) { *yes = 0; return cudaSuccess; }
static int attribute(int a) {
  switch (a) {
    case 1: return 1024; case 2: case 3: return 1024; case 4: return 64; case 5: return 2147483647; case 6: case 7: return 65535;
    case 8: return 48 << 10; case 9: return 65536; case 10: return 32; case 12: return 65536; case 13: return 1980000;
    case 16: return model().multiprocessors; case 36: return 3201000; case 37: return 6144; case 38: return model().l2; case 39: return model().threads;
    case 75: return model().sm / 10; case 76: return model().sm % 10; case 81: return model().shared; case 82: return 65536; case 83: return 1; case 89: return 1;
    case 95: return 1; case 97: return model().optin; case 106: return model().blocks; case 111: return 1 << 10; case 115: return 1; case 120: return model().sm >= 90;
    case 102: return 0; case 128: return 0; case 132: return 0;
    default: return 0;
  }
}
API cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int) { *v = attribute(a); return cudaSuccess; }
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, model().name); p->totalGlobalMem = total(); p->sharedMemPerBlock = 48 << 10; p->regsPerBlock = 65536; p->warpSize = 32;
  p->maxThreadsPerBlock = 1024; p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535; p->totalConstMem = 65536; p->major = model().sm / 10; p->minor = model().sm % 10;
  p->textureAlignment = 512; p->multiProcessorCount = model().multiprocessors; p->l2CacheSize = model().l2; p->maxThreadsPerMultiProcessor = model().threads;
  p->sharedMemPerMultiprocessor = model().shared; p->regsPerMultiprocessor = 65536; p->sharedMemPerBlockOptin = model().optin;
  p->unifiedAddressing = 1; p->concurrentKernels = 1; p->managedMemory = 1; p->cooperativeLaunch = 1; p->streamPrioritiesSupported = 1;
  p->maxBlocksPerMultiProcessor = model().blocks; p->memoryBusWidth = 6144; p->clusterLaunch = model().sm >= 90; p->canMapHostMemory = 1;
  return cudaSuccess;
}

// ---- runtime: memory ---------------------------------------------------------------------------------------------
API cudaError_t cudaMalloc(void **p, size_t n) { note(MALLOC, "cudaMalloc", n); return take(p, n); }
API cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t) { note(MALLOC, "cudaMallocAsync", n); return take(p, n); }
API cudaError_t cudaFree(void *p) { note(FREE, "cudaFree"); return give(p); }
API cudaError_t cudaFreeAsync(void *p, cudaStream_t) { note(FREE, "cudaFreeAsync"); return give(p); }
API cudaError_t cudaMemGetInfo(size_t *f, size_t *t) { *f = total() - used; *t = total(); return cudaSuccess; }
API cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) { *p = calloc(1, n); std::lock_guard<std::recursive_mutex> hold(lock()); pinned()[(char *)*p] = n; return cudaSuccess; }
API cudaError_t cudaMallocHost(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
API cudaError_t cudaFreeHost(void *p) { std::lock_guard<std::recursive_mutex> hold(lock()); pinned().erase((char *)p); free(p); return cudaSuccess; }
API cudaError_t cudaHostRegister(void *p, size_t n, unsigned) { std::lock_guard<std::recursive_mutex> hold(lock()); pinned()[(char *)p] = n; return cudaSuccess; }
API cudaError_t cudaHostUnregister(void *p) { std::lock_guard<std::recursive_mutex> hold(lock()); pinned().erase((char *)p); return cudaSuccess; }
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
  memset(a, 0, sizeof *a); bool device = is_device(p);
  a->type = device ? cudaMemoryTypeDevice : is_pinned(p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  a->devicePointer = device ? (void *)p : nullptr; a->hostPointer = device ? nullptr : (void *)p; return cudaSuccess;
}
API cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind k, cudaStream_t st) { return copy(d, s, n, k, true, st); }
API cudaError_t cudaMemcpy(void *d, const void *s, size_t n, cudaMemcpyKind k) { return copy(d, s, n, k, false, nullptr); }
API cudaError_t cudaMemcpyPeerAsync(void *d, int, const void *s, int, size_t n, cudaStream_t st) { return copy(d, s, n, cudaMemcpyDefault, true, st); }
API cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, cudaMemcpyKind k, cudaStream_t st) { note(D2D, "cudaMemcpy2DAsync", w * h); for (size_t i = 0; i < h; i++) memcpy((char *)d + i * dp, (const char *)s + i * sp, w); return cudaSuccess; }
API cudaError_t cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
API cudaError_t cudaMemset(void *p, int v, size_t n) { note(MEMSET, "cudaMemset", n); if (v && is_device(p)) memset(p, v, n); return cudaSuccess; }
API cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t) { return cudaMemset(p, v, n); }

// ---- runtime: streams, events, graphs ----------------------------------------------------------------------------
API cudaError_t cudaStreamCreate(cudaStream_t *s) { *s = (cudaStream_t)unique(); return cudaSuccess; }
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) { return cudaStreamCreate(s); }
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int) { return cudaStreamCreate(s); }
API cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaStreamGetPriority(cudaStream_t, int *p) { *p = 0; return cudaSuccess; }
API cudaError_t cudaStreamQuery(cudaStream_t s) { return capturing && s == capturing ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess; }
API cudaError_t cudaStreamSynchronize(cudaStream_t s) { return wait("cudaStreamSynchronize", s == capturing || !s); }
API cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
API cudaError_t cudaEventCreate(cudaEvent_t *e) { *e = (cudaEvent_t)unique(); return cudaSuccess; }
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) { return cudaEventCreate(e); }
API cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
API cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
API cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { note(EVENT, "cudaEventRecord"); return cudaSuccess; }
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) { note(EVENT, "cudaEventRecord"); return cudaSuccess; }
API cudaError_t cudaEventSynchronize(cudaEvent_t) { return wait("cudaEventSynchronize", false); }
API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) { *ms = 0.01f; return cudaSuccess; }
API cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) { if (capturing) return fail(cudaErrorIllegalState); capturing = s ? s : (cudaStream_t)1; invalid = false; captured = 0; return cudaSuccess; }
API cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t, const cudaGraphNode_t *, const cudaGraphEdgeData *, size_t, cudaStreamCaptureMode m) { return cudaStreamBeginCapture(s, m); }
API cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *g) { capturing = nullptr; *g = nullptr; if (invalid) { invalid = false; return fail(cudaErrorStreamCaptureInvalidated); } *g = (cudaGraph_t)unique(); return cudaSuccess; }
API cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *c) { *c = capturing && s == capturing ? (invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive) : cudaStreamCaptureStatusNone; return cudaSuccess; }
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus *c, unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **d, const cudaGraphEdgeData **e, size_t *n) {
  cudaStreamIsCapturing(s, c); if (id) *id = 1; if (g) *g = (cudaGraph_t)2; if (d) *d = nullptr; if (e) *e = nullptr; if (n) *n = 0; return cudaSuccess;
}
API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t *, const cudaGraphEdgeData *, size_t, unsigned) { return cudaSuccess; }
API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return cudaSuccess; }
API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t, unsigned long long) { *x = (cudaGraphExec_t)unique(); return cudaSuccess; }
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t, unsigned long long) { *x = (cudaGraphExec_t)unique(); return cudaSuccess; }
API cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { note(GRAPH, "cudaGraphLaunch"); return cudaSuccess; }
API cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t *, size_t *n) { if (n) *n = captured; return cudaSuccess; }
API cudaError_t cudaUserObjectCreate(cudaUserObject_t *o, void *, cudaHostFn_t, unsigned, unsigned) { *o = (cudaUserObject_t)unique(); return cudaSuccess; }
API long null_device_captured() { return captured; }
API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *v) { *(unsigned long long *)v = 0; return cudaSuccess; }
API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int) { *p = (cudaMemPool_t)unique(); return cudaSuccess; }
API cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void *v) { *(unsigned long long *)v = 0; return cudaSuccess; }
API cudaError_t cudaGetSymbolAddress(void **p, const void *) { static char spare[1 << 16]; *p = spare; return cudaSuccess; }

// ---- driver ------------------------------------------------------------------------------------------------------
API CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
API CUresult cuDriverGetVersion(int *v) { *v = 13000; return CUDA_SUCCESS; }
API CUresult cuDeviceGetCount(int *n) { *n = 1; return CUDA_SUCCESS; }
API CUresult cuDeviceGet(CUdevice *d, int) { *d = 0; return CUDA_SUCCESS; }
API CUresult cuDeviceGetName(char *s, int n, CUdevice) { snprintf(s, n, "%s", model().name); return CUDA_SUCCESS; }
API CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) { *v = attribute(a); return CUDA_SUCCESS; }
API CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice) { *c = (CUcontext)16; return CUDA_SUCCESS; }
API CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *f, int *active) { *f = 0; *active = 1; return CUDA_SUCCESS; }
API CUresult cuCtxGetCurrent(CUcontext *c) { *c = (CUcontext)16; return CUDA_SUCCESS; }
API CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
API CUresult cuCtxGetDevice(CUdevice *d) { *d = 0; return CUDA_SUCCESS; }
API CUresult cuCtxGetLimit(size_t *v, CUlimit) { *v = 1 << 20; return CUDA_SUCCESS; }
API CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
API CUresult cuGetErrorString(CUresult, const char **s) { *s = "an error of the null device"; return CUDA_SUCCESS; }
API CUresult cuModuleLoadData(CUmodule *m, const void *) { *m = (CUmodule)unique(); return CUDA_SUCCESS; }
API CUresult cuModuleLoad(CUmodule *m, const char *) { *m = (CUmodule)unique(); return CUDA_SUCCESS; }
API CUresult cuModuleLoadDataEx(CUmodule *m, const void *, unsigned, CUjit_option *, void **) { *m = (CUmodule)unique(); return CUDA_SUCCESS; }
API CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule, const char *name) { *f = (CUfunction)unique(); std::lock_guard<std::recursive_mutex> hold(lock()); names()[*f] = std::string("jit:") + name; return CUDA_SUCCESS; }
API CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction) { *v = a == CU_FUNC_ATTRIBUTE_NUM_REGS ? 64 : a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0; return CUDA_SUCCESS; }
API CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
API CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
API CUresult cuLaunchKernel(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream s, void **, void **) { launch(f, s); return CUDA_SUCCESS; }
API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream s, void **) { launch(f, s); return CUDA_SUCCESS; }
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **, void **) { launch(f, c->hStream); return CUDA_SUCCESS; }
API CUresult cuPointerGetAttribute(void *v, CUpointer_attribute a, CUdeviceptr p) { if (a == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) { *(CUdeviceptr *)v = p; return is_device((void *)p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; } *(unsigned *)v = is_device((void *)p) ? 2 : 1; return CUDA_SUCCESS; }
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction, int, size_t) { *n = 2; return CUDA_SUCCESS; }
API CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction, const CUlaunchConfig *) { *n = 8; return CUDA_SUCCESS; }
API CUresult cuMemGetInfo_v2(size_t *f, size_t *t) { return (CUresult)cudaMemGetInfo(f, t); }
API CUresult null_driver_call() { return CUDA_SUCCESS; }
API cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **f, unsigned, unsigned long long, cudaDriverEntryPointQueryResult *r) {
  *f = dlsym(RTLD_DEFAULT, symbol); if (!*f) *f = (void *)null_driver_call; if (r) *r = cudaDriverEntryPointSuccess; return cudaSuccess;
}

// ---- cuBLAS ------------------------------------------------------------------------------------------------------
API int cublasCreate_v2(void **h) { *h = unique(); return 0; }
API int cublasGetMathMode(void *, int *m) { *m = 0; return 0; }
API int cublasGetPointerMode_v2(void *, int *m) { *m = 0; return 0; }
API size_t cublasLtGetVersion() { return 130101; }
API int cublasLtCreate(void **h) { *h = unique(); return 0; }
API int cublasLtMatmulDescCreate(void **d, int, int) { *d = calloc(1, 512); return 0; }
API int cublasLtMatrixLayoutCreate(void **d, int, unsigned long long, unsigned long long, long long) { *d = calloc(1, 512); return 0; }
API int cublasLtMatmulPreferenceCreate(void **d) { *d = calloc(1, 512); return 0; }
API int cublasLtMatmulDescDestroy(void *d) { free(d); return 0; }
API int cublasLtMatrixLayoutDestroy(void *d) { free(d); return 0; }
API int cublasLtMatmulPreferenceDestroy(void *d) { free(d); return 0; }
API int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *, void *, void *, int, void *, int *n) { *n = 1; return 0; }
#define GEMM(NAME) API int NAME() { note(LAUNCH, #NAME); return 0; }
GEMM(cublasLtMatmul) GEMM(cublasGemmEx) GEMM(cublasGemmStridedBatchedEx) GEMM(cublasSgemm_v2) GEMM(cublasDgemm_v2)
GEMM(cublasSgemmEx) GEMM(cublasSgemmStridedBatched) GEMM(cublasDgemmStridedBatched) GEMM(cublasSgemv_v2) GEMM(cublasDgemv_v2)
GEMM(cublasSdot_v2) GEMM(cublasDdot_v2) GEMM(cublasDotEx) GEMM(cublasCgemm_v2) GEMM(cublasZgemm_v2)

// ---- cuDNN's graphs, of which attention is one: a plan for each shape, built on the host, then one launch ----------
struct Descriptor { int type; };
API size_t cudnnGetVersion() { return 92400; }
API size_t cudnnGetCudartVersion() { return 13000; }
API int cudnnGetProperty(int type, int *v) { *v = type == 0 ? 9 : type == 1 ? 24 : 0; return 0; }
API const char *cudnnGetErrorString(int) { return "an error of the null device"; }
API void cudnnGetLastErrorString(char *s, size_t n) { if (n) *s = 0; }
API int cudnnCreate(void **h) { *h = unique(); return 0; }
API int cudnnGetStream(void *, cudaStream_t *s) { *s = nullptr; return 0; }
API int cudnnBackendCreateDescriptor(int type, void **d) { auto *x = new Descriptor{type}; *d = x; return 0; }
API int cudnnBackendDestroyDescriptor(void *d) { delete (Descriptor *)d; return 0; }
API int cudnnBackendSetAttribute(void *, int, int, int64_t, const void *) { return 0; }
API int cudnnBackendFinalize(void *d) { if (((Descriptor *)d)->type == 5) note(PLAN, "cuDNN execution plan"); return 0; }
API int cudnnBackendGetAttribute(void *d, int name, int type, int64_t most, int64_t *n, void *out) {
  if (getenv("NULL_DEVICE_TRACE")) fprintf(stderr, "cudnnBackendGetAttribute descriptor %d attribute %d type %d most %ld\n", ((Descriptor *)d)->type, name, type, (long)most);
  bool notes = name == 1303 || name == 1305 || name == 302;  // of an engine, and its knobs: none
  if (n) *n = notes ? 0 : 1;
  if (out && !notes && most > 0) { if (type == 3) *(int64_t *)out = 0; else if (type != 15) *(int32_t *)out = 0; }
  return 0;
}
API int cudnnBackendExecute(void *, void *, void *) { note(LAUNCH, "cuDNN graph"); return 0; }
