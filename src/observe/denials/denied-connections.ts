import { formatAddress, limitedPart } from '#addresses/ip-address.js';
import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import { type Address, IPPROTO } from '#contracts/policy/policy-model.js';
import type { SeenConnection, SeenConnections } from '#contracts/service-plane/seen-connection.js';
import { emptyIdentity } from '#observe/findings/empty-identity.js';
import type { FindingDelta } from '#observe/findings/finding.js';
import { gap } from '#observe/findings/gap.js';
import { type AddressOwners, ownersKey } from '#observe/names/address-owners.js';
import { type RuleNameResolver, sourceGroupsOf } from '#observe/names/rule-name-resolver.js';

/**
 * The maximum numbers of findings between two calls of `drain`. `DETAILED` limits detailed findings in
 * total, and `OF_A_SOURCE` limits them per source (`limitedPart`). At either limit, further events are
 * merged into coarse findings, which have no destination, hostname or path. `COARSE` limits the number of
 * coarse findings.
 */
const DETAILED = 4_096;
const OF_A_SOURCE = 256;
const COARSE = 2_048;

type Event = {
  readonly seen: SeenConnection;
  readonly isCoarse: boolean;
  readonly sourceOwner: OwnerName | null;
  readonly destinationOwner: OwnerName | null;
};
type Pending = Event & {
  firstMs: number;
  lastMs: number;
  count: number;
};

/**
 * Collects findings about connections and requests that the service plane (TLS and HTTP inspection) denied,
 * or that audit mode allowed despite a deny. Merges equal events into one finding. Limits the number of
 * findings between two calls of `drain`, to bound memory.
 */
export class DeniedConnections {
  readonly #ruleNameResolver: RuleNameResolver;
  readonly #owners: AddressOwners;
  #detailed = new Map<string, Pending>();
  #coarse = new Map<string, Pending>();
  #ofSource = new Map<Address, number>();
  #lost: { count: number; firstMs: number; lastMs: number } | null = null;
  /**
   * Both fields count events since this object was created. `merged`: events that became part of a finding.
   * `overflowed`: events that got no detailed finding because of a limit; each of them became part of a
   * coarse finding or was lost.
   */
  merged = 0;
  overflowed = 0;

  constructor(ruleNameResolver: RuleNameResolver, owners: AddressOwners) {
    this.#ruleNameResolver = ruleNameResolver;
    this.#owners = owners;
  }

  add({ connections, lostDenied }: SeenConnections, nowMs: number): void {
    for (const seen of connections) if (seen.verdict === 'deny' || seen.verdict === 'audit') this.#add(seen);
    if (lostDenied > 0) this.#lose(lostDenied, nowMs);
  }

  /**
   * Returns the findings collected since the previous call of `drain`, and removes them from this object. If
   * events were lost, the last finding is a `gap` that counts them.
   */
  drain(): readonly FindingDelta[] {
    const drained = [...this.#detailed.values(), ...this.#coarse.values()].map((pending) => this.#delta(pending));
    if (this.#lost !== null)
      drained.push(gap('service_plane', this.#lost.count, this.#lost.firstMs, this.#lost.lastMs));
    this.#detailed = new Map();
    this.#coarse = new Map();
    this.#ofSource = new Map();
    this.#lost = null;
    return drained;
  }

  #add(seen: SeenConnection): void {
    const { source, destination, sni, http, atMs } = seen;
    const sourceOwner = this.#owners.of(source, atMs);
    const destinationOwner = this.#owners.of(destination, atMs);
    const less = `${coarseKeyOf(seen)}${ownersKey(sourceOwner, null)}`;
    const ofDestination = `${destination} ${seen.destinationPort}${ownersKey(null, destinationOwner)}`;
    const key = `${less} ${ofDestination} ${JSON.stringify([sni, http])}`;
    const known = this.#detailed.get(key);
    const limited = limitedPart(source);
    const ofSource = this.#ofSource.get(limited) ?? 0;
    if (known !== undefined) again(known, seen);
    else if (this.#detailed.size < DETAILED && ofSource < OF_A_SOURCE) {
      this.#ofSource.set(limited, ofSource + 1);
      this.#detailed.set(key, begun({ seen, isCoarse: false, sourceOwner, destinationOwner }));
    } else if (!this.#addCoarse(less, { seen, isCoarse: true, sourceOwner, destinationOwner: null })) {
      this.#lose(1, seen.atMs);
      return;
    }
    this.merged++;
  }

  /**
   * Merges the event into a coarse finding, which has no destination, hostname or path. Returns false if the
   * event needs a new coarse finding and `COARSE` of them exist already.
   */
  #addCoarse(key: string, event: Event): boolean {
    this.overflowed++;
    const known = this.#coarse.get(key);
    if (known !== undefined) again(known, event.seen);
    else if (this.#coarse.size < COARSE) this.#coarse.set(key, begun(event));
    else return false;
    return true;
  }

  #lose(count: number, atMs: number): void {
    this.#lost ??= { count: 0, firstMs: atMs, lastMs: atMs };
    this.#lost.count += count;
    this.#lost.lastMs = atMs;
  }

  #delta({ seen, isCoarse, ...more }: Pending): FindingDelta {
    const { generation, verdict, reason } = seen;
    const decider = this.#ruleNameResolver.ofNames(generation, seen.decider);
    return {
      ...emptyIdentity,
      ...decider,
      ...sourceGroupsOf(this.#ruleNameResolver, decider, seen.source, more.sourceOwner),
      type: seen.kind === 'tls' ? 'tls_deny' : 'http_deny',
      source: formatAddress(seen.source),
      protocol: IPPROTO.tcp,
      ...(isCoarse
        ? {}
        : {
            destination: formatAddress(seen.destination),
            destinationPort: seen.destinationPort,
            sni: seen.sni,
            http: seen.http,
          }),
      reason,
      effectiveAction: verdict === 'audit' ? 'allow' : 'deny',
      generation,
      ...more,
    };
  }
}

function begun(event: Event): Pending {
  const { seen } = event;
  return { ...event, firstMs: seen.atMs, lastMs: seen.atMs, count: 1 };
}

function again(pending: Pending, { atMs }: SeenConnection): void {
  pending.firstMs = Math.min(pending.firstMs, atMs);
  pending.lastMs = Math.max(pending.lastMs, atMs);
  pending.count++;
}

/**
 * Returns the key of the coarse finding of an event. The key contains no destination, hostname or path: a
 * client can produce any number of these values, and a finding for each would need unbounded memory.
 */
function coarseKeyOf({ kind, source, generation, decider, verdict, reason }: SeenConnection): string {
  return `${kind} ${source} ${generation} ${verdict} ${JSON.stringify([decider, reason])}`;
}
