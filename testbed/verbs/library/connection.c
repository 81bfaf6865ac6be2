/* The socket to the host's agent: opening it, requests over it, and its end, whether by the agent's death or in a forked child. */
#include "mrcbed.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct emulated_device emulated_device = {
    .public = {
        .node_type = IBV_NODE_CA,
        .transport_type = IBV_TRANSPORT_IB,
        .name = "mrcbed0",
        .dev_name = "uverbs-mrcbed0",
        .dev_path = "/sys/class/infiniband_verbs/uverbs-mrcbed0", /* neither exists: programs that look find nothing */
        .ibdev_path = "/sys/class/infiniband/mrcbed0",
    },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the list of sessions, and what is known of the place */
static struct session *sessions;
static unsigned generation;
static bool known_inside;
static uint64_t known_guid;

/* --- fork: a child has the parent's objects, whose rings and socket are not its own --- */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }

static void blind(int descriptor, int nothing) {
    if (nothing < 0 || dup3(nothing, descriptor, O_CLOEXEC) < 0)
        close(descriptor);
}

/* The child lets go of the sockets, or the agent would not see the parent's end; the numbers stay taken, so that nothing else gets them. */
static void in_child(void) {
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    generation++;
    for (struct session *session = sessions; session; session = session->next) {
        blind(session->verbs.context.cmd_fd, nothing);
        blind(session->verbs.context.async_fd, nothing);
        for (struct channel *channel = session->channels; channel; channel = channel->next)
            blind(channel->public.fd, nothing);
    }
    sessions = NULL;
    if (nothing >= 0)
        close(nothing);
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, in_parent, in_child); }

bool forked(struct session *session) { return session->generation != generation; }

bool gone(struct session *session) { return forked(session) || atomic_load_explicit(&session->dead, memory_order_relaxed); }

/* The agent has died, or broke off: shut down, so that whoever waits at the events' socket wakes. */
void bury(struct session *session) {
    if (!atomic_exchange(&session->dead, true)) {
        shutdown(session->verbs.context.cmd_fd, SHUT_RDWR);
        shutdown(session->verbs.context.async_fd, SHUT_RD);
    }
}

/* Looks whether the agent has closed the socket: a system call. */
bool look_for_the_end(struct session *session) {
    if (gone(session))
        return true;
    struct pollfd socket = {.fd = session->verbs.context.cmd_fd};
    if (poll(&socket, 1, 0) > 0 && socket.revents & (POLLHUP | POLLERR | POLLNVAL))
        bury(session);
    return gone(session);
}

/* --- requests --- */

