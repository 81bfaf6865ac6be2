// SPDX-License-Identifier: Apache-2.0
/* The emulated switches: SRv6 uN forwarding at tc ingress, the finite egress queue and exact counters at tc egress.
 *
 * Loaded and pinned by testbed/dataplane/loader.py; the same two programs serve every port of a fabric, host ports too.
 * A port knows itself by its interface index: PORT_BASE + port number. Must never drop a packet without counting why,
 * never look at anything but the outer header on a switch, and never route around anything: tables are static.
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

#if !defined(PORTS) || !defined(SWITCHES) || !defined(ROUTES) || !defined(PORT_BASE) || !defined(LOCATOR_BLOCK) || \
	!defined(DSCP_CONTROL) || !defined(MRC_UDP_PORT)
#error "compile through testbed/dataplane/loader.py, which defines the fabric's sizes and the DSCP table"
#endif

enum { KIND_HOST = 1, KIND_SWITCH = 2 };
enum { DATA = 0, HIGH = 1, CLASSES = 2 };

#define HTB_HIGH 0x10001 /* class 1:1 */
#define HTB_DATA 0x10002 /* class 1:2 */
#define OUTER (ETH_HLEN + sizeof(struct ipv6hdr))
#define INNER_UDP (OUTER + sizeof(struct ipv6hdr))

/* The layouts below are mirrored in testbed/dataplane/layout.py. */
struct port_config {
	__u32 kind;
	__u32 far;	  /* port number of the cable's other end */
	__u32 switch_number;
	__u32 usid;	  /* of the switch this port belongs to */
	__u32 limit[CLASSES]; /* bytes that may wait here, per class */
};

struct port_stats {
	__u64 admitted_bytes[CLASSES]; /* first: the compare-and-exchange word of the queue */
	__u64 admitted_packets[CLASSES];
	__u64 arrived_bytes[CLASSES];
	__u64 arrived_packets[CLASSES];
	__u64 drop_tail_packets;
	__u64 drop_tail_bytes;
	__u64 drop_link_down;
	__u64 drop_no_route;
	__u64 drop_not_mine;
	__u64 drop_hop_limit;
	__u64 drop_switch_down;
	__u64 marked;
	__u64 trimmed;
	__u64 peak_bytes;
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

/* Non-zero: the cable at this port is down, admit nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} port_gate SEC(".maps");

/* Non-zero: this switch is down, forward nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SWITCHES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} switch_down SEC(".maps");

/* Static uN tables of all switches: (switch number << 16 | next uSID) -> egress interface index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ROUTES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} routes SEC(".maps");

#define COUNT(field) __sync_fetch_and_add(&(field), 1)
#define COUNT_BYTES(field, n) __sync_fetch_and_add(&(field), (n))

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

static __always_inline __u32 class_of(struct __sk_buff *skb)
{
	struct ipv6hdr *ip;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || reach(skb, OUTER))
		return DATA;
	ip = outer_header(skb);
	if (!ip)
		return DATA;
	/* Traffic class = DSCP(6) | ECN(2), astride the first two bytes. */
	return (bpf_ntohs(*(__be16 *)ip) >> 6 & 0x3f) == DSCP_CONTROL ? HIGH : DATA;
}

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
	return outer->nexthdr == IPPROTO_IPV6 && inner->nexthdr == IPPROTO_UDP && udp->dest == bpf_htons(MRC_UDP_PORT);
}

/* uN (RFC 9800 section 4.1, End with NEXT-C-SID): match own block and uSID, shift, static lookup, redirect. */
static __always_inline int forward(struct __sk_buff *skb, struct port_config *port, struct port_stats *stats)
{
	__u32 number = port->switch_number, key, *egress;
	struct ipv6hdr *ip;
	__be16 *word;
	__u64 *down;

	down = bpf_map_lookup_elem(&switch_down, &number);
	if (!down || *down) {
		COUNT(stats->drop_switch_down);
		return TC_ACT_SHOT;
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || skb->len < OUTER || bpf_skb_pull_data(skb, OUTER))
		goto not_mine;
	ip = outer_header(skb);
	if (!ip)
		goto not_mine;
	word = (__be16 *)&ip->daddr;
	if (word[0] != bpf_htons(LOCATOR_BLOCK >> 16) || word[1] != bpf_htons(LOCATOR_BLOCK & 0xffff) || bpf_ntohs(word[2]) != port->usid)
		goto not_mine;
	if (ip->hop_limit <= 1) {
		COUNT(stats->drop_hop_limit);
		return TC_ACT_SHOT;
	}
	key = number << 16 | bpf_ntohs(word[3]);
	egress = bpf_map_lookup_elem(&routes, &key);
	if (!egress) {
		COUNT(stats->drop_no_route);
		return TC_ACT_SHOT;
	}
	ip->hop_limit--;
	word[2] = word[3];
	word[3] = word[4];
	word[4] = word[5];
	word[5] = word[6];
	word[6] = word[7];
	word[7] = 0;
	return bpf_redirect(*egress, 0);
not_mine:
	COUNT(stats->drop_not_mine);
	return TC_ACT_SHOT;
}

