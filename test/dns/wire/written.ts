import { FLAG } from '#dns/wire/dns-numbers.js';
import type { Message } from '#dns/wire/message/dns-message.js';
import { respond, templateOf } from '#dns/wire/message/response.js';
import { keyOf } from '#dns/wire/name.js';

/** Encodes a message as the response to the question in this message. */
export function written(message: Message): Uint8Array {
  const { id, flags, question, edns } = message;
  const query = { id, flags: flags | FLAG.ad, opcode: 0, key: keyOf(question.name), edns, ...question };
  return respond(templateOf(message), query, { ageSeconds: 0, limit: 65_535, edns });
}
