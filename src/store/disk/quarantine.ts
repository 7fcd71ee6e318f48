import { rename } from 'node:fs/promises';
import type { StoreError } from '#store/store-error.js';
import type { StoreFinding } from '#store/store-finding.js';

/**
 * Renames the folder of a damaged store. The files are kept, and a new store can be created under the old
 * name. Returns a finding that names the new path of the damaged store.
 */
export async function quarantine(folder: string, { message }: StoreError): Promise<StoreFinding> {
  const aside = `${folder}.damaged-${new Date().toISOString().replaceAll(':', '')}`;
  await rename(folder, aside);
  return { code: 'store_quarantined', message: `${message}; the damaged files are kept in ${aside}` };
}
