/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_CACHE_H
#define WEIR_CACHE_H

/* The flows that are busy right now, a cache line each: what a packet in the middle of an established flow needs, and no
 * more. `flows` stays the truth; whoever looks there takes over what was counted here (sync_cached).
 *
 * A line is found by key and guarded by its judgement: its owner claims it by an exchange, writes the key, and then the
 * judgement. Who reads the judgement before and after the key, and finds the same, has seen a key that goes with it.
 */
#define CLAIMED 1
#define NOT_CACHED (-2)
#define CACHE_WAYS 2
#define CACHED_TICKS 1000 /* 1.05 s, so that a flow that ended while another CPU wrote its line is missed no longer */

#define TCP_SPECIAL (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)

static __always_inline __u32 cache_index(__u64 addresses, __u64 rest)
{
	__u64 mixed = (addresses ^ rest * 0x9e3779b97f4a7c15ULL) * 0xd6e8feb86659fd93ULL;

	mixed ^= mixed >> 32;
	mixed *= 0xd6e8feb86659fd93ULL;
	return (mixed >> 32) & settings.cache_mask;
}

static __always_inline bool same_key(const struct flow_key *a, const struct flow_key *b)
{
	const __u64 *left = (const __u64 *)a, *right = (const __u64 *)b;

	return left[0] == right[0] && left[1] == right[1];
}

/* The line that has this key; 0 where none has, and the index is that of one that it may have. */
static __always_inline struct cached *find_cached(__u64 addresses, __u64 rest, __u32 *index)
{
	struct cached *line;

	*index = cache_index(addresses, rest);
	line = bpf_map_lookup_elem(&cache, index);
	if (line && line->addresses == addresses && line->rest == rest)
		return line;
	*index ^= 1;
	line = bpf_map_lookup_elem(&cache, index);
	return line && line->addresses == addresses && line->rest == rest ? line : 0;
}

static __always_inline bool is_over(const struct cached *line, __u32 now)
{
	return (__s32)(now - line->until) >= 0;
}

/* Moves what was counted in the line to its flow. */
static __always_inline void take_counts(struct flow *flow, struct cached *line)
{
	__u32 by_high = flow->flags & FLOW_OPENED_BY_HIGH;

#pragma unroll
	for (int high = 0; high < 2; high++) {
		__u32 packets = READ_ONCE(line->packets[high]), side = (high ^ by_high) & 1;
		__u64 bytes = READ_ONCE(line->bytes[high]);

		packets -= __sync_lock_test_and_set(&line->taken_packets[high], packets);
		bytes -= __sync_lock_test_and_set(&line->taken_bytes[high], bytes);
		__sync_fetch_and_add(&flow->packets[side], packets);
		__sync_fetch_and_add(&flow->bytes[side], bytes);
	}
	if ((__s32)(line->last_seen - flow->last_seen) > 0)
		flow->last_seen = line->last_seen;
}

static __noinline void sync_cached(struct flow *flow)
{
	const __u64 *key = (const __u64 *)&flow->key;
	struct cached *line;
	__u32 index;

	if (!flow)
		return;
	line = find_cached(key[0], key[1], &index);
	if (line && READ_ONCE(line->judgement) > CLAIMED)
		take_counts(flow, line);
}

static __always_inline bool exchange(struct cached *line, __u64 from, __u64 to)
{
	return from != CLAIMED && __sync_val_compare_and_swap(&line->judgement, from, to) == from;
}

/* Lets the flow's next packet be looked at in full. */
static __noinline void drop_cached(struct flow *flow)
{
	const __u64 *key = (const __u64 *)&flow->key;
	struct cached *line;
	__u64 judgement;
	__u32 index;

	if (!flow)
		return;
	line = find_cached(key[0], key[1], &index);
	if (!line)
		return;
	judgement = READ_ONCE(line->judgement);
	if (judgement && exchange(line, judgement, 0))
		take_counts(flow, line);
}

/* Gives an established flow a line, unless others that are busy have both. The key and its judgement are the caller's,
 * since another flow may get the memory of this one meanwhile.
 */