static bool say(int to, const struct request *request, int descriptor, int flags) {
    struct iovec data = {(void *)request, sizeof *request};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &descriptor, sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(to, &message, flags | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == sizeof *request || (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

/* Returns whether an answer came, with exactly the descriptors that were wanted if it is no error. */
static bool hear(int from, struct answer *answer, int *descriptors, unsigned wanted) {
    struct iovec data = {answer, sizeof *answer};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t came;
    do
        came = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    while (came < 0 && errno == EINTR);
    unsigned count = 0;
    struct cmsghdr *header = came > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        unsigned given = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (unsigned i = 0; i < given; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            if (count < wanted)
                descriptors[count++] = descriptor;
            else
                close(descriptor);
        }
    }
    if (came == sizeof *answer && (answer->error || count == wanted))
        return true;
    while (count)
        close(descriptors[--count]);
    return false;
}

/* Asks the agent. Returns its errno, 0 for none; EIO where it is gone, or the session is that of a forked child's parent. */
int ask(struct session *session, uint32_t op, const uint64_t *arguments, unsigned count, int descriptor, struct answer *answer,
        int *descriptors, unsigned descriptors_wanted) {
    if (gone(session))
        return EIO;
    struct request request = {.op = op};
    struct answer unread;
    if (!answer)
        answer = &unread;
    if (count)
        memcpy(request.arguments, arguments, count * sizeof *arguments);
    pthread_mutex_lock(&session->asking);
    int socket = session->verbs.context.cmd_fd;
    request.serial = ++session->serial;
    bool fine = say(socket, &request, descriptor, 0) && hear(socket, answer, descriptors, descriptors_wanted) &&
                answer->serial == request.serial;
    pthread_mutex_unlock(&session->asking);
    if (!fine)
        bury(session);
    return fine ? answer->error : EIO;
}

/* A request of one argument, whose answer holds nothing. */
int order(struct session *session, uint32_t op, uint64_t argument) { return ask(session, op, &argument, 1, -1, NULL, NULL, 0); }

/* Gives an object back. What the agent held went with it when it died, so that is no error: programs can clean up. */
int destroy(struct session *session, uint32_t op, uint64_t handle) {
    int error = forked(session) ? EIO : order(session, op, handle);
    return error == EIO && !forked(session) && gone(session) ? 0 : error;
}

void ring_doorbell(struct session *session) {
    struct request request = {.op = MRCBED_DOORBELL};
    if (!say(session->verbs.context.cmd_fd, &request, -1, MSG_DONTWAIT)) /* a full socket: the agent has something to wake for, anyway */
        bury(session);
}

/* --- rings --- */

static size_t ring_bytes(uint64_t entries) { return MRCBED_RINGS_AT + entries * MRCBED_SLOT; }

/* Maps a ring and closes its descriptor. NULL if it is not of that size. */
void *map_ring(int descriptor, uint64_t entries) {
    struct stat file;
    void *ring = MAP_FAILED;
    bool sound = entries && entries <= UINT32_MAX / 2 && !(entries & (entries - 1));
    if (sound && !fstat(descriptor, &file) && (uint64_t)file.st_size >= ring_bytes(entries))
        ring = mmap(NULL, ring_bytes(entries), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (ring == MAP_FAILED)
        return NULL;
    madvise(ring, ring_bytes(entries), MADV_DONTFORK);
    return ring;
}

void unmap_ring(void *ring, uint64_t entries) { munmap(ring, ring_bytes(entries)); }

/* --- sessions --- */

static int connect_agent(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, MRCBED_SOCKET, MRCBED_SOCKET_BYTES);
    int agent = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (agent >= 0 && connect(agent, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + MRCBED_SOCKET_BYTES)) {
        int error = errno;
        close(agent);
        errno = error;
        return -1;
    }
    return agent;
}

/* Says HELLO. Returns an errno, with a line on stderr for what the user can mend. */
static int greet(struct session *session, int *descriptors) {
    int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (memory < 0) {
        int error = errno;
        fprintf(stderr, "mrcbed: /proc/self/mem: %s: the agent reads and writes memory through it; mount /proc here\n", strerror(error));
        return error;
    }
    struct answer answer;
    int error = ask(session, MRCBED_HELLO, (uint64_t[]){MRCBED_VERSION, (uint64_t)getpid()}, 2, memory, &answer, descriptors, 2);
    close(memory);
    if (error) {
        fprintf(stderr, "mrcbed: the host's agent refused this program: %s: if mrcbed was updated, make verbs and start the cluster anew\n",
                strerror(error));
        return error;
    }
    memcpy(&session->limits, answer.results, sizeof session->limits);
    return 0;
}

static bool set_up(struct session *session) {
    int descriptors[2];
    int error = greet(session, descriptors);
    if (error) {
        errno = error;
        return false;
    }
    session->verbs.context.async_fd = descriptors[1];
    session->ring = map_ring(descriptors[0], session->limits.slots);
    if (session->ring)
        return true;
    close(descriptors[1]);
    errno = ENOMEM;
    return false;
}

/* Connects to the agent; NULL with errno where there is none. */
struct session *session_open(void) {
    int agent = connect_agent();
    if (agent < 0)
        return NULL;
    struct session *session = calloc(1, sizeof *session);
    if (!session) {
        close(agent);
        return NULL;
    }
    pthread_mutex_init(&session->asking, NULL);
    pthread_mutex_init(&session->ring_lock, NULL);
    pthread_mutex_init(&session->objects, NULL);
    pthread_mutex_init(&session->verbs.context.mutex, NULL);
    session->verbs.context.device = &emulated_device.public;
    session->verbs.context.cmd_fd = agent;
    session->verbs.context.num_comp_vectors = 1;
    fill_operations(&session->verbs);
    session->generation = generation;
    session->verbs.context.async_fd = -1;
    if (!set_up(session)) {
        int error = errno;
        close(agent);
        free(session);
        errno = error;
        return NULL;
    }
    pthread_mutex_lock(&lock);
    session->next = sessions;
    sessions = session;
    pthread_mutex_unlock(&lock);
    return session;
}

void session_close(struct session *session) {
    pthread_mutex_lock(&lock);
    for (struct session **at = &sessions; *at; at = &(*at)->next)
        if (*at == session) {
            *at = session->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    close(session->verbs.context.cmd_fd);
    close(session->verbs.context.async_fd);
    unmap_ring(session->ring, session->limits.slots);
    free(session);
}

/* Whether this process runs on an emulated host: its agent can be reached. Once true, so for ever. */
bool inside(uint64_t *guid) {
    pthread_mutex_lock(&lock);
    bool yes = known_inside;
    pthread_mutex_unlock(&lock);
    if (!yes) {
        int error = errno;
        struct session *session = session_open();
        errno = error;
        if (!session)
            return false;
        pthread_mutex_lock(&lock);
        known_guid = session->limits.guid;
        known_inside = true;
        pthread_mutex_unlock(&lock);
        session_close(session);
    }
    if (guid)
        *guid = known_guid;
    return true;
}
