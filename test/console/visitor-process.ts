import { connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

/**
 * The clients of a console test: `node visitor-process.js ADDRESS PORT…` in the client's network namespace.
 * Opens a new connection to each port again and again, sends one line, and waits for the echo.
 */
const TIMEOUT_MS = 500;
/** Between two connections to a port. */
const PAUSE_MS = 1_500;

const [address = '', ...ports] = process.argv.slice(2);

function visit(port: number): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, address, () => socket.write('1\n'));
    socket.setTimeout(TIMEOUT_MS, () => socket.destroy());
    socket.once('data', () => socket.end());
    // A denied connection has no answer. The node resets a connection that a new policy cuts.
    socket.on('error', () => socket.destroy());
    socket.once('close', () => resolve());
  });
}

await Promise.all(
  ports.map(async (port) => {
    for (;;) {
      await visit(Number(port));
      await pause(PAUSE_MS);
    }
  }),
);
