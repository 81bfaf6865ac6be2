// SPDX-License-Identifier: Apache-2.0
/* The emulated switches: SRv6 uN forwarding at tc ingress; marking, trimming, the finite egress queue and exact counters at tc egress.
 *
 * Loaded and pinned by testbed/dataplane/loader.py; the same two programs serve every port of a fabric, host ports too.
 * A port knows itself by its interface index: PORT_BASE + port number. A third program serves the trunk between machines that carry one
 * fabric together. Must never drop a packet without counting why,
 * never look at anything but the outer header on a switch (but for the inner source where a host's frames come in), and never route
 * around anything: tables are static.
 * Only features of Linux 6.1; no CO-RE: nothing here reads kernel structures.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#if !defined(PORTS) || !defined(SWITCHES) || !defined(ROUTES) || !defined(PATH_FAULTS) || \
	!defined(PORT_BASE) || !defined(HANDED_OVER) || !defined(LOCATOR_BLOCK) || \
	!defined(DSCP_CONTROL) || !defined(DSCP_TRIMMABLE) || !defined(DSCP_TRIMMABLE_RETX) || !defined(DSCP_TRIMMED) || \
	!defined(DSCP_RETX_HIGH) || !defined(INNER_HIGH) || !defined(DSCP_TRIMMED_LASTHOP) || !defined(DSCP_ROCE) || !defined(TRIM_BYTES) || !defined(MRC_UDP_PORT) || \
	!defined(PROBE_UDP_PORT) || !defined(DELAY_TUN) || !defined(TRUNK) || !defined(SWITCH_MAC) || !defined(HELD) || !defined(BACKGROUND_HIGH) || !defined(BACKGROUND_LOW)
#error "compile through testbed/dataplane/loader.py, which defines the fabric's sizes and the DSCP table"
#endif

enum { KIND_HOST = 1, KIND_SWITCH = 2, KIND_BRIDGE = 3, KIND_TAPPED = 4 }; /* the last two: ports of an Open vSwitch bridge */
enum { DATA = 0, HIGH = 1, CLASSES = 2 };
enum { MARKS = 1, TRIMS = 2, LAST_HOP = 4, LAST_HOP_MARKS = 8 }; /* port_config.flags; of a switch's port */
enum { LOSSLESS = 16, FROM_SWITCH = 32 }; /* under PFC; the second where a switch is at the cable's other end */
enum { DELAYED = 64 }; /* of a host's port: frames for its sockets wait in the agent (agents/kernel/delay.py) */
enum { SWITCH_WORKS = 0, SWITCH_DEAD = 1, SWITCH_SILENT = 2 };
enum { USIDS = 6 }; /* that fit an address behind the block */
enum { NOT_ECT = 0, CE = 3, NOT_IP = 0xff };

#define HTB_HIGH 0x10001 /* class 1:1 */
#define HTB_DATA 0x10002 /* class 1:2 */
#define HTB_NOTHING 0x10003 /* class 1:3, whose queue takes no frame */
#define OUTER (ETH_HLEN + sizeof(struct ipv6hdr))
#define INNER_UDP (OUTER + sizeof(struct ipv6hdr))
#define BTH (INNER_UDP + sizeof(struct udphdr))
#define BTH_UNSUMMED (BTH + 4) /* the one byte from the BTH on that the iCRC does not cover */

/* The layouts below are mirrored in testbed/dataplane/layout.py. */
struct port_config {
	__u32 kind;
	__u32 far;	  /* port number of the cable's other end */
	__u32 switch_number;
	__u32 usid;	  /* of the switch this port belongs to */
	__u32 limit[CLASSES]; /* bytes that may wait here, per class */
	__u32 ecn_low;	  /* bytes of data waiting at which marking begins */
	__u32 ecn_high;	  /* and from which on every packet is marked */
	__u32 ecn_pmax;	  /* chance of a mark just below ecn_high, in 2^-31 */
	__u32 trim_at;	  /* bytes of data waiting, the packet included, above which it is trimmed */
	__u32 flags;
	__u32 seed;	  /* of the ramp's draws */
	__u32 xoff;	  /* PFC: bytes that came in here and wait in the switch above which the other end is paused, */
	__u32 xon;	  /* up to which it goes on, */
	__u32 hold_limit; /* and beyond which nothing more is taken in */
	__u32 source;	  /* of a T0's port to a host: the last 16 bits of the host's inner addresses; 0: frames from anyone come in */
};

struct port_stats {
	__u64 admitted_bytes[CLASSES]; /* first: the compare-and-exchange word of the queue */
	__u64 admitted_packets[CLASSES];
	__u64 arrived_bytes[CLASSES];
	__u64 arrived_packets[CLASSES];
	__u64 drop_tail_packets[CLASSES];
	__u64 drop_tail_bytes[CLASSES];
	__u64 peak_bytes[CLASSES];
	__u64 drop_trim_failed; /* the kernel refused to cut a frame */
	__u64 drop_link_down;
	__u64 drop_no_route;
	__u64 drop_not_mine;
	__u64 drop_malformed; /* no sound IPv6 packet: see malformed() */
	__u64 drop_spoofed;   /* from a host, with another's inner source: see spoofed() */
	__u64 drop_hop_limit;
	__u64 drop_switch_down;
	__u64 drop_silent; /* by a switch that keeps its links up and forwards nothing */
	__u64 drop_fault_loss; /* injected: lost on the cable, counted where it would have arrived */
	__u64 drop_fault_path; /* injected: lost on one path, or towards one destination */
	__u64 corrupted;   /* injected: one byte changed, the frame goes on */
	__u64 marked;
	__u64 trimmed;
	__u64 met_bytes;   /* sum of what each data packet found waiting */
	__u64 met_packets; /* and how many packets that were; also the counter of the ramp's draws */
};

