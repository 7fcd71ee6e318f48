import { type FileHandle, open, rename, stat } from 'node:fs/promises';
import type { Sink } from './sink.js';

export type FileSinkOptions = {
  readonly path: string;
  /**
   * The maximum size of the file in bytes. The sink starts a new file before the current file would exceed
   * this size.
   */
  readonly maxBytes: number;
  /** The number of full files to keep; the sink removes older files. `path.1` is the newest full file. */
  readonly keep: number;
};

const NEWLINE = 0x0a;

/** Creates a sink that writes findings to a file of mode 0600, one JSON object per line of text. */
export function createFileSink({ path, maxBytes, keep }: FileSinkOptions): Sink {
  return {
    name: 'file',
    async deliver(told) {
      const lines = told.map((finding) => Buffer.from(`${JSON.stringify(finding)}\n`));
      for (let from = 0; from < lines.length; ) {
        const size = await sizeOf(path);
        const to = from + fitting(lines.slice(from), maxBytes - size);
        if (to === from && size > 0) await rotate(path, keep);
        else {
          await append(path, lines.slice(from, Math.max(to, from + 1)));
          from = Math.max(to, from + 1);
        }
      }
    },
  };
}

/** Returns how many of the first lines of text fit into `room` bytes. */
function fitting(lines: readonly Buffer[], room: number): number {
  let left = room;
  const first = lines.findIndex(({ length }) => {
    left -= length;
    return left < 0;
  });
  return first === -1 ? lines.length : first;
}

async function append(path: string, lines: readonly Buffer[]): Promise<void> {
  const file = await open(path, 'a+', 0o600);
  try {
    await file.chmod(0o600);
    // After a crash, the last line of text may be incomplete. End the incomplete line; its finding is
    // delivered again as a new line.
    const torn = !(await endsInNewline(file));
    await file.writeFile(Buffer.concat([...(torn ? [Buffer.of(NEWLINE)] : []), ...lines]));
    await file.datasync();
  } finally {
    await file.close();
  }
}

async function endsInNewline(file: FileHandle): Promise<boolean> {
  const { size } = await file.stat();
  if (size === 0) return true;
  const { buffer } = await file.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] === NEWLINE;
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (isMissing(error)) return 0;
    throw error;
  }
}

async function rotate(path: string, keep: number): Promise<void> {
  const numbered = (at: number) => (at === 0 ? path : `${path}.${at}`);
  for (let at = Math.max(0, keep - 1); at >= 0; at--) {
    await rename(numbered(at), numbered(at + 1)).catch((error: unknown) => {
      if (!isMissing(error)) throw error;
    });
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}
