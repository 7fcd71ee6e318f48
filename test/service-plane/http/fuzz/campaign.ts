import { isDeepStrictEqual } from 'node:util';
import type { Framing } from '#service-plane/http/fields.js';
import { BodyReader } from '#service-plane/http/http1/body-reader.js';
import { Random } from '#test/seed.js';
import { converse } from '../conversation.js';
import { differenceFromNode } from '../node-parser-comparison.js';
import { readResponse } from '../pieces.js';
import { cut, mutant } from './mutation.js';

type Failure = { readonly number: number; readonly seed: number; readonly bytes: string; readonly what: string };

export type Campaign = { readonly mutants: number; readonly accepted: number; readonly failure: Failure | null };

/**
 * Parses mutated messages as requests, responses and bodies. Stops when `goesOn` returns false, or when a
 * mutated message reveals a fault of the parser.
 */
export function fuzzHttp(seed: number, goesOn: (mutants: number) => boolean): Campaign {
  const random = new Random(seed);
  let accepted = 0;
  let mutants = 0;
  for (; goesOn(mutants); mutants++) {
    const bytes = mutant(random);
    const outcome = checkSplits(bytes, random);
    if (typeof outcome === 'string') {
      return { mutants, accepted, failure: { number: mutants, seed, bytes: bytes.toString('latin1'), what: outcome } };
    }
    accepted += outcome;
  }
  return { mutants, accepted, failure: null };
}

/** Parses `bytes` and returns the number of accepted requests. Returns a text if the parser has a fault. */
function checkSplits(bytes: Buffer, random: Random): number | string {
  try {
    const splits = [
      cut(bytes, random),
      random.chance(0.05) ? Array.from(bytes, (octet) => Buffer.of(octet)) : cut(bytes, random),
    ];
    const conversation = converse([bytes]);
    const asked = { method: random.pick(['GET', 'HEAD']), isWebSocket: random.chance(0.5) };
    const response = readResponse(asked, bytes);
    const framing = random.pick<Framing>(['chunked', 'until_close', random.below(bytes.length + 9)]);
    const body = bodyOf(framing, [bytes]);
    for (const pieces of splits) {
      if (!isDeepStrictEqual(converse(pieces), conversation)) return 'requests differ when split';
      if (!isDeepStrictEqual(readResponse(asked, ...pieces), response)) return 'a response differs when split';
      if (!isDeepStrictEqual(bodyOf(framing, pieces), body)) return 'a body differs when split';
    }
    return differenceFromNode(bytes, conversation) ?? conversation.exchanges.length;
  } catch (error) {
    return error instanceof Error ? (error.stack ?? error.message) : String(error);
  }
}

function bodyOf(framing: Framing, pieces: readonly Buffer[]): unknown {
  const reader = new BodyReader(framing);
  let data = '';
  for (const piece of pieces) {
    if (reader.isComplete || reader.fault !== null) break;
    for (const slice of reader.push(piece)) data += slice.toString('latin1');
  }
  const { isComplete, fault, trailers } = reader;
  return { data, isComplete, fault, trailers };
}
