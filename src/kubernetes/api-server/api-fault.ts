import { reasonOf } from '#files/system-failure.js';

/**
 * The kinds of failure of a request.
 * - `untrusted`: the CA of the integration did not sign the certificate of the server for this host.
 * - `unauthorized`, `forbidden`: the server refused the token (401), or the access (403).
 * - `silent`: the server did not respond within the time limit.
 * - `quiet`: a watch received nothing for too long. The server may have failed, or there was no change.
 * - `expired`: the resource version or the `continue` token is too old (410), or the watch may have missed
 *   changes. The client must list all objects again.
 * - `too_large`: the response exceeds its bound.
 * - `failed`: any other failure, for example a refused connection, 429 or 500.
 */
export type FaultKind =
  | 'untrusted'
  | 'unauthorized'
  | 'forbidden'
  | 'silent'
  | 'quiet'
  | 'expired'
  | 'too_large'
  | 'failed';

/** A failed request to a Kubernetes API server. The message is one line without control characters. */
export class ApiFault extends Error {
  override readonly name = 'ApiFault';
  constructor(
    readonly kind: FaultKind,
    message: string,
    /** How long the server asks to wait before the next request, in milliseconds. */
    readonly retryAfterMs = 0,
  ) {
    super(oneLine(message));
  }
}

const MAX_MESSAGE_LENGTH = 300;
const MAX_RETRY_AFTER_MS = 300_000;

export function faultOf(failure: unknown): ApiFault {
  if (failure instanceof ApiFault) return failure;
  // An AggregateError contains one error for each address of a host name. Report the first one.
  const first: unknown = failure instanceof AggregateError ? failure.errors[0] : failure;
  return new ApiFault('failed', reasonOf(first));
}

/** Converts an HTTP status code and the message of a `Status` object to a fault. */
export function faultOfStatus(code: number, message: string, retryAfter?: string): ApiFault {
  const sentence = `${code}${message === '' ? '' : `: ${message}`}`;
  if (code === 401) return new ApiFault('unauthorized', sentence);
  if (code === 403) return new ApiFault('forbidden', sentence);
  if (code === 410) return new ApiFault('expired', sentence);
  return new ApiFault('failed', sentence, millisecondsOf(retryAfter));
}

/**
 * Reads `Retry-After` (RFC 9110, 10.2.3): seconds or a date. Limits the time, so that a wrong date does not
 * stop Weir.
 */
function millisecondsOf(retryAfter: string | undefined): number {
  if (retryAfter === undefined) return 0;
  const wait = /^\d+$/.test(retryAfter) ? Number(retryAfter) * 1_000 : Date.parse(retryAfter) - Date.now();
  return Number.isNaN(wait) ? 0 : Math.min(Math.max(wait, 0), MAX_RETRY_AFTER_MS);
}

function oneLine(text: string): string {
  const line = text.replace(/[\p{C}\s]+/gu, ' ').trim();
  return line.length > MAX_MESSAGE_LENGTH ? `${line.slice(0, MAX_MESSAGE_LENGTH)}…` : line;
}
