import { familyOf, mask } from '#addresses/ip-address.js';
import type { Arrival } from '#contracts/policy/explain-facts.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { type Interface, listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import type { Route } from '#dataplane/routes/route-lines.js';
import { readRoutes } from '#dataplane/routes/routes.js';

/**
 * Returns the policed interfaces, and the interface on which packets from this source address arrive. It
 * derives this interface from the routes of this network namespace.
 */
export function arrivalOf(source: Address, policed: readonly Interface[]): Arrival {
  return { policed: policed.map(({ name }) => name), by: wayTo(source, readRoutes(familyOf(source))) };
}

function wayTo(source: Address, routes: readonly Route<Address>[] | null): Arrival['by'] {
  if (routes === null) return 'unknown';
  const leading = routes.filter(({ address, length }) => mask(source, length) === address);
  if (leading.some(({ local }) => local)) return 'nowhere';
  const [best, second] = leading.sort((one, other) => other.length - one.length);
  if (best === undefined) return 'nowhere';
  // If two routes have the same prefix length, the kernel chooses by the metric. `readRoutes` does not
  // return metrics, so the interface is unknown.
  if (second?.length === best.length || best.ifindex === 0) return 'unknown';
  const name = listInterfaces().find(({ ifindex }) => ifindex === best.ifindex)?.name;
  return name === undefined ? 'unknown' : { interface: name };
}
