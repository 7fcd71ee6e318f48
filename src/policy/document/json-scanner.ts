import { itemAt, u8At } from '#arrays/read.js';

import type { Problem } from '#contracts/policy/policy-problem.js';
import { pointerOf } from '#policy/model/pointer.js';

const MAX_DEPTH = 32;

/** The position of a JSON value as byte offsets: from `start` to `end`, which is excluded. */
export type Span = { readonly start: number; readonly end: number };

/** The positions of a JSON list, including its brackets, and of each item in the list. */
export type ListSpans = Span & { readonly items: readonly Span[] };

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;

/**
 * When an object has more keys than this, the scanner finds duplicate keys with a `Set`. For fewer keys, a
 * comparison of all hashes is faster.
 */
const MANY_KEYS = 24;
const MAX_DUPLICATES = 100;

type Frame = {
  object: boolean;
  /** The index of the current array element or object member; -1 before the first. */
  index: number;
  keyStart: number;
  keyEnd: number;
  /** The index in `#hashes`, `#starts` and `#ends` where the keys of this object begin. */
  base: number;
  seen: Set<string> | undefined;
};

/**
 * Checks in one pass that a valid UTF-8 text is JSON. Records the positions of the members of the outermost
 * object, and of the items of the list at `path`.
 */
export class Scanner {
  readonly members = new Map<string, Span>();
  readonly duplicates: Problem[] = [];
  list: { start: number; end: number; items: { start: number; end: number }[] } | undefined;
  readonly #bytes: Uint8Array;
  readonly #path: readonly string[];
  /** The nesting depth of the list at `#path` while the scanner is inside this list; otherwise -1. */
  #listDepth = -1;
  #itemStart = 0;
  readonly #frames: Frame[] = [];
  #depth = 0;
  #at = 0;
  #stringHash = 0;
  #stringEscaped = false;
  readonly #hashes: number[] = [];
  readonly #starts: number[] = [];
  readonly #ends: number[] = [];
  #keys = 0;
  #memberStart = 0;

  constructor(bytes: Uint8Array, path: readonly string[]) {
    this.#bytes = bytes;
    this.#path = path;
    for (let depth = 0; depth <= MAX_DEPTH; depth++) {
      this.#frames.push({ object: false, index: 0, keyStart: 0, keyEnd: 0, base: 0, seen: undefined });
    }
  }

  /**
   * Scans the whole text. Returns the first syntax error, or undefined. A duplicate key does not end the
   * scan; the first `MAX_DUPLICATES` are added to `duplicates`.
   */
  scan(): Problem | undefined {
    try {
      this.#document();
      return undefined;
    } catch (fault) {
      if (fault instanceof Fault) return fault.problem;
      throw fault;
    }
  }

