import { crc32, deflateSync, inflateSync } from 'node:zlib';

/** An image of 8-bit colours. `rgb` has three bytes a pixel, by rows. */
export type Image = { readonly width: number; readonly height: number; readonly rgb: Uint8Array };

const SIGNATURE = Buffer.from('89504e470d0a1a0a', 'hex');
/** The number of bytes a pixel by the colour type of a PNG: RGB, palette, RGBA. */
const CHANNELS: Readonly<Record<number, number>> = { 2: 3, 3: 1, 6: 4 };

/** Reads a PNG of 8-bit RGB, RGBA or palette without interlacing, as Chromium and `encodePng` write it. */
export function decodePng(file: Buffer): Image {
  let palette: Uint8Array | null = null;
  const data: Buffer[] = [];
  for (let at = SIGNATURE.length; at < file.length; ) {
    const length = file.readUInt32BE(at);
    const body = file.subarray(at + 8, at + 8 + length);
    const type = file.toString('latin1', at + 4, at + 8);
    if (type === 'PLTE') palette = body;
    else if (type === 'IDAT') data.push(body);
    at += length + 12;
  }
  const [width, height] = [file.readUInt32BE(16), file.readUInt32BE(20)];
  const channels = CHANNELS[file[25] ?? 0];
  if (file[24] !== 8 || channels === undefined || file[28] !== 0) throw new Error('this form of PNG is not supported');
  const pixels = unfiltered(inflateSync(Buffer.concat(data)), width * channels, height, channels);
  const rgb = new Uint8Array(width * height * 3);
  for (let pixel = 0; pixel < width * height; pixel++)
    for (let channel = 0; channel < 3; channel++) {
      const value = palette === null ? pixels[pixel * channels + channel] : palette[(pixels[pixel] ?? 0) * 3 + channel];
      rgb[pixel * 3 + channel] = value ?? 0;
    }
  return { width, height, rgb };
}

/** Removes the filters of the rows of a PNG (PNG specification, 9). */
function unfiltered(data: Uint8Array, rowBytes: number, height: number, channels: number): Uint8Array {
  const out = new Uint8Array(rowBytes * height);
  for (let row = 0; row < height; row++) {
    const filter = data[row * (rowBytes + 1)];
    for (let at = 0; at < rowBytes; at++) {
      const to = row * rowBytes + at;
      const left = at < channels ? 0 : (out[to - channels] ?? 0);
      const up = row === 0 ? 0 : (out[to - rowBytes] ?? 0);
      const corner = at < channels || row === 0 ? 0 : (out[to - rowBytes - channels] ?? 0);
      const predicted = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter ?? 0] ?? 0;
      out[to] = (data[row * (rowBytes + 1) + 1 + at] ?? 0) + predicted;
    }
  }
  return out;
}

function paeth(left: number, up: number, corner: number): number {
  const estimate = left + up - corner;
  const [fromLeft, fromUp, fromCorner] = [left, up, corner].map((value) => Math.abs(estimate - value)) as [
    number,
    number,
    number,
  ];
  if (fromLeft <= fromUp && fromLeft <= fromCorner) return left;
  return fromUp <= fromCorner ? up : corner;
}

/** Writes a PNG with at most `colours` colours. Each other colour becomes the nearest of them. */
export function encodePng({ width, height, rgb }: Image, colours: number): Buffer {
  const counts = new Map<number, number>();
  const colourAt = (pixel: number): number =>
    ((rgb[pixel * 3] ?? 0) << 16) | ((rgb[pixel * 3 + 1] ?? 0) << 8) | (rgb[pixel * 3 + 2] ?? 0);
  for (let pixel = 0; pixel < width * height; pixel++)
    counts.set(colourAt(pixel), (counts.get(colourAt(pixel)) ?? 0) + 1);
  const palette = paletteOf(counts, colours);
  const nearest = new Map([...counts.keys()].map((colour) => [colour, nearestIn(palette, colour)]));
  const rows = Buffer.alloc((width + 1) * height);
  for (let pixel = 0; pixel < width * height; pixel++)
    rows[pixel + Math.floor(pixel / width) + 1] = nearest.get(colourAt(pixel)) ?? 0;
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3], 8);
  return Buffer.concat([
    SIGNATURE,
    chunk('IHDR', header),
    chunk('PLTE', Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]))),
    chunk('IDAT', deflateSync(rows, { level: 9 })),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

const distance = (one: number, other: number): number =>
  Math.abs((one >> 16) - (other >> 16)) +
  Math.abs(((one >> 8) & 255) - ((other >> 8) & 255)) +
  Math.abs((one & 255) - (other & 255));

/** The most frequent colours of the image, and then those that differ most from the ones before. */
function paletteOf(counts: ReadonlyMap<number, number>, colours: number): readonly number[] {
  const frequent = [...counts].sort(([one, first], [other, second]) => second - first || one - other);
  const palette = frequent.slice(0, colours / 4).map(([colour]) => colour);
  for (const apart of [48, 12, 0])
    for (const [colour] of frequent) {
      if (palette.length === colours) return palette;
      if (palette.every((kept) => distance(kept, colour) > apart)) palette.push(colour);
    }
  return palette;
}

function nearestIn(palette: readonly number[], colour: number): number {
  let best = 0;
  for (const [index, kept] of palette.entries())
    if (distance(kept, colour) < distance(palette[best] ?? 0, colour)) best = index;
  return best;
}

function chunk(type: string, body: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type, 'latin1'), body]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  const check = Buffer.alloc(4);
  check.writeUInt32BE(crc32(named));
  return Buffer.concat([length, named, check]);
}
