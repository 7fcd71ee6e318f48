import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { System } from '#actors/system-contract.js';
import type { ServiceManager } from '#sockets/service-manager.js';

/**
 * Logs begin and end of the opening of the store with its size in bytes, and tells it to the service manager.
 * A store that was just restored is not in the page cache, so its size explains a slow start.
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
 * Tells the service manager when the start has ended. If the kernel enforces a newer policy than the data
 * folder has, for example after a restore, logs it, and the status of the unit names it until a policy is
 * activated. A node of a cluster does not report this: it gets the newer policy from etcd.
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