/* The part of a port's counters that is background traffic: frames whose inner source is one of its addresses. A map of its own, so that
 * whoever reads port_stats need not know of it. */
struct port_background {
	__u64 left;    /* of a host's port only: handed to it for sending */
	__u64 arrived; /* likewise: come over the cable, past every fault */
	__u64 drop_tail;
	__u64 drop_link_down;
	__u64 drop_no_route;
	__u64 drop_not_mine;
	__u64 drop_malformed;
	__u64 drop_spoofed;
	__u64 drop_hop_limit;
	__u64 drop_switch_down;
	__u64 drop_silent;
	__u64 drop_fault_loss;
	__u64 drop_fault_path;
	__u64 corrupted;
};

/* Injected faults of what arrives at a port; probabilities in 2^-32. Written by testbed/faults/packet_faults.py; the draws are counted
 * here, so that the same packets in the same order meet the same fate. */
enum { FAULT_LOSS = 1, FAULT_CORRUPT = 2, FAULT_PATH = 4 };

struct port_fault {
	__u64 flags;
	__u64 loss;
	__u64 loss_seed;
	__u64 loss_draws;
	__u64 corrupt;
	__u64 corrupt_seed;
	__u64 corrupt_draws;
};

/* Which frames at a switch's port: by the three uSIDs after the switch's own, in network order; zeros after the last. */
struct path_key {
	__u32 port;
	__be16 next[3];
	__u16 zero;
};

struct path_fault {
	__u64 loss;
	__u64 seed;
	__u64 draws;
};

/* What was lost in a queue when its link went down. Written by user space only (testbed/dataplane/counters.py). */
struct port_flushed {
	__u64 bytes[CLASSES];
	__u64 packets[CLASSES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_config);
} port_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_stats);
} port_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_flushed);
} port_flushed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_background);
} port_background SEC(".maps");

/* PFC. RoCE data that came in by a switch's port and waits in the switch: admitted to an egress queue, less seen at that cable's far end,
 * less lost there with the link. What frames came in by, their source MAC says: forward() writes that port's own. */
struct port_held {
	__u64 taken_bytes;
	__u64 released_bytes;
	__u64 over_ns;	/* when what waits last rose above XOFF, monotonic ns */
	__u64 under_ns; /* when it last fell to XON */
};

/* The same by egress port as well, for what is lost with a link: (ingress << 16 | egress). */
struct held {
	__u64 taken_bytes;
	__u64 released_bytes;
};

/* Written by user space only: what of a port's held bytes was lost with links (testbed/dataplane/counters.py), and whether the port's own
 * data class is paused (testbed/emulated/pauser.py). */
struct port_pause {
	__u64 lost_bytes;
	__u64 since_ns; /* 0: not paused */
	__u64 pauses;
	__u64 paused_ns;
	__u64 longest_ns;
	__u64 reaction_ns;
	__u64 longest_reaction_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_held);
} port_held SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_pause);
} port_pause SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HELD);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct held);
} held SEC(".maps");

/* Non-zero: the cable at this port is down, admit nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} port_gate SEC(".maps");

/* Non-zero: this switch forwards nothing: dead, or silent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SWITCHES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} switch_down SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_fault);
} port_fault SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PATH_FAULTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct path_key);
	__type(value, struct path_fault);
} path_fault SEC(".maps");

/* Static uN tables of all switches: (switch number << 16 | next uSID) -> egress interface index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ROUTES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} routes SEC(".maps");

/* --- several machines ----------------------------------------------------------------------------------------------- */

/* A T1 whose egress port lies on another machine (topologies/parts.py) hands the frame to the trunk, which carries it to that port: the
 * tunnel id is (inner ECN << 16 | port number). Everything a port does stays where the port is. */
enum { TRUNK_ECN_SHIFT = 16, TRUNK_PORT_MASK = 0xffff };

/* By egress port: the IPv4 address of the machine that has it, in host order; 0: it is here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, __u32);
} trunk_to SEC(".maps");

/* Addresses, in host order, whose frames are taken from the trunk. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} trunk_peers SEC(".maps");

/* By egress port, on the machine where it was counted. What was sent on all machines and not received where the port is, is lost. */
struct trunk_stats {
	__u64 sent_packets;
	__u64 sent_bytes;
	__u64 received_packets;
	__u64 received_bytes;
	__u64 merged; /* received as one frame that the wire had carried as several: GRO is on */
	__u64 remarked; /* the network beneath had marked it: undone */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct trunk_stats);
} trunk_stats SEC(".maps");

