// Node.js 20, which runs unit tests, has no `navigator`.
const LOCALE = typeof navigator === 'undefined' ? 'en' : navigator.language;
const whole = new Intl.NumberFormat(LOCALE);
const compact = new Intl.NumberFormat(LOCALE, { notation: 'compact', maximumFractionDigits: 1 });
const exactTime = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'medium', timeStyle: 'long' });
const clock = new Intl.DateTimeFormat(LOCALE, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

/** Returns a number in short form: 131072 → "131.1K". */
export const short = (value: number): string => compact.format(value);
/** Returns a number with all digits: 131072 → "131,072". */
export const full = (value: number): string => whole.format(value);
/** Returns the time of day of a date: "04:21:16". */
export const clockTime = (at: string | number): string => clock.format(new Date(at));
/** Returns the complete date and time with the time zone, so that it can be compared with logs. */
export const exact = (at: string | number): string => exactTime.format(new Date(at));

const STEPS: readonly (readonly [seconds: number, unit: string])[] = [
  [86_400, 'd'],
  [3_600, 'h'],
  [60, 'min'],
  [1, 's'],
];

/** Returns a duration in at most two units, so that it is easy to read: 93784 s → "1 d 2 h". */
export function span(seconds: number): string {
  const rest = Math.max(0, Math.round(seconds));
  const at = STEPS.findIndex(([size]) => rest >= size);
  const [size, unit] = STEPS[at] ?? [1, 's'];
  const count = Math.floor(rest / size);
  const next = STEPS[at + 1];
  const left = next === undefined || at >= 2 ? 0 : Math.floor((rest - count * size) / next[0]);
  return left === 0 || next === undefined ? `${count} ${unit}` : `${count} ${unit} ${left} ${next[1]}`;
}

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
/** Returns a number of bytes with its unit: 1536 → "1.5 KiB". */
export function bytes(value: number): string {
  const power = value < 1 ? 0 : Math.min(SIZES.length - 1, Math.floor(Math.log2(value) / 10));
  const amount = value / 2 ** (10 * power);
  return `${power === 0 ? amount : amount.toFixed(1)} ${SIZES[power]}`;
}

const PROTOCOLS: Readonly<Record<number, string>> = { 1: 'icmp', 6: 'tcp', 17: 'udp', 58: 'icmpv6', 132: 'sctp' };
/** Returns the name of an IP protocol; for an unknown protocol its number, such as "protocol 47". */
export const protocol = (number: number): string => PROTOCOLS[number] ?? `protocol ${number}`;
