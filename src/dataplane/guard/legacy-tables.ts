import { readFileSync } from 'node:fs';

/**
 * Tables of the older iptables, whose rules are not in nftables. Empty if the user is not root: only root may
 * read the list.
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
