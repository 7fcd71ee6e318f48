import { createHmac } from 'node:crypto';
import { withJoinedSignal } from '#contracts/joined-signal.js';
import { MAX_BYTES, readBounded } from '#files/bounded-file.js';
import type { Sink } from './sink.js';

export type WebhookOptions = {
  readonly url: string;
  /**
   * The file that contains the HMAC key. The sink reads the file at every delivery, and ignores white space
   * around the key.
   */
  readonly secretFile: string;
  readonly timeoutMs: number;
};

/**
 * Creates a sink (file or webhook for findings) that POSTs a JSON array of findings to `url`. The header
 * `weir-signature: t=SECONDS,v1=HEX` contains the HMAC-SHA256 of `SECONDS.BODY`. Only a 2xx response counts
 * as delivered. Redirects are not followed and count as failures.
 */
export function createWebhookSink({ url, secretFile, timeoutMs }: WebhookOptions): Sink {
  const { origin } = new URL(url);
  return {
    name: 'webhook',
    async deliver(told, signal) {
      const body = JSON.stringify(told);
      const seconds = Math.floor(Date.now() / 1_000);
      const signature = createHmac('sha256', await secretIn(secretFile))
        .update(`${seconds}.${body}`)
        .digest('hex');
      const timeout = AbortSignal.timeout(timeoutMs);
      try {
        await withJoinedSignal([signal, timeout], async (ended) => {
          const answer = await fetch(url, {
            method: 'POST',
            headers: { 'content-type': 'application/json', 'weir-signature': `t=${seconds},v1=${signature}` },
            body,
            redirect: 'manual',
            signal: ended,
          });
          await answer.body?.cancel();
          if (!answer.ok) throw new Error(`HTTP status ${answer.status}`);
        });
      } catch (error) {
        const why = timeout.aborted ? `no answer within ${timeoutMs} ms` : reasonOf(error);
        // The path of a webhook URL is often a secret, so the error message contains only the origin.
        throw new Error(`post findings to ${origin}: ${why}`);
      }
    },
  };
}

async function secretIn(path: string): Promise<string> {
  const secret = (await readBounded(path, MAX_BYTES.secret)).toString().trim();
  if (secret === '') throw new Error(`read the secret of the webhook: ${path} is empty`);
  return secret;
}

/**
 * Returns the reason of a failed delivery for an error message. An error that `fetch` throws has no details
 * itself; the error code is in its `cause`.
 */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'it failed';
  const { cause } = error;
  if (cause instanceof Error && 'code' in cause) return String(cause.code);
  return error.message.startsWith('HTTP status ') ? error.message : error.name;
}
