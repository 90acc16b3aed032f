/* Names for a program that asks the system: preloaded, it answers the lookups of RESYNC_NAME with RESYNC_NAME_ANSWERS: lists of
 * addresses with commas, one list for each lookup and the last for all further ones. Whoever connects to RESYNC_OUT_THERE, an
 * address that no test may contact, is led to RESYNC_STAND_IN, at the same port or at RESYNC_STAND_IN_PORT.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);
typedef int connection(int, const struct sockaddr *, socklen_t);

static unsigned asked;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  lookup *system = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
  const char *name = getenv("RESYNC_NAME"), *answers = getenv("RESYNC_NAME_ANSWERS");
  if (!node || !name || !answers || strcasecmp(node, name)) return system(node, service, hints, found);
  unsigned number = __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
  char *copy = strdup(answers), *rest = NULL, *more = NULL;
  char *answer = strtok_r(copy, " ", &rest);
  for (char *next; number && (next = strtok_r(NULL, " ", &rest)); number--) answer = next;
  int failed = answer ? 0 : EAI_NONAME;
  struct addrinfo **end = found;
  *found = NULL;
  for (char *one = strtok_r(answer, ",", &more); one && !failed; one = strtok_r(NULL, ",", &more)) {
    failed = system(one, service, hints, end);
    while (!failed && *end) end = &(*end)->ai_next;
  }
  free(copy);
  return failed;
}

int connect(int socket, const struct sockaddr *to, socklen_t length) {
  connection *system = (connection *)dlsym(RTLD_NEXT, "connect");
  const char *out_there = getenv("RESYNC_OUT_THERE"), *stand_in = getenv("RESYNC_STAND_IN");
  const char *port = getenv("RESYNC_STAND_IN_PORT");
  struct sockaddr_in other;
  struct in_addr from;
  if (out_there && stand_in && to->sa_family == AF_INET && inet_pton(AF_INET, out_there, &from) == 1) {
    memcpy(&other, to, sizeof other);
    if (other.sin_addr.s_addr == from.s_addr && inet_pton(AF_INET, stand_in, &other.sin_addr) == 1) {
      if (port) other.sin_port = htons((uint16_t)atoi(port));
      to = (const struct sockaddr *)&other;
    }
  }
  return system(socket, to, length);
}