/* Frames at the trunk that are no peer's, or for no port of this machine. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} trunk_strays SEC(".maps");

#define COUNT(field) __sync_fetch_and_add(&(field), 1)
#define COUNT_BYTES(field, n) __sync_fetch_and_add(&(field), (n))
/* What befell a frame, and whose it was. Packet pointers are no longer good after it. */
#define ACCOUNT(skb, number, stats, cause) \
	do { \
		COUNT((stats)->cause); \
		if (is_background(skb)) \
			COUNT_BACKGROUND(number, cause); \
	} while (0)
#define COUNT_BACKGROUND(number, cause) \
	do { \
		__u32 at_port = (number); \
		struct port_background *part = bpf_map_lookup_elem(&port_background, &at_port); \
\
		if (part) \
			COUNT(part->cause); \
	} while (0)

/* Frames over a page carry their tail in fragments, and taps share headers: make `bytes` of them linear and ours. */
static __always_inline int reach(struct __sk_buff *skb, __u32 bytes)
{
	if (skb->len < bytes)
		return -1;
	if ((void *)(long)skb->data + bytes > (void *)(long)skb->data_end && bpf_skb_pull_data(skb, bytes))
		return -1;
	return 0;
}

static __always_inline struct ipv6hdr *outer_header(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;

	if (data + OUTER > (void *)(long)skb->data_end)
		return NULL;
	return data + ETH_HLEN;
}

/* Traffic class = DSCP(6) | ECN(2), astride the first two bytes of the header. */
static __always_inline __u32 dscp_of(struct ipv6hdr *ip)
{
	return bpf_ntohs(*(__be16 *)ip) >> 6 & 0x3f;
}

static __always_inline __u32 ecn_of(struct ipv6hdr *ip)
{
	return bpf_ntohs(*(__be16 *)ip) >> 4 & 3;
}

/* DSCP and ECN of the outer header; NOT_IP and NOT_ECT for a frame that has none. */
static __always_inline void look(struct __sk_buff *skb, __u32 *dscp, __u32 *ecn)
{
	struct ipv6hdr *ip;

	*dscp = NOT_IP;
	*ecn = NOT_ECT;
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || reach(skb, OUTER))
		return;
	ip = outer_header(skb);
	if (!ip)
		return;
	*dscp = dscp_of(ip);
	*ecn = ecn_of(ip);
}

static __always_inline __u32 class_of(__u32 dscp)
{
	return dscp == DSCP_CONTROL || dscp == DSCP_TRIMMED || dscp == DSCP_TRIMMED_LASTHOP || dscp == DSCP_RETX_HIGH ? HIGH : DATA;
}

/* MRC, or a probe of Clustermapper's, which agents read and which carries a checksum of its own. */
static __always_inline int is_mrc(struct __sk_buff *skb)
{
	struct ipv6hdr *outer, *inner;
	struct udphdr *udp;
	void *data;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || reach(skb, INNER_UDP + sizeof(*udp)))
		return 0;
	data = (void *)(long)skb->data;
	if (data + INNER_UDP + sizeof(*udp) > (void *)(long)skb->data_end)
		return 0;
	outer = data + ETH_HLEN;
	inner = data + OUTER;
	udp = data + INNER_UDP;
	return outer->nexthdr == IPPROTO_IPV6 && inner->nexthdr == IPPROTO_UDP &&
	       (udp->dest == bpf_htons(MRC_UDP_PORT) || udp->dest == bpf_htons(PROBE_UDP_PORT));
}

/* Background traffic (testbed/emulated/background.py): an IPv6 packet in IPv6 from one of its addresses. */
static __always_inline int is_background(struct __sk_buff *skb)
{
	struct ipv6hdr *outer, *inner;
	void *data;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || reach(skb, INNER_UDP))
		return 0;
	data = (void *)(long)skb->data;
	if (data + INNER_UDP > (void *)(long)skb->data_end)
		return 0;
	outer = data + ETH_HLEN;
	inner = data + OUTER;
	return outer->nexthdr == IPPROTO_IPV6 && inner->saddr.in6_u.u6_addr32[0] == bpf_htonl(BACKGROUND_HIGH) &&
	       inner->saddr.in6_u.u6_addr16[2] == bpf_htons(BACKGROUND_LOW);
}

/* Draw number `count` of a port, 32 bits: SplitMix64's finaliser over seed, port and count, so that a run can be repeated. */
static __always_inline __u64 draw(__u32 seed, __u32 number, __u64 count)
{
	__u64 z = (((__u64)seed << 32) | number) * 0x9e3779b97f4a7c15ULL + count * 0xd1342543de82ef95ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (z ^ (z >> 31)) >> 32;
}

/* Change one byte, so that a switch still forwards the frame and the receiver's checksum catches it: in what trimming would cut off, or in
 * a shorter frame after the headers that name its receiver. 0: changed. A trimmed frame has no checksum left, and is spared. */
static __always_inline int corrupt(struct __sk_buff *skb, __u32 dscp, __u32 random)
{
	__u32 length = skb->len, first = TRIM_BYTES, at;
	int summed = 1;
	__u8 byte;

	if (dscp == DSCP_TRIMMED || dscp == DSCP_TRIMMED_LASTHOP)
		return -1;
	if (length <= TRIM_BYTES) {
		summed = !is_mrc(skb);
		first = summed ? INNER_UDP : BTH;
	}
	if (length < first + 2)
		return -1;
	at = first + (random >> 8) % (length - first - !summed);
	if (!summed && at >= BTH_UNSUMMED)
		at++;
	if (bpf_skb_load_bytes(skb, at, &byte, 1))
		return -1;
	byte ^= 1 + (random & 0xff) % 0xff;
	return bpf_skb_store_bytes(skb, at, &byte, 1, 0);
}

