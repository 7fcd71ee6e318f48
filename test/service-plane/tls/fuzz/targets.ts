import { deepStrictEqual } from 'node:assert';
import { readCertificateFacts } from '#service-plane/certificate/certificate-facts.js';
import { TrustAnchors } from '#service-plane/certificate/trust-anchors.js';
import { FlightReader } from '#service-plane/tls/flight-reader.js';
import { readClientHello } from '#service-plane/tls/hello/client-hello.js';
import { HelloReader } from '#service-plane/tls/hello/hello-reader.js';
import { mayFollow } from '#service-plane/tls/hello/second-hello.js';
import type { Target } from '#test/fuzz-campaign.js';
import { read } from '../chunks.js';
import { anySplit, mutant } from '../mutant.js';
import { RETRY } from '../retry.js';
import type { Seeds } from './seeds.js';

export function targetsOf({ hellos, flights, certificates, root }: Seeds): ReadonlyMap<string, Target> {
  const anchors = [root.pem];
  const bodies = hellos.map((bytes) => {
    const reader = new HelloReader();
    reader.push(bytes);
    return Buffer.from(reader.body);
  });
  return new Map([
    ['hellos', { make: (random) => mutant(random, hellos), check: isSplitAlike(() => new HelloReader()) }],
    [
      'second hellos',
      { make: (random) => mutant(random, hellos), check: isSplitAlike(() => new HelloReader('second')) },
    ],
    [
      'a hello after a retry',
      {
        make: (random) => mutant(random, bodies),
        check: (bytes) => {
          const second = readClientHello(bytes);
          const first = bodies.find((body) => mayFollow(body, RETRY, bytes));
          if (first === undefined || second === null) return;
          deepStrictEqual(second.sni, readClientHello(first)?.sni);
        },
      },
    ],
    ['flights', { make: (random) => mutant(random, flights), check: isSplitAlike(() => new FlightReader()) }],
    [
      'certificates',
      {
        make: (random) => mutant(random, certificates),
        check: (bytes) => {
          const facts = readCertificateFacts([bytes, root.der], { roots: () => new TrustAnchors([]) });
          if (facts.kind === 'seen') facts.isTrusted(anchors);
        },
      },
    ],
  ]);
}

type Reader = { readonly bytes: Uint8Array; push(chunk: Uint8Array): unknown };

function isSplitAlike(make: () => Reader): Target['check'] {
  return (bytes, random) => {
    const whole = make();
    const parts = make();
    deepStrictEqual(read(parts, anySplit(random, bytes)) ?? null, whole.push(bytes));
    if (Buffer.compare(parts.bytes, bytes) !== 0 || Buffer.compare(whole.bytes, bytes) !== 0)
      throw new Error('lost bytes');
  };
}
