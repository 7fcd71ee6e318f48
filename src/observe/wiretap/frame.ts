/** Number of events that a reader did not receive, by the component that lost the events. */
export type Lost = {
  /** Messages dropped because the queue of this reader, or the memory for all queues, was full. */
  readonly reader: number;
  /** Events lost because the ring buffer between the kernel and the process was full. */
  readonly kernel: number;
  /** Events suppressed in the kernel because the source had used up its event budget. */
  readonly source_share: number;
  /** DNS lookups that the DNS proxy did not report because its buffer was full. */
  readonly dns: number;
  /** Events lost because the event buffer of the service plane (TLS and HTTP inspection) was full. */
  readonly service_plane: number;
};
export const NOTHING_LOST: Lost = { reader: 0, kernel: 0, source_share: 0, dns: 0, service_plane: 0 };

export function added(one: Lost, other: Lost): Lost {
  return {
    reader: one.reader + other.reader,
    kernel: one.kernel + other.kernel,
    source_share: one.source_share + other.source_share,
    dns: one.dns + other.dns,
    service_plane: one.service_plane + other.service_plane,
  };
}

export function less(one: Lost, other: Lost): Lost {
  return {
    reader: one.reader - other.reader,
    kernel: one.kernel - other.kernel,
    source_share: one.source_share - other.source_share,
    dns: one.dns - other.dns,
    service_plane: one.service_plane - other.service_plane,
  };
}

export const isNothing = (lost: Lost): boolean =>
  lost.reader + lost.kernel + lost.source_share + lost.dns + lost.service_plane === 0;

/** Returns the JSON messages that report losses to a reader, one for each component that lost events. */
export function lostMessages(lost: Lost): readonly string[] {
  return Object.entries(lost)
    .filter(([, count]) => count > 0)
    .map(([where, count]) => `{"type":"lost","count":${count},"where":"${where}"}`);
}

/** Encodes one message as a JSON object, or several messages as a JSON array. */
export const frameOf = (messages: readonly string[]): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(messages.length === 1 ? messages[0] : `[${messages.join(',')}]`);

/**
 * A wiretap frame for all readers of a channel, or for one reader. `lost` counts events that were lost before
 * the messages in `bytes`.
 */
export type Frame = {
  readonly to: { readonly channel: number } | { readonly reader: number };
  /** The messages as JSON; empty if the frame only reports losses. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The number of messages before equal ones were folded into one. It is lost if the frame is dropped. */
  readonly messages: number;
  readonly lost: Lost;
};
