import type { Prefix, Range, Rule } from '#contracts/policy/policy-model.js';

/** Returns whether two rules have equal matchers and the same action and mode. Ignores their ids. */
export function isSameRule(one: Rule, other: Rule): boolean {
  return (
    one === other ||
    (one.action === other.action &&
      one.mode === other.mode &&
      one.protocol === other.protocol &&
      one.hostname?.text === other.hostname?.text &&
      samePrefixes(one.destinations, other.destinations) &&
      sameRanges(one.destinationPorts, other.destinationPorts) &&
      sameRanges(one.sourcePorts, other.sourcePorts) &&
      sameNumbers(one.icmpTypes, other.icmpTypes) &&
      sameNumbers(one.icmpCodes, other.icmpCodes) &&
      (one.tls === other.tls || JSON.stringify(one.tls) === JSON.stringify(other.tls)))
  );
}

/** Returns a text that is equal for two rules if `isSameRule` holds for them. */
export function ruleKey(rule: Rule): string {
  const { action, mode, protocol, destinations, hostname, sourcePorts, destinationPorts, icmpTypes, icmpCodes, tls } =
    rule;
  return [
    ...[action, mode, protocol, hostname?.text ?? ''],
    destinations.map(({ address, length }) => `${address}/${length}`).join(),
    ...[sourcePorts, destinationPorts].map((ranges) => ranges.map(({ low, high }) => `${low}-${high}`).join()),
    ...[icmpTypes.join(), icmpCodes.join(), tls === undefined ? '' : JSON.stringify(tls)],
  ].join('|');
}

export function samePrefixes(one: readonly Prefix[], other: readonly Prefix[]): boolean {
  return sameItems(one, other, (a, b) => a.address === b.address && a.length === b.length);
}

function sameRanges(one: readonly Range[], other: readonly Range[]): boolean {
  return sameItems(one, other, (a, b) => a.low === b.low && a.high === b.high);
}

function sameNumbers(one: readonly number[], other: readonly number[]): boolean {
  return sameItems(one, other, (a, b) => a === b);
}

function sameItems<T>(one: readonly T[], other: readonly T[], isSame: (a: T, b: T) => boolean): boolean {
  return one === other || (one.length === other.length && one.every((item, at) => isSame(item, other[at] as T)));
}
