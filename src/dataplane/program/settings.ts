import { REVERSE_PATH, type ReversePath } from './numbers.js';

/** `struct settings` of `bpf/weir.h`: what a loaded program cannot change any more. */
export type Settings = {
  readonly slotLines: number;
  readonly markMask: number;
  readonly reversePath: ReversePath;
  readonly passNonIpv4: boolean;
  readonly judgeAll: boolean;
  readonly traceWord: boolean;
};

export const SETTINGS_OFFSETS = {
  slot_lines: 0,
  mark_mask: 4,
  guard_bit: 8,
  reverse_path: 12,
  pass_non_ipv4: 16,
  judge_all: 17,
  trace_word: 18,
} as const;
export const SETTINGS_BYTES = 20;

/** The lowest bit of the mask is the guard's; the next is kept for redirects. */
export function guardBit(markMask: number): number {
  return (markMask & -markMask) >>> 0;
}

export function encodeSettings(settings: Settings): Uint8Array {
  const bytes = new Uint8Array(SETTINGS_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(SETTINGS_OFFSETS.slot_lines, settings.slotLines, true);
  view.setUint32(SETTINGS_OFFSETS.mark_mask, settings.markMask, true);
  view.setUint32(SETTINGS_OFFSETS.guard_bit, guardBit(settings.markMask), true);
  view.setUint32(SETTINGS_OFFSETS.reverse_path, REVERSE_PATH[settings.reversePath], true);
  view.setUint8(SETTINGS_OFFSETS.pass_non_ipv4, settings.passNonIpv4 ? 1 : 0);
  view.setUint8(SETTINGS_OFFSETS.judge_all, settings.judgeAll ? 1 : 0);
  view.setUint8(SETTINGS_OFFSETS.trace_word, settings.traceWord ? 1 : 0);
  return bytes;
}
