import type { Interface } from '#dataplane/attach/interfaces.js';
import { type Flowtable, flowtables } from '#dataplane/guard/nftables.js';

/**
 * Returns one fault for each flowtable with the flag `offload` that contains a policed interface. The network
 * card forwards the packets of its flows, and no hook of the kernel sees them. A flowtable without this flag
 * is no fault, because the ingress hook runs before it.
 */
export function flowtableFaults(
  policed: readonly Pick<Interface, 'name'>[],
  found: readonly Flowtable[] = flowtables(),
): string[] {
  return found.flatMap(({ family, table, name, offloads, devices }) => {
    const names = policed.flatMap((each) => (devices.includes(each.name) ? each.name : []));
    if (!offloads || names.length === 0) return [];
    const list = names.join(', ');
    return `flowtable ${family} ${table} ${name} has the flag offload, so the network card forwards flows of ${list} without the datapath: remove the flag, or remove ${list} from the flowtable`;
  });
}
