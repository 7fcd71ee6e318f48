import { smallestCapacity } from './capacity.js';
import { loadObject, type ObjectOptions } from './loaded-object.js';

type Options = Omit<ObjectOptions, 'slotLines' | 'rankCapacity' | 'hitCapacity' | 'migrates'>;

const FLOWS = 1_024;
const GRANTS = 1_024;
const LINES = 8_192;

/**
 * Loads the BPF programs with small maps of their own, and frees them. Returns why the kernel refuses a
 * program; null if it loads all. `judges`: whether the node has NAT rules, which need the forward judge.
 */
export function refusalOf(options: Options, judges: boolean): string | null {
  try {
    const small = { ...options, flowCapacity: FLOWS, grantCapacity: GRANTS, ...smallestCapacity(LINES) };
    const loaded = loadObject(small);
    try {
      if (judges && options.judges === true) loaded.judgeFd();
    } finally {
      loaded.close();
    }
    return null;
  } catch (failure) {
    return (failure as Error).message.split('\n')[0] ?? '';
  }
}
