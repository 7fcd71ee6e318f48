import { append } from '#arrays/append.js';
import type { HeaderMatchConfig, TlsMatchConfig, TlsNameMatch } from '#contracts/policy/policy-document.js';
import type { Rule } from '#contracts/policy/policy-model.js';
import { compileRegex } from '#policy/model/names/regex.js';
import { escapeStep } from '#policy/model/pointer.js';

/**
 * A regular expression of a rule. `whole`: the expression is for a name, so the lint expects anchors at both
 * ends. Otherwise the lint expects an anchor only at the start. `isForHostname`: the expression is searched
 * in the name of a host. A name in a certificate, or the host of a request, can be another text.
 */
export type Expression = {
  readonly pointer: string;
  readonly source: string;
  readonly whole: boolean;
  readonly isForHostname: boolean;
};

export function expressionsOf(rule: Rule): Expression[] {
  const { hostname, tls, pointer } = rule;
  const found: Expression[] = [];
  if (hostname?.kind === 'regex') {
    found.push({ pointer: `${pointer}/match/dns_hostname`, source: hostname.text, whole: true, isForHostname: true });
  }
  if (tls !== undefined) append(found, ofTls(tls, `${pointer}/match/tls`));
  return found;
}

/**
 * Returns the number of instructions of all regular expressions. An expression that appears twice counts
 * twice.
 */
export function instructionsOf(rules: readonly Rule[]): number {
  let instructions = 0;
  for (const rule of rules) {
    if (rule.hostname?.kind !== 'regex' && rule.tls === undefined) continue;
    const own = rule.hostname?.text;
    for (const { source } of expressionsOf(rule)) {
      const compiled = compileRegex(source, source === own ? { caseInsensitive: true } : {});
      if (compiled.ok) instructions += compiled.instructions;
    }
  }
  return instructions;
}

function ofTls({ sni, server_san, server_cn, http }: TlsMatchConfig, at: string): Expression[] {
  const request = http?.request;
  return [
    ...ofName(sni, `${at}/sni`, true),
    ...ofName(server_san, `${at}/server_san`),
    ...ofName(server_cn, `${at}/server_cn`),
    ...ofName(request?.host, `${at}/http/request/host`),
    ...ofText(request?.path?.regex, `${at}/http/request/path/regex`),
    ...ofMap(request?.query?.key_values_regex, `${at}/http/request/query/key_values_regex`),
    ...ofHeaders(request?.headers, `${at}/http/request/headers`),
    ...ofHeaders(http?.response?.headers, `${at}/http/response/headers`),
  ];
}

function ofName(matcher: TlsNameMatch | undefined, at: string, isForHostname = false): Expression[] {
  if (typeof matcher === 'string') return [{ pointer: at, source: matcher, whole: true, isForHostname }];
  if (matcher === undefined || !('regex' in matcher) || matcher.regex === undefined) return [];
  return [{ pointer: `${at}/regex`, source: matcher.regex, whole: true, isForHostname }];
}

function ofText(source: string | undefined, pointer: string): Expression[] {
  return source === undefined ? [] : [{ pointer, source, whole: false, isForHostname: false }];
}

function ofHeaders(headers: HeaderMatchConfig | undefined, at: string): Expression[] {
  return ofMap(headers?.regex, `${at}/regex`);
}

function ofMap(map: Readonly<Record<string, string>> | undefined, at: string): Expression[] {
  return Object.entries(map ?? {}).map(([key, source]) => ({
    pointer: `${at}/${escapeStep(key)}`,
    source,
    whole: false,
    isForHostname: false,
  }));
}
