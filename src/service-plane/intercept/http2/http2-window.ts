import type { Http2Session, Http2Stream } from 'node:http2';

/** The maximum number of bytes that are buffered for one stream while the receiver does not read. */
export const STREAM_WINDOW = 262_144;
/** The flow-control window of a whole connection, in bytes. */
const CONNECTION_WINDOW = 4 * 1024 * 1024;
/**
 * Up to this number of paused streams, the window of the connection stays unchanged. A receiver that is
 * slower than its sender pauses its stream after every few frames, and each change of the window costs a
 * frame.
 */
const FREE_STREAMS = 4;

/**
 * Limits the bytes that one HTTP/2 connection can make the service plane buffer. Node restores the window of
 * a connection as soon as data arrive (RFC 9113, 5.2), even if the stream is paused. So this class reduces
 * the window by the bytes that paused streams can hold: `STREAM_WINDOW` for each.
 */
export class Http2Window {
  #paused = 0;
  /**
   * The window of the connection, in bytes, if no stream is paused. `#set` adds one byte at each increase of
   * the window.
   */
  #whole = CONNECTION_WINDOW;
  #size = CONNECTION_WINDOW;
  #isPinging = false;

  constructor(private readonly session: Http2Session) {
    session.setLocalWindowSize(CONNECTION_WINDOW);
  }

  paused(): void {
    this.#paused++;
    this.#set();
  }

  /** Must be called when `stream`, for which `paused` was called, is no longer paused. */
  resumed(stream: Http2Stream): void {
    this.#paused--;
    // Node sends an increase of the window only together with another frame, or when a stream starts to read.
    if (this.#set() && !stream.destroyed) stream._read(0);
  }

  /** Must be called in place of `resumed` if a paused stream is closed. */
  closed(): void {
    this.#paused--;
    // A PING frame makes Node send the increase of the window. While a PING frame has no response, send no
    // other: Node sends the increase when the response arrives, and more frames could exceed a limit of the
    // peer.
    if (!this.#set() || this.#isPinging) return;
    this.#isPinging = this.session.ping(() => {
      this.#isPinging = false;
    });
  }

  /** Returns true if the window increases. */
  #set(): boolean {
    const { session } = this;
    if (session.destroyed) return false;
    const withheld = this.#paused > FREE_STREAMS ? this.#paused * STREAM_WINDOW : 0;
    const size = Math.max(0, CONNECTION_WINDOW - withheld);
    const before = this.#size;
    if (size === before) return false;
    // nghttp2 returns withheld bytes to the sender only when it sends a WINDOW_UPDATE or receives data. A
    // sender whose window is used up sends no data. So an increase first sets a size that exceeds all earlier
    // sizes by one byte. nghttp2 then sends a WINDOW_UPDATE of one byte, and a second one with the withheld
    // bytes.
    if (size > before) session.setLocalWindowSize(++this.#whole);
    session.setLocalWindowSize(size);
    this.#size = size;
    return size > before;
  }
}
