import type { Step } from '#policy/evaluate/connection/connection-steps.js';

const REASONS: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  403: 'Forbidden',
  408: 'Request Timeout',
  417: 'Expectation Failed',
  421: 'Misdirected Request',
  431: 'Request Header Fields Too Large',
  501: 'Not Implemented',
  502: 'Bad Gateway',
  504: 'Gateway Timeout',
  505: 'HTTP Version Not Supported',
};

/**
 * A response that the service plane (TLS and HTTP inspection) sends to a client in place of the server's
 * response (RFC 9457).
 */
export type Problem = { readonly status: number; readonly detail: string; readonly rule?: Step['decider'] };

export function problemBody({ status, detail, rule }: Problem): string {
  const named =
    rule === undefined
      ? {}
      : { source_group: 'group' in rule ? rule.group : null, rule: rule.kind === 'rule' ? rule.rule : null };
  return JSON.stringify({ type: 'about:blank', title: REASONS[status] ?? 'Error', status, detail, ...named });
}

/**
 * Returns the bytes of a complete HTTP/1.1 response as text. With `isHead` (a HEAD request), the body is left
 * out.
 */
export function problemResponse(
  problem: Problem,
  options: { readonly closes: boolean; readonly isHead: boolean },
): string {
  const body = problemBody(problem);
  return [
    `HTTP/1.1 ${problem.status} ${REASONS[problem.status] ?? 'Error'}`,
    'Content-Type: application/problem+json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Cache-Control: no-store',
    ...(options.closes ? ['Connection: close'] : []),
    '',
    options.isHead ? '' : body,
  ].join('\r\n');
}
