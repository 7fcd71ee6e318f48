/** What a reader did not get, by where it was lost. */
export type Lost = {
  /** The reader was too slow. */
  readonly reader: number;
  /** The ring between kernel and node was full. */
  readonly kernel: number;
  /** The source had had its share of events. */
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

/** The messages that say it. */
export function lostMessages(lost: Lost): readonly string[] {
  return Object.entries(lost)
    .filter(([, count]) => count > 0)
    .map(([where, count]) => `{"type":"lost","count":${count},"where":"${where}"}`);
}

/** One JSON object, or an array of them. */
export const frameOf = (messages: readonly string[]): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(messages.length === 1 ? messages[0] : `[${messages.join(',')}]`);

/** To everybody who reads a channel, or to one reader. What was lost was lost before the messages of the frame. */
export type Frame = {
  readonly to: { readonly channel: number } | { readonly reader: number };
  /** Empty where nothing but loss is told. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly messages: number;
  readonly lost: Lost;
};