static __always_inline int lost_on_path(struct __sk_buff *skb, __u32 number, struct port_config *port)
{
	struct path_key key = { .port = number };
	struct path_fault *fault;
	struct ipv6hdr *ip;
	__be16 *word;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || reach(skb, OUTER))
		return 0;
	ip = outer_header(skb);
	if (!ip)
		return 0;
	word = (__be16 *)&ip->daddr;
	if (word[0] != bpf_htons(LOCATOR_BLOCK >> 16) || word[1] != bpf_htons(LOCATOR_BLOCK & 0xffff) || bpf_ntohs(word[2]) != port->usid)
		return 0;
	key.next[0] = word[3];
	key.next[1] = word[4];
	key.next[2] = word[5];
	fault = bpf_map_lookup_elem(&path_fault, &key);
	return fault && draw(fault->seed, number, __sync_fetch_and_add(&fault->draws, 1)) < fault->loss;
}

/* What injected faults do to a frame that has come over the cable: non-zero if it is gone. */
static __always_inline int faulted(struct __sk_buff *skb, __u32 number, struct port_config *port, struct port_stats *stats, __u32 dscp)
{
	struct port_fault *fault = bpf_map_lookup_elem(&port_fault, &number);
	__u64 flags, count;

	if (!fault)
		return 0;
	flags = *(volatile __u64 *)&fault->flags;
	if (!flags)
		return 0;
	if ((flags & FAULT_LOSS) && draw(fault->loss_seed, number, __sync_fetch_and_add(&fault->loss_draws, 1)) < fault->loss) {
		ACCOUNT(skb, number, stats, drop_fault_loss);
		return 1;
	}
	if ((flags & FAULT_PATH) && lost_on_path(skb, number, port)) {
		ACCOUNT(skb, number, stats, drop_fault_path);
		return 1;
	}
	if (flags & FAULT_CORRUPT) {
		count = __sync_fetch_and_add(&fault->corrupt_draws, 1);
		if (draw(fault->corrupt_seed, number, count) < fault->corrupt && !corrupt(skb, dscp, draw(fault->corrupt_seed, number, ~count)))
			ACCOUNT(skb, number, stats, corrupted);
	}
	return 0;
}

/* Whether a switch forwards nothing: dead, or silent. Counts the packet if so. */
static __always_inline int is_down(struct __sk_buff *skb, __u32 at, struct port_config *port, struct port_stats *stats)
{
	__u32 number = port->switch_number;
	__u64 *down = bpf_map_lookup_elem(&switch_down, &number);

	if (down && !*down)
		return 0;
	if (down && *down == SWITCH_SILENT)
		ACCOUNT(skb, at, stats, drop_silent);
	else
		ACCOUNT(skb, at, stats, drop_switch_down);
	return 1;
}

/* What a router drops whoever it is for, as the kernel's ipv6_rcv and ip6_forward do: a version other than 6, fewer bytes than the header
 * says, a source that is multicast, link-local, unspecified or loopback. Bytes after the packet's end are padding, and pass. */
static __always_inline int malformed(struct __sk_buff *skb)
{
	struct ipv6hdr *ip;
	__be32 *from;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || reach(skb, OUTER))
		return 0; /* no IPv6 header: names no switch */
	ip = outer_header(skb);
	if (!ip)
		return 0;
	from = ip->saddr.in6_u.u6_addr32;
	return *(__u8 *)ip >> 4 != 6 || skb->len < OUTER + bpf_ntohs(ip->payload_len) || ip->saddr.in6_u.u6_addr8[0] == 0xff ||
	       (from[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000) || (!(from[0] | from[1] | from[2]) && bpf_ntohl(from[3]) <= 1);
}

/* Whether a frame that a host sends has the inner source of another: its receiver knows its peers by that. A host has the addresses
 * fd6d:7263::<any>:<number + 1>, and those of background traffic are no host's own. An inner header behind an extension header, which the
 * kernel's decapsulation would find and an agent does not read, counts as another's. What carries no inner header names nobody. */
static __always_inline int spoofed(struct __sk_buff *skb, __u32 source)
{
	struct ipv6hdr *outer, *inner;
	__be32 *from;
	void *data;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || reach(skb, OUTER))
		return 0;
	outer = outer_header(skb);
	if (!outer)
		return 0;
	if (outer->nexthdr != IPPROTO_IPV6)
		return outer->nexthdr == IPPROTO_HOPOPTS || outer->nexthdr == IPPROTO_ROUTING || outer->nexthdr == IPPROTO_FRAGMENT ||
		       outer->nexthdr == IPPROTO_AH || outer->nexthdr == IPPROTO_DSTOPTS;
	if (reach(skb, INNER_UDP))
		return 0; /* only part of an inner header: nobody takes it */
	data = (void *)(long)skb->data;
	if (data + INNER_UDP > (void *)(long)skb->data_end)
		return 0;
	inner = data + OUTER;
	from = inner->saddr.in6_u.u6_addr32;
	if (from[0] == bpf_htonl(BACKGROUND_HIGH) && inner->saddr.in6_u.u6_addr16[2] == bpf_htons(BACKGROUND_LOW))
		return 0;
	return from[0] != bpf_htonl(INNER_HIGH) || from[1] || from[2] || inner->saddr.in6_u.u6_addr16[7] != bpf_htons(source);
}

