/* Counts the steps of a program on its disk, and kills it before one of them, or lets that one fail: preloaded, before `disk.c` if that
 * is there too.
 *
 * RESYNC_STEPS_FOLDER is the folder that is watched. RESYNC_STEPS_LOG is a file that gets a line for each step: a letter, `!` where it
 * failed or was the last one, else a space, and the path. RESYNC_STEPS_AT is LETTERS:NUMBER:ERROR:LASTING: the step of this number among
 * those with these letters fails by this error; 0 stands for death. If LASTING is not 0, all later ones fail too.
 *
 * Letters: o open, c create, r read, w write, s sync, n rename, d delete, f make a folder.
 *
 * Programs make some system calls without the C library, by which a preloaded library cannot see them. So the kernel is asked to hand over
 * those that have to do with names (seccomp, SIGSYS). Programs that are started from such a program would not survive that: with
 * RESYNC_STEPS_PLAIN the kernel is not asked.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

static const char *folder, *letters = "";
static int log_fd = -1, error, lasting;
static unsigned long at, count;
/* Whether this thread is inside of a step already. */
static __thread int inside;

/* A system call that the kernel does not hand over to us: it is made at the one place that is left out. */
long steps_call(long number, long a, long b, long c, long d, long e, long f);
extern const char steps_called[];
#if defined(__x86_64__)
__asm__(".text\nsteps_call:\n mov %rdi,%rax\n mov %rsi,%rdi\n mov %rdx,%rsi\n mov %rcx,%rdx\n mov %r8,%r10\n mov %r9,%r8\n"
        " mov 8(%rsp),%r9\n syscall\nsteps_called:\n ret\n");
#define ARGUMENT(context, index) \
  ((context)->uc_mcontext.gregs[(const int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9}[index]])
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
__asm__(".text\nsteps_call:\n mov x8,x0\n mov x0,x1\n mov x1,x2\n mov x2,x3\n mov x3,x4\n mov x4,x5\n mov x5,x6\n svc #0\n"
        "steps_called:\n ret\n");
#define ARGUMENT(context, index) ((context)->uc_mcontext.regs[index])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#else
#error "write steps_call for this processor"
#endif

/* Notes a step; what it fails by, or 0. */
static int step(char letter, const char *path) {
  if (!folder || inside || strncmp(path, folder, strlen(folder))) return 0;
  int fails = 0;
  if (strchr(letters, letter)) {
    unsigned long number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    fails = number == at || (lasting && number > at);
  }
  char line[4200];
  int length = snprintf(line, sizeof line, "%c%c%s\n", letter, fails ? '!' : ' ', path);
  steps_call(SYS_write, log_fd, (long)line, length, 0, 0, 0);
  if (fails && !error) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  return fails ? error : 0;
}

/* The path of an open file. */
static const char *path_of(int fd, char *path, size_t size) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, path, size - 1);
  path[length < 0 ? 0 : length] = 0;
  return path;
}

static int step_at_fd(char letter, int fd) {
  char path[4096];
  if (!folder || inside) return 0;
  int before = errno, fails = step(letter, path_of(fd, path, sizeof path));
  errno = before;
  return fails;
}

/* A step at a name below an open folder, or the current one. */
static int step_at(char letter, int from, const char *name) {
  char path[8200];
  if (name[0] == '/') return step(letter, name);
  if (from == AT_FDCWD) {
    if (!getcwd(path, 4096)) return 0;
  } else {
    path_of(from, path, 4096);
  }
  size_t length = strlen(path);
  snprintf(path + length, sizeof path - length, "/%s", name);
  return step(letter, path);
}

#define NEXT(name) __typeof__(name) *next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define FAIL(fails) \
  if (fails) {      \
    errno = fails;  \
    return -1;      \
  }
#define AT_FD(letter, type, name, parameters, arguments) \
  type name parameters {                                 \
    NEXT(name);                                          \
    int fails = step_at_fd(letter, fd);                  \
    FAIL(fails)                                          \
    return next arguments;                               \
  }

