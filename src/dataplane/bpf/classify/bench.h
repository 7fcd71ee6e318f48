/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_BENCH_H
#define WEIR_BENCH_H

struct bench_state {
	struct bench_request request;
	__u32 random;
	__u32 checksum;
};

static __always_inline __u32 next_random(__u32 *state)
{
	__u32 x = *state;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	*state = x;
	return x;
}

static long bench_one(__u32 index, struct bench_state *state)
{
	struct bench_request *request = &state->request;
	address_t source = address_in(request->source_base, request->source_mask, next_random(&state->random));
	address_t destination = address_in(request->destination_base, request->destination_mask, next_random(&state->random));
	__u32 key = request->port_map_key_base + (next_random(&state->random) & request->port_map_key_mask);
	__u32 slot = request->slot & 1;
	__u16 changes;

	state->checksum += request->keys_only ? number_of_address(source) ^ number_of_address(destination) ^ key
					      : classify(slot, find_list(image_of(slot), PASS_ADDRESS(source), PASS_ADDRESS(destination), &changes),
							 PASS_ADDRESS(destination), key, 40000);
	return 0;
}

/* Benchmark: one run classifies `count` random packets, so that the cost of the system call does not affect
 * the measured time per packet.
 */
SEC("syscall")
int weir_bench(struct bench_request *request)
{
	struct bench_state state = { .request = *request, .random = request->seed | 1 };
	__u64 start = bpf_ktime_get_ns();

	bpf_loop(request->count, bench_one, &state, 0);
	request->elapsed_ns = bpf_ktime_get_ns() - start;
	request->checksum = state.checksum;
	return 0;
}

#endif
