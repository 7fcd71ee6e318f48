import { InvalidArgumentError } from 'commander';
import { durationMs } from '#contracts/duration.js';
import { wholeNumberOf } from '#contracts/whole-number.js';

export function wholeNumber(text: string): number {
  const value = wholeNumberOf(text) ?? 0;
  if (value < 1 || value > 9_999_999) throw new InvalidArgumentError('It must be a number from 1 to 9999999.');
  return value;
}

/**
 * Returns a parser for flag values that are whole numbers up to `highest`, such as a port or an ICMP type.
 */
export function numberUpTo(highest: number): (text: string) => number {
  return (text) => {
    const value = wholeNumberOf(text);
    if (value === undefined || value > highest)
      throw new InvalidArgumentError(`It must be a number from 0 to ${highest}.`);
    return value;
  };
}

/** Parses a flag value that is a duration, such as `10m`. Returns milliseconds. */
export function duration(text: string): number {
  const ms = durationMs(text);
  if (ms === undefined || ms === 0) throw new InvalidArgumentError('It must be a duration, such as 500ms, 60s or 5m.');
  return ms;
}
