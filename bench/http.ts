import type { HttpRequestMatchConfig } from '#contracts/policy/policy-document.js';
import { matchRequest } from '#policy/evaluate/connection/http-block.js';
import { BodyReader } from '#service-plane/http/http1/body-reader.js';
import { type RequestHead, RequestHeadReader } from '#service-plane/http/http1/request-head.js';
import { writeRequestHead } from '#service-plane/http/http1/write-head.js';
import { nodeReader } from '#test/service-plane/http/llhttp.js';
import type { Bench, Row } from './bench.js';

const ROUNDS = 7;
const ROUND_MS = 200;
const MEBIBYTE = 2 ** 20;

const head = (...lines: readonly string[]): Buffer => Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');

const tool = head(
  'GET /api/v1/items?x=1 HTTP/1.1',
  'Host: api.example.com',
  'User-Agent: curl/8.5.0',
  'Accept: */*',
  'Authorization: Bearer abcdefghijklmnop',
  'Content-Type: application/json',
  'X-Request-Id: 0123456789',
  'Accept-Encoding: gzip',
  'Connection: keep-alive',
);

const browser = head(
  'GET /search?q=network+policy&hl=en&start=10 HTTP/1.1',
  'Host: www.example.com',
  'Connection: keep-alive',
  'Cache-Control: max-age=0',
  'sec-ch-ua: "Chromium";v="128", "Not;A=Brand";v="24", "Google Chrome";v="128"',
  'sec-ch-ua-mobile: ?0',
  'sec-ch-ua-platform: "Linux"',
  'Upgrade-Insecure-Requests: 1',
  'User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Safari/537.36',
  'Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8',
  'Sec-Fetch-Site: same-origin',
  'Sec-Fetch-Mode: navigate',
  'Sec-Fetch-User: ?1',
  'Sec-Fetch-Dest: document',
  'Referer: https://www.example.com/search?q=network',
  'Accept-Encoding: gzip, deflate, br, zstd',
  'Accept-Language: en-GB,en-US;q=0.9,en;q=0.8',
  'If-None-Match: "33a64df551425fcc55e4d42a148795d9f25f89d4"',
  'Priority: u=0, i',
  'X-Requested-With: XMLHttpRequest',
  `Cookie: session=${'0123456789abcdef'.repeat(8)}; theme=dark`,
);

const config: HttpRequestMatchConfig = {
  host: { exact: ['api.example.com'] },
  methods: ['GET', 'HEAD'],
  path: { prefix: ['/api/'] },
  headers: { require_present: ['authorization'], deny_present: ['x-debug'] },
};

/**
 * Returns for each function the calls per second in its fastest round. Each round runs all functions, so that
 * slow changes of the machine affect all functions alike.
 */
function rates(works: readonly (() => unknown)[]): readonly number[] {
  const best = works.map(() => 0);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [index, work] of works.entries()) best[index] = Math.max(best[index] ?? 0, rate(work));
  }
  return best;
}

function rate(work: () => unknown): number {
  const started = performance.now();
  let times = 0;
  let elapsed = 0;
  for (; elapsed < ROUND_MS; elapsed = performance.now() - started) {
    for (let left = 100; left > 0; left--) work();
    times += 100;
  }
  return (times * 1000) / elapsed;
}

function headRows(what: string, bytes: Buffer): readonly Row[] {
  const reader = new RequestHeadReader();
  const request = reader.push(bytes) as RequestHead;
  const [ours = 0, both = 0, node = 0] = rates([
    () => reader.push(bytes),
    () => writeRequestHead(reader.push(bytes) as RequestHead, { closes: false }),
    withArgument(nodeReader(), bytes),
  ]);
  return [
    { what: `${what} of ${request.headers.length} fields: read`, value: ours, unit: 'heads/s' },
    { what: `${what}: read and written`, value: both, unit: 'heads/s' },
    { what: `${what}: read by Node's parser`, value: node, unit: 'heads/s' },
    { what: `${what}: rate relative to Node's parser`, value: ours / node, unit: '×' },
  ];
}

function bodyRows(): readonly Row[] {
  const data = Buffer.alloc(65_536, 'a');
  const inChunks = (size: number): Buffer => {
    const chunk = Buffer.concat([Buffer.from(`${size.toString(16)}\r\n`), data.subarray(0, size), Buffer.from('\r\n')]);
    return Buffer.concat(Array.from({ length: data.length / size }, () => chunk));
  };
  const [large, small] = [inChunks(16_384), inChunks(512)];
  const readers = [
    new BodyReader('chunked'),
    new BodyReader('chunked'),
    new BodyReader(Number.MAX_SAFE_INTEGER),
  ] as const;
  const [largeRate = 0, smallRate = 0, lengthRate = 0] = rates([
    () => readers[0].push(large),
    () => readers[1].push(small),
    () => readers[2].push(data),
  ]);
  return [
    { what: 'chunks of 16 KiB', value: largeRate * 4, unit: 'chunks/s' },
    { what: 'chunks of 512 bytes', value: smallRate * 128, unit: 'chunks/s' },
    { what: 'chunks of 512 bytes: data', value: (smallRate * data.length) / MEBIBYTE, unit: 'MiB/s' },
    { what: 'pieces of a body with a length', value: lengthRate, unit: 'pieces/s' },
  ];
}

function decisionRows(): readonly Row[] {
  const request = new RequestHeadReader().push(tool) as RequestHead;
  const withQuery = { ...config, query: { key_values_exact: { x: ['1'] } } };
  const [plain = 0, query = 0] = rates([
    () => matchRequest(config, request, 'allow'),
    () => matchRequest(withQuery, request, 'allow'),
  ]);
  return [
    { what: 'a request decided by host, method, path and headers', value: plain, unit: 'requests/s' },
    { what: 'a request decided by host, method, path, headers and query', value: query, unit: 'requests/s' },
  ];
}

function withArgument<T>(work: (bytes: Buffer) => T, bytes: Buffer): () => T {
  return () => work(bytes);
}

/**
 * Measures how fast one core parses and decides HTTP/1 requests, compared with the parser of Node.js in the
 * same run.
 */
export const httpBench: Bench = {
  name: 'http',
  run: async () => [
    ...headRows('a small head', tool),
    ...headRows("a browser's head", browser),
    ...bodyRows(),
    ...decisionRows(),
  ],
};
