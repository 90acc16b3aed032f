/* The calls by which a program gets to its disk: those to the C library, and those that the program makes to the system by itself, which a
 * preloaded library cannot see. So the kernel is asked to hand over what the program's own code calls (seccomp, SIGSYS). What it starts is
 * at other addresses, and is left alone.
 */
#include "disk.h"

#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>

#if defined(__x86_64__)
#define ARGUMENT(context, index) \
  ((context)->uc_mcontext.gregs[(const int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9}[index]])
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define ARGUMENT(context, index) ((context)->uc_mcontext.regs[index])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#else
#error "say where this processor has arguments and results"
#endif

/* A step that is one call. */
#define STEP(before, call) \
  int met = before;        \
  if (met > 0) {           \
    errno = met;           \
    return -1;             \
  }                        \
  return after(met, call);

static long write_some(int fd, const void *bytes, size_t count) {
  struct writing writing;
  ssize_t allowed = begin_write(&writing, fd, -1, count);
  return end_write(&writing, allowed < 0 ? -1 : syscall(SYS_write, fd, bytes, (size_t)allowed));
}

static long pwrite_some(int fd, const void *bytes, size_t count, off_t at) {
  struct writing writing;
  ssize_t allowed = begin_write(&writing, fd, at, count);
  return end_write(&writing, allowed < 0 ? -1 : syscall(SYS_pwrite64, fd, bytes, (size_t)allowed, at));
}

static long write_parts(int fd, const struct iovec *parts, int count, size_t total, size_t allowed) {
  if (allowed == total) return syscall(SYS_writev, fd, parts, count);
  size_t first = parts[0].iov_len < allowed ? parts[0].iov_len : allowed;
  return syscall(SYS_write, fd, parts[0].iov_base, first);
}

static long writev_some(int fd, const struct iovec *parts, int count) {
  struct writing writing;
  size_t total = 0;
  for (int i = 0; i < count; i++) total += parts[i].iov_len;
  ssize_t allowed = begin_write(&writing, fd, -1, total);
  return end_write(&writing, allowed < 0 ? -1 : write_parts(fd, parts, count, total, (size_t)allowed));
}

/* `__O_TMPFILE` has the bit of folders too. */
static int may_make(int flags) { return flags & O_CREAT || (flags & __O_TMPFILE) == __O_TMPFILE; }

static long open_step(int at, const char *path, int flags, mode_t mode) {
  STEP(step_at(may_make(flags) ? CREATE : OPEN, at, path), opened(at, path, flags, mode))
}

static long rename_step(int from, const char *old, int at, const char *path, unsigned flags) {
  STEP(step_at(RENAME, at, path), renamed(from, old, at, path, flags))
}

static long unlink_step(int at, const char *path, int flags) {
  STEP(step_at(UNLINK, at, path),
       flags & AT_REMOVEDIR ? removed_folder(at, path) : syscall(SYS_unlinkat, at, path, flags))
}

static long mkdir_step(int at, const char *path, mode_t mode) {
  STEP(step_at(MKDIR, at, path), syscall(SYS_mkdirat, at, path, mode))
}

static long statx_step(int at, const char *path, int flags, unsigned mask, struct statx *found) {
  STEP(step_at(LOOK, at, path), syscall(SYS_statx, at, path, flags, mask, found))
}

static long stat_step(int at, const char *path, struct stat *found, int flags) {
  STEP(step_at(LOOK, at, path), syscall(SYS_newfstatat, at, path, found, flags))
}

static long write_step(int fd, const void *bytes, size_t count) { STEP(step_of(WRITE, fd), write_some(fd, bytes, count)) }

static long pwrite_step(int fd, const void *bytes, size_t count, off_t at) {
  STEP(step_of(WRITE, fd), pwrite_some(fd, bytes, count, at))
}

static long writev_step(int fd, const struct iovec *parts, int count) {
  STEP(step_of(WRITE, fd), writev_some(fd, parts, count))
}

