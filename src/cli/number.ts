import { InvalidArgumentError } from 'commander';
import { durationMs } from '#config/value.js';

/** The value of a flag that counts. */
export function wholeNumber(text: string): number {
  if (!/^[1-9]\d{0,6}$/.test(text)) throw new InvalidArgumentError('It must be a number from 1 to 9999999.');
  return Number(text);
}

/** The value of a flag that is a number of so many bits: a port, a type, a code. */
export function numberUpTo(highest: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d{1,6}$/.test(text) || value > highest)
      throw new InvalidArgumentError(`It must be a number from 0 to ${highest}.`);
    return value;
  };
}

/** The value of a flag that is a duration, in milliseconds. */
export function duration(text: string): number {
  const ms = durationMs(text);
  if (ms === undefined || ms === 0) throw new InvalidArgumentError('It must be a duration, such as 500ms, 60s or 5m.');
  return ms;
}
