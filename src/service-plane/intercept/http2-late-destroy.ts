import type { Http2Session } from 'node:http2';

/**
 * Delays the end of a session until after the current read, and ends it only once. Node destroys a session
 * from within nghttp2, which then continues with the rest of the read: Node 22.23.3 aborts the process
 * (nodejs/node 64850), and queued frames are lost.
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
