import { createHash } from 'node:crypto';
import { rmSync } from 'node:fs';
import { z } from 'zod';
import type { Family } from '#contracts/policy/policy-model.js';
import { readUnlinkedSync } from '#files/bounded-file.js';
import { replaceDurablyLater } from '#files/replaced-file.js';
import { quarantine } from '#store/disk/data-folder.js';
import { StoreError } from '#store/store-error.js';
import { FlowHistory, type FlowHistoryContent, type FlowHistoryOptions } from './flow-history.js';
import { bytesOfRows, columnsOver, rowBytes } from './flow-table.js';

/**
 * The file: `MAGIC`, the length of the header (32 bits), the header (JSON), the columns of IPv4, those of
 * IPv6, and the SHA-256 of all before. Numbers are little-endian.
 */
const MAGIC = Buffer.from('weirfh02');
/** The start of a file of an earlier build: it has one table, of IPv4, whose fields are in the header. */
const IPV4_MAGIC = Buffer.from('weirfh01');
const DIGEST_BYTES = 32;
const PREFIX_BYTES = MAGIC.length + 4;
/** Larger than any history: a million rows of each family, and the names of all lists. */
const MAX_BYTES = 256 * 2 ** 20;
const SAVED_EVERY_MS = 3_600_000;

const count = z.int().min(0);
const table = { count, removedS: z.object({ passed: count, denied: count }) };
const common = {
  names: z.array(z.array(z.string())).min(2),
  hours: z.array(z.object({ hour: count, recordedS: z.number(), lost: count, unrecorded: count })),
  sinceS: count,
};
const headerSchema = z.object({ ipv4: z.object(table), ipv6: z.object(table), ...common });
const ipv4HeaderSchema = z.object({ ...table, ...common });
type Header = z.infer<typeof headerSchema>;

export type FlowHistoryReport = {
  trouble(code: string, message: string): void;
  relief(code: string, message: string): void;
};

/** A history that a file keeps over a restart. It is stored each hour and by `close`. */
export type StoredFlowHistory = { readonly history: FlowHistory; close(): Promise<void> };

/**
 * Reads the history in the file `path`. A file that is damaged or of another format is renamed and reported,
 * and the history begins empty. Without a retention, removes the file and returns null.
 */
export function openFlowHistory(
  path: string,
  options: FlowHistoryOptions,
  report: FlowHistoryReport,
): StoredFlowHistory | null {
  if (options.retentionMs === 0) {
    for (const file of [path, `${path}.new`]) rmSync(file, { force: true });
    return null;
  }
  let saving: Promise<void> = Promise.resolve();
  const read = (): FlowHistoryContent | null => {
    try {
      return decoded(readUnlinkedSync(path, MAX_BYTES), Date.now());
    } catch (failure) {
      if ((failure as NodeJS.ErrnoException).code === 'ENOENT') return null;
      saving = setAside(path, failure as Error, report);
      return null;
    }
  };
  const history = new FlowHistory(options, Date.now(), read());
  let failed = false;
  const save = (): Promise<void> => {
    saving = saving.then(async () => {
      try {
        await replaceDurablyLater(path, encoded(history.content(Date.now())), 0o600);
        if (failed) report.relief('flow_history_stored', 'the flow history is stored again');
        failed = false;
      } catch (failure) {
        if (!failed) report.trouble('flow_history_not_stored', `store the flow history: ${(failure as Error).message}`);
        failed = true;
      }
    });
    return saving;
  };
  const timer = setInterval(() => void save(), SAVED_EVERY_MS);
  return {
    history,
    close: () => {
      clearInterval(timer);
      return save();
    },
  };
}

/** Renames a file that cannot be read. The next write then replaces no file. */
async function setAside(path: string, { message }: Error, report: FlowHistoryReport): Promise<void> {
  const damaged = new StoreError('store_damaged', `read the flow history ${path}: ${message}`);
  try {
    const { code, message: told } = await quarantine(path, damaged);
    report.trouble(code, told);
  } catch {
    report.trouble(damaged.code, damaged.message);
  }
}

/** Returns the parts of the file. They are copies, because the columns change with the next event. */
function encoded({ ipv4, ipv6, names, hours, sinceS }: FlowHistoryContent): readonly Uint8Array[] {
  const headerOf = ({ rows, removedS }: typeof ipv4): Header['ipv4'] => ({ count: rows.count, removedS });
  const header = { ipv4: headerOf(ipv4), ipv6: headerOf(ipv6), names, hours, sinceS };
  const text = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(PREFIX_BYTES);
  MAGIC.copy(prefix);
  prefix.writeUInt32LE(text.length, MAGIC.length);
  const parts: Uint8Array[] = [
    prefix,
    text,
    ...bytesOfRows(ipv4.rows, 'ipv4', ipv4.rows.count),
    ...bytesOfRows(ipv6.rows, 'ipv6', ipv6.rows.count),
  ];
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return [...parts, hash.digest()];
}

function decoded(file: Buffer, nowMs: number): FlowHistoryContent {
  const end = file.length - DIGEST_BYTES;
  const starts = (magic: Buffer): boolean => file.subarray(0, magic.length).equals(magic);
  if (end < PREFIX_BYTES || !(starts(MAGIC) || starts(IPV4_MAGIC)))
    throw new Error('it is not a flow-history file of a known format');
  const digest = createHash('sha256').update(file.subarray(0, end)).digest();
  if (!digest.equals(file.subarray(end))) throw new Error('its checksum is wrong');
  const from = PREFIX_BYTES + file.readUInt32LE(MAGIC.length);
  const json: unknown = JSON.parse(file.toString('utf8', PREFIX_BYTES, from));
  const { ipv4, ipv6, ...header } = starts(MAGIC) ? headerSchema.parse(json) : withoutIpv6(json, nowMs);
  if (end - from !== ipv4.count * rowBytes('ipv4') + ipv6.count * rowBytes('ipv6'))
    throw new Error('its length is wrong');
  let at = from;
  const take = (bytes: number): ArrayBufferLike => {
    const part = new Uint8Array(file.subarray(at, at + bytes));
    at += bytes;
    return part.buffer;
  };
  const stored = (family: Family, { count, removedS }: Header['ipv4']): FlowHistoryContent['ipv4'] => ({
    rows: { ...columnsOver(take, family, count), count },
    removedS,
  });
  return { ipv4: stored('ipv4', ipv4), ipv6: stored('ipv6', ipv6), ...header };
}

/** Returns the header of a file of an earlier build, which recorded no IPv6 flows until now. */
function withoutIpv6(json: unknown, nowMs: number): Header {
  const { count, removedS, ...header } = ipv4HeaderSchema.parse(json);
  const nowS = Math.floor(nowMs / 1_000);
  return {
    ipv4: { count, removedS },
    ipv6: { count: 0, removedS: { passed: nowS, denied: nowS } },
    ...header,
  };
}