/* A port of an Open vSwitch bridge: OVS forwards. The kernel's datapath comes after this program, the packet sockets of the one in user
 * space before it: so they take only marked frames, and the frame comes in a second time with the mark. */
static __always_inline int hand_over(struct __sk_buff *skb, struct port_config *port)
{
	if (port->kind == KIND_BRIDGE)
		return TC_ACT_OK;
	skb->mark = HANDED_OVER;
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/* --- PFC ------------------------------------------------------------------------------------------------------------ */

/* The port by which a frame of the lossless class came into the switch that it is in, or was in last; -1 if it says none. */
static __always_inline int came_in_by(struct __sk_buff *skb)
{
	__u8 mac[ETH_ALEN];

	if (bpf_skb_load_bytes(skb, ETH_ALEN, mac, sizeof(mac)))
		return -1;
	if ((mac[0] << 24 | mac[1] << 16 | mac[2] << 8 | mac[3]) != (int)SWITCH_MAC)
		return -1;
	return mac[4] << 8 | mac[5];
}

/* Bytes that wait in the switch, of what has been taken and released. */
static __always_inline __s64 holds(__u32 ingress, __u64 taken, __u64 released)
{
	struct port_pause *user = bpf_map_lookup_elem(&port_pause, &ingress);

	return taken - released - (user ? *(volatile __u64 *)&user->lost_bytes : 0);
}

/* Whether there is room for a frame that came in at this port. If so the frame says from now on where it came in. */
static __always_inline int hold(struct __sk_buff *skb, __u32 ingress, struct port_config *port, struct ipv6hdr *ip)
{
	struct port_held *room = bpf_map_lookup_elem(&port_held, &ingress);
	__u8 *source = (__u8 *)ip - ETH_HLEN + ETH_ALEN;

	if (!room || holds(ingress, *(volatile __u64 *)&room->taken_bytes, *(volatile __u64 *)&room->released_bytes) + skb->len > port->hold_limit)
		return 0;
	source[0] = SWITCH_MAC >> 24;
	source[1] = SWITCH_MAC >> 16 & 0xff;
	source[2] = SWITCH_MAC >> 8 & 0xff;
	source[3] = SWITCH_MAC & 0xff;
	source[4] = ingress >> 8 & 0xff;
	source[5] = ingress & 0xff;
	return 1;
}

/* An egress queue has admitted a frame. */
static __always_inline void take_in(struct __sk_buff *skb, __u32 egress, __u32 length)
{
	int from = came_in_by(skb);
	__u32 ingress = from, key = ingress << 16 | egress;
	struct port_config *port;
	struct port_held *room;
	struct held none = {}, *pair;
	__s64 before;

	if (from < 0)
		return;
	port = bpf_map_lookup_elem(&port_config, &ingress);
	room = bpf_map_lookup_elem(&port_held, &ingress);
	pair = bpf_map_lookup_elem(&held, &key);
	if (!pair) {
		bpf_map_update_elem(&held, &key, &none, BPF_NOEXIST);
		pair = bpf_map_lookup_elem(&held, &key);
	}
	if (!port || !room || !pair)
		return;
	COUNT_BYTES(pair->taken_bytes, length);
	before = __sync_fetch_and_add(&room->taken_bytes, length);
	before = holds(ingress, before, *(volatile __u64 *)&room->released_bytes);
	if (before <= port->xoff && before + length > port->xoff)
		*(volatile __u64 *)&room->over_ns = bpf_ktime_get_ns();
}

/* A frame has left the switch: it has come over the cable from the port `egress`. */
static __always_inline void let_go(struct __sk_buff *skb, __u32 egress, __u32 length)
{
	int from = came_in_by(skb);
	__u32 ingress = from, key = ingress << 16 | egress;
	struct port_config *port;
	struct port_held *room;
	struct held *pair;
	__s64 before;

	if (from < 0)
		return;
	port = bpf_map_lookup_elem(&port_config, &ingress);
	room = bpf_map_lookup_elem(&port_held, &ingress);
	pair = bpf_map_lookup_elem(&held, &key);
	if (!port || !room || !pair)
		return;
	COUNT_BYTES(pair->released_bytes, length);
	before = __sync_fetch_and_add(&room->released_bytes, length);
	before = holds(ingress, *(volatile __u64 *)&room->taken_bytes, before);
	if (before > port->xon && before - length <= port->xon)
		*(volatile __u64 *)&room->under_ns = bpf_ktime_get_ns();
}

/* Counted before anything can fail: what does not arrive is lost on the trunk, whatever the reason. */
static __always_inline int send_by_trunk(struct __sk_buff *skb, __u32 egress, __u32 remote, __u32 ecn)
{
	struct bpf_tunnel_key key = { .tunnel_id = ecn << TRUNK_ECN_SHIFT | egress, .remote_ipv4 = remote, .tunnel_ttl = 64 };
	struct trunk_stats *stats = bpf_map_lookup_elem(&trunk_stats, &egress);

	if (!stats)
		return TC_ACT_SHOT;
	COUNT(stats->sent_packets);
	COUNT_BYTES(stats->sent_bytes, skb->len);
	if (bpf_skb_set_tunnel_key(skb, &key, sizeof(key), BPF_F_ZERO_CSUM_TX | BPF_F_DONT_FRAGMENT))
		return TC_ACT_SHOT;
	return bpf_redirect(TRUNK, 0);
}

/* uN (RFC 9800 section 4.1, End with NEXT-C-SID): match own block and uSID, shift, static lookup, redirect. What the shift addresses to
 * this switch again is processed again, each time for one of the hop limit. */
static __always_inline int forward(struct __sk_buff *skb, __u32 at, struct port_config *port, struct port_stats *stats)
{
	__u32 number = port->switch_number, key, *egress, *remote, out;
	struct ipv6hdr *ip;
	__be16 *word;
	int turn;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || skb->len < OUTER || bpf_skb_pull_data(skb, OUTER))
		goto not_mine;
	ip = outer_header(skb);
	if (!ip)
		goto not_mine;
	word = (__be16 *)&ip->daddr;
	if (word[0] != bpf_htons(LOCATOR_BLOCK >> 16) || word[1] != bpf_htons(LOCATOR_BLOCK & 0xffff) || bpf_ntohs(word[2]) != port->usid)
		goto not_mine;
	for (turn = 0; turn < USIDS && bpf_ntohs(word[2]) == port->usid; turn++) {
		if (ip->hop_limit <= 1) {
			ACCOUNT(skb, at, stats, drop_hop_limit);
			return TC_ACT_SHOT;
		}
		ip->hop_limit--;
		word[2] = word[3];
		word[3] = word[4];
		word[4] = word[5];
		word[5] = word[6];
		word[6] = word[7];
		word[7] = 0;
	}
	key = number << 16 | bpf_ntohs(word[2]);
	egress = bpf_map_lookup_elem(&routes, &key);
	if (!egress) {
		ACCOUNT(skb, at, stats, drop_no_route);
		return TC_ACT_SHOT;
	}
	if ((port->flags & LOSSLESS) && dscp_of(ip) == DSCP_ROCE && !hold(skb, at, port, ip)) {
		COUNT(stats->drop_tail_packets[DATA]);
		COUNT_BYTES(stats->drop_tail_bytes[DATA], skb->len);
		return TC_ACT_SHOT;
	}
	out = *egress - PORT_BASE;
	remote = bpf_map_lookup_elem(&trunk_to, &out);
	if (remote && *remote)
		return send_by_trunk(skb, out, *remote, ecn_of(ip));
	/* A frame of the kernel's own sockets is charged to its socket for as long as it exists, and TCP takes what is charged for "still in
	 * my host's queue" (small queues): two segments of a connection in the whole fabric, and no queue anywhere. So the first switch sends
	 * a copy that is nobody's and ends the original, as a NIC does that has sent it. Agents' frames stay: their buffers hold a fabric. */
	if (skb->sk && !is_mrc(skb)) {
		bpf_clone_redirect(skb, *egress, 0);
		return TC_ACT_STOLEN;
	}
	return bpf_redirect(*egress, 0);
not_mine:
	ACCOUNT(skb, at, stats, drop_not_mine);
	return TC_ACT_SHOT;
}