SEC("tc")
int fabric_ingress(struct __sk_buff *skb)
{
	__u32 number = skb->ifindex - PORT_BASE, length = skb->len, class;
	struct port_config *port = bpf_map_lookup_elem(&port_config, &number);
	struct port_stats *stats = bpf_map_lookup_elem(&port_stats, &number);

	if (!port || !stats)
		return TC_ACT_SHOT; /* no port of the fabric: the loader attaches to none */
	class = class_of(skb);
	if (class == HIGH) {
		COUNT(stats->arrived_packets[HIGH]);
		COUNT_BYTES(stats->arrived_bytes[HIGH], length);
	} else {
		COUNT(stats->arrived_packets[DATA]);
		COUNT_BYTES(stats->arrived_bytes[DATA], length);
	}
	if (port->kind == KIND_SWITCH)
		return forward(skb, port, stats);
	/* The kernel's own stack must not answer MRC: packet sockets take frames for others, the stack does not. */
	if (is_mrc(skb))
		bpf_skb_change_type(skb, PACKET_OTHERHOST);
	return TC_ACT_OK;
}

/* Take room for `length` bytes, or say that there is none. The backlog is counted, not modelled: bytes admitted here minus
 * bytes seen at the cable's far end minus bytes flushed by a link that went down. */
static __always_inline int admit(__u64 *admitted, __u64 *arrived, __u64 *flushed, __u32 limit, __u32 length, __u64 *backlog)
{
	__u64 before, waiting;
	int attempt;

#pragma unroll
	for (attempt = 0; attempt < 8; attempt++) {
		before = *(volatile __u64 *)admitted;
		waiting = before - *(volatile __u64 *)arrived - *(volatile __u64 *)flushed;
		if ((__s64)waiting < 0)
			waiting = 0; /* a frame was late on its way when the link went down */
		*backlog = waiting + length;
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

SEC("tc")
int fabric_egress(struct __sk_buff *skb)
{
	__u32 number = skb->ifindex - PORT_BASE, length = skb->len, far, class;
	struct port_config *port = bpf_map_lookup_elem(&port_config, &number);
	struct port_stats *stats = bpf_map_lookup_elem(&port_stats, &number);
	struct port_flushed *flushed = bpf_map_lookup_elem(&port_flushed, &number);
	struct port_stats *far_stats;
	__u64 *gate = bpf_map_lookup_elem(&port_gate, &number), backlog;

	if (!port || !stats || !flushed || !gate)
		return TC_ACT_SHOT;
	far = port->far;
	far_stats = bpf_map_lookup_elem(&port_stats, &far);
	if (!far_stats)
		return TC_ACT_SHOT;

	/* Step 1: the cable. */
	if (*gate) {
		COUNT(stats->drop_link_down);
		return TC_ACT_SHOT;
	}

	/* Step 2: the class. Control packets travel in HTB's high class on every egress, all else shares one FIFO. */
	class = class_of(skb);
	skb->priority = class == HIGH ? HTB_HIGH : HTB_DATA;

	/* Step 3: marking and trimming by the data class's backlog belong here, before the packet is admitted with the size it then has. */

	/* Step 4: the finite buffer, one per class. */
	if (class == HIGH) {
		if (admit(&stats->admitted_bytes[HIGH], &far_stats->arrived_bytes[HIGH], &flushed->bytes[HIGH], port->limit[HIGH], length,
			  &backlog))
			goto full;
		COUNT(stats->admitted_packets[HIGH]);
		return TC_ACT_OK;
	}
	if (admit(&stats->admitted_bytes[DATA], &far_stats->arrived_bytes[DATA], &flushed->bytes[DATA], port->limit[DATA], length, &backlog))
		goto full;
	COUNT(stats->admitted_packets[DATA]);
	note_peak(&stats->peak_bytes, backlog);
	return TC_ACT_OK;
full:
	COUNT(stats->drop_tail_packets);
	COUNT_BYTES(stats->drop_tail_bytes, length);
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Apache-2.0";