static long read_step(int fd, void *bytes, size_t count) { STEP(step_of(READ, fd), syscall(SYS_read, fd, bytes, count)) }

static long pread_step(int fd, void *bytes, size_t count, off_t at) {
  STEP(step_of(READ, fd), syscall(SYS_pread64, fd, bytes, count, at))
}

static long cut_step(int fd, off_t size) { STEP(step_of(TRUNCATE, fd), cut(fd, size)) }

ssize_t write(int fd, const void *bytes, size_t count) { return write_step(fd, bytes, count); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) { return pwrite_step(fd, bytes, count, at); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return pwrite_step(fd, bytes, count, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return writev_step(fd, parts, count); }
ssize_t read(int fd, void *bytes, size_t count) { return read_step(fd, bytes, count); }
ssize_t pread64(int fd, void *bytes, size_t count, off_t at) { return pread_step(fd, bytes, count, at); }
ssize_t pread(int fd, void *bytes, size_t count, off_t at) { return pread_step(fd, bytes, count, at); }
int ftruncate64(int fd, off_t size) { return (int)cut_step(fd, size); }
int ftruncate(int fd, off_t size) { return (int)cut_step(fd, size); }
int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }
int rename(const char *from, const char *to) { return (int)rename_step(AT_FDCWD, from, AT_FDCWD, to, 0); }
int unlink(const char *path) { return (int)unlink_step(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return (int)unlink_step(at, path, flags); }
int rmdir(const char *path) { return (int)unlink_step(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdir(const char *path, mode_t mode) { return (int)mkdir_step(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return (int)mkdir_step(at, path, mode); }

int renameat(int from, const char *old, int at, const char *path) { return (int)rename_step(from, old, at, path, 0); }

int renameat2(int from, const char *old, int at, const char *path, unsigned flags) {
  return (int)rename_step(from, old, at, path, flags);
}

int statx(int at, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
  return (int)statx_step(at, path, flags, mask, found);
}

/* The mode is there only where a file may be made. */
#define OPENING(name, parameters, at)                        \
  int name(parameters const char *path, int flags, ...) {    \
    va_list rest;                                            \
    va_start(rest, flags);                                   \
    mode_t mode = may_make(flags) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                            \
    return (int)open_step(at, path, flags, mode);            \
  }
#define NOTHING
#define FOLDER int at,
OPENING(open, NOTHING, AT_FDCWD)
OPENING(open64, NOTHING, AT_FDCWD)
OPENING(openat, FOLDER, at)
OPENING(openat64, FOLDER, at)

DIR *opendir(const char *path) {
  int met = step_at(OPEN, AT_FDCWD, path);
  if (met > 0) {
    errno = met;
    return NULL;
  }
  DIR *directory = list(path);
  return after(met, 0) ? NULL : directory;
}

/* Refused, so that a program reads and writes what it copies. */
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned flags) {
  (void)in, (void)from, (void)out, (void)to, (void)count, (void)flags;
  errno = ENOSYS;
  return -1;
}

ssize_t sendfile64(int out, int in, off64_t *from, size_t count) { return copy_file_range(in, from, out, NULL, count, 0); }

/* What the program's own code asks of the system: these calls are handed over. */
#define HANDED_OVER(CALL)                                                                            \
  CALL(openat, open_step((int)a[0], (const char *)a[1], (int)a[2], (mode_t)a[3]))                    \
  CALL(renameat2, rename_step((int)a[0], (const char *)a[1], (int)a[2], (const char *)a[3], (unsigned)a[4])) \
  CALL(unlinkat, unlink_step((int)a[0], (const char *)a[1], (int)a[2]))                              \
  CALL(mkdirat, mkdir_step((int)a[0], (const char *)a[1], (mode_t)a[2]))                             \
  CALL(statx, statx_step((int)a[0], (const char *)a[1], (int)a[2], (unsigned)a[3], (struct statx *)a[4])) \
  CALL(newfstatat, stat_step((int)a[0], (const char *)a[1], (struct stat *)a[2], (int)a[3]))         \
  CALL(read, read_step((int)a[0], (void *)a[1], (size_t)a[2]))                                       \
  CALL(pread64, pread_step((int)a[0], (void *)a[1], (size_t)a[2], a[3]))                             \
  CALL(write, write_step((int)a[0], (const void *)a[1], (size_t)a[2]))                               \
  CALL(pwrite64, pwrite_step((int)a[0], (const void *)a[1], (size_t)a[2], a[3]))                     \
  CALL(writev, writev_step((int)a[0], (const struct iovec *)a[1], (int)a[2]))                        \
  CALL(ftruncate, cut_step((int)a[0], a[1]))                                                         \
  CALL(fsync, synced((int)a[0]))                                                                     \
  CALL(fdatasync, synced((int)a[0]))                                                                 \
  CALL(syncfs, all_synced())                                                                         \
  HANDED_OVER_BY_PATH(CALL)
/* Younger processors do without these. */
#ifdef SYS_open
#define HANDED_OVER_BY_PATH(CALL)                                                               \
  CALL(open, open_step(AT_FDCWD, (const char *)a[0], (int)a[1], (mode_t)a[2]))                  \
  CALL(rename, rename_step(AT_FDCWD, (const char *)a[0], AT_FDCWD, (const char *)a[1], 0))      \
  CALL(renameat, rename_step((int)a[0], (const char *)a[1], (int)a[2], (const char *)a[3], 0))  \
  CALL(unlink, unlink_step(AT_FDCWD, (const char *)a[0], 0))                                    \
  CALL(rmdir, unlink_step(AT_FDCWD, (const char *)a[0], AT_REMOVEDIR))                          \
  CALL(mkdir, mkdir_step(AT_FDCWD, (const char *)a[0], (mode_t)a[1]))
#else
#define HANDED_OVER_BY_PATH(CALL)
#endif

static long made(int number, const long *a) {
  switch (number) {
#define CASE(name, call) \
  case SYS_##name: return call;
    HANDED_OVER(CASE)
  }
  errno = ENOSYS;
  return -1;
}

static void handed_over(int signal, siginfo_t *info, void *context) {
  (void)signal;
  int before = errno;
  long a[6];
  for (int i = 0; i < 6; i++) a[i] = (long)ARGUMENT((ucontext_t *)context, i);
  long result = made(info->si_syscall, a);
  RESULT((ucontext_t *)context) = result < 0 ? -errno : result;
  errno = before;
}

/* Where the code of the program itself is: what comes first. */
static int find_code(struct dl_phdr_info *info, size_t size, void *range) {
  (void)size;
  uint64_t *ends = range;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
    uint64_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
    if (!ends[0] || from < ends[0]) ends[0] = from;
    if (to > ends[1]) ends[1] = to;
  }
  return 1;
}

__attribute__((constructor(103))) static void begin(void) {
  uint64_t code[2] = {0, 0};
  if (!folder) return;
  dl_iterate_phdr(find_code, code);
  uint32_t high = (uint32_t)(code[0] >> 32), low = (uint32_t)code[0], length = (uint32_t)(code[1] - code[0]);
  static const int numbers[] = {
#define NUMBER(name, call) SYS_##name,
      HANDED_OVER(NUMBER)};
  enum { KINDS = sizeof numbers / sizeof *numbers };
  struct sock_filter filter[10 + 2 * KINDS] = {
      /* The code may lie across the end of what has one high half. */
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high + 1, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
      BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, low),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, length, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
  };
  unsigned short count = 9;
  for (int i = 0; i < KINDS; i++) {
    filter[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)numbers[i], 0, 1);
    filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  }
  filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {count, filter};
  struct sigaction action = {.sa_sigaction = handed_over, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    die("seccomp");
}
