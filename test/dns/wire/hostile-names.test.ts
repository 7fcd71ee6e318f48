import { describe, expect, it } from 'vitest';
import { TYPE } from '#dns/wire/dns-numbers.js';
import { readMessage } from '#dns/wire/message/dns-message.js';
import { respond, templateOf } from '#dns/wire/message/response.js';
import { keyOf, labelsOf } from '#dns/wire/name.js';
import { concatenated, messageBytes, name, pointer, type RawRecord, u16s } from './message-bytes.js';

/** The offset of the first record in bytes: after the header and the question `www.example.com`. */
const FIRST = 33;

const owner = (bytes: Uint8Array): unknown => {
  const message = readMessage(messageBytes({ answers: [{ name: bytes }] }));
  return 'fault' in message ? message.fault : labelsOf(keyOf(message.answers[0]?.name as Uint8Array));
};
const labels = (...lengths: readonly number[]): Uint8Array =>
  concatenated(...lengths.map((length) => Uint8Array.of(length, ...new Uint8Array(length).fill(0x61))));

describe('names in a DNS message (RFC 9267)', () => {
  it.each([
    ['to itself', 'pointer_not_backwards', pointer(FIRST)],
    ['to its own labels', 'pointer_not_backwards', concatenated(labels(1), pointer(FIRST))],
    ['to the middle of its own labels', 'pointer_not_backwards', concatenated(labels(1, 1), pointer(FIRST + 2))],
    ['to a later offset', 'pointer_not_backwards', pointer(FIRST + 2)],
    ['past the end', 'pointer_not_backwards', pointer(0x3fff)],
    ['to the header', 'pointer_to_header', pointer(0)],
    ['to the last byte of the header', 'pointer_to_header', pointer(11)],
  ])(
    'names in a DNS message are rejected if their compression pointer does not point to an earlier name: it points %s',
    (_, fault, bytes) => {
      expect(owner(bytes)).toBe(fault);
    },
  );

  it('names in a DNS message are rejected with a compression pointer in the question', () => {
    expect(readMessage(messageBytes({ question: pointer(12) }))).toEqual({ fault: 'pointer_not_backwards' });
    expect(readMessage(messageBytes({ question: pointer(4) }))).toEqual({ fault: 'pointer_to_header' });
  });

  it('names in a DNS message are rejected with two compression pointers that point to each other', () => {
    const answers = [{ name: pointer(FIRST + 16) }, { name: pointer(FIRST) }];
    expect(readMessage(messageBytes({ answers }))).toEqual({ fault: 'pointer_not_backwards' });
  });

  it('names in a DNS message contain at most 127 chained compression pointers, even if the target names were decompressed before', () => {
    const chain = (length: number): readonly RawRecord[] =>
      Array.from({ length }, (_, index) => ({ name: pointer(index === 0 ? 12 : FIRST + (index - 1) * 16) }));
    expect(readMessage(messageBytes({ answers: chain(127) }))).not.toHaveProperty('fault');
    expect(readMessage(messageBytes({ answers: chain(128) }))).toEqual({ fault: 'pointer_hops' });
  });

  it.each([0x40, 0x7f, 0x80, 0xbf])('names in a DNS message are rejected with the label type %i', (byte) => {
    expect(owner(Uint8Array.of(byte, ...new Uint8Array(200)))).toBe('label_type');
  });

  it('names in a DNS message have labels of at most 63 bytes, and at most 255 bytes and 127 labels in all', () => {
    expect(owner(concatenated(labels(63), name('')))).toEqual(['a'.repeat(63)]);
    expect(owner(concatenated(labels(64), name('')))).toBe('label_type');
    expect(owner(concatenated(labels(63, 63, 63, 61), name('')))).toHaveLength(4);
    expect(owner(concatenated(labels(63, 63, 63, 62), name('')))).toBe('name_too_long');
    expect(owner(concatenated(labels(...Array.from({ length: 127 }, () => 1)), name('')))).toHaveLength(127);
    expect(owner(concatenated(labels(...Array.from({ length: 128 }, () => 1)), name('')))).toBe('name_too_long');
  });

  it('the limit of 255 bytes for a name in a DNS message includes the bytes to which a compression pointer refers', () => {
    const question = concatenated(labels(63, 63, 63), name(''));
    const answer = (...own: readonly number[]): unknown => {
      const message = readMessage(
        messageBytes({ question, answers: [{ name: concatenated(labels(...own), pointer(12)) }] }),
      );
      return 'fault' in message ? message.fault : message.answers[0]?.name.length;
    };
    expect([answer(61), answer(62)]).toEqual([255, 'name_too_long']);
  });

  it('names in a DNS message are rejected if the message or the record data ends within the name', () => {
    for (const bytes of [
      labels(10),
      concatenated(labels(9), Uint8Array.of(0xc0)),
      concatenated(labels(9), Uint8Array.of(1)),
    ]) {
      expect(readMessage(messageBytes({ counts: [1, 1, 0, 0], rest: bytes }))).toEqual({ fault: 'truncated' });
    }
    const data = labels(3);
    expect(readMessage(messageBytes({ answers: [{ type: TYPE.cname, data }] }))).toEqual({ fault: 'truncated' });
    const behind = messageBytes({ answers: [{ type: TYPE.cname, data }, { name: name('') }] });
    expect(readMessage(behind)).toEqual({ fault: 'truncated' });
  });

  it('names in a DNS message may contain any byte in a label, and a dot or NUL byte does not separate labels', () => {
    const every = Array.from({ length: 256 }, (_, byte) => byte);
    const seen = every.map((byte) => owner(Uint8Array.of(3, 0x78, byte, 0x79, 0)));
    expect(seen).toEqual(
      every.map((byte) => [`x${String.fromCharCode(byte).replace(/[A-Z]/, (c) => c.toLowerCase())}y`]),
    );
    expect(owner(concatenated(Uint8Array.of(8), Buffer.from('good.com'), name('')))).toEqual(['good.com']);
    expect(owner(concatenated(Uint8Array.of(9), Buffer.from('good.com\0'), name('evil')))).toEqual([
      'good.com\0',
      'evil',
    ]);
  });
});

