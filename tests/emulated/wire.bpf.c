// SPDX-License-Identifier: Apache-2.0
/* What a wire between machines may do to frames (tests/emulated/machines.py): lose them, or mark what is capable of ECN. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TOS (ETH_HLEN + __builtin_offsetof(struct iphdr, tos))

SEC("wire/lose")
int lose(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

/* One frame in so many, of those that carry others' (VXLAN is UDP over IPv4): ARP goes on. */
static __always_inline int lose_one_in(struct __sk_buff *skb, __u32 many)
{
	return skb->protocol == bpf_htons(ETH_P_IP) && bpf_get_prandom_u32() % many == 0 ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("wire/lose_some")
int lose_some(struct __sk_buff *skb)
{
	return lose_one_in(skb, 50);
}

SEC("wire/lose_many")
int lose_many(struct __sk_buff *skb)
{
	return lose_one_in(skb, 3);
}

SEC("wire/mark")
int mark(struct __sk_buff *skb)
{
	__u8 was, now;

	if (skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, TOS, &was, 1) || !(was & 3))
		return TC_ACT_OK;
	now = was | 3;
	bpf_l3_csum_replace(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, check), bpf_htons(was), bpf_htons(now), 2);
	bpf_skb_store_bytes(skb, TOS, &now, 1, 0);
	return TC_ACT_OK;
}

char _license[] SEC("license") = "Apache-2.0";
