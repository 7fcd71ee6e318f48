/**
 * Computes a 64-bit identity (`low` and `high`) for a rule, a group default or a policy default. A BPF map
 * keeps hit counts under this identity over restarts and upgrades. A change of the algorithm would lose all
 * counts.
 */
export class HitIdentity {
  /** The low 32 bits of the state, as an unsigned number. */
  low = 0;
  high = 0;

  /** Resets `low` and `high` to the state before the first text. */
  begin(): void {
    this.low = 0x9e37_79b9;
    this.high = 0x85eb_ca6b;
  }

  continueFrom(low: number, high: number): void {
    this.low = low;
    this.high = high;
  }

  /**
   * Appends a text to the hashed sequence. `mark` ends the text. It must be above all UTF-16 code units, so
   * that no text contains it.
   */
  text(text: string, mark: number): void {
    let { low, high } = this;
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      low = Math.imul(low ^ unit, 0x9e37_79b1);
      high = Math.imul(high ^ unit, 0x5f35_6495);
      low ^= low >>> 15;
      high ^= high >>> 13;
    }
    this.low = Math.imul(low ^ mark, 0x9e37_79b1) >>> 0;
    this.high = Math.imul(high ^ mark, 0x5f35_6495) >>> 0;
  }

  /**
   * Mixes all bits of the hash state, and writes the low and the high 32 bits to `words` as pair number
   * `index`. The low 32 bits are never 0, because 0 marks an unused entry.
   */
  write(words: Uint32Array, index: number): void {
    const low = mixed(this.low ^ Math.imul(this.high, 0x85eb_ca77));
    words[2 * index] = low || 1;
    words[2 * index + 1] = mixed(this.high ^ Math.imul(low, 0xc2b2_ae3d));
  }
}

/**
 * Maps 32-bit numbers one-to-one to 32-bit numbers, so that each output bit depends on all input bits (the
 * finalizer of MurmurHash3).
 */
export function mixed(word: number): number {
  let bits = word;
  bits = Math.imul(bits ^ (bits >>> 16), 0x85eb_ca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2_ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}
