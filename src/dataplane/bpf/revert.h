/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_REVERT_H
#define WEIR_REVERT_H

/* While a policy waits for its confirmation, one program slot keeps the base: the last confirmed policy. User
 * space fills or changes no map entry of that slot meanwhile. The revert timer puts the base in force at the
 * deadline, also if the process of the node is dead or stopped, and without a packet.
 */

/* Pause before the timer tries again, after user space has changed the active word (epoch and program slot)
 * at the same moment.
 */
#define REVERT_RETRY_NS 1000000
/* Pause after the timer has put the last confirmed policy (base) in force. The timer continues until user
 * space stops it, because user space may have put the unconfirmed policy in force at the same moment.
 */
#define REVERT_CHECK_NS 250000000

/* The difference between the epochs (activation numbers) of the policy in force and of the base (last
 * confirmed policy) that the timer puts in force. User space uses the next epoch for its own activations. So
 * no epoch has two meanings, even if the timer and user space change the active word at the same moment.
 */
#define REVERT_EPOCHS 2

static __always_inline __u32 word_of_base(__u32 active_word, __u32 slot)
{
	__u32 epoch = (active_word >> 1 & MAX_EPOCH) + REVERT_EPOCHS;

	if (epoch > MAX_EPOCH)
		epoch = REVERT_EPOCHS;
	return (slot & 2 ? THIRD_SLOT : 0) | epoch << 1 | (slot & 1);
}

/* The callback of the revert timer. */
static int revert_by_timer(void *map, __u32 *key, struct revert *due)
{
	__u64 now = bpf_ktime_get_ns(), at = READ_ONCE(due->at_ns), pause = REVERT_CHECK_NS;
	__u32 first = 0, word;
	struct active *in_force = bpf_map_lookup_elem(&active, &first);

	if (!in_force || !at)
		return 0;
	if (now < at) {
		bpf_timer_start(&due->timer, at - now, 0);
		return 0;
	}
	word = READ_ONCE(in_force->word);
	if (!word)
		return 0;
	if (slot_of(word) != due->slot) {
		if (__sync_val_compare_and_swap(&in_force->word, word, word_of_base(word, due->slot)) != word)
			pause = REVERT_RETRY_NS;
		else if (!due->reverted_ns)
			WRITE_ONCE(due->reverted_ns, now);
	}
	bpf_timer_start(&due->timer, pause, 0);
	return 0;
}

/* Sets the revert timer, or stops it if `at_ns` is 0. When the program returns, the former deadline changes
 * the active word (epoch and program slot) no more: the program waits for a callback that runs. The timer
 * runs while the map `revert` is pinned, even without a process.
 */
SEC("syscall")
int weir_set_revert(struct revert_request *request)
{
	__u64 at = request->at_ns, now;
	__u32 first = 0, slot = request->slot;
	struct revert *due = bpf_map_lookup_elem(&revert, &first);
	long failed;

	if (!due)
		return 1;
	failed = bpf_timer_init(&due->timer, &revert, CLOCK_MONOTONIC);
	if (failed && failed != -EBUSY /* EBUSY: an earlier call has initialized the timer */)
		return failed;
	WRITE_ONCE(due->at_ns, 0);
	bpf_timer_cancel(&due->timer);
	if (!at)
		return 0;
	due->slot = slot;
	due->reverted_ns = 0;
	WRITE_ONCE(due->at_ns, at);
	if (bpf_timer_set_callback(&due->timer, revert_by_timer))
		return 3;
	now = bpf_ktime_get_ns();
	return bpf_timer_start(&due->timer, at > now ? at - now : 1, 0) ? 4 : 0;
}

#endif
