/** Events that a reader did not receive, by the place of the loss. */
export type Lost = {
  /** The reader was too slow. */
  readonly reader: number;
  /** The ring buffer between kernel and node was full. */
  readonly kernel: number;
  /** The source had used up its share of events. */
  readonly source_share: number;
  /** The DNS proxy had no room for more lookups. */
  readonly dns: number;
  /** The service plane had no room for more connections and requests. */
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

/** The messages that report losses to the reader. */
export function lostMessages(lost: Lost): readonly string[] {
  return Object.entries(lost)
    .filter(([, count]) => count > 0)
    .map(([where, count]) => `{"type":"lost","count":${count},"where":"${where}"}`);
}

/** One message as a JSON object, several as a JSON array. */
export const frameOf = (messages: readonly string[]): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(messages.length === 1 ? messages[0] : `[${messages.join(',')}]`);

/**
 * A frame for all readers of a channel, or for one reader. `lost` counts losses before the frame's messages.
 */
export type Frame = {
  readonly to: { readonly channel: number } | { readonly reader: number };
  /** Empty if the frame only reports losses. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly messages: number;
  readonly lost: Lost;
};