AT_FD('w', ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size))
AT_FD('w', ssize_t, pwrite64, (int fd, const void *bytes, size_t size, off_t to), (fd, bytes, size, to))
AT_FD('w', ssize_t, writev, (int fd, const struct iovec *parts, int number), (fd, parts, number))
AT_FD('w', int, ftruncate64, (int fd, off_t size), (fd, size))
AT_FD('r', ssize_t, read, (int fd, void *bytes, size_t size), (fd, bytes, size))
AT_FD('r', ssize_t, pread64, (int fd, void *bytes, size_t size, off_t from), (fd, bytes, size, from))
AT_FD('s', int, fsync, (int fd), (fd))
AT_FD('s', int, fdatasync, (int fd), (fd))

/* Everything in the folder is durable. */
static int sync_one(const char *path, const struct stat *st, int type, struct FTW *state) {
  (void)st, (void)state;
  if (type != FTW_F && type != FTW_D) return 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  fsync(fd);
  close(fd);
  return 0;
}

/* `__O_TMPFILE` has the bit of folders too. */
static char opening(long flags) { return flags & O_CREAT || (flags & __O_TMPFILE) == __O_TMPFILE ? 'c' : 'o'; }

static long handed_over(int number, ucontext_t *context) {
  long a[6];
  for (int i = 0; i < 6; i++) a[i] = (long)ARGUMENT(context, i);
  int fails = 0;
  switch (number) {
#ifdef SYS_open
    case SYS_open: fails = step_at(opening(a[1]), AT_FDCWD, (const char *)a[0]); break;
    case SYS_rename: fails = step_at('n', AT_FDCWD, (const char *)a[1]); break;
    case SYS_unlink:
    case SYS_rmdir: fails = step_at('d', AT_FDCWD, (const char *)a[0]); break;
    case SYS_mkdir: fails = step_at('f', AT_FDCWD, (const char *)a[0]); break;
#endif
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2: fails = step_at('n', (int)a[2], (const char *)a[3]); break;
    case SYS_openat: fails = step_at(opening(a[2]), (int)a[0], (const char *)a[1]); break;
    case SYS_unlinkat: fails = step_at('d', (int)a[0], (const char *)a[1]); break;
    case SYS_mkdirat: fails = step_at('f', (int)a[0], (const char *)a[1]); break;
    case SYS_syncfs: fails = step('s', folder); break;
  }
  if (fails) return -fails;
  if (number == SYS_syncfs && !inside) {
    /* The true disk is never waited for: `disk.c` writes down what is durable. */
    inside++;
    nftw(folder, sync_one, 16, FTW_PHYS);
    inside--;
    return 0;
  }
  return steps_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void trapped(int signal, siginfo_t *info, void *context) {
  (void)signal;
  int before = errno;
  RESULT((ucontext_t *)context) = handed_over(info->si_syscall, context);
  errno = before;
}

static void die(const char *what) {
  fprintf(stderr, "the steps of the test broke: %s: %s\n", what, strerror(errno));
  _exit(99);
}

/* Asks the kernel to hand over what has to do with names. */
static void hand_over(void) {
  static const int numbers[] = {
#ifdef SYS_open
      SYS_open,  SYS_rename,    SYS_unlink, SYS_rmdir,    SYS_mkdir,
#endif
#ifdef SYS_renameat
      SYS_renameat,
#endif
      SYS_openat, SYS_renameat2, SYS_unlinkat, SYS_mkdirat, SYS_syncfs};
  enum { KINDS = sizeof numbers / sizeof *numbers };
  uint64_t ours = (uint64_t)(uintptr_t)steps_called;
  struct sock_filter filter[7 + 2 * KINDS] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)ours, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(ours >> 32), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
  };
  unsigned short length = 6;
  for (int i = 0; i < KINDS; i++) {
    filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)numbers[i], 0, 1);
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  }
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {length, filter};
  struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    die("seccomp");
}

__attribute__((constructor)) static void begin(void) {
  const char *under = getenv("RESYNC_STEPS_FOLDER"), *path = getenv("RESYNC_STEPS_LOG");
  char *wanted = getenv("RESYNC_STEPS_AT");
  if (!under || !path) return;
  log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (log_fd < 0) die(path);
  static char kinds[16];
  if (wanted && sscanf(wanted, "%15[a-z]:%lu:%d:%d", kinds, &at, &error, &lasting) != 4) die(wanted);
  letters = kinds;
  folder = under;
  if (!getenv("RESYNC_STEPS_PLAIN")) hand_over();
}
