import type { Http2Session } from 'node:http2';

/**
 * Lets a session end after the read in which it was to end, and once. Node destroys it from within nghttp2, which goes on
 * with the rest of the read: 22.23.3 aborts the process then (nodejs/node 64850), and the frames that nghttp2 queued are lost.
 */
export function endAfterRead(session: Http2Session): void {
  const destroy = session.destroy.bind(session);
  let isEnding = false;
  session.destroy = (...given: Parameters<Http2Session['destroy']>) => {
    if (isEnding) return;
    isEnding = true;
    setImmediate(() => destroy(...given));
  };
}
