import { expect, test } from 'vitest';
import { decodePng, encodePng, type Image } from '../png.js';
import { squaresApart } from '../snapshots.js';

/** A picture with a stripe of three pixels at the left. */
const picture = (stripe: number): Image => ({
  width: 12,
  height: 12,
  rgb: Uint8Array.from({ length: 432 }, (_, at) => (Math.floor(at / 3) % 12 < 3 ? stripe : 250)),
});

test('a PNG picture that the test code writes has the same colours when it is read again', () => {
  expect(decodePng(encodePng(picture(30), 4))).toEqual(picture(30));
});

test('two pictures differ in the squares in which the mean of a colour differs visibly', () => {
  expect(squaresApart(picture(30), picture(30))).toEqual([]);
  expect(squaresApart(picture(30), picture(40))).toEqual([]);
  expect(squaresApart(picture(30), picture(250))).toHaveLength(2);
});
