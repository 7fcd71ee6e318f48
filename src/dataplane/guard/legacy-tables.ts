import { readFileSync } from 'node:fs';

/**
 * Returns the names of the tables of iptables-legacy, whose rules nftables does not list. Returns an empty
 * list for a user that is not root, since only root may read the file.
 */
export function legacyTables(): readonly string[] {
  try {
    return readFileSync('/proc/thread-self/net/ip_tables_names', 'utf8')
      .split('\n')
      .filter((name) => name !== '');
  } catch (failure) {
    if (!['ENOENT', 'EACCES'].includes((failure as NodeJS.ErrnoException).code ?? '')) throw failure;
    return [];
  }
}
