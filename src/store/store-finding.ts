/** A problem of the store that the operator must see; the store continues to work. */
export type StoreFinding = {
  readonly code:
    | 'data_dir_shared' // the group of a path can write to the data folder, to its content or to a folder above
    | 'store_quarantined' // the store was too damaged to open; its folder was moved aside and a new store created
    | 'store_behind' // the store lost commits that the last-good copy still contains
    | 'head_damaged' // the store entry `head`, which names the active policy, is damaged or lost
    | 'active_damaged' // the active policy is damaged in the store, and is read from the last-good copy
    | 'active_lost' // the active policy is damaged, and the last-good copy is older or missing: no policy is active
    | 'record_damaged' // a policy that is not active is damaged
    | 'last_good_unwritable' // the last-good copy could not be written; the commit itself is stored
    | 'store_read_only'; // the disk is full: the store was opened read-only
  readonly message: string;
};

export type FindingListener = (finding: StoreFinding) => void;
