/* A bare sender: the same frames over and over, as fast as one core can hand them to the kernel. The yardstick for the engine.
 *
 *   blaster SECONDS FRAME_BYTES FRAMES_FILE INTERFACE...
 *
 * FRAMES_FILE holds frames of equal size; frame k leaves by interface k mod (number of interfaces). Prints "sent refused nanoseconds".
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
	if (argc < 5 || argc - 4 > MAX_PORTS) {
		fprintf(stderr, "usage: blaster SECONDS FRAME_BYTES FRAMES_FILE INTERFACE...\n");
		return 2;
	}
	double seconds = atof(argv[1]);
	size_t size = strtoul(argv[2], NULL, 10);
	int ports = argc - 4, sockets[MAX_PORTS];
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
		struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(argv[4 + k])};
		sockets[k] = socket(AF_PACKET, SOCK_RAW, 0);
		if (sockets[k] < 0 || bind(sockets[k], (struct sockaddr *)&at, sizeof at)) {
			fprintf(stderr, "blaster: %s: %s\n", argv[4 + k], strerror(errno));
			return 2;
		}
		setsockopt(sockets[k], SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
	}
	struct mmsghdr messages[BATCH];
	struct iovec parts[BATCH];
	size_t next = 0;
	long long sent = 0, refused = 0, begun = now_ns(), end = begun + (long long)(seconds * 1e9);
	while (now_ns() < end) {
		for (int k = 0; k < ports; k++) {
			memset(messages, 0, sizeof messages);
			for (int j = 0; j < BATCH; j++) {
				/* Frames of port k are those whose number is k modulo the number of ports. */
				size_t at = (next + (size_t)j) * (size_t)ports + (size_t)k;
				parts[j] = (struct iovec){.iov_base = data + at % frames * size, .iov_len = size};
				messages[j].msg_hdr = (struct msghdr){.msg_iov = &parts[j], .msg_iovlen = 1};
			}
			int done = sendmmsg(sockets[k], messages, BATCH, 0);
			if (done > 0)
				sent += done;
			if (done < BATCH)
				refused += BATCH - (done > 0 ? done : 0);
		}
		next += BATCH;
	}
	printf("%lld %lld %lld\n", sent, refused, now_ns() - begun);
	return 0;
}