  #document(): void {
    this.#value();
    while (this.#depth > 0) this.#step();
    this.#space();
    if (this.#at < this.#bytes.length) this.#unexpected('the end of the body');
  }

  /** Scans the next element or member of the innermost open array or object, or its closing bracket. */
  #step(): void {
    const frame = this.#frame();
    const close = frame.object ? CLOSE_OBJECT : CLOSE_ARRAY;
    const first = frame.index === -1;
    let next = this.#space();
    if (next === close) {
      this.#at++;
      this.#leave();
      return;
    }
    if (!first) {
      if (next !== COMMA) this.#unexpected(frame.object ? '"," or "}"' : '"," or "]"');
      this.#at++;
      next = this.#space();
    }
    frame.index++;
    if (frame.object) {
      if (next !== QUOTE) this.#unexpected(first ? 'a key or "}"' : 'a key');
      this.#key(frame);
      if (this.#space() !== COLON) this.#unexpected('":"');
      this.#at++;
    }
    this.#value();
  }

  #value(): void {
    const next = this.#space();
    if (this.#depth === 1) this.#memberStart = this.#at;
    else if (this.#depth === this.#listDepth) this.#itemStart = this.#at;
    if (next === OPEN_OBJECT || next === OPEN_ARRAY) {
      this.#enter(next === OPEN_OBJECT);
      return;
    }
    if (next === QUOTE) this.#string();
    else if (next === 0x2d || (next >= 0x30 && next <= 0x39)) this.#number(next);
    else if (next === 0x74) this.#word('true');
    else if (next === 0x66) this.#word('false');
    else if (next === 0x6e) this.#word('null');
    else this.#unexpected('a value');
    this.#ended();
  }

  #enter(object: boolean): void {
    if (this.#depth === MAX_DEPTH) {
      throw new Fault({
        pointer: this.#pointer(),
        code: 'too_deep',
        message: `Objects and arrays are nested deeper than ${MAX_DEPTH} at ${this.#place(this.#at)}.`,
      });
    }
    this.#at++;
    this.#depth++;
    const frame = this.#frame();
    frame.object = object;
    frame.index = -1;
    frame.base = this.#keys;
    frame.seen = undefined;
    if (!object && this.#isWanted()) {
      this.#listDepth = this.#depth;
      this.list = { start: this.#at - 1, end: this.#at, items: [] };
    }
  }

  #leave(): void {
    this.#keys = this.#frame().base;
    if (this.#depth === this.#listDepth && this.list !== undefined) {
      this.#listDepth = -1;
      this.list.end = this.#at;
    }
    this.#depth--;
    this.#ended();
  }

  /**
   * Called at the end of each value. Records the position of a member of the outermost object, or of an item
   * of the list at `#path`.
   */
  #ended(): void {
    if (this.#depth === 1) this.#member();
    else if (this.#depth === this.#listDepth) this.list?.items.push({ start: this.#itemStart, end: this.#at });
  }

  /**
   * Whether the scanner is at the list to record: the keys that lead to the current array are equal to
   * `#path`.
   */
  #isWanted(): boolean {
    if (this.#path.length === 0 || this.#depth !== this.#path.length + 1) return false;
    return this.#path.every((key, at) => {
      const { object, keyStart, keyEnd } = itemAt(this.#frames, at + 1);
      return object && this.#text(keyStart, keyEnd) === key;
    });
  }

  #member(): void {
    const frame = this.#frame();
    if (!frame.object) return;
    this.members.set(this.#text(frame.keyStart, frame.keyEnd), { start: this.#memberStart, end: this.#at });
  }

  #key(frame: Frame): void {
    const start = this.#at;
    this.#string();
    const end = this.#at;
    frame.keyStart = start;
    frame.keyEnd = end;
    let hash = this.#stringHash;
    if (this.#stringEscaped) hash = hashOf(new TextEncoder().encode(this.#text(start, end)));
    const known = this.#keys - frame.base;
    if (frame.seen === undefined && known >= MANY_KEYS) {
      frame.seen = new Set();
      for (let i = frame.base; i < this.#keys; i++)
        frame.seen.add(this.#text(itemAt(this.#starts, i), itemAt(this.#ends, i)));
    }
    if (frame.seen !== undefined) {
      const text = this.#text(start, end);
      if (frame.seen.has(text)) this.#duplicate(start);
      else frame.seen.add(text);
      return;
    }
    for (let i = frame.base; i < this.#keys; i++) {
      if (this.#hashes[i] !== hash) continue;
      if (this.#text(itemAt(this.#starts, i), itemAt(this.#ends, i)) !== this.#text(start, end)) continue;
      this.#duplicate(start);
      return;
    }
    this.#hashes[this.#keys] = hash;
    this.#starts[this.#keys] = start;
    this.#ends[this.#keys] = end;
    this.#keys++;
  }

  #duplicate(at: number): void {
    if (this.duplicates.length >= MAX_DUPLICATES) return;
    this.duplicates.push({
      pointer: this.#pointer(),
      code: 'duplicate_key',
      message: `The key is repeated in this object, at ${this.#place(at)}.`,
    });
  }

  /**
   * Scans a string, and moves `#at` behind the closing quote. For a string without escapes, stores the hash
   * of the bytes between the quotes in `#stringHash`.
   */
  #string(): void {
    const bytes = this.#bytes;
    const length = bytes.length;
    let at = this.#at + 1;
    let hash = 0x811c9dc5;
    this.#stringEscaped = false;
    for (; at < length; at++) {
      const byte = u8At(bytes, at);
      if (byte === QUOTE) {
        this.#at = at + 1;
        this.#stringHash = hash;
        return;
      }
      if (byte === BACKSLASH) {
        this.#at = at;
        this.#escape();
        at = this.#at - 1;
      } else if (byte < 0x20) {
        this.#at = at;
        this.#unexpected('a character of a string (control characters are written as escapes)');
      }
      hash = Math.imul(hash ^ byte, 0x01000193);
    }
    this.#at = length;
    this.#unexpected('the closing quote of a string');
  }

  #escape(): void {
    this.#stringEscaped = true;
    const kind = this.#bytes[this.#at + 1];
    if (kind !== 0x75) {
      if (kind === undefined || !'"\\/bfnrt'.includes(String.fromCharCode(kind))) {
        this.#at++;
        this.#unexpected('an escape');
      }
      this.#at += 2;
      return;
    }
    const start = this.#at;
    const unit = this.#unit();
    if (unit < 0xd800 || unit > 0xdfff) return;
    if (unit <= 0xdbff && this.#bytes[this.#at] === BACKSLASH && this.#bytes[this.#at + 1] === 0x75) {
      const low = this.#unit();
      if (low >= 0xdc00 && low <= 0xdfff) return;
    }
    this.#at = start;
    this.#unexpected('a pair of surrogates');
  }

  /** Reads the escape `\uXXXX` and returns the UTF-16 code unit. */
  #unit(): number {
    this.#at += 2;
    let unit = 0;
    for (let digit = 0; digit < 4; digit++, this.#at++) {
      const value = hexValue(this.#bytes[this.#at]);
      if (value < 0) this.#unexpected('four hex digits');
      unit = unit * 16 + value;
    }
    return unit;
  }

  #number(first: number): void {
    let next = first;
    if (next === 0x2d) next = this.#next();
    if (next === 0x30) next = this.#next();
    else next = this.#digits(next);
    if (next === 0x2e) next = this.#digits(this.#next());
    if (next === 0x65 || next === 0x45) {
      next = this.#next();
      if (next === 0x2b || next === 0x2d) next = this.#next();
      this.#digits(next);
    }
  }

  #digits(first: number): number {
    let next = first;
    if (!isDigit(next)) this.#unexpected('a digit');
    while (isDigit(next)) next = this.#next();
    return next;
  }

