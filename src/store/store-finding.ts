/** A finding of the store that the operator must see. */
export type StoreFinding = {
  readonly code:
    | 'data_dir_shared' // the group can write to the data folder, to its content or to a folder above
    | 'store_quarantined' // the store could not be opened; its folder was moved aside and a new one created
    | 'store_behind' // the store had lost commits that the last-good copy still has
    | 'head_damaged' // the entry that names the active policy was damaged or lost
    | 'active_damaged' // the active policy was damaged, and is read from the last-good copy
    | 'active_lost' // the active policy is damaged, the copy older or missing: no policy is active
    | 'record_damaged' // a policy that is not active is damaged
    | 'last_good_unwritable' // the last-good copy could not be written; the commit itself is stored
    | 'store_read_only'; // the disk is full: the store was opened read-only
  readonly message: string;
};

export type FindingListener = (finding: StoreFinding) => void;
