import { matchesInterface } from '#contracts/datapath/datapath-options.js';
import type { Link } from '#dataplane/attach/netlink-interfaces.js';
import type { PolicedInterface } from '#dataplane/attach/policed-names.js';

/**
 * Returns one fault for each configured name that is only an alternative name of an interface. Such a name
 * cannot police the interface: the rules of nftables match the name alone.
 */
export function alternativeNameFaults(
  names: readonly string[],
  policed: readonly PolicedInterface[],
  links: readonly Link[],
): string[] {
  return names.flatMap((configured) => {
    if (links.some(({ name }) => name === configured)) return [];
    if (policed.some(({ renamedFrom }) => renamedFrom === configured)) return [];
    const link = links.find(({ alternativeNames }) => alternativeNames.includes(configured));
    return link === undefined
      ? []
      : [`${configured} is an alternative name of ${link.name}: put ${link.name} into dataplane.interfaces instead`];
  });
}

/** Returns one warning for each interface of which a name with `*` matches only alternative names. */
export function alternativeNameWarnings(
  names: readonly string[],
  policed: readonly PolicedInterface[],
  links: readonly Link[],
): string[] {
  const patterns = names.filter((name) => name.endsWith('*'));
  return links.flatMap(({ name, ifindex, alternativeNames }) => {
    const alternative = alternativeNames.find((each) => matchesInterface(patterns, each));
    if (alternative === undefined || policed.some((found) => found.ifindex === ifindex)) return [];
    return [
      `${name} is not policed: only its alternative name ${alternative} matches dataplane.interfaces, which must contain ${name}`,
    ];
  });
}
