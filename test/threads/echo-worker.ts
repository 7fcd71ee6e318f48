import { WorkerServer } from '#threads/worker-server.js';

export type EchoAsks = {
  echo(what: string): string;
  double(bytes: Uint8Array): Uint8Array;
  fail(what: string, code?: string): void;
  /** A request that stays open: its promise never settles. */
  hang(): void;
};
export type ToEcho = { readonly kind: 'note'; readonly text: string } | { readonly kind: 'die'; readonly text: string };
export type FromEcho = { readonly kind: 'noted'; readonly text: string };

const parent = new WorkerServer<EchoAsks, ToEcho, FromEcho>('an echo');
const notes: string[] = [];
parent.serve(
  {
    echo: async (what) => [...notes, what].join(' '),
    double: (bytes) => bytes.map((byte) => byte * 2),
    fail: (what, code) => {
      throw Object.assign(new Error(what), code === undefined ? {} : { code });
    },
    hang: () => new Promise(() => {}),
  },
  {
    die: ({ text }) => {
      throw new Error(text);
    },
    note: ({ text }) => {
      notes.push(text);
      parent.send({ kind: 'noted', text });
    },
  },
  { transferredWith: (value) => (value instanceof Uint8Array ? [value.buffer as ArrayBuffer] : []) },
);
