import { formatAddress } from '#addresses/ip-address.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import { IPPROTO, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import type { ProofMismatch } from '#contracts/policy/proof-types.js';
import type { RuleNames } from '#contracts/policy/rule-names.js';
import { rankOf, verdictOf } from '#contracts/policy/verdict-word.js';
import { deciderAt } from '#policy/model/rules/rule-names.js';

/**
 * Returns the sentence for the operator about a packet that the datapath decides differently from the policy
 * (failed proof). It contains the packet, the decision of the policy, and the decision of the datapath.
 */
export function mismatchSentence({ packet, expected, found }: ProofMismatch, ruleNames: RuleNames): string {
  return `${packetText(packet)}: the policy gives ${decisionText(expected, ruleNames)}, and the compiled tables give ${decisionText(found, ruleNames)}`;
}

function packetText({ source, destination, protocol, ...packet }: Packet): string {
  const from = formatAddress(source);
  const to = formatAddress(destination);
  if (protocol === IPPROTO.icmp) {
    return `ICMP type ${packet.icmpType} code ${packet.icmpCode} from ${from} to ${to}`;
  }
  const name = protocol === IPPROTO.tcp ? 'TCP' : protocol === IPPROTO.udp ? 'UDP' : `protocol ${protocol}`;
  if (!PORT_PROTOCOLS.includes(protocol)) return `${name} from ${from} to ${to}`;
  return `${name} from ${from}:${packet.sourcePort} to ${to}:${packet.destinationPort}`;
}

function decisionText(word: number, ruleNames: RuleNames): string {
  const verdict = verdictOf(word);
  return verdict === undefined ? 'an invalid verdict' : `${verdict} by ${placeText(rankOf(word), ruleNames)}`;
}

function placeText(rank: number, ruleNames: RuleNames): string {
  if (rank >= ruleNames.groups.length) return `a rank that the policy does not have (${rank})`;
  const decider = deciderAt(ruleNames, rank);
  switch (decider.kind) {
    case 'rule':
      return `rule ${decider.rule} of group ${decider.group}`;
    case 'group_default':
      return `the default action of group ${decider.group}`;
    case 'policy_default':
      return 'the default policy';
  }
}
