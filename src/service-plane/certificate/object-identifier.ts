import { DerFault, type DerValue, expected, TAG } from './der-reader.js';

const LONGEST = 64;

/**
 * Returns an object identifier in dotted form, such as `2.5.4.3`. The numbers are of type bigint, because a
 * rounded number could equal the number of another identifier.
 * @throws DerFault if the value is not a valid object identifier.
 */
export function readObjectIdentifier(value: DerValue | undefined): string {
  const { content } = expected(value, TAG.objectIdentifier);
  if (content.length === 0 || content.length > LONGEST)
    throw new DerFault('an object identifier that is empty or too long');
  const arcs: bigint[] = [];
  let arc = 0n;
  let isInside = false;
  for (const byte of content) {
    if (!isInside && byte === 0x80) throw new DerFault('an arc with leading zeros');
    arc = (arc << 7n) | BigInt(byte & 0x7f);
    isInside = byte >= 0x80;
    if (isInside) continue;
    arcs.push(arc);
    arc = 0n;
  }
  const [first] = arcs;
  if (isInside || first === undefined) throw new DerFault('an arc without end');
  const root = first < 80n ? first / 40n : 2n;
  return [root, first - root * 40n, ...arcs.slice(1)].join('.');
}
