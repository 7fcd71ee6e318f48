import { getSystemErrorMap } from 'node:util';

type SystemError = Error &
  NodeJS.ErrnoException & {
    readonly dest?: string;
    readonly address?: string;
    readonly hostname?: string;
    readonly port?: number;
  };

/** Advice on system errors, by the name of the errno. Other errors need no advice besides their message. */
const REMEDIES: Readonly<Record<string, string>> = {
  EACCES: 'run the command as root, or as the user of the unit, or give this user the permission',
  EPERM: 'run the command as root',
  EADDRINUSE: '`ss -lntup` shows the process that uses the address; end it, or use another address',
  EADDRNOTAVAIL: '`ip address` shows the addresses of this machine; use one of them',
  EMFILE: 'raise the limit of open files: `ulimit -n`, or LimitNOFILE of the unit',
  ENFILE: 'raise fs.file-max, the limit of open files of the machine',
  ENOSPC: 'make space in this file system',
  EROFS: 'use a file system that is writable; ReadWritePaths of a unit permits further folders',
};

const WORDS: ReadonlyMap<string, string> = new Map(getSystemErrorMap().values());

/**
 * Returns the message of an error. If the error is a system error, the message has the operation, the file or
 * address, and the description in words. Other messages are returned unchanged.
 */
export function messageOf(error: Error): string {
  const { message } = error;
  const { code = '', syscall, path, dest, address, hostname, port = -1 } = error as SystemError;
  const words = WORDS.get(code);
  if (words === undefined) return message;
  const isBare = message === code;
  // The message of a libc error already contains the operation: `attach egress to eth0: EBUSY`.
  if (!isBare && syscall === undefined) return message.replace(new RegExp(`: ${code}$`, 'm'), `: ${words} (${code})`);
  if (!isBare && !message.includes(code)) return message;
  const place = path ?? (address === undefined || port < 0 ? (address ?? hostname) : `${address}:${port}`);
  // For a program that cannot be started, the operation already contains its name: `spawn nft`.
  const isInside = place !== undefined && syscall?.endsWith(` ${place}`) === true;
  const object = [isInside ? undefined : place, dest].filter((part) => part !== undefined).join(' to ');
  const doing = [syscall, object].filter((part) => part !== undefined && part !== '').join(' ');
  return `${doing === '' ? 'an operation failed' : doing}: ${words} (${code})`;
}

/** Returns advice on a system error or on an error that one caused; undefined if there is no advice. */
export function remedyOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code = '', syscall = '', path } = error as SystemError;
  if (code === 'ENOENT' && syscall.startsWith('spawn')) return `install the package with the program ${path ?? ''}`;
  return REMEDIES[code] ?? remedyOf(error.cause);
}

/** Returns whether the error has a code. An error without a code is a bug. */
export function isNamed(error: unknown): error is Error & { readonly code: string } {
  return error instanceof Error && 'code' in error && typeof error.code === 'string';
}
