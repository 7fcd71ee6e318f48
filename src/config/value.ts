import { isIP } from 'node:net';
import { z } from 'zod';
import { parseCidr } from '#addresses/ip-address.js';
import { durationMs } from '#contracts/duration.js';
import type { Prefix } from '#contracts/policy/policy-model.js';

/**
 * This file defines schemas of configuration values. They accept numbers and booleans also as text, because
 * environment variables are text. In `meta`, `form` describes the permitted values in
 * `docs/configuration.md`.
 */
const HOSTNAME = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*$/i;

export type ListenAddress = { readonly host: string; readonly port: number };

export function text(about: string) {
  return z.string().min(1, 'must not be empty').meta({ description: about, form: 'text' });
}

/**
 * The schema of a file or folder path. A relative path is not changed, so it is relative to the working
 * directory of the process.
 */
export function path(about: string) {
  return z.string().min(1, 'must not be empty').meta({ description: about, form: 'path' });
}

export function absolutePath(about: string) {
  return z.string().startsWith('/', 'must be an absolute path').meta({ description: about, form: 'absolute path' });
}

export function oneOf<const T extends readonly [string, ...string[]]>(words: T, about: string) {
  return z
    .enum(words, { error: `must be one of ${words.join(', ')}` })
    .meta({ description: about, form: words.map((word) => `\`${word}\``).join(' or ') });
}

export function flag(about: string) {
  return z
    .union([z.boolean(), z.stringbool({ truthy: ['true'], falsy: ['false'], case: 'sensitive' })], {
      error: 'must be true or false',
    })
    .meta({ description: about, form: '`true` or `false`' });
}

export function whole(low: number, high: number, about: string) {
  const error = `must be a whole number from ${low} to ${high}`;
  return z
    .union(
      [z.number().meta({ type: 'integer', minimum: low, maximum: high }), z.string().regex(/^\d+$/).transform(Number)],
      { error },
    )
    .refine((value) => Number.isInteger(value) && value >= low && value <= high, { error })
    .meta({ description: about, form: `whole number, ${low} to ${high}` });
}

export function fraction(low: number, high: number, about: string) {
  const error = `must be a number from ${low} to ${high}`;
  return z
    .union(
      [
        z.number().meta({ minimum: low, maximum: high }),
        z
          .string()
          .regex(/^\d*\.?\d+$/)
          .transform(Number),
      ],
      { error },
    )
    .refine((value) => value >= low && value <= high, { error })
    .meta({ description: about, form: `number, ${low} to ${high}` });
}

const BYTE_UNITS = ['', 'KiB', 'MiB', 'GiB', 'TiB'];

/** Returns the number of bytes of a text such as `512MiB`; undefined for any other text. */
function bytesIn(text: string): number | undefined {
  const found = /^(\d{1,9})(KiB|MiB|GiB|TiB)$/.exec(text);
  return found === null ? undefined : Number(found[1]) * 1_024 ** BYTE_UNITS.indexOf(found[2] ?? '');
}

/** A number with a unit. `read` returns the number of the smallest unit; undefined for any other text. */
type Measure = {
  readonly name: string;
  readonly examples: string;
  readonly read: (text: string) => number | undefined;
  readonly pattern: string;
};
const SIZE: Measure = {
  name: 'size',
  examples: '512MiB or 1GiB',
  read: bytesIn,
  pattern: '^[0-9]{1,9}(KiB|MiB|GiB|TiB)$',
};
const DURATION: Measure = {
  name: 'duration',
  examples: '500ms, 60s, 5m or 2h',
  read: durationMs,
  pattern: '^[0-9]+(ms|s|m|h|d)$',
};

function measured({ name, examples, read, pattern }: Measure, low: string, high: string, about: string) {
  const [lowest, highest] = [read(low) ?? 0, read(high) ?? 0];
  const malformed = `must be a ${name} such as ${examples}`;
  return z
    .string(malformed)
    .transform((value, context) => {
      const number = read(value);
      if (number !== undefined && number >= lowest && number <= highest) return number;
      const message = number === undefined ? malformed : `must be a ${name} from ${low} to ${high}`;
      context.issues.push({ code: 'custom', input: value, message });
      return z.NEVER;
    })
    .meta({ description: about, form: `${name}, ${low} to ${high}`, pattern });
}

/**
 * The schema of a size such as `1GiB`, which it converts to bytes. `low` and `high` are the smallest and the
 * largest permitted size.
 */
export function byteSize(low: string, high: string, about: string) {
  return measured(SIZE, low, high, about);
}

/**
 * The schema of a duration such as `60s`, which it converts to milliseconds. `low` and `high` are the
 * shortest and the longest permitted duration.
 */
export function duration(low: string, high: string, about: string) {
  return measured(DURATION, low, high, about);
}

/**
 * The schema of an address and port as `host:port`; an IPv6 address needs brackets. With `addressOnly`,
 * `host` must be an IP address and not a name.
 */
