import { readFileSync } from 'node:fs';

/**
 * Returns the names of the tables of iptables-legacy; `nft list` does not show their rules. Returns an empty
 * list if the user is not root, because only root may read the file.
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
