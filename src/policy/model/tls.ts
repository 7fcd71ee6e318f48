import type {
  HeaderMatchConfig,
  HttpMatchConfig,
  HttpRequestMatchConfig,
  NameMatchObject,
  TlsMatchConfig,
  TlsNameMatch,
} from '#contracts/policy/policy-document.js';
import { canonicalName } from '#policy/model/names/hostname.js';

/**
 * Normalises the TLS matchers of a rule. The result has explicit modes, HTTP methods in upper case, header
 * names in lower case, and hostnames in the form in which they are compared. Fingerprints are lower-case
 * digits without colons. Maps have no prototype, so a key such as `__proto__` is safe.
 */
export function normaliseTls(tls: TlsMatchConfig): TlsMatchConfig {
  return defined({
    mode: tls.mode ?? 'metadata',
    sni: mapped(tls.sni, canonicalNames),
    ech: tls.ech,
    server_dn: tls.server_dn,
    server_san: mapped(tls.server_san, canonicalNames),
    server_cn: mapped(tls.server_cn, canonicalNames),
    fingerprint_sha256: mapped(tls.fingerprint_sha256, (digests) =>
      digests.map((digest) => digest.replaceAll(':', '').toLowerCase()),
    ),
    trust_anchors_pem: tls.trust_anchors_pem,
    tls13_uninspectable: (tls.tls13_uninspectable ?? 'deny').toLowerCase(),
    http: mapped(tls.http, http),
  });
}

function http({ request, response }: HttpMatchConfig): HttpMatchConfig {
  return defined({
    request: mapped(request, httpRequest),
    response: mapped(response, (config) => defined({ headers: mapped(config.headers, headers) })),
  });
}

function httpRequest(request: HttpRequestMatchConfig): HttpRequestMatchConfig {
  return defined({
    host: mapped(request.host, canonicalObject),
    methods: mapped(request.methods, (methods) => methods.map((method) => method.toUpperCase())),
    path: request.path,
    query: mapped(request.query, (query) =>
      defined({
        keys_present: query.keys_present,
        key_values_exact: mapped(query.key_values_exact, (map) => bare(map, same)),
        key_values_regex: mapped(query.key_values_regex, (map) => bare(map, same)),
      }),
    ),
    headers: mapped(request.headers, headers),
  });
}

function headers(config: HeaderMatchConfig): HeaderMatchConfig {
  return defined({
    require_present: mapped(config.require_present, (names) => names.map(lower)),
    deny_present: mapped(config.deny_present, (names) => names.map(lower)),
    exact: mapped(config.exact, (map) => bare(map, lower)),
    regex: mapped(config.regex, (map) => bare(map, lower)),
  });
}

function canonicalNames(matcher: TlsNameMatch): TlsNameMatch {
  if (typeof matcher === 'string') return matcher;
  return isNameList(matcher) ? matcher.map(canonicalName) : canonicalObject(matcher);
}

function canonicalObject({ exact, regex }: NameMatchObject): NameMatchObject {
  return defined({ exact: mapped(exact, (names) => names.map(canonicalName)), regex });
}

function lower(text: string): string {
  return text.toLowerCase();
}

function same(text: string): string {
  return text;
}

function bare<T>(map: Readonly<Record<string, T>>, key: (text: string) => string): Readonly<Record<string, T>> {
  const copy = Object.create(null) as Record<string, T>;
  for (const [name, value] of Object.entries(map)) copy[key(name)] = value;
  return copy;
}

/** This type guard is needed because `Array.isArray` does not narrow a readonly array. */
export function isNameList(matcher: Exclude<TlsNameMatch, string>): matcher is readonly string[] {
  return Array.isArray(matcher);
}

function mapped<T, R>(value: T | undefined, map: (value: T) => R): R | undefined {
  return value === undefined ? undefined : map(value);
}

/** Returns a copy of an object without members whose value is undefined. */
function defined<T extends object>(value: T): T {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as T;
}