export function listenAddress(about: string, { addressOnly = false } = {}) {
  const form = addressOnly ? '`address:port`' : '`host:port`';
  const example = addressOnly ? '10.1.0.1:53' : '127.0.0.1:8080';
  return z
    .string(`must be ${form}, such as ${example}`)
    .transform((value, context) => {
      const address = parseAddress(value);
      if (address !== undefined && (!addressOnly || isIP(address.host) !== 0)) return address;
      context.issues.push({ code: 'custom', input: value, message: `must be ${form}, such as ${example}` });
      return z.NEVER;
    })
    .meta({ description: about, form });
}

/** The schema of a hostname, with or without a leading `*.`. */
export function namePattern(about: string) {
  return z
    .string()
    .refine((value) => HOSTNAME.test(value.startsWith('*.') ? value.slice(2) : value), {
      error: 'must be a name, or `*.` before a name',
    })
    .meta({ description: about, form: 'name, or `*.` before a name' });
}

function parseAddress(value: string): ListenAddress | undefined {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(value);
  const port = Number(match?.[3]);
  const bracketed = match?.[1];
  const plain = match?.[2];
  if (match === null || port > 65_535) return undefined;
  if (bracketed !== undefined) return isIP(bracketed) === 6 ? { host: bracketed, port } : undefined;
  if (plain === undefined) return undefined;
  const looksNumeric = /^[\d.]+$/.test(plain);
  return isIP(plain) === 4 || (!looksNumeric && HOSTNAME.test(plain)) ? { host: plain, port } : undefined;
}

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

export function interfacePattern(about: string) {
  return z
    .string()
    .transform((value, context) => {
      const message = interfaceProblem(value);
      if (message === undefined) return value;
      context.issues.push({ code: 'custom', input: value, message });
      return z.NEVER;
    })
    .meta({ description: about, form: 'interface name' });
}

/** The schema of an IPv4 network, such as 10.96.0.0/12. The bits after the prefix length must be 0. */
export function ipv4Prefix(about: string) {
  return z
    .string()
    .refine((text) => prefixIn(text) !== undefined, { error: 'must be an IPv4 network, such as 10.96.0.0/12' })
    .meta({ description: about, form: 'IPv4 network' });
}

/** Returns undefined for a text that is no IPv4 network with a prefix length. */
export function prefixIn(text: string): Prefix<number> | undefined {
  const prefix = anyPrefixIn(text);
  return prefix !== undefined && isOfIpv4Prefix(prefix) ? prefix : undefined;
}

export function anyPrefix(about: string) {
  return z
    .string()
    .refine((text) => anyPrefixIn(text) !== undefined, {
      error: 'must be a network, such as 10.244.0.0/16 or fd00:10:244::/56',
    })
    .meta({ description: about, form: 'network' });
}

/** Returns undefined for a text that is no network with a prefix length. */
export function anyPrefixIn(text: string): Prefix | undefined {
  const network = text.includes('/') ? parseCidr(text) : undefined;
  return network === undefined || network.hostBits ? undefined : network.prefix;
}

function isOfIpv4Prefix(prefix: Prefix): prefix is Prefix<number> {
  return typeof prefix.address === 'number';
}

function interfaceProblem(value: string): string | undefined {
  if (value.length === 0 || value.length > 15) return 'must be an interface name of 1 to 15 characters';
  if (value === '*') return 'matches every interface, loopback included: put the beginning of a name before the *';
  if (/\*(?!$)/.test(value)) return 'may have a * only at its end';
  if (/[\s/:]|[^\x21-\x7e]/.test(value) || value === '.' || value === '..') return 'is not a valid interface name';
  return undefined;
}

/**
 * The schema of a 32-bit mask with at least `bits` bits set. It also accepts a number, because YAML parses
 * 0x00f00000 as a number.
 */
export function mask(bits: number, about: string) {
  const error = `must be a 32-bit mask with at least ${bits} bits set, such as 0x00f00000`;
  return z
    .union(
      [
        z.number(),
        z
          .string()
          .regex(/^(0x[0-9a-f]{1,8}|\d{1,10})$/i)
          .transform(Number),
      ],
      { error },
    )
    .refine((value) => Number.isInteger(value) && value >= 0 && value <= 0xffff_ffff && setBits(value) >= bits, {
      error,
    })
    .meta({ description: about, form: `32-bit mask with ${bits} bits or more` });
}

function setBits(value: number): number {
  let count = 0;
  for (let rest = value; rest > 0; rest = Math.floor(rest / 2)) count += rest % 2;
  return count;
}

export function url(about: string) {
  return z
    .string()
    .regex(/^https?:\/\/[^\s/?#@]+\/?$/i, 'must be a URL of scheme and host, such as https://10.0.0.1:2379')
    .meta({ description: about, form: 'URL' });
}

/** The schema of a URL to which this node sends requests. The URL may have a path and a query. */
export function webUrl(about: string) {
  return z
    .string()
    .refine(isWebUrl, {
      error: 'must be a URL of http or https without credentials, such as https://siem.example/weir',
    })
    .meta({ description: about, form: 'URL' });
}

function isWebUrl(value: string): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, username, password, hash } = new URL(value);
  return /^https?:$/.test(protocol) && username === '' && password === '' && hash === '';
}
