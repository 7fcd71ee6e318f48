import { createHash, randomBytes } from 'node:crypto';
import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import type { FindingDelta, FindingIdentity } from '#observe/findings/finding.js';

const ID_DIGITS = 32;

/**
 * Returns the finding's id: 32 hexadecimal digits that are the same for equal findings. A `config_change`
 * gets a random id, so that management writes are never merged.
 */
export function findingId(of: FindingIdentity): string {
  if (of.type === 'config_change') return randomBytes(ID_DIGITS / 2).toString('hex');
  const identity = [
    of.type,
    of.policyId,
    of.sourceGroup,
    of.rule,
    of.decidedBy,
    of.source,
    of.destination,
    of.destinationPort,
    of.protocol,
    of.hostname,
    of.sni,
    of.http === null ? null : [of.http.method, of.http.host, of.http.path],
    of.icmpType,
    of.icmpCode,
    of.dropReason,
    of.effectiveAction,
    of.actor,
    of.operation,
    of.target,
    // Leave null values of later fields out of the hash. Older builds stored findings without these fields,
    // and an equal event must still get the same id.
    ...(of.reason === null ? [] : [of.reason]),
    ...(of.wireDestination == null ? [] : [[of.wireDestination.address, of.wireDestination.port]]),
    ...(of.sourceOwner == null ? [] : [['source', ...partsOf(of.sourceOwner)]]),
    ...(of.destinationOwner == null ? [] : [['destination', ...partsOf(of.destinationOwner)]]),
  ];
  return createHash('sha256').update(JSON.stringify(identity)).digest('hex').slice(0, ID_DIGITS);
}

const partsOf = ({ integration, kind, namespace, name }: OwnerName) => [integration, kind, namespace, name];

/**
 * Merges two records of a finding. The generation and the source groups are those of the record with the
 * later `lastMs`.
 */
export function merged(before: FindingDelta | undefined, delta: FindingDelta): FindingDelta {
  if (before === undefined) return delta;
  const { generation, sourceGroups } = delta.lastMs >= before.lastMs ? delta : before;
  return {
    ...before,
    generation,
    ...(sourceGroups === undefined ? {} : { sourceGroups }),
    firstMs: Math.min(before.firstMs, delta.firstMs),
    lastMs: Math.max(before.lastMs, delta.lastMs),
    count: before.count + delta.count,
  };
}
