/** An element of DER: its tag, what is in it, and all of it. */
export type Element = { readonly tag: number; readonly content: Buffer; readonly whole: Buffer };

/** The elements that stand one behind the other in DER that OpenSSL has read. Throws where a length leads out of it. */
export function elementsOf(bytes: Buffer): Element[] {
  const elements: Element[] = [];
  for (let at = 0; at < bytes.length; ) {
    const tag = bytes.readUInt8(at);
    const first = bytes.readUInt8(at + 1);
    if (first === 0x80) throw new RangeError('read DER: a length is indefinite');
    const lengthBytes = first < 0x80 ? 0 : first & 0x7f;
    const begin = at + 2 + lengthBytes;
    const end = begin + (lengthBytes === 0 ? first : bytes.readUIntBE(at + 2, lengthBytes));
    if (end > bytes.length) throw new RangeError('read DER: an element is longer than what holds it');
    elements.push({ tag, content: bytes.subarray(begin, end), whole: bytes.subarray(at, end) });
    at = end;
  }
  return elements;
}

/** The one element that `bytes` are. */
export function elementOf(bytes: Buffer): Element {
  const [element] = elementsOf(bytes);
  if (element === undefined) throw new RangeError('read DER: there is no element');
  return element;
}
