import { InvalidArgumentError } from 'commander';
import { durationMs } from '#config/value.js';

/** Parses the value of a flag that is a count. */
export function wholeNumber(text: string): number {
  if (!/^[1-9]\d{0,6}$/.test(text)) throw new InvalidArgumentError('It must be a number from 1 to 9999999.');
  return Number(text);
}

/** Parses the value of a flag that is a number up to `highest`: a port, a type, a code. */
export function numberUpTo(highest: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d{1,6}$/.test(text) || value > highest)
      throw new InvalidArgumentError(`It must be a number from 0 to ${highest}.`);
    return value;
  };
}

/** Parses the value of a flag that is a duration, to milliseconds. */
export function duration(text: string): number {
  const ms = durationMs(text);
  if (ms === undefined || ms === 0) throw new InvalidArgumentError('It must be a duration, such as 500ms, 60s or 5m.');
  return ms;
}
