import { u16 } from '#dns/wire/bytes.js';
import { CLASS, FLAG, TYPE } from '#dns/wire/dns-numbers.js';
import type { Message, ResourceRecord } from '#dns/wire/message/dns-message.js';
import { keyOf, type NameKey } from '#dns/wire/name.js';
import { addressIn, chainOf, isAddress, OwnerKey, ownersOfAddresses, type RecordAddress } from './address-chain.js';
import { type ParameterRemoval, parameterRemovals, withoutParameters } from './service-parameters.js';

/**
 * The limit of A and AAAA records in one answer; the proxy removes further ones. DNS servers that have more
 * addresses for a name usually return other addresses in the next answer.
 */
const ADDRESSES = 128;

export type Removal = 'ipv6' | 'other_name' | 'rebinding' | 'beyond_128' | ParameterRemoval | 'signature';

/**
 * Removes the records and parameters by which a client could reach addresses at which Weir cannot enforce the
 * policy. If there is nothing to remove, returns the same `message` object.
 * - Removes AAAA records, unless `grantsIpv6` is set. Then they are treated as A records.
 * - Removes A records outside the answer section.
 * - Removes A records of the answer section whose owner is not in `chain`, whose type the question does not
 *   ask for, for which `drop` returns true, or that follow the first 128 kept address records.
 * - Removes the address hints of SVCB and HTTPS records.
 * - Removes their keys for Encrypted Client Hello. With a key, a client could hide a server name from
 *   TLS rules.
 * - Removes the signatures of changed record sets.
 * - Clears the AD bit, because the upstream validated the unchanged message.
 *
 * `removed` is the number of removed or changed records, without signatures.
 */
export function withoutUnenforceable(
  message: Message,
  drop: (address: RecordAddress) => boolean,
  chain = chainOf(message),
  /** Called with the reason for each removed or changed record, including signatures. */
  onRemoved: (why: Removal) => void = () => {},
  grantsIpv6 = false,
): { message: Message; removed: number } {
  const { answers, authorities, additionals } = message;
  if (![answers, authorities, additionals].some((section) => section.some(mayBeUnenforceable)))
    return { message, removed: 0 };
  const filter = new Filter(drop, new OwnerKey(message, chain), onRemoved, grantsIpv6);
  const left = {
    answers: filter.section(answers, (type) => ownersOfAddresses(message, chain, type)),
    authorities: filter.section(authorities),
    additionals: filter.section(additionals),
  };
  if (filter.removed === 0) return { message, removed: 0 };
  return {
    message: {
      ...message,
      flags: message.flags & ~FLAG.ad,
      answers: filter.signed(left.answers),
      authorities: filter.signed(left.authorities),
      additionals: filter.signed(left.additionals),
    },
    removed: filter.removed,
  };
}

function mayBeUnenforceable(record: ResourceRecord): boolean {
  return isAddress(record) || isService(record);
}

type KeptOwners = (type: number) => readonly NameKey[];

class Filter {
  removed = 0;
  #addresses = 0;
  /** The record sets that lost or changed a record, each as a text of class, type and owner name. */
  readonly #changed = new Set<string>();

  constructor(
    private readonly drop: (address: RecordAddress) => boolean,
    private readonly owner: OwnerKey,
    private readonly onRemoved: (why: Removal) => void,
    private readonly grantsIpv6: boolean,
  ) {}

  /**
   * Returns the remaining records of one section of the message. `keptOwners` returns the owner names whose
   * address records of a type are kept.
   */
  section(records: readonly ResourceRecord[], keptOwners: KeptOwners = () => []): readonly ResourceRecord[] {
    const kept: ResourceRecord[] = [];
    for (const record of records) {
      const why = isService(record) ? null : this.#removal(record, keptOwners);
      const parameters = isService(record) ? parameterRemovals(record.data) : [];
      if (why === null)
        kept.push(parameters.length === 0 ? record : { ...record, data: withoutParameters(record.data) });
      if (why === null && parameters.length === 0) continue;
      this.removed++;
      for (const reason of why === null ? parameters : [why]) this.onRemoved(reason);
      this.#changed.add(setOf(record, record.type));
    }
    return kept;
  }

  signed(records: readonly ResourceRecord[]): readonly ResourceRecord[] {
    return records.filter((record) => {
      const isLeft = record.type !== TYPE.rrsig || !this.#changed.has(setOf(record, u16(record.data, 0)));
      if (!isLeft) this.onRemoved('signature');
      return isLeft;
    });
  }

  #removal(record: ResourceRecord, keptOwners: KeptOwners): Removal | null {
    if (!isAddress(record)) return null;
    if (record.type === TYPE.aaaa && !this.grantsIpv6) return 'ipv6';
    const isKeptOwner = record.class === CLASS.in && keptOwners(record.type).includes(this.owner.of(record));
    if (!isKeptOwner) return 'other_name';
    if (this.drop(addressIn(record))) return 'rebinding';
    return this.#addresses++ < ADDRESSES ? null : 'beyond_128';
  }
}

function isService({ type }: ResourceRecord): boolean {
  return type === TYPE.https || type === TYPE.svcb;
}

function setOf(record: ResourceRecord, type: number): string {
  return `${record.class} ${type} ${keyOf(record.name)}`;
}
