/* Threads on the disk of a test.
 *
 *   threads parts FILE   some write and sync each its part of the file; another writes much behind these, and one syncs all the time
 *   threads late FILE    one writes "one" and syncs it; the other writes "two" once standard input has a byte, and says so with a byte
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `mod.rs` says the same of those that sync what they write. */
enum { WRITERS = 6, ROUNDS = 64, SIZE = 512, LARGE = 4194304 };

static int file;
static atomic_int is_over;

/* A lock goes to whom it wants: who never rests may be the only one that gets it. */
static void let_others(void) { usleep(100); }

static void *write_part(void *argument) {
  intptr_t number = (intptr_t)argument;
  char *bytes = malloc(SIZE);
  if (!bytes) exit(1);
  memset(bytes, 'a' + (int)number, SIZE);
  for (int round = 0; round < ROUNDS; round++) {
    off_t at = ((off_t)number * ROUNDS + round) * SIZE;
    if (pwrite(file, bytes, SIZE, at) != SIZE || fsync(file)) exit(1);
  }
  free(bytes);
  return NULL;
}

/* While the system writes this, the other writers wait for it. */
static void *write_much(void *argument) {
  char *bytes = calloc(1, LARGE);
  if (!bytes) exit(1);
  while (!atomic_load(&is_over)) {
    if (pwrite(file, bytes, LARGE, (off_t)WRITERS * ROUNDS * SIZE) != LARGE) exit(1);
    let_others();
  }
  free(bytes);
  return argument;
}

static void *sync_again(void *argument) {
  while (!atomic_load(&is_over)) {
    if (fsync(file)) exit(1);
    let_others();
  }
  return argument;
}

static void write_parts(void) {
  pthread_t writers[WRITERS], others[2];
  if (pthread_create(&others[0], NULL, write_much, NULL) || pthread_create(&others[1], NULL, sync_again, NULL)) exit(1);
  for (intptr_t i = 0; i < WRITERS; i++)
    if (pthread_create(&writers[i], NULL, write_part, (void *)i)) exit(1);
  for (int i = 0; i < WRITERS; i++) pthread_join(writers[i], NULL);
  atomic_store(&is_over, 1);
  for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
}

static void *write_one(void *argument) {
  if (write(file, "one", 3) != 3 || fsync(file)) exit(1);
  return argument;
}

static void write_late(void) {
  pthread_t first;
  char byte;
  if (pthread_create(&first, NULL, write_one, NULL)) exit(1);
  if (read(STDIN_FILENO, &byte, 1) != 1 || write(file, "two", 3) != 3 || write(STDOUT_FILENO, &byte, 1) != 1) exit(1);
  pthread_join(first, NULL);
}

int main(int count, char **arguments) {
  if (count != 3 || (file = open(arguments[2], O_WRONLY)) < 0) return 1;
  if (!strcmp(arguments[1], "parts")) write_parts();
  else write_late();
  return 0;
}
