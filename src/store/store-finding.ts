/** A problem of the store that the operator must see. The store stays open. */
export type StoreFinding = {
  readonly code:
    | 'data_dir_shared' // the group of a path can write to the data folder, to its content or to a folder above
    | 'store_quarantined' // the store was too damaged to open; its folder was moved aside and a new store created
    | 'store_behind' // the store lost commits that the last-good copy still contains
    | 'head_damaged' // the store entry `head`, which names the active policy, was damaged or missing
    | 'active_damaged' // the active policy was damaged in the store, and was restored from the last-good copy
    | 'active_lost' // the active policy is damaged and cannot be read; no last-good copy of its generation exists
    | 'pending_lost' // the former policy of a pending change is lost, so the change stays in force
    | 'record_damaged' // a stored record is damaged; a damaged integration, token or setting counts as absent
    | 'last_good_unwritable' // the last-good copy could not be written; the commit itself is stored
    | 'store_read_only'; // the disk is full: the store was opened read-only
  readonly message: string;
};

export type FindingListener = (finding: StoreFinding) => void;
