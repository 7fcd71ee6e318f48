import type { Http2Session } from 'node:http2';

/**
 * Makes `session.destroy` wait until the current read is complete, and run only once. Node calls `destroy`
 * while nghttp2 is still reading a chunk. Without this delay, Node 22.23.3 aborts the process (nodejs/node
 * 64850), and queued frames are lost.
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
