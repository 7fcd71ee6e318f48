/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Members: addresses that an object of Kubernetes owns, each with the map index of the set of selectors that
 * select it (D38a). Only user space writes the maps `members` and `member_sets`, through mapped memory. The
 * BPF programs only read these maps.
 *
 * One store changes the set of a member. A packet that is under way may have read the former member, and may
 * store its judgement in a flow after user space has searched the flows of the address. So the packet reads
 * the count of changes again after it has stored the judgement, see `check_members`. User space waits for an
 * RCU grace period before it reuses the map index of a set.
 */
#ifndef WEIR_MEMBERS_H
#define WEIR_MEMBERS_H

/* A map index that no set of selectors has. An address with it is deny-only: every deny rule of a group with
 * selectors applies to it, and no allow rule of such a group.
 */
#define DENY_ONLY_SET 0xffffffffU

/* The header of the map `members`, in cache line 0; see struct grant_header. */
struct member_header {
	__u64 multiplier;
	__u64 addend;
	__u32 homes;
	/* 1: the members are not known yet, so each address that the search does not find is deny-only
	 * (DENY_ONLY_SET).
	 */
	__u32 incomplete;
	/* reserved[0] is the count of changes. User space adds 2 after it has stored a change, and before it
	 * searches the flows of the changed addresses. The BPF programs read the low 16 bits. See
	 * `check_members`. A new field would change the layout, and an upgrade would then not keep the
	 * members.
	 */
	__u32 reserved[10 - OTHER_FACTOR_WORDS];
	OTHER_FACTORS
};

union members_entry {
	struct member_header header;
	struct member_line line;
};

/* A set of selectors. Its map index is the index of its entry in the map `member_sets`. */
struct member_set {
	/* For program slots 0 and 1: index of the set of groups that these selectors select, in that compiled
	 * policy. 0: that compiled policy does not contain the set, so its members are deny-only
	 * (DENY_ONLY_SET). `third_indexes` has the same for slot 2.
	 */
	__u32 indexes[2];
	__u8 digest[24]; /* truncated SHA-256 of the keys of the selectors; zeros: the entry is free */
};

_Static_assert(sizeof(struct member_header) == 64, "a line is a cache line");
_Static_assert(sizeof(struct member_set) == 32, "a set does not straddle lines");

/* The value 1 of max_entries is a placeholder: the loader sets the sizes of `members` and `member_sets`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, union members_entry);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct member_set);
} member_sets SEC(".maps");

/* For each entry of `member_sets`, the index for program slot 2; `indexes` of struct member_set has those for
 * slots 0 and 1.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} third_indexes SEC(".maps");

static __always_inline void *members_at(__u32 index)
{
	return bpf_map_lookup_elem(&members, &index);
}

/* Returns the map index of the set of an address, DENY_ONLY_SET, or 0 if no object owns the address. */
static __always_inline __u32 find_member(struct member_header *header, address_t address)
{
	__u32 index, missing;

	if (!header)
		return DENY_ONLY_SET;
	missing = header->incomplete ? DENY_ONLY_SET : 0;
	index = 1 + ((HASH_OF_ADDRESS(header, address) >> 32) * header->homes >> 32);
	for (int probe = 0; probe < MEMBER_PROBES; probe++) {
		struct member_line *line = members_at(index + probe);

		if (!line)
			return missing;
		if (!probe && line->refused)
			missing = DENY_ONLY_SET;
#pragma unroll
		for (int i = 0; i < MEMBER_PLACES; i++) {
			__u32 set = set_of_member(line, i, address);

			if (set)
				return set;
		}
		if (!line->spilled)
			return missing;
	}
	return missing;
}

/* Returns the low 16 bits of the count of changes, with bit 0 set, so that the result is never 0. */
static __always_inline __u32 count_of_changes(struct member_header *header)
{
	return ((header ? READ_ONCE(header->reserved[0]) : 0) & 0xffff) | 1;
}

/* Returns 1 + the index of the set of groups that select the owner of an address, in the compiled policy of a
 * program slot; 0 if no object owns the address. The upper 32 bits are the result of `count_of_changes`
 * before the search.
 */
__noinline __u64 owner_of(__u32 slot, address_argument_t argument)
{
	struct member_header *header = members_at(0);
	__u64 changes = (__u64)count_of_changes(header) << 32;
	__u32 map_index = find_member(header, passed_address(argument));
	struct member_set *set;

	if (!map_index)
		return changes;
	set = bpf_map_lookup_elem(&member_sets, &map_index);
	if (!set)
		return changes | 1;
	if (slot & 2) {
		__u64 *third = bpf_map_lookup_elem(&third_indexes, &map_index);

		return changes | (1 + (third ? (__u32)READ_ONCE(*third) : 0));
	}
	return changes | (1 + READ_ONCE(set->indexes[slot & 1]));
}

/* Returns the index of the cache line of the rule list of a source with an owner (Kubernetes object), or 0 if
 * the program image (compiled policy) is damaged. `bases` is the tree of the image that leads from the
 * address class of the source to a tree of lists. `owner` is the lower half of a result of `owner_of`.
 */
__noinline __u32 list_of_owner(__u32 slot, __u32 bases, __u32 source_class, __u32 owner)
{
	struct image image = image_of(slot);

	return search_tree(image, search_tree(image, bases, source_class, NONE), owner - 1, NONE);
}

#endif
