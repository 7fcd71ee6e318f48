import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { System } from '#actors/system-contract.js';
import type { ServiceManager } from '#sockets/listening/service-manager.js';

/**
 * Logs when the opening of the store begins and ends, with the size of the store in bytes, and reports both
 * to the service manager. The size explains a slow start: a store that was just restored is not in the page
 * cache.
 */
export async function openingStore<Store>(
  dataDir: string,
  manager: ServiceManager | null,
  log: Logger,
  open: () => Promise<Store>,
): Promise<Store> {
  const bytes = await bytesIn(join(dataDir, 'store'));
  log.info({ bytes }, 'opening the store');
  manager?.status(`opening the store of ${Math.ceil(bytes / 2 ** 20)} MiB`);
  const begin = performance.now();
  const store = await open();
  log.info({ bytes, ms: Math.round(performance.now() - begin) }, 'the store is open');
  manager?.status('putting the stored policy in force');
  return store;
}

/** Returns the size of the files in a folder; 0 if the folder cannot be read. */
async function bytesIn(folder: string): Promise<number> {
  const names = await readdir(folder).catch(() => []);
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(folder, name)).then(
        ({ size }) => size,
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

/**
 * Tells the service manager that the start has ended. The kernel can enforce a newer policy than the data
 * folder contains, for example after a restore. A node without a cluster then logs a warning, and shows it in
 * the status of the systemd unit until a policy is activated. A node of a cluster gets the newer policy from
 * etcd.
 */
export async function reportStart(
  system: System,
  manager: ServiceManager | null,
  log: Logger,
  { isInCluster }: { readonly isInCluster: boolean },
): Promise<void> {
  await system.started;
  const generation = isInCluster ? null : await system.enforcedInstead().catch(() => null);
  if (generation === null) return manager?.ready('');
  log.warn(
    { generation },
    'the kernel enforces a newer policy than the data folder has, for example after a restore: the stored policy is not put in force until a policy is written or activated',
  );
  const ended = system.bus.messages.subscribe(({ type }) => {
    if (type !== 'policy.activated') return;
    manager?.status('');
    ended.unsubscribe();
  });
  manager?.ready(`the kernel enforces generation ${generation}, and not the stored policy: see weir status`);
}