SEC("tc")
int fabric_ingress(struct __sk_buff *skb)
{
	__u32 number = skb->ifindex - PORT_BASE, length = skb->len, dscp, ecn;
	struct port_config *port = bpf_map_lookup_elem(&port_config, &number);
	struct port_stats *stats = bpf_map_lookup_elem(&port_stats, &number);

	if (!port || !stats)
		return TC_ACT_SHOT; /* no port of the fabric: the loader attaches to none */
	if (port->kind == KIND_TAPPED && skb->mark == HANDED_OVER)
		return TC_ACT_STOLEN; /* the second time: Open vSwitch has its copy */
	look(skb, &dscp, &ecn);
	if (class_of(dscp) == HIGH) {
		COUNT(stats->arrived_packets[HIGH]);
		COUNT_BYTES(stats->arrived_bytes[HIGH], length);
	} else {
		COUNT(stats->arrived_packets[DATA]);
		COUNT_BYTES(stats->arrived_bytes[DATA], length);
	}
	if ((port->flags & FROM_SWITCH) && dscp == DSCP_ROCE)
		let_go(skb, port->far, length);
	if (faulted(skb, number, port, stats, dscp))
		return TC_ACT_SHOT;
	if (port->kind != KIND_HOST) {
		if (is_down(skb, number, port, stats))
			return TC_ACT_SHOT;
		if (malformed(skb)) {
			ACCOUNT(skb, number, stats, drop_malformed);
			return TC_ACT_SHOT;
		}
		if (port->source && spoofed(skb, port->source)) {
			ACCOUNT(skb, number, stats, drop_spoofed);
			return TC_ACT_SHOT;
		}
		return port->kind == KIND_SWITCH ? forward(skb, number, port, stats) : hand_over(skb, port);
	}
	if (is_background(skb)) {
		COUNT_BACKGROUND(number, arrived);
		return TC_ACT_OK;
	}
	/* The kernel's own stack must not answer MRC: packet sockets take frames for others, the stack does not. */
	if (is_mrc(skb))
		bpf_skb_change_type(skb, PACKET_OTHERHOST);
	else if (port->flags & DELAYED)
		return bpf_redirect(DELAY_TUN, 0);
	return TC_ACT_OK;
}

