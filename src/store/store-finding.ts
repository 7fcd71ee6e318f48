/** Something that the store noticed and the operator must know. */
export type StoreFinding = {
  readonly code:
    | 'data_dir_shared' // a group can write to the data folder, to what is in it or to a folder above
    | 'store_quarantined' // it did not open; its folder was moved aside and a new one begun
    | 'store_behind' // it had lost commits, which the last-good copy still has
    | 'head_damaged' // what names the active policy was damaged or lost
    | 'active_damaged' // the active policy was damaged, and is served from the last-good copy
    | 'active_lost' // the active policy is damaged, and the last-good copy is older or missing: none is served
    | 'record_damaged' // a policy that is not the active one is damaged
    | 'last_good_unwritable' // the last-good copy could not be written: the commit itself is safe
    | 'store_read_only'; // the disk is full: opened for reading
  readonly message: string;
};

export type FindingListener = (finding: StoreFinding) => void;