static __noinline void cache_flow(struct flow *flow, const struct place *place, __u64 judged, const struct way *way,
				  __u32 now)
{
	const struct flow_key *flow_key = &place->key;
	const __u64 *key = (const __u64 *)flow_key;
	struct cached *line;
	__u32 index, by_high;
	__u64 judgement;

	if (!flow || !place || !way || (flow->state != FLOW_TCP_ESTABLISHED && flow->state != FLOW_UDP_REPLIED))
		return;
	line = find_cached(key[0], key[1], &index);
	if (!line) {
		line = bpf_map_lookup_elem(&cache, &index);
		if (line && line->judgement && !is_over(line, now)) {
			index ^= 1;
			line = bpf_map_lookup_elem(&cache, &index);
			if (line && line->judgement && !is_over(line, now))
				return;
		}
	}
	if (!line)
		return;
	judgement = READ_ONCE(line->judgement);
	if (!exchange(line, judgement, CLAIMED))
		return;
	if (line->addresses != key[0] || line->rest != key[1]) {
		struct flow_key evicted;
		struct flow *owner;

		__builtin_memcpy(&evicted, &line->addresses, sizeof(evicted));
		owner = judgement ? bpf_map_lookup_elem(&flows, &evicted) : 0;
		if (owner)
			take_counts(owner, line);
		line->taken_packets[0] = line->packets[0];
		line->taken_packets[1] = line->packets[1];
		line->taken_bytes[0] = line->bytes[0];
		line->taken_bytes[1] = line->bytes[1];
		line->ways[0].ifindex = line->ways[1].ifindex = 0;
		line->addresses = key[0];
		line->rest = key[1];
	}
	by_high = flow->flags & FLOW_OPENED_BY_HIGH;
	line->ifindex[0] = by_high ? flow->ifindex[1] : flow->ifindex[0];
	line->ifindex[1] = by_high ? flow->ifindex[0] : flow->ifindex[1];
	if (place->from_high)
		line->ways[1] = *way;
	else
		line->ways[0] = *way;
	line->last_seen = now;
	line->until = now + CACHED_TICKS;
	asm volatile("" ::: "memory");
	WRITE_ONCE(line->judgement, same_key(&flow->key, flow_key) ? judged : 0);
}

/* By the stack where another flow got the line meanwhile, which may have the same judgement. */
static __noinline int send_cached(struct __sk_buff *skb, const struct cached *line, __u64 addresses, __u32 side,
				  __u32 segment)
{
	struct way way;

	if (!line)
		return TC_ACT_UNSPEC;
	way = line->ways[side & 1];
	asm volatile("" ::: "memory");
	return line->addresses == addresses ? send(skb, &way, segment) : TC_ACT_UNSPEC;
}

/* Passes a packet in the middle of a busy flow. NOT_CACHED where it is to be looked at in full. */
static __always_inline int pass_cached(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 total, length, side, now, first = 0, index, source, destination, ports;
	__u64 addresses, rest, judgement;
	struct active *in_force;
	struct cached *line;
	bool from_high;
	__u8 *l4 = (__u8 *)(ip + 1);

	if ((void *)(l4 + 8) > data_end || *(__u8 *)ip != 0x45)
		return NOT_CACHED;
	total = bpf_ntohs(ip->tot_len);
	if (ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET) || total + ETH_HLEN > skb->len)
		return NOT_CACHED;
	if (ip->protocol == IPPROTO_TCP) {
		if ((void *)(l4 + 20) > data_end || (l4[13] & TCP_SPECIAL) != TCP_ACK)
			return NOT_CACHED;
		length = (l4[12] >> 4) * 4;
		if (length < 20 || sizeof(*ip) + length > total)
			return NOT_CACHED;
		length += sizeof(*ip);
	} else if (ip->protocol == IPPROTO_UDP) {
		length = l4[4] << 8 | l4[5];
		if (length < 8 || sizeof(*ip) + length > total)
			return NOT_CACHED;
		length = sizeof(*ip) + 8;
	} else {
		return NOT_CACHED;
	}
	source = bpf_ntohl(ip->saddr);
	destination = bpf_ntohl(ip->daddr);
	ports = bpf_ntohl(*(__u32 *)l4);
	from_high = source > destination || (source == destination && ports >> 16 > (ports & 0xffff));
	/* As in struct flow_key. */
	addresses = from_high ? (__u64)source << 32 | destination : (__u64)destination << 32 | source;
	rest = (from_high ? ports : ports << 16 | ports >> 16) | (__u64)ip->protocol << 32;
	line = find_cached(addresses, rest, &index);
	if (!line)
		return NOT_CACHED;
	judgement = READ_ONCE(line->judgement);
	asm volatile("" ::: "memory");
	in_force = bpf_map_lookup_elem(&active, &first);
	if (!in_force || judgement >> 32 != READ_ONCE(in_force->word) >> 1 || judgement <= CLAIMED)
		return NOT_CACHED;
	now = ticks_of(bpf_ktime_get_coarse_ns());
	side = from_high;
	if (is_over(line, now) || line->ifindex[side & 1] != skb->ifindex || line->addresses != addresses || line->rest != rest)
		return NOT_CACHED;
	asm volatile("" ::: "memory");
	if (READ_ONCE(line->judgement) != judgement)
		return NOT_CACHED;
	line->last_seen = now;
	line->packets[side & 1] += packets_of(skb);
	line->bytes[side & 1] += skb->len;
	if (settings.direct) {
		__u32 segment = skb->gso_size ? skb->gso_size + length : skb->len - ETH_HLEN;

		pass_word(skb, judgement);
		return send_cached(skb, line, addresses, side, segment);
	}
	return pass_word(skb, judgement);
}

#endif
