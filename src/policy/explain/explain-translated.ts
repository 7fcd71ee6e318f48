import { formatAddress } from '#addresses/ip-address.js';
import { type OwnerChange, ownerText } from '#contracts/kubernetes/address-owner.js';
import type { ExplainNode } from '#contracts/policy/explain-facts.js';
import type { Packet } from '#contracts/policy/policy-model.js';

type Asked = {
  readonly owners?: readonly OwnerChange[];
  readonly packet: Packet;
  readonly node?: ExplainNode;
  readonly real?: { readonly packet: Packet; readonly node: ExplainNode } | undefined;
};
type Explained = {
  readonly effective_action: 'allow' | 'deny';
  readonly reason: string;
  readonly unknown: readonly string[];
};

/**
 * Explains a packet on a node that may translate its destination (D17b). `explainOne` explains a packet that
 * is not translated. If the destination is an address of the node or in `dataplane.translated`, the policy is
 * evaluated only with the real destination (after translation). Otherwise the policy must allow both
 * destinations.
 */
export function explainTranslated<Query extends Asked, Explanation extends Explained>(
  query: Query,
  explainOne: (query: Query) => Explanation,
): Explanation {
  const { packet, node, real } = query;
  const isOfNode = node?.own.includes(packet.destination) === true;
  const seesServer = node?.translation != null && (isOfNode || node.translation.isService);
  if (real === undefined) {
    const asked = explainOne(query);
    return seesServer
      ? { ...asked, reason: `${asked.reason}; ${MAYBE}`, unknown: [...asked.unknown, 'translation'] }
      : asked;
  }
  if (isSame(packet, real.packet)) return explainOne(query);
  const owner = query.owners?.find(({ address }) => address === real.packet.destination)?.owner ?? null;
  const server = `${textOf(real.packet)}${owner === null ? '' : ` (${ownerText(owner)})`}`;
  const translated = `conntrack translates ${textOf(packet)} to ${server}`;
  if (!seesServer) {
    const asked = explainOne(query);
    const reason = `${asked.reason}; ${translated}, and the policy must allow both`;
    if (asked.effective_action === 'deny') return { ...asked, reason };
  }
  const seen = explainOne({ ...query, ...real });
  return { ...seen, reason: `${seen.reason}; ${translated}, which the policy sees` };
}

const MAYBE =
  'the node has NAT rules: if a rule translates the destination, the policy sees the server, so ask with the address of the server';

function isSame(one: Packet, other: Packet): boolean {
  return one.destination === other.destination && one.destinationPort === other.destinationPort;
}

const textOf = ({ destination, destinationPort }: Packet): string => `${formatAddress(destination)}:${destinationPort}`;