  #next(): number {
    this.#at++;
    return this.#bytes[this.#at] ?? -1;
  }

  #word(word: string): void {
    for (let i = 0; i < word.length; i++) {
      if (this.#bytes[this.#at + i] !== word.charCodeAt(i)) this.#unexpected('a value');
    }
    this.#at += word.length;
  }

  /** Skips white space. Returns the next byte, or -1 at the end of the text. */
  #space(): number {
    const bytes = this.#bytes;
    let at = this.#at;
    let byte = bytes[at] ?? -1;
    while (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) byte = bytes[++at] ?? -1;
    this.#at = at;
    return byte;
  }

  #frame(): Frame {
    return itemAt(this.#frames, this.#depth);
  }

  /** Decodes the text of a key that was already checked. The range `start` … `end` includes both quotes. */
  #text(start: number, end: number): string {
    return JSON.parse(new TextDecoder().decode(this.#bytes.subarray(start, end))) as string;
  }

  #pointer(): string {
    const path: (string | number)[] = [];
    for (let depth = 1; depth <= this.#depth; depth++) {
      const frame = itemAt(this.#frames, depth);
      path.push(frame.object ? this.#text(frame.keyStart, frame.keyEnd) : frame.index);
    }
    return pointerOf(path);
  }

  #place(offset: number): string {
    const before = this.#bytes.subarray(0, offset);
    let line = 1;
    for (const byte of before) if (byte === 0x0a) line++;
    const column = [...new TextDecoder().decode(before.subarray(before.lastIndexOf(0x0a) + 1))].length + 1;
    return `line ${line}, column ${column}`;
  }

  #unexpected(wanted: string): never {
    const found = this.#at >= this.#bytes.length ? 'the body ends' : 'another character follows';
    throw new Fault({
      pointer: '',
      code: 'invalid_json',
      message: `The body is not JSON: at ${this.#place(this.#at)} ${wanted} is expected, but ${found}.`,
    });
  }
}

class Fault extends Error {
  constructor(readonly problem: Problem) {
    super(problem.message);
  }
}

function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39;
}

function hexValue(byte: number | undefined): number {
  if (byte === undefined) return -1;
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const letter = byte | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}

function hashOf(bytes: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash;
}
