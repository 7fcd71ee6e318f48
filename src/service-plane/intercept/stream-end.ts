import type { Http2Stream } from 'node:http2';
import type { Readable } from 'node:stream';
import type { TLSSocket } from 'node:tls';

/**
 * How the peer of a TLS connection ended its direction. `closed`: by close_notify. `cut`: by a FIN without
 * close_notify, so the end of the data may be missing (RFC 8446, 6.1).
 */
export type TlsEnd = 'closed' | 'cut';

/** The handles of a TLS socket and of its TCP socket, which Node's type definitions lack. */
type TlsHandle = { readonly reading: boolean; readonly _parent: { readStart(): number } };

/**
 * Calls `ended` when Node passes the end of the data to a stream: synchronously, so before the stream is
 * closed, and before buffered data are read. The event `end` comes later, and also comes for an HTTP/2 stream
 * that was reset with NO_ERROR.
 */
function onEndOfData(stream: Readable, ended: () => void): void {
  const push = stream.push.bind(stream);
  stream.push = (chunk: unknown, encoding?: BufferEncoding) => {
    if (chunk === null) ended();
    return push(chunk, encoding);
  };
}

/**
 * Returns a function that returns how the peer ended its direction; null before the end. Call `watchTlsEnd`
 * before data can arrive. Node reports close_notify and a FIN without close_notify in the same way. But libuv
 * stops reading a TCP socket at its FIN. So the end was close_notify if Node still reads the TCP socket at
 * the end of the data (EALREADY), or had stopped reading it before.
 */
export function watchTlsEnd(socket: TLSSocket): () => TlsEnd | null {
  let end: TlsEnd | null = null;
  onEndOfData(socket, () => {
    const { _handle: handle } = socket as unknown as { readonly _handle: TlsHandle | null };
    end ??= handle?.reading === true && handle._parent.readStart() === 0 ? 'cut' : 'closed';
  });
  return () => end;
}

/**
 * Returns a function that returns true after the peer has sent END_STREAM. Call `watchStreamEnd` when the
 * stream was opened. For a stream that was reset, Node also passes an end of the data, but only after it has
 * closed the stream.
 */
export function watchStreamEnd(stream: Http2Stream): () => boolean {
  let isWhole = !stream.closed && stream.state.remoteClose === 1;
  onEndOfData(stream, () => {
    isWhole ||= !stream.closed;
  });
  return () => isWhole;
}
