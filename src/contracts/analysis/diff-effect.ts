/**
 * The effect of a change on the flows of a region (set of flows). `opens`: they were denied, and pass.
 * `closes`: they passed, and are denied. `inspection`: the service plane begins or ceases to inspect them.
 * `audit`: they pass as before, but are reported otherwise, because the mode or the deciding action changed.
 */
export type DiffEffect = 'opens' | 'closes' | 'inspection' | 'audit';

/**
 * The part of the policy whose change causes a difference. `sources`: the sources of the group changed.
 * `group` and `rule` are null where the part has none.
 */
export type DiffCause = {
  readonly part: 'rule' | 'group' | 'group_default' | 'policy_default';
  readonly change: 'added' | 'removed' | 'changed' | 'moved' | 'sources';
  readonly source_group: string | null;
  readonly rule: string | null;
};