describe('work to decompress the names of one message', () => {
  it('a DNS message with 4,000 names of up to 126 pointer hops each is rejected, and one with 1,000 such names is accepted', () => {
    expect(readMessage(hopping(16_000, 4_000))).toEqual({ fault: 'name_work' });
    expect(readMessage(hopping(16_000, 1_000))).not.toHaveProperty('fault');
  });

  it('a DNS message with 1,500 names that point to one name of 100 labels is accepted, and written back unchanged', () => {
    const long = labels(...Array.from({ length: 100 }, () => 1));
    const owners = Array.from({ length: 1500 }, (_, index) => ({ name: index % 2 === 0 ? pointer(12) : pointer(14) }));
    const bytes = messageBytes({ question: concatenated(long, name('')), answers: owners });
    const message = readMessage(bytes);
    if ('fault' in message) throw new Error(message.fault);
    const query = { id: 1, flags: 0, opcode: 0, name: message.question.name, key: '', type: 1, class: 1, edns: null };
    const written = respond(templateOf(message), query, { ageSeconds: 0, limit: 65_535, edns: null });
    expect(Buffer.compare(written.subarray(4), bytes.subarray(4))).toBe(0);
  });

  it('a DNS answer becomes a SERVFAIL response if its decompressed record data exceed the size limit', () => {
    const question = concatenated(labels(63, 63, 63), name(''));
    const records = Array.from({ length: 450 }, (_, index) => ({
      type: TYPE.srv,
      data: concatenated(u16s(0, 0, index), labels(1 + (index % 60)), pointer(12)),
    }));
    const message = readMessage(messageBytes({ question, answers: records }));
    if ('fault' in message) throw new Error(message.fault);
    const template = templateOf(message);
    expect({ rcode: template.rcode, length: template.bytes.length }).toEqual({ rcode: 2, length: 12 + 193 + 4 });
    expect(readMessage(template.bytes)).toMatchObject({ rcode: 2, answers: [] });
  });
});

/**
 * Makes a message with a chain of compression pointers in TXT data, and with records whose names point into
 * that chain. Each name needs up to 126 pointer hops.
 */
function hopping(chainBytes: number, records: number): Uint8Array {
  const start = FIRST + 12;
  const chain = concatenated(
    u16s(0),
    ...Array.from({ length: chainBytes / 2 - 1 }, (_, link) => pointer(start + 2 * link)),
  );
  const owners = Array.from({ length: records }, (_, index) => ({
    name: pointer(start + 2 * (1 + (index % 126))),
    type: TYPE.txt,
    data: new Uint8Array(0),
  }));
  return messageBytes({ answers: [{ type: TYPE.txt, data: chain }, ...owners] });
}
