/* A bare sender: the same frames over and over, without any protocol. The yardstick for the engine, and for a ring.
 *
 *   blaster SECONDS FRAME_BYTES FRAMES_FILE GAP_NS INTERFACE...
 *
 * FRAMES_FILE holds frames of equal size; frame k leaves by interface k mod (number of interfaces). A frame leaves every GAP_NS, and the
 * process sleeps in between; 0: as fast as one core can hand them to the kernel, in batches. Prints "sent refused nanoseconds".
 * In C because the question is what the fabric carries, not how fast an interpreter loops.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 16
#define MAX_PORTS 64

static long long now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc < 6 || argc - 5 > MAX_PORTS) {
		fprintf(stderr, "usage: blaster SECONDS FRAME_BYTES FRAMES_FILE GAP_NS INTERFACE...\n");
		return 2;
	}
	double seconds = atof(argv[1]);
	size_t size = strtoul(argv[2], NULL, 10);
	long long gap = atoll(argv[4]);
	int ports = argc - 5, batch = gap > 0 ? 1 : BATCH, sockets[MAX_PORTS];
	FILE *file = fopen(argv[3], "rb");
	if (!file || !size || seconds <= 0 || seconds > 60) {
		fprintf(stderr, "blaster: cannot read %s, or bad size or time (at most 60 s)\n", argv[3]);
		return 2;
	}
	fseek(file, 0, SEEK_END);
	size_t frames = (size_t)ftell(file) / size;
	rewind(file);
	char *data = malloc(frames * size + 1);
	if (!frames || !data || fread(data, size, frames, file) != frames) {
		fprintf(stderr, "blaster: no whole frame in %s\n", argv[3]);
		return 2;
	}
	fclose(file);
	for (int k = 0; k < ports; k++) {
		int buffer = 64 << 20;
		struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(argv[5 + k])};
		sockets[k] = socket(AF_PACKET, SOCK_RAW, 0);
		if (sockets[k] < 0 || bind(sockets[k], (struct sockaddr *)&at, sizeof at)) {
			fprintf(stderr, "blaster: %s: %s\n", argv[5 + k], strerror(errno));
			return 2;
		}
		setsockopt(sockets[k], SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
	}
	struct mmsghdr messages[BATCH];
	struct iovec parts[BATCH];
	size_t next = 0;
	prctl(PR_SET_TIMERSLACK, 1UL);
	long long sent = 0, refused = 0, begun = now_ns(), end = begun + (long long)(seconds * 1e9), due = begun;
	while (now_ns() < end) {
		for (int k = 0; k < ports; k++) {
			memset(messages, 0, sizeof messages);
			for (int j = 0; j < batch; j++) {
				/* Frames of port k are those whose number is k modulo the number of ports. */
				size_t at = (next + (size_t)j) * (size_t)ports + (size_t)k;
				parts[j] = (struct iovec){.iov_base = data + at % frames * size, .iov_len = size};
				messages[j].msg_hdr = (struct msghdr){.msg_iov = &parts[j], .msg_iovlen = 1};
			}
			if (gap > 0) {
				due += gap;
				struct timespec t = {due / 1000000000LL, due % 1000000000LL};
				clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
			}
			int done = sendmmsg(sockets[k], messages, batch, 0);
			if (done > 0)
				sent += done;
			if (done < batch)
				refused += batch - (done > 0 ? done : 0);
		}
		next += (size_t)batch;
	}
	printf("%lld %lld %lld\n", sent, refused, now_ns() - begun);
	return 0;
}
