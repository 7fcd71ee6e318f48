const KEPT_BYTES = 4 << 20;
const KEPT_MS = 15 * 60_000;

/**
 * Keeps the newest log lines for a support dump: by default those of the last 15 minutes, and at most 4 MiB.
 * The logger Pino writes to this object as an output stream.
 */
export class LogRing {
  readonly #lines: { readonly at: number; readonly line: string }[] = [];
  #bytes = 0;

  constructor(
    readonly keptBytes = KEPT_BYTES,
    readonly keptMs = KEPT_MS,
    readonly now: () => number = Date.now,
  ) {}

  write(line: string): void {
    const at = this.now();
    this.#lines.push({ at, line });
    this.#bytes += Buffer.byteLength(line);
    while (this.#lines.length > 0 && (this.#bytes > this.keptBytes || this.#isOld(at))) {
      this.#bytes -= Buffer.byteLength(this.#lines.shift()?.line ?? '');
    }
  }

  /** Returns the log lines, oldest first. */
  lines(): readonly string[] {
    return this.#lines.map(({ line }) => line);
  }

  #isOld(now: number): boolean {
    return (this.#lines[0]?.at ?? now) < now - this.keptMs;
  }
}