/* What comes from another machine goes to the egress port that its T1 chose there. The outer header's ECN followed the inner one's; where
 * the network beneath marked it, the kernel marked the inner one too, and the emulated network would have a mark that no switch of it made. */
SEC("tc")
int fabric_trunk(struct __sk_buff *skb)
{
	struct bpf_tunnel_key key = {};
	struct trunk_stats *stats;
	struct port_config *port;
	struct ipv6hdr *ip;
	__u32 number, zero = 0, *elsewhere;
	__u64 *strays;

	if (bpf_skb_get_tunnel_key(skb, &key, sizeof(key), 0))
		goto stray;
	number = key.tunnel_id & TRUNK_PORT_MASK;
	port = bpf_map_lookup_elem(&port_config, &number);
	stats = bpf_map_lookup_elem(&trunk_stats, &number);
	elsewhere = bpf_map_lookup_elem(&trunk_to, &number);
	if (!port || !stats || !elsewhere || *elsewhere || port->kind != KIND_SWITCH || !bpf_map_lookup_elem(&trunk_peers, &key.remote_ipv4))
		goto stray;
	COUNT(stats->received_packets);
	COUNT_BYTES(stats->received_bytes, skb->len);
	if (skb->gso_segs > 1)
		COUNT(stats->merged);
	if ((key.tunnel_tos & CE) == CE && !reach(skb, OUTER) && (ip = outer_header(skb))) {
		*(__be16 *)ip = bpf_htons((bpf_ntohs(*(__be16 *)ip) & ~(CE << 4)) | (key.tunnel_id >> TRUNK_ECN_SHIFT & CE) << 4);
		COUNT(stats->remarked);
	}
	return bpf_redirect(PORT_BASE + number, 0);
stray:
	strays = bpf_map_lookup_elem(&trunk_strays, &zero);
	if (strays)
		COUNT(*strays);
	return TC_ACT_SHOT;
}

/* The backlog is counted, not modelled: bytes admitted here minus bytes seen at the cable's far end minus bytes flushed by a link
 * that went down. */
static __always_inline __u64 waiting_bytes(__u64 admitted, __u64 *arrived, __u64 *flushed)
{
	__u64 waiting = admitted - *(volatile __u64 *)arrived - *(volatile __u64 *)flushed;

	return (__s64)waiting < 0 ? 0 : waiting; /* below: a frame was late on its way when the link went down */
}

/* Take room for `length` bytes, or say that there is none. */
static __always_inline int admit(__u64 *admitted, __u64 *arrived, __u64 *flushed, __u32 limit, __u32 length, __u64 *backlog)
{
	__u64 before;
	int attempt;

#pragma unroll
	for (attempt = 0; attempt < 8; attempt++) {
		before = *(volatile __u64 *)admitted;
		*backlog = waiting_bytes(before, arrived, flushed) + length;
		if (*backlog > limit)
			return -1;
		if (__sync_val_compare_and_swap(admitted, before, before + length) == before)
			return 0;
	}
	/* Eight times another core was first: there is room, at worst a few frames over the limit. */
	__sync_fetch_and_add(admitted, length);
	return 0;
}

static __always_inline void note_peak(__u64 *peak, __u64 backlog)
{
	int attempt;

#pragma unroll
	for (attempt = 0; attempt < 4; attempt++) {
		__u64 seen = *(volatile __u64 *)peak;

		if (backlog <= seen || __sync_val_compare_and_swap(peak, seen, backlog) == seen)
			return;
	}
}

/* Whether a packet that finds `waiting` bytes is to be marked: never up to ecn_low, always from ecn_high on, between them ever likelier,
 * up to ecn_pmax. */
static __always_inline int to_mark(struct port_config *port, __u32 dscp, __u32 ecn, __u64 waiting, __u32 number, __u64 count)
{
	if (!(port->flags & MARKS) || ecn == NOT_ECT || ecn == CE)
		return 0;
	if ((port->flags & LAST_HOP) && !(port->flags & LAST_HOP_MARKS) && dscp != DSCP_ROCE)
		return 0;
	if (waiting <= port->ecn_low)
		return 0;
	if (waiting >= port->ecn_high)
		return 1;
	return draw(port->seed, number, count) * (port->ecn_high - port->ecn_low) < (waiting - port->ecn_low) * ((__u64)port->ecn_pmax << 1);
}

/* Cut a frame to its headers and say so in the outer one: DSCP and payload length. ECN stays, inner lengths stay. */
static __always_inline int trim(struct __sk_buff *skb, __u32 dscp)
{
	struct ipv6hdr *ip;
	__u32 left;

	if (skb->len > TRIM_BYTES && bpf_skb_change_tail(skb, TRIM_BYTES, 0))
		return -1;
	if (bpf_skb_pull_data(skb, OUTER))
		return -1;
	ip = outer_header(skb);
	if (!ip)
		return -1;
	left = skb->len - OUTER;
	if (bpf_ntohs(ip->payload_len) > left)
		ip->payload_len = bpf_htons(left);
	*(__be16 *)ip = bpf_htons((bpf_ntohs(*(__be16 *)ip) & ~(0x3f << 6)) | dscp << 6);
	return 0;
}

