/* Notes the random bytes of the system, under a program: preloaded, it passes on what the kernel gives, and appends the same
 * bytes to the file that RESYNC_RANDOMNESS_LOG names.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static void note(const void *bytes, size_t length) {
  const char *path = getenv("RESYNC_RANDOMNESS_LOG");
  int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0) return;
  ssize_t written = write(fd, bytes, length);
  (void)written;
  close(fd);
}

ssize_t getrandom(void *bytes, size_t length, unsigned int flags) {
  ssize_t given = syscall(SYS_getrandom, bytes, length, flags);
  if (given > 0) note(bytes, (size_t)given);
  return given;
}

int getentropy(void *bytes, size_t length) {
  return getrandom(bytes, length, 0) == (ssize_t)length ? 0 : -1;
}
