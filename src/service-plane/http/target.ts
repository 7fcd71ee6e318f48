import type { HttpFault } from './fault.js';

export type Target = { readonly path: string; readonly query: string | null };

/**
 * Reads a request target (RFC 9112, 3.2), and returns the path and the query that are forwarded. A target in
 * absolute form must have the same authority as the Host field; its path is forwarded in origin form. A
 * target may contain visible ASCII characters except `#` and `\`.
 */
export function readTarget(text: string, method: string, host: string): Target | HttpFault {
  if (!/^[!-"$-[\]-~]+$/.test(text)) return 'target';
  if (text.startsWith('/')) return split(text);
  if (text === '*') return method === 'OPTIONS' ? { path: '*', query: null } : 'asterisk_form';
  const scheme = /^https?:\/\//i.exec(text);
  if (scheme === null) return 'target';
  const after = text.slice(scheme[0].length);
  const end = after.search(/[/?]/);
  const authority = end === -1 ? after : after.slice(0, end);
  if (authority.includes('@')) return 'userinfo';
  if (authority.toLowerCase() !== host.toLowerCase()) return 'absolute_form_mismatch';
  // RFC 9112, 3.2.4: an OPTIONS request without a path concerns the whole server, and is forwarded with the
  // target `*`.
  if (end === -1) return method === 'OPTIONS' ? { path: '*', query: null } : { path: '/', query: null };
  const rest = after.slice(end);
  return split(rest.startsWith('/') ? rest : `/${rest}`);
}

function split(text: string): Target {
  const question = text.indexOf('?');
  return question === -1
    ? { path: text, query: null }
    : { path: text.slice(0, question), query: text.slice(question + 1) };
}