static __always_inline int mark(struct __sk_buff *skb)
{
	struct ipv6hdr *ip;

	if (bpf_skb_pull_data(skb, OUTER))
		return -1;
	ip = outer_header(skb);
	if (!ip)
		return -1;
	*(__be16 *)ip |= bpf_htons(CE << 4);
	return 0;
}

SEC("tc")
int fabric_egress(struct __sk_buff *skb)
{
	__u32 number = skb->ifindex - PORT_BASE, length = skb->len, far, class, dscp, ecn;
	struct port_config *port = bpf_map_lookup_elem(&port_config, &number);
	struct port_stats *stats = bpf_map_lookup_elem(&port_stats, &number);
	struct port_flushed *flushed = bpf_map_lookup_elem(&port_flushed, &number);
	struct port_stats *far_stats;
	__u64 *gate = bpf_map_lookup_elem(&port_gate, &number), backlog, waiting, count;
	int trimmed = 0, marked = 0, lossless, refuse;

	if (!port || !stats || !flushed || !gate)
		return TC_ACT_SHOT;
	if ((port->flags & LOSSLESS) && skb->protocol == bpf_htons(ETH_P_PAUSE)) {
		skb->priority = HTB_NOTHING; /* from the pauser: so the kernel looks at a queue again that may go on */
		return TC_ACT_OK;
	}
	far = port->far;
	far_stats = bpf_map_lookup_elem(&port_stats, &far);
	if (!far_stats)
		return TC_ACT_SHOT;

	/* A refused packet is told to its sender. OVS would take that for a busy socket and drop the rest of its batch. */
	refuse = port->kind == KIND_TAPPED ? TC_ACT_STOLEN : TC_ACT_SHOT;

	if (port->kind == KIND_HOST && is_background(skb))
		COUNT_BACKGROUND(number, left);

	/* Step 1: the cable. */
	if (*gate) {
		ACCOUNT(skb, number, stats, drop_link_down);
		return refuse;
	}

	/* Step 2: the class. Control and trimmed packets travel in HTB's high class on every egress, all else shares one FIFO. */
	look(skb, &dscp, &ecn);
	class = class_of(dscp);

	/* Step 3: trimming and marking, by what waits of its class before this packet. */
	if (class == DATA) {
		waiting = waiting_bytes(*(volatile __u64 *)&stats->admitted_bytes[DATA], &far_stats->arrived_bytes[DATA],
					&flushed->bytes[DATA]);
		COUNT_BYTES(stats->met_bytes, waiting);
		count = __sync_fetch_and_add(&stats->met_packets, 1);
		trimmed = (port->flags & TRIMS) && (dscp == DSCP_TRIMMABLE || dscp == DSCP_TRIMMABLE_RETX) &&
			  waiting + length > port->trim_at;
		if (!trimmed)
			marked = to_mark(port, dscp, ecn, waiting, number, count);
	} else if (dscp == DSCP_RETX_HIGH) {
		waiting = waiting_bytes(*(volatile __u64 *)&stats->admitted_bytes[HIGH], &far_stats->arrived_bytes[HIGH],
					&flushed->bytes[HIGH]);
		trimmed = (port->flags & TRIMS) && waiting + length > port->trim_at;
	}
	if (trimmed) {
		if (trim(skb, port->flags & LAST_HOP ? DSCP_TRIMMED_LASTHOP : DSCP_TRIMMED)) {
			COUNT(stats->drop_trim_failed);
			return refuse;
		}
		class = HIGH;
		length = skb->len;
	}

	/* Step 4: the finite buffer, one per class; the packet needs room for the size it has now. */
	if (class == HIGH) {
		if (admit(&stats->admitted_bytes[HIGH], &far_stats->arrived_bytes[HIGH], &flushed->bytes[HIGH], port->limit[HIGH], length,
			  &backlog)) {
			COUNT(stats->drop_tail_packets[HIGH]);
			COUNT_BYTES(stats->drop_tail_bytes[HIGH], length);
			return refuse;
		}
		COUNT(stats->admitted_packets[HIGH]);
		note_peak(&stats->peak_bytes[HIGH], backlog);
		if (trimmed)
			COUNT(stats->trimmed);
		skb->priority = HTB_HIGH;
		return TC_ACT_OK;
	}
	lossless = (port->flags & LOSSLESS) && dscp == DSCP_ROCE; /* its room is kept where it came in: see hold() */
	if (admit(&stats->admitted_bytes[DATA], &far_stats->arrived_bytes[DATA], &flushed->bytes[DATA], lossless ? ~0U : port->limit[DATA],
		  length, &backlog)) {
		COUNT(stats->drop_tail_packets[DATA]);
		COUNT_BYTES(stats->drop_tail_bytes[DATA], length);
		if (is_background(skb))
			COUNT_BACKGROUND(number, drop_tail);
		return refuse;
	}
	COUNT(stats->admitted_packets[DATA]);
	note_peak(&stats->peak_bytes[DATA], backlog);
	if (lossless && port->kind == KIND_SWITCH)
		take_in(skb, number, length);
	if (marked && !mark(skb))
		COUNT(stats->marked);
	skb->priority = HTB_DATA;
	return TC_ACT_OK;
}

char _license[] SEC("license") = "Apache-2.0";
