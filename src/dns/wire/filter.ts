import { u16, u32 } from './bytes.js';
import type { Message, ResourceRecord } from './message.js';
import { keyOf } from './name.js';
import { FLAG, TYPE } from './numbers.js';
import { withoutHints } from './service-parameters.js';

/**
 * A message without the addresses that Weir cannot enforce: AAAA records, A records that `drop` says, address hints of SVCB and
 * HTTPS records, the signatures of what changed and, since nobody vouches for what is left, the AD bit. `removed` counts records that are gone or changed, signatures not.
 * A message that has none of them is returned as it is.
 */
export function withoutUnenforceable(
  message: Message,
  drop: (address: number) => boolean,
): { message: Message; removed: number } {
  if (!message.answers.some(bears) && !message.authorities.some(bears) && !message.additionals.some(bears)) {
    return { message, removed: 0 };
  }
  const filter = new Filter(drop);
  const answers = filter.section(message.answers);
  const authorities = filter.section(message.authorities);
  const additionals = filter.section(message.additionals);
  if (filter.removed === 0) return { message, removed: 0 };
  return {
    message: {
      ...message,
      flags: message.flags & ~FLAG.ad,
      answers: filter.signed(answers),
      authorities: filter.signed(authorities),
      additionals: filter.signed(additionals),
    },
    removed: filter.removed,
  };
}

function bears({ type }: ResourceRecord): boolean {
  return type === TYPE.a || type === TYPE.aaaa || type === TYPE.https || type === TYPE.svcb;
}

class Filter {
  removed = 0;
  readonly #drop: (address: number) => boolean;
  /** Owner, class and type of what changed. */
  readonly #changed = new Set<string>();

  constructor(drop: (address: number) => boolean) {
    this.#drop = drop;
  }

  section(records: readonly ResourceRecord[]): readonly ResourceRecord[] {
    const kept: ResourceRecord[] = [];
    for (const record of records) {
      const left = this.#left(record);
      if (left !== null) kept.push(left);
      if (left === record) continue;
      this.removed++;
      this.#changed.add(setOf(record, record.type));
    }
    return kept;
  }

  signed(records: readonly ResourceRecord[]): readonly ResourceRecord[] {
    return records.filter(
      (record) => record.type !== TYPE.rrsig || !this.#changed.has(setOf(record, u16(record.data, 0))),
    );
  }

  #left(record: ResourceRecord): ResourceRecord | null {
    const { type, data } = record;
    if (type === TYPE.aaaa) return null;
    if (type === TYPE.a) return this.#drop(u32(data, 0)) ? null : record;
    if (type !== TYPE.https && type !== TYPE.svcb) return record;
    const left = withoutHints(data);
    return left === data ? record : { ...record, data: left };
  }
}

function setOf(record: ResourceRecord, type: number): string {
  return `${record.class} ${type} ${keyOf(record.name)}`;
}
